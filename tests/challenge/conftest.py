"""Sentences of the built-in corpus, written once for all its tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product

import jaxtyping
import pytest

from regard.challenge import (
    KINDS,
    SPLITS,
    Pair,
    generate,
    senses,
    size,
)

MANY = 20_000
Drawn = dict[tuple[str, str], list[Pair]]


@contextmanager
def unchecked() -> Iterator[None]:
    """Context without checks of types, which would take most of the time."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(autouse=True)
def _unchecked() -> Iterator[None]:
    """Many sentences are written here; the types of every call are checked by the doctests."""
    with unchecked():
        yield


@pytest.fixture(scope="package")
def drawn() -> Drawn:
    """Many pairs of each kind and split, or all there are."""
    with unchecked():
        return {
            (kind, split): list(generate(kind, split, min(MANY, size(kind, split)), seed=7))
            for kind, split in product(KINDS, SPLITS)
            if size(kind, split)
        }


@pytest.fixture(scope="package")
def sensed() -> dict[str, Pair]:
    """Every sentence of the sense grammar by its source, those for training only included."""
    with unchecked():
        contexts = [one for kind in ("senses", "cues") for one in senses.contexts(kind)]
        every = {one.combination: one for one in contexts}
        pairs = [one.write(number) for one in every.values() for number in range(one.count)]
    kinds = product(("senses", "cues"), SPLITS)
    assert len(pairs) == sum(size(kind, split) for kind, split in kinds)
    found = {pair.source: pair for pair in pairs}
    assert len(found) == len(pairs), "no source says two things"
    return found
