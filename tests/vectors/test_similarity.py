"""How alike two sentences are, taken apart: the parts are the whole."""

from __future__ import annotations

import json
import math
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from regard.errors import OptionError, ShapeError, WordError
from regard.vectors import PairPart, Vectors, similar

V = Vectors(["the", "cat", "dog", "car"], [[0.5, 0.5], [2.0, 0.0], [2.0, 1.0], [-1.0, 2.0]])


def test_by_hand() -> None:
    """(0, 1) and the average of (1, 0) and (0, 1): 1/√2, all of it from one pair."""
    found = similar((["x"], [[0.0, 1.0]]), (["y", "z"], [[1.0, 0.0], [0.0, 1.0]]))
    assert found.parts.tolist() == [[0.0, pytest.approx(1 / math.sqrt(2))]]
    assert found.value == pytest.approx(1 / math.sqrt(2))
    assert found.top(1) == [PairPart("x", "z", found.value)]
    assert regard.similar is similar


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 17),
    m=st.integers(1, 17),
    width=st.integers(1, 37),
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([1e-12, 1.0, 1e12]),
)
def test_the_parts_add_up_to_the_cosine(
    n: int, m: int, width: int, seed: int, scale: float
) -> None:
    generator = np.random.default_rng(seed)
    x, y = generator.normal(size=(n, width)) * scale, generator.normal(size=(m, width))
    found = similar(([f"a{i}" for i in range(n)], x), ([f"b{i}" for i in range(m)], y))
    a, b = x.mean(0), y.mean(0)
    cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    assert found.value == pytest.approx(cosine, abs=1e-12)
    assert math.fsum(found.parts.flat) == found.value
    assert math.fsum(part for _, part in found.a_shares) == pytest.approx(found.value, abs=1e-12)
    assert math.fsum(part for _, part in found.b_shares) == pytest.approx(found.value, abs=1e-12)
    assert math.fsum(one.part for one in found.top(n * m)) == found.value
    assert float(found) == found.value


def test_with_vectors_it_is_that_of_the_sentence_vectors() -> None:
    a, b = V.sentence("the cat"), V.sentence("a dog and the car")
    cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    found = similar("the cat", "A dog and the car.", V)
    assert found.value == pytest.approx(float(cosine), abs=1e-6)
    assert found.a == ("the", "cat")
    assert found.b == ("dog", "the", "car")
    assert found.skipped == ("A", "and", ".")
    assert similar(["the", "cat"], ["dog", "the", "car"], V).value == found.value
    assert similar("the cat", "the cat", V).value == pytest.approx(1)


def test_zeros_and_means_count_as_words() -> None:
    found = similar("the cow", "cat", V, unknown="zero")
    assert found.a == ("the", "cow")
    assert found.parts[1].tolist() == [0.0]
    assert found.skipped == ()
    assert similar("cow", "cat", V, unknown="mean").parts.shape == (1, 1)


def test_tensors_of_any_kind() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.bfloat16, requires_grad=True)
    found = similar((("a", "b"), x), (["c"], x[:1]))
    assert found.value == similar((["a", "b"], [[1, 2], [3, 4]]), (["c"], [[1, 2]])).value


def test_the_pairs_that_count_most_come_first() -> None:
    found = similar("the car", "the cat", V)
    assert found.top(1)[0][:2] == ("car", "cat"), "which takes away"
    parts = [one.part for one in found.top()]
    assert [abs(part) for part in parts] == sorted(map(abs, parts), reverse=True)
    assert len(found.top(2)) == 2
    assert found.a_shares[1][0] == "car"


def test_as_text() -> None:
    long = similar("the cat the cat", "the dog the car", V)
    lines = str(long).splitlines()
    assert lines[0] == f"similarity {long.value:.4f}, the sum of 16 pairs of words"
    assert len(lines) == 12
    rest = long.value - sum(one.part for one in long.top(10))
    assert lines[-1] == f"the others  {rest:7.4f}"
    assert lines[1].split() == ["cat", "dog", f"{long.top(1)[0].part:.4f}"]
    assert repr(long) == f"Similarity({long.value:.4f}, 4 × 4 words)"
    data = json.loads(json.dumps(long.to_data()))
    assert data["similarity"] == long.value == math.fsum(chain(*data["parts"]))


def test_what_cannot_be_compared() -> None:
    row = [[1.0, 2.0]]
    for a, b, options, kind, text in (
        ("the", "", {"vectors": V}, OptionError,
         "sentence b has no words, expected at least one"),
        ("cow", "the", {"vectors": V}, WordError, "none of the words of sentence a has a vector"),
        ("the", "cat", {}, OptionError,
         "a is 'the'; give vectors=…, or pairs of words and vectors"),
        ((["a"], row), ["b"], {}, OptionError,
         "b is ['b']; give vectors=…, or pairs of words and vectors"),
        ((["a", "b"], row), (["c"], row), {}, ShapeError,
         "a has 2 words for vectors (1,2), expected (words,width), one row for each word and "
         "at least one"),
        ((["a"], row), (["b"], [[1.0]]), {}, ShapeError,
         "the vectors of a have width 2 but those of b 1; compare vectors of the same kind"),
        ((["a"], row), (["b"], [[1.0], "x"]), {}, ShapeError,
         "b has vectors that are not rows of numbers of equal length; give vectors=…, or pairs of "
         "words and vectors"),
        ((["a"], row), (["b"], [[math.nan, 1.0]]), {}, OptionError,
         "b has vectors that are not finite"),
        ((["a", "b"], [[1.0, 2.0], [-1.0, -2.0]]), (["c"], row), {}, OptionError,
         "the mean vector of a is zero, which has no direction"),
    ):  # fmt: skip
        with pytest.raises(kind) as error:
            similar(a, b, **options)
        assert str(error.value) == f"similar: {text}"
