"""Training of word vectors: word2vec, by gensim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import OptionError
from regard.vectors.words import words_of

if TYPE_CHECKING:
    from rich.progress import Progress

LONGEST = 10_000
"""Maximum words of a sentence; longer ones, which gensim would truncate, are split."""


def learned(
    sentences: Iterable[str | Iterable[str]],
    width: int,
    window: int,
    min_count: int,
    skipgram: bool,
    seed: int,
    epochs: int,
    progress: bool,
) -> tuple[list[str], NDArray[np.float32]]:
    """The words of the sentences, the most frequent first, and their vectors."""
    counts = {"width": width, "window": window, "min_count": min_count, "epochs": epochs}
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise OptionError(f"Vectors.train: {name}={value!r}, expected 1 or more")
    if not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise OptionError(f"Vectors.train: seed={seed!r}, expected 0 to 4294967295")
    if isinstance(sentences, str):
        raise OptionError(
            "Vectors.train: sentences is one text, expected several; give [text], or its lines"
        )
    if isinstance(sentences, Iterator):  # can be iterated over only once
        sentences = [words_of(one, "Vectors.train") for one in sentences]
    word2vec = _gensim()
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    hidden = not progress or not console.is_terminal
    with Progress(console=console, transient=True, disable=hidden) as bar:
        corpus = _Corpus(sentences, epochs + 2, bar)  # two passes count the words
        _check(corpus, min_count)
        # One worker: several would make the result depend on scheduling.
        model = word2vec(
            corpus,
            vector_size=width,
            window=window,
            min_count=min_count,
            sg=int(skipgram),
            seed=seed,
            epochs=epochs,
            workers=1,
        )
    return list(model.wv.index_to_key), np.array(model.wv.vectors, np.float32)


class _Corpus:
    """Sentences as lists of words, which can be iterated over repeatedly; draws a progress bar."""

    def __init__(
        self, sentences: Iterable[str | Iterable[str]], passes: int, bar: Progress
    ) -> None:
        self._sentences, self._passes, self._bar = sentences, passes, bar
        self._task = bar.add_task("training", total=None)

    def __iter__(self) -> Iterator[list[str]]:
        count = 0
        for count, sentence in enumerate(self._sentences, 1):
            words = words_of(sentence, "Vectors.train")
            for start in range(0, len(words), LONGEST):
                yield words[start : start + LONGEST]
            if count % 1000 == 0:
                self._bar.advance(self._task, 1000)
        self._bar.update(self._task, total=self._passes * count, advance=count % 1000)


def _check(corpus: _Corpus, min_count: int) -> None:
    """Raise if the corpus is too small."""
    counts: Counter[str] = Counter()
    pairs = False
    for sentence in corpus:
        counts.update(sentence)
        pairs = pairs or len(sentence) > 1
    if not counts:
        raise OptionError("Vectors.train: the corpus is empty: it has no words")
    if len(counts) == 1:
        [word] = counts
        raise OptionError(
            f"Vectors.train: the corpus has only one word, {word!r}; a word is learned from the "
            "words around it"
        )
    if not pairs:
        raise OptionError(
            "Vectors.train: no sentence has two words; a word is learned from the words around it"
        )
    kept = sum(count >= min_count for count in counts.values())
    if kept < 2:
        raise OptionError(
            f"Vectors.train: min_count={min_count} leaves {kept} of {len(counts):,} words; the "
            f"most frequent, {counts.most_common(1)[0][0]!r}, occurs "
            f"{counts.most_common(1)[0][1]:,} times; choose a smaller one"
        )


def _gensim() -> Any:
    try:
        from gensim.models import Word2Vec
    except ImportError:
        raise OptionError(
            "Vectors.train: gensim is not installed; pip install 'regard[vectors]'"
        ) from None
    return Word2Vec
