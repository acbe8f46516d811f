"""Words and vectors: looked up, averaged, compared; and what is said of words without one."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.errors import FileError, OptionError, ShapeError, WordError
from regard.vectors import Neighbour, Vectors, contextualise, similar
from regard.vectors.words import nearest_spelling, words_of

WORDS = ["the", "cat", "dog", "Paris", "paris", "zero"]
ROWS = [[1.0, 2.0, 3.0], [4.0, 0.0, 0.0], [3.0, 4.0, 0.0], [0.0, 0.0, 2.0], [0.0, -1.0, 0.0],
        [0.0, 0.0, 0.0]]  # fmt: skip


@pytest.fixture
def v() -> Vectors:
    return Vectors(WORDS, ROWS)


def test_a_word(v: Vectors) -> None:
    assert v["cat"].tolist() == [4.0, 0.0, 0.0]
    assert v["cat"].dtype == np.float32
    v["cat"][0] = 9
    assert v["cat"].tolist() == [4.0, 0.0, 0.0]
    assert len(v) == 6
    assert v.width == 3
    assert list(v) == WORDS
    assert repr(v) == "Vectors(6 words, width 3)"
    assert regard.Vectors is Vectors


def test_lower_case_is_the_way_out(v: Vectors) -> None:
    assert v["Paris"].tolist() == [0.0, 0.0, 2.0]
    assert v["PARIS"].tolist() == v["paris"].tolist() == [0.0, -1.0, 0.0]
    assert "The" in v
    assert "Cats" not in v
    assert 7 not in v


def test_lookup(v: Vectors) -> None:
    assert v.lookup(["dog", "The"]).tolist() == [ROWS[2], ROWS[0]]
    assert v.lookup("The dog").tolist() == [ROWS[0], ROWS[2]]
    asked = ["cat", "fish", "dog", "fish"]
    mean = np.mean(ROWS, 0)
    assert v.lookup(asked, "skip").tolist() == [ROWS[1], ROWS[2]]
    assert v.lookup(asked, "zero").tolist() == [ROWS[1], [0.0] * 3, ROWS[2], [0.0] * 3]
    assert np.allclose(v.lookup(asked, "mean"), [ROWS[1], mean, ROWS[2], mean], rtol=1e-6)
    assert v.lookup([]).shape == (0, 3)
    with pytest.raises(WordError, match="'fish' has no vector"):
        v.lookup(asked)


def test_sentence_is_the_average(v: Vectors) -> None:
    assert v.sentence(["the", "cat"]).tolist() == [2.5, 1.0, 1.5]
    assert v.sentence("The cat!").tolist() == [2.5, 1.0, 1.5]
    assert v.sentence(["the", "the", "cat", "fish"]).tolist() == [2.0, np.float32(4 / 3), 2.0]
    assert v.sentence(["cat", "fish"], "zero").tolist() == [2.0, 0.0, 0.0]
    assert np.allclose(v.sentence(["cat", "fish"], "mean"), (ROWS[1] + np.mean(ROWS, 0)) / 2)
    assert v.skipped("Fish, the cat and fish") == ["Fish", ",", "and", "fish"]
    assert v.skipped(["the"]) == []


def test_nearest(v: Vectors) -> None:
    assert v.nearest("cat") == [
        Neighbour("dog", pytest.approx(0.6)),
        Neighbour("the", pytest.approx(1 / np.sqrt(14))),
        Neighbour("Paris", 0.0),
        Neighbour("paris", 0.0),
        Neighbour("zero", 0.0),
    ]
    assert [one.word for one in v.nearest(np.array([0.0, -3.0, 0.0]), 2)] == ["paris", "cat"]
    assert [one.word for one in v.nearest([1, 0, 0], 1)] == ["cat"]
    assert v.similarity("cat", "dog") == pytest.approx(0.6)
    assert v.similarity("cat", "zero") == 0
    assert Vectors(["a"], [[1.0]]).nearest("a") == []


def test_analogy() -> None:
    v = Vectors(
        ["king", "man", "woman", "queen", "cat"],
        [[1.0, 1.0, 0.2], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.9, 0.0, 1.2], [0.3, 0.5, -0.4]],
    )
    assert [one.word for one in v.analogy("king", "man", "woman")] == ["queen", "cat"]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_as_gensim_answers(seed: int) -> None:
    generator = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(67)]
    rows = generator.normal(size=(67, 11)).astype(np.float32)
    theirs = KeyedVectors(11)
    theirs.add_vectors(words, rows)
    ours = Vectors(words, rows)
    a, b, c = (str(word) for word in generator.choice(words, 3, replace=False))
    for found, wanted in (
        (ours.nearest(a, 7), theirs.most_similar(a, topn=7)),
        (ours.analogy(a, b, c, 7), theirs.most_similar(positive=[a, c], negative=[b], topn=7)),
    ):
        assert [one.word for one in found] == [word for word, _ in wanted]
        assert [one.similarity for one in found] == pytest.approx([s for _, s in wanted], abs=1e-5)
    assert ours.similarity(a, b) == pytest.approx(float(theirs.similarity(a, b)), abs=1e-6)


# Saving


@pytest.mark.parametrize(
    "name", ["v.txt", "v.vec", "v.bin", "v.txt.gz", "v.bin.gz", "V.VEC.GZ", "v.2.txt"]
)
def test_saved_and_loaded(tmp_path: Path, name: str) -> None:
    words = ["the", "naïve", "東京", "7", "-1", "x\u00a0y", "1e5", "#"]
    rows = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    rows[0] = [1e-38, -3.4e38, 1 / 3]
    v = Vectors(words, rows)
    v.save(tmp_path / name)
    again = Vectors.load(tmp_path / name)
    assert again.words == words
    assert np.array_equal(again.matrix, rows)
    assert [one.name for one in tmp_path.iterdir()] == [name]
    theirs = KeyedVectors.load_word2vec_format(str(tmp_path / name), binary=".bin" in name.lower())
    assert theirs.index_to_key == words
    assert np.array_equal(theirs.vectors, rows)


def test_words_with_spaces_are_saved_as_text(tmp_path: Path) -> None:
    v = Vectors(["New York", ". . .", "a b"], np.eye(3))
    v.save(tmp_path / "v.txt")
    assert Vectors.load(tmp_path / "v.txt").words == v.words
    with pytest.raises(OptionError, match="'New York' cannot be written to a binary file"):
        v.save(tmp_path / "v.bin")
    for word in ("a\nb", "route 66", ""):
        with pytest.raises(
            OptionError, match=re.escape(f"Vectors.save: {word!r} cannot be written to a text file")
        ):
            Vectors([word], [[1.0]]).save(tmp_path / "bad.txt")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["v.txt"]


def test_where_nothing_can_be_saved(tmp_path: Path, v: Vectors) -> None:
    with pytest.raises(OptionError) as error:
        v.save(tmp_path / "v.csv")
    assert str(error.value) == (
        f"Vectors.save: {tmp_path}/v.csv ends in '.csv', expected .txt, .vec or .bin, or one of "
        "these and .gz"
    )
    with pytest.raises(OptionError, match="ends in 'nothing'"):
        v.save(tmp_path / "v")
    with pytest.raises(FileError, match=r"cannot write .*none/v.txt: No such file or directory"):
        v.save(tmp_path / "none" / "v.txt")
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(FileError, match=r"cannot write .*folder.txt: Is a directory"):
        v.save(tmp_path / "folder.txt")
    assert [one.name for one in tmp_path.iterdir()] == ["folder.txt"]


# What is not there, or wrong


def test_unknown_words_are_offered_another_spelling() -> None:
    v = Vectors(["the", "kitten", "kitchen", "kitchens", "Tokyo"], np.eye(5))
    for word, near in (("kitchn", "kitchen"), ("kichen", "kitchen"), ("tokio", "Tokyo")):
        with pytest.raises(WordError) as error:
            v[word]
        assert str(error.value) == f"Vectors: {word!r} has no vector; did you mean {near!r}?"
    with pytest.raises(WordError, match=r"^Vectors: 'qqq' has no vector among 5 words$"):
        v.nearest("qqq")
    with pytest.raises(LookupError):
        v.analogy("the", "kitten", "qqq")
    with pytest.raises(WordError):
        v.similarity("qqq", "the")


def test_the_first_of_spellings_that_are_as_close() -> None:
    """Files have the frequent words first."""
    assert nearest_spelling("cxt", ["cot", "cat", "cut"]) == "cot"
    assert nearest_spelling("kat", ["the", "cat"]) == "cat"
    assert nearest_spelling("", ["the"]) is None


def test_words_of_a_text() -> None:
    assert words_of("Don't stop—it’s 5 o'clock!", "x") == [
        "Don't", "stop", "—", "it’s", "5", "o'clock", "!",
    ]  # fmt: skip
    assert words_of(iter(["New York", "a"]), "x") == ["New York", "a"]


@pytest.mark.usefixtures("as_users_run")
def test_wrong_arguments(v: Vectors) -> None:
    for call, kind, text in (
        (lambda: v.sentence([]), OptionError,
         "Vectors.sentence: there are no words to average"),
        (lambda: v.sentence("fish & chips"), WordError,
         "Vectors.sentence: none of the words has a vector: 'fish', '&', 'chips'"),
        (lambda: v.sentence("fish", "drop"), OptionError,
         "Vectors.sentence: unknown='drop', expected 'error', 'skip', 'zero' or 'mean'"),
        (lambda: v.sentence(["cat", 5]), OptionError,
         "Vectors.sentence: words has 5, expected strings; use str(word)"),
        (lambda: v[5], OptionError, "Vectors: got 5, expected a word"),
        (lambda: v.nearest("cat", 0), OptionError, "Vectors.nearest: n=0, expected 1 or more"),
        (lambda: v.nearest("cat", 1.5), OptionError,
         "Vectors.nearest: n=1.5, expected a whole number"),
        (lambda: v.search("cat", ["cat"], "1"), OptionError,
         "Vectors.search: n='1', expected a whole number"),
        (lambda: v.sentence(5), OptionError,
         "Vectors.sentence: got 5, expected a text or a list of words"),
        (lambda: contextualise("a b", v), OptionError,
         "contextualise: vectors is str, expected Vectors, as Vectors.load opens them"),
        (lambda: similar("a", "b", 3), OptionError,
         "similar: vectors is int, expected Vectors, as Vectors.load opens them"),
        (lambda: v.nearest([0.0, 0.0, 0.0]), OptionError,
         "Vectors.nearest: the vector is zero, which has no direction"),
        (lambda: v.nearest([1.0]), ShapeError,
         "Vectors.nearest: the vector has shape (1), expected (3)"),
        (lambda: v.nearest([1.0, np.nan, 0.0]), OptionError,
         "Vectors.nearest: the vector is not finite"),
        (lambda: v.nearest({}), OptionError,
         "Vectors.nearest: dict given, expected a word or a vector"),
        (lambda: Vectors(["a", "b", "a"], np.eye(3)), OptionError,
         "Vectors: 'a' is repeated; give every word one row"),
        (lambda: Vectors(["a", "b"], [[1.0], [np.inf]]), OptionError,
         "Vectors: the vector of 'b' is not finite"),
        (lambda: Vectors(["a", "b"], [[1.0]]), ShapeError,
         "Vectors: 2 words for a matrix (1,1), expected (words,width), one row for each word "
         "and at least one"),
        (lambda: Vectors([], []), ShapeError,
         "Vectors: 0 words for a matrix (0), expected (words,width), one row for each word "
         "and at least one"),
        (lambda: Vectors(["a", "b"], [[1.0], [1.0, 2.0]]), ShapeError,
         "Vectors: matrix is not rows of numbers of equal length"),
    ):  # fmt: skip
        with pytest.raises(kind) as error:
            call()
        assert str(error.value) == text
