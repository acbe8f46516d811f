"""Static word vectors: one vector per word, whatever its context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from regard.errors import FileError, OptionError, ShapeError, WordError, shape
from regard.vectors.cache import fingerprint, open_cache, write_cache
from regard.vectors.chunk import gathered
from regard.vectors.reading import read_chunks
from regard.vectors.words import nearest_spelling, words_of
from regard.vectors.writing import write_vectors

UNKNOWN = ("error", "skip", "zero", "mean")
"""Options for words without a vector."""
BLOCK = 2**14
"""Rows that are normalised at once."""


class Neighbour(NamedTuple):
    """A word, and the cosine of its vector with the query's."""

    word: str
    similarity: float


class Match(NamedTuple):
    """A text, its number, and the cosine of its vector with the query's."""

    text: str
    number: int
    similarity: float


class Vectors:
    """Words and their vectors: given, loaded from a file, or trained on sentences.

    A word is looked up as it is, and then in lower case.

    >>> v = Vectors(["cat", "dog", "car"], [[1.0, 0.2], [0.9, 0.3], [-0.2, 1.0]])
    >>> v["Cat"]
    array([1. , 0.2], dtype=float32)
    >>> v.nearest("cat", n=1)
    [Neighbour(word='dog', similarity=0.992...)]
    """

    words: list[str]
    """In the order of the file, or the most frequent first."""
    matrix: NDArray[np.float32]
    """One row for each word ``(words, width)``; read-only."""

    def __init__(self, words: Iterable[str], matrix: Any) -> None:
        """Vectors of these words, one row of the matrix for each."""
        self.words = words_of(list(words), "Vectors")
        try:
            rows = np.array(matrix, np.float32)
        except (ValueError, TypeError):
            raise ShapeError("Vectors: matrix is not rows of numbers of equal length") from None
        if rows.ndim != 2 or len(rows) != len(self.words) or rows.size == 0:
            raise ShapeError(
                f"Vectors: {len(self.words)} words for a matrix {shape(rows)}, expected "
                "(words,width), one row for each word and at least one"
            )
        if len(self._rows) != len(self.words):
            word = next(word for i, word in enumerate(self.words) if self._rows[word] != i)
            raise OptionError(f"Vectors: {word!r} is repeated; give every word one row")
        finite = np.isfinite(rows).all(1)
        if not finite.all():
            word = self.words[int(finite.argmin())]
            raise OptionError(f"Vectors: the vector of {word!r} is not finite")
        rows.flags.writeable = False
        self.matrix = rows

    @classmethod
    def load(cls, path: str | Path, *, cache: bool = True) -> Vectors:
        """The vectors of a file: word2vec (text or binary), GloVe or fastText's .vec, or gzipped.

        The format is recognised by content. A file of more than a megabyte gets a memory-mapped
        cache (``.name.regard`` beside it, or in the user's cache folder), which is rebuilt when the
        file changes; not with ``cache=False``.
        """
        path = Path(path)
        source = fingerprint(path) if cache else None
        found = open_cache(path, source) if source else None
        if found is None and source is not None:
            found = write_cache(path, source, read_chunks(path))
        if found is None:
            found = gathered(read_chunks(path))
        if source is not None and fingerprint(path) != source:
            raise FileError(f"{path}: the file was changed while it was read; load it again")
        return cls._of(*found)

    @classmethod
    def train(
        cls,
        sentences: Iterable[str | Iterable[str]],
        width: int = 100,
        window: int = 5,
        min_count: int = 1,
        skipgram: bool = False,
        seed: int = 1,
        epochs: int = 5,
        *,
        progress: bool = True,
    ) -> Vectors:
        """Vectors learned from sentences by word2vec, in gensim, which must be installed.

        A word is predicted from those within `window` of it on either side (Mikolov et al. 2013,
        https://arxiv.org/abs/1301.3781), or these from it with ``skipgram``. The same sentences and
        seed give the same numbers.

        Args:
            sentences: lists of words, or texts, whose words and punctuation marks are taken.
            min_count: words that occur less often get no vector.
            progress: draw a bar on standard error, if that is a terminal.
        """
        from regard.vectors.learning import learned

        return cls._of(
            *learned(sentences, width, window, min_count, skipgram, seed, epochs, progress)
        )

    def save(self, path: str | Path) -> None:
        """Write the vectors: word2vec's text for .txt and .vec, its binary for .bin; also .gz.

        Text files hold every number exactly. Files are replaced atomically.
        """
        write_vectors(Path(path), self.words, self.matrix)

    @property
    def width(self) -> int:
        """The dimension of the vectors."""
        return int(self.matrix.shape[1])

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self._row(word) is not None

    def __getitem__(self, word: str) -> Float32[np.ndarray, "width"]:
        return np.array(self.matrix[self._known(word)])

    def __repr__(self) -> str:
        return f"Vectors({len(self):,} words, width {self.width})"

    def lookup(
        self, words: str | Iterable[str], unknown: str = "error"
    ) -> Float32[np.ndarray, "words width"]:
        """The vectors of these words, or of the words of a text, one row each.

        A word without a vector is an error, is left out (``"skip"``), or gets zeros (``"zero"``) or
        the mean of all vectors (``"mean"``).
        """
        return self._lookup(words_of(words, "Vectors.lookup"), unknown, "Vectors.lookup")

    def sentence(
        self, words: str | Iterable[str], unknown: str = "skip"
    ) -> Float32[np.ndarray, "width"]:
        """The average of the vectors of these words, or of the words of a text.

        `unknown` as in `lookup`; `skipped` lists words without a vector.
        """
        words = words_of(words, "Vectors.sentence")
        if not words:
            raise OptionError("Vectors.sentence: there are no words to average")
        rows = self._lookup(words, unknown, "Vectors.sentence")
        if not len(rows):
            some = ", ".join(map(repr, words[:5])) + (", …" if len(words) > 5 else "")
            raise WordError(f"Vectors.sentence: none of the words has a vector: {some}")
        return _average(rows)

    def skipped(self, words: str | Iterable[str]) -> list[str]:
        """The words without a vector, each once."""
        return [
            word for word in dict.fromkeys(words_of(words, "Vectors.skipped")) if word not in self
        ]

    def nearest(self, word: Any, n: int = 10) -> list[Neighbour]:
        """The n words nearest to another word, or to a vector ``(width,)``, by cosine."""
        if isinstance(word, str):
            row = self._known(word)
            return self._nearest(self.matrix[row], n, "nearest", {row})
        return self._nearest(self._vector(word), n, "nearest", set())

    def analogy(self, a: str, b: str, c: str, n: int = 10) -> list[Neighbour]:
        """The n words nearest to a − b + c, of unit vectors, without these three.

        ``analogy("king", "man", "woman")``: what is to woman as king is to man? (Mikolov, Yih and
        Zweig 2013, https://aclanthology.org/N13-1090)
        """
        rows = [self._known(word) for word in (a, b, c)]
        x, y, z = (_unit(self.matrix[row]) for row in rows)
        return self._nearest(x - y + z, n, "analogy", set(rows))

    def similarity(self, a: str, b: str) -> float:
        """The cosine of the angle between the vectors of two words."""
        return float(_unit(self.matrix[self._known(a)]) @ _unit(self.matrix[self._known(b)]))

    def search(self, query: str, texts: Iterable[str], n: int = 10) -> list[Match]:
        """The n texts whose averaged vectors have the largest cosine with the query's.

        The mean of all vectors is subtracted first, as every text would resemble every other
        otherwise (Mu and Viswanath, "All-but-the-Top", 2018). Words without a vector are ignored,
        and so are texts of such words only.

        >>> v = Vectors(["cat", "dog", "car"], [[1.0, 0.2], [0.9, 0.3], [-0.2, 1.0]])
        >>> v.search("dog", ["the car", "my cat", "?"], n=1)
        [Match(text='my cat', number=1, similarity=0.99...)]
        """
        if isinstance(texts, str):
            raise OptionError("Vectors.search: texts is one string, expected several; put it in []")
        _check_count("search", n)
        asked = _unit(self.sentence(query) - self.mean)
        found = []
        for index, text in enumerate(texts):
            rows = self.lookup(text, unknown="skip")
            if len(rows):
                cosine = float(_unit(_average(rows) - self.mean) @ asked)
                found.append(Match(text, index, cosine))
        return sorted(found, key=lambda match: -match.similarity)[:n]

    @cached_property
    def mean(self) -> Float32[np.ndarray, "width"]:
        """The average of all vectors."""
        return _average(self.matrix)

    @classmethod
    def _of(cls, words: list[str], matrix: NDArray[np.float32]) -> Vectors:
        """Vectors from checked words and rows."""
        made = cls.__new__(cls)
        matrix.flags.writeable = False
        made.words, made.matrix = words, matrix
        return made

    @cached_property
    def _rows(self) -> dict[str, int]:
        return dict(zip(self.words, range(len(self.words)), strict=True))

    @cached_property
    def _inverse_norms(self) -> Float32[np.ndarray, "words"]:
        """The inverse norm of each vector; 0 for zeros."""
        lengths = np.empty(len(self), np.float64)
        for start in range(0, len(self), BLOCK):
            block = self.matrix[start : start + BLOCK].astype(np.float64)
            lengths[start : start + BLOCK] = np.linalg.norm(block, axis=1)
        inverse = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        return inverse.astype(np.float32)

    def _row(self, word: str) -> int | None:
        return self._rows.get(word, self._rows.get(word.lower()))

    def _known(self, word: str) -> int:
        """The row of a word; raises with the nearest spelling if it has none."""
        if not isinstance(word, str):
            raise OptionError(f"Vectors: got {word!r}, expected a word")
        row = self._row(word)
        if row is None:
            near = nearest_spelling(word, self.words)
            meant = f"; did you mean {near!r}?" if near else f" among {len(self):,} words"
            raise WordError(f"Vectors: {word!r} has no vector{meant}")
        return row

    def _lookup(self, words: list[str], unknown: str, caller: str) -> NDArray[np.float32]:
        if unknown not in UNKNOWN:
            raise OptionError(
                f"{caller}: unknown={unknown!r}, expected 'error', 'skip', 'zero' or 'mean'"
            )
        if unknown == "error":
            rows: list[int | None] = [self._known(word) for word in words]
        else:
            rows = [self._row(word) for word in words]
        if unknown == "skip":
            rows = [row for row in rows if row is not None]
        found = np.zeros((len(rows), self.width), np.float32)
        if unknown == "mean" and None in rows:
            found[:] = self.mean
        there = [i for i, row in enumerate(rows) if row is not None]
        found[there] = self.matrix[[row for row in rows if row is not None]]
        return found

    def _vector(self, values: Any) -> NDArray[np.float32]:
        """A vector given by the caller, checked."""
        try:
            vector = np.asarray(values, np.float32)
        except (ValueError, TypeError, RuntimeError):
            raise OptionError(
                f"Vectors.nearest: {type(values).__name__} given, expected a word or a vector"
            ) from None
        if vector.shape != (self.width,):
            raise ShapeError(
                f"Vectors.nearest: the vector has shape {shape(vector)}, expected ({self.width})"
            )
        if not np.isfinite(vector).all():
            raise OptionError("Vectors.nearest: the vector is not finite")
        return vector

    def _nearest(
        self, vector: NDArray[Any], n: int, caller: str, without: set[int]
    ) -> list[Neighbour]:
        _check_count(caller, n)
        if not vector.any():
            raise OptionError(f"Vectors.{caller}: the vector is zero, which has no direction")
        cosines = (self.matrix @ _unit(vector).astype(np.float32)) * self._inverse_norms
        cosines[list(without)] = -np.inf
        n = min(n, len(self) - len(without))
        if n == 0:
            return []
        least = np.partition(cosines, len(self) - n)[len(self) - n]
        best = np.flatnonzero(cosines >= least)  # more than n, if there are ties
        best = best[np.argsort(-cosines[best], kind="stable")][:n]
        return [Neighbour(self.words[row], float(cosines[row])) for row in best]


def _check_count(caller: str, n: object) -> None:
    if not isinstance(n, Integral):
        raise OptionError(f"Vectors.{caller}: n={n!r}, expected a whole number")
    if n < 1:
        raise OptionError(f"Vectors.{caller}: n={n}, expected 1 or more")


def check_vectors(caller: str, vectors: object) -> None:
    """Raise if an argument is not `Vectors`."""
    if not isinstance(vectors, Vectors):
        raise OptionError(
            f"{caller}: vectors is {type(vectors).__name__}, expected Vectors, as Vectors.load "
            "opens them"
        )


def _average(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    mean: NDArray[np.float32] = rows.mean(0, dtype=np.float64).astype(np.float32)
    return mean


def _unit(vector: NDArray[Any]) -> NDArray[np.float64]:
    """The vector normalised to length 1; zeros stay zeros."""
    wide: NDArray[np.float64] = vector.astype(np.float64)
    length = np.linalg.norm(wide)
    return wide / length if length > 0 else wide
