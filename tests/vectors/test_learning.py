"""Vectors learned by word2vec: gensim's numbers, the same in every process, and bad corpora."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gensim.models import Word2Vec

from regard.errors import OptionError
from regard.vectors import Vectors, learning

GUIDE = [
    ["machine", "learning", "is", "fascinating"],
    ["natural", "language", "processing", "is", "important"],
    ["word", "embeddings", "capture", "semantic", "relations"],
]
PRINTED = [
    -1.9442164e-03, -5.2675214e-03, 9.4471136e-03, -9.2987325e-03, 4.5039477e-03, 5.4041781e-03,
]  # fmt: skip
"""How 'machine' begins in the guide that prints it."""


def test_the_numbers_of_the_guide() -> None:
    v = Vectors.train(GUIDE)
    assert v["machine"][:6].tolist() == pytest.approx(PRINTED, rel=1e-6)
    assert len(v) == 13
    assert v.width == 100
    assert v.words[0] == "is"


SENTENCES = [f"w{i % 7} w{i % 5} w{i % 3} w{i % 11} end" for i in range(300)]


@pytest.mark.parametrize("skipgram", [False, True])
def test_as_gensim_with_the_same_settings(skipgram: bool) -> None:
    lists = [line.split() for line in SENTENCES]
    ours = Vectors.train(lists, 17, 3, 2, skipgram, 5, 4)
    theirs = Word2Vec(
        lists, vector_size=17, window=3, min_count=2, sg=int(skipgram), seed=5, epochs=4, workers=1
    ).wv
    assert ours.words == theirs.index_to_key
    assert np.array_equal(ours.matrix, theirs.vectors)
    assert not np.array_equal(ours.matrix, Vectors.train(lists, 17, 3, 2, skipgram, 6, 4).matrix)


def test_the_same_in_every_process() -> None:
    code = (
        "import sys; from regard.vectors import Vectors\n"
        f"v = Vectors.train({SENTENCES[:50]!r}, width=11)\n"
        "print(v.words, v.matrix.tobytes().hex())"
    )
    there = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "12345"},  # here it is another, or random
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    here = Vectors.train(SENTENCES[:50], width=11)
    assert there == f"{here.words} {here.matrix.tobytes().hex()}\n"


class Again:
    """Sentences that are made whenever they are gone through."""

    passes = 0

    def __iter__(self) -> Iterator[str]:
        self.passes += 1
        return iter(SENTENCES)


def test_texts_lists_and_generators_are_all_sentences() -> None:
    wanted = Vectors.train([line.split() for line in SENTENCES], 5).matrix
    assert np.array_equal(Vectors.train(SENTENCES, 5).matrix, wanted)
    assert np.array_equal(Vectors.train(iter(SENTENCES), 5).matrix, wanted)
    assert np.array_equal(Vectors.train((s.split() for s in SENTENCES), 5).matrix, wanted)
    again = Again()
    assert np.array_equal(Vectors.train(again, 5, epochs=5).matrix, wanted)
    assert again.passes == 7, "to check, to count, and five epochs"


def test_words_and_marks_of_texts() -> None:
    v = Vectors.train(["It's a cat, a cat.", "A dog!"], 4)
    assert sorted(v.words) == ["!", ",", ".", "A", "It's", "a", "cat", "dog"]


def test_nothing_of_a_long_sentence_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "LONGEST", 10)
    parts = [f"w{i}" for i in range(25)]
    wanted = Vectors.train([parts[:10], parts[10:20], parts[20:]], 4).matrix
    assert np.array_equal(Vectors.train([parts], 4).matrix, wanted)


def test_quiet(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    Vectors.train(GUIDE)
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_a_bar_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    drawn = Vectors.train(SENTENCES, 5).matrix
    assert "training" in capfd.readouterr().err
    assert np.array_equal(Vectors.train(SENTENCES, 5, progress=False).matrix, drawn)
    assert capfd.readouterr().err == "", "not wanted"


@pytest.mark.parametrize(
    ("sentences", "options", "text"),
    [
        ([], {}, "the corpus is empty: it has no words"),
        (["", "  ", []], {}, "the corpus is empty: it has no words"),
        (
            ["cat cat", "cat"],
            {},
            "the corpus has only one word, 'cat'; a word is learned from the words around it",
        ),
        (
            ["cat", "dog"],
            {},
            "no sentence has two words; a word is learned from the words around it",
        ),
        (
            ["the cat the dog"],
            {"min_count": 2},
            "min_count=2 leaves 1 of 3 words; the most frequent, 'the', occurs 2 times; choose a "
            "smaller one",
        ),
        (
            "the cat",
            {},
            "sentences is one text, expected several; give [text], or its lines",
        ),
        (GUIDE, {"width": 0}, "width=0, expected 1 or more"),
        (GUIDE, {"epochs": -1}, "epochs=-1, expected 1 or more"),
        (GUIDE, {"seed": -1}, "seed=-1, expected 0 to 4294967295"),
    ],
)
def test_bad_corpora(sentences: Any, options: dict[str, int], text: str) -> None:
    with pytest.raises(OptionError) as error:
        Vectors.train(sentences, **options)
    assert str(error.value) == f"Vectors.train: {text}"


def test_without_gensim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(OptionError) as error:
        Vectors.train(GUIDE)
    assert str(error.value) == (
        "Vectors.train: gensim is not installed; pip install 'regard[vectors]'"
    )


def test_loading_needs_no_gensim() -> None:
    code = (
        "import sys; import regard; v = regard.Vectors(['a', 'b'], [[1.0], [2.0]])\n"
        "regard.contextualise(v, 'a b'); regard.similar('a', 'b', v)\n"
        "assert 'gensim' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
