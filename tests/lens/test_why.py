"""`Lens.why`: the links that made a model write a word."""

from __future__ import annotations

import json

import pytest
import torch

from regard import OptionError, Translator, WordError, cut
from regard.lens import Cut, Lens, Why

TIRED = "The animal didn't cross the street because it was too tired."
WIDE = "The animal didn't cross the street because it was too wide."


@pytest.fixture(scope="module")
def lens() -> Lens:
    return Lens.open("pocket-en-de")


@pytest.fixture(scope="module")
def tired(lens: Lens) -> Why:
    return lens.why(TIRED, "es", instead="sie")


def test_the_headline_finding(tired: Why) -> None:
    first, second = tired.links[:2]
    assert {(one.place, one.layer, one.head) for one in (first, second)} == {
        ("cross", 1, 0),
        ("cross", 2, 2),
    }
    assert all(one.query == "es" and one.key == "animal" for one in (first, second))
    assert min(first.attention, second.attention) > 0.98
    assert tired.matters_most.word == "animal"
    assert tired.matters_most.text == "Das Tier überquerte die Straße nicht, weil sie zu müde war."


def test_the_metric_is_the_difference_of_log_probabilities(tired: Why) -> None:
    translator = Translator.load("pocket-en-de")
    one, other = translator.score([TIRED] * 2, [tired.written, tired.written.replace("es", "sie")], tokens=True)
    step = [token for token, _ in one.tokens].index("▁es")
    expected = one.tokens[step][1] - other.tokens[step][1]
    assert tired.metric == pytest.approx(expected, abs=1e-3)
