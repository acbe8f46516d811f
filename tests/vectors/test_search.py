"""Searching texts by the average of their word vectors."""

from __future__ import annotations

import numpy as np
import pytest

from regard import Vectors
from regard.errors import OptionError, WordError
from regard.vectors import Match

WORDS = ["cat", "dog", "car", "truck", "the"]
VECTORS = Vectors(WORDS, [[1.0, 0.1], [0.9, 0.2], [-1.0, 0.1], [-0.9, 0.2], [0.0, 1.0]])
TEXTS = ["the car", "a truck", "the dog", "nothing known", ""]


def test_the_nearest_texts_come_first() -> None:
    found = VECTORS.search("the cat", TEXTS)
    assert [match.number for match in found] == [2, 0, 1]
    assert isinstance(found[0], Match)
    assert found[0].text == "the dog"
    assert VECTORS.search("truck", TEXTS, n=1)[0].text == "a truck"


def test_the_score_is_the_cosine_of_centred_averages() -> None:
    (match,) = VECTORS.search("cat", ["dog car"])
    one = VECTORS["cat"] - VECTORS.mean
    other = (VECTORS["dog"] + VECTORS["car"]) / 2 - VECTORS.mean
    cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
    assert match.similarity == pytest.approx(cosine, abs=1e-6)


def test_bad_input() -> None:
    with pytest.raises(WordError, match="none of the words has a vector"):
        VECTORS.search("unheard of", TEXTS)
    with pytest.raises(OptionError, match="texts is one string"):
        VECTORS.search("cat", "the dog")
    with pytest.raises(OptionError, match="n=0"):
        VECTORS.search("cat", TEXTS, n=0)
    assert VECTORS.search("cat", []) == []
