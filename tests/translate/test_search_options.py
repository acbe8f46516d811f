"""Searches with options that are impossible, of a wrong type or extreme."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from regard.errors import OptionError, RegardError
from regard.translate.search import search
from regard.translate.strategies import Beam, Greedy, Sampling
from tests.translate.search_cases import MOST, sharp, sources


def test_nothing_to_translate() -> None:
    assert search(sharp(), [], Beam(3)) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Beam(0), r"Beam: size=0, expected 1 or more"),
        (lambda: Beam(2, math.inf), r"Beam: length_penalty=inf, expected a finite number"),
        (
            lambda: Beam(2, 1e9),
            r"length_penalty=1000000000\.0, expected a finite number from -10 to 10",
        ),
        (lambda: Beam(2, math.nan), r"length_penalty=nan, expected a finite number from -10 to 10"),
        (lambda: Beam(100_000), r"Beam: size=100000, expected 1,000 or less"),
        (
            lambda: Sampling(0.0),
            r"temperature=0\.0, expected more than 0; .* use a beam of 1 instead",
        ),
        (lambda: Sampling(top_k=0), r"Sampling: top_k=0, expected 1 or more"),
        (lambda: Sampling(top_p=0.0), r"Sampling: top_p=0\.0, expected more than 0, at most 1"),
        (lambda: Sampling(top_p=1.5), r"Sampling: top_p=1\.5, expected more than 0, at most 1"),
        (lambda: Sampling(seed=-1), r"Sampling: seed=-1, expected 0 or more"),
        (lambda: search(sharp(), [[4]], Beam(2), n_best=3), r"n_best=3 of a beam of 2; use a beam"),
        (lambda: search(sharp(), [[4]], Greedy(), n_best=2), r"Greedy finds one; use Beam or"),
        (lambda: search(sharp(), [[4]], Beam(2), n_best=0), r"n_best=0, expected 1 or more"),
        (lambda: search(sharp(), [[4]], Beam(2), most=0), r"most=0, expected 1 or more"),
        (
            lambda: search(sharp(), [[4]], Sampling(), n_best=2000),
            r"n_best=2000, expected 1,000 or",
        ),
    ],
)
def test_errors(make: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Beam(2.5), r"Beam: size=2\.5, expected a whole number"),
        (lambda: Beam("5"), r"Beam: size='5', expected a whole number"),
        (lambda: Beam(True), r"Beam: size=True, expected a whole number"),
        (lambda: Beam(None), r"Beam: size=None, expected a whole number"),
        (lambda: Beam(2, "1"), r"Beam: length_penalty='1', expected a number"),
        (lambda: Beam(2, True), r"Beam: length_penalty=True, expected a number"),
        (lambda: Beam(2, 1.0, "no"), r"Beam: patient='no', expected True or False"),
        (lambda: Sampling("hot"), r"Sampling: temperature='hot', expected a number"),
        (lambda: Sampling(10**400), r"Sampling: temperature=1000.*, expected more than 0"),
        (lambda: Sampling(top_k=2.5), r"Sampling: top_k=2\.5, expected a whole number"),
        (lambda: Sampling(top_p="1"), r"Sampling: top_p='1', expected a number"),
        (lambda: Sampling(seed=1.5), r"Sampling: seed=1\.5, expected a whole number"),
        (lambda: search(sharp(), [[4]], Beam(2), n_best=1.5), r"n_best=1\.5, expected a whole"),
        (lambda: search(sharp(), [[4]], Beam(2), most="9"), r"most='9', expected a whole number"),
    ],
)
@pytest.mark.usefixtures("as_users_run")
def test_wrong_types(make: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make()  # type: ignore[operator]


@pytest.mark.usefixtures("as_users_run")
def test_numbers_of_numpy_are_numbers() -> None:
    text = [[4, 5]]
    wanted = search(sharp(), text, Beam(3, 0.5), n_best=2)
    found = search(sharp(), text, Beam(np.int64(3), np.float32(0.5)), n_best=np.int32(2))
    assert [one.tokens for one in found[0]] == [one.tokens for one in wanted[0]]


@pytest.mark.parametrize("penalty", [10, -10])
def test_the_largest_penalties_leave_numbers(penalty: float) -> None:
    for ranked in search(sharp(end=2.0).float(), sources(4), Beam(3, penalty), n_best=3):
        assert all(-math.inf < one.score < 0 for one in ranked)


@pytest.mark.parametrize("how", [Greedy(), Beam(1), Beam(3), Sampling()])
def test_a_model_that_is_no_model_is_told(how: Beam | Greedy | Sampling) -> None:
    model = sharp()
    with torch.no_grad():
        model.output.mul_(torch.nan)
    with pytest.raises(
        RegardError, match=r"search: the model's probabilities are not numbers; its"
    ):
        search(model, sources(3), how, most=MOST)
