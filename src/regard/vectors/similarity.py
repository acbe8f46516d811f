"""The similarity of two sentences, and the contribution of each pair of words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from regard.errors import OptionError, ShapeError, WordError, shape
from regard.vectors.vectors import Vectors, check_vectors
from regard.vectors.words import words_of

Side = Any
"""A text or a list of words; or a pair of words and vectors."""


class PairPart(NamedTuple):
    """A word of either sentence, and the pair's contribution to the similarity."""

    a: str
    b: str
    part: float


@dataclass(frozen=True, eq=False)
class Similarity:
    """The cosine between two averaged vectors, as a sum over pairs of words.

    Prints as a table of the largest contributions.
    """

    a: tuple[str, ...]
    b: tuple[str, ...]
    parts: NDArray[np.float64]
    """The contribution of each pair ``(a, b)``: x·y / (n m |mean x| |mean y|)."""
    skipped: tuple[str, ...] = ()
    """Words without a vector, which were left out."""

    @property
    def value(self) -> float:
        """The similarity: the sum of the parts."""
        return math.fsum(self.parts.flat)

    @property
    def a_shares(self) -> list[tuple[str, float]]:
        """The contribution of each word of a, in order."""
        return [(word, math.fsum(row)) for word, row in zip(self.a, self.parts, strict=True)]

    @property
    def b_shares(self) -> list[tuple[str, float]]:
        """The contribution of each word of b, in order."""
        return [(word, math.fsum(row)) for word, row in zip(self.b, self.parts.T, strict=True)]

    def top(self, n: int = 10) -> list[PairPart]:
        """The n pairs with the largest absolute contributions."""
        order = np.argsort(-np.abs(self.parts), axis=None, kind="stable")[:n]
        places = zip(*np.unravel_index(order, self.parts.shape), strict=True)
        return [PairPart(self.a[i], self.b[j], float(self.parts[i, j])) for i, j in places]

    def to_data(self) -> dict[str, Any]:
        """All fields as plain data."""
        return {
            "similarity": self.value,
            "a": list(self.a),
            "b": list(self.b),
            "parts": self.parts.tolist(),
            "skipped": list(self.skipped),
        }

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        rows = self.top()
        left, right = max(len(one.a) for one in rows), max(len(one.b) for one in rows)
        lines = [f"similarity {self.value:.4f}, the sum of {self.parts.size} pairs of words"]
        lines += [f"{one.a:{left}}  {one.b:{right}}  {one.part:7.4f}" for one in rows]
        if len(rows) < self.parts.size:
            others = self.value - math.fsum(one.part for one in rows)
            lines.append(f"{'the others':{left + right + 2}}  {others:7.4f}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Similarity({self.value:.4f}, {len(self.a)} × {len(self.b)} words)"


def similar(
    a: Side, b: Side, vectors: Vectors | None = None, *, unknown: str = "skip"
) -> Similarity:
    """The cosine between the averaged vectors of two sentences, split by pairs of words.

    The dot product of two averages is the average of all dot products, so the cosine is a sum over
    pairs of words.

    Args:
        a, b: with `vectors`, texts or lists of words. Without, pairs of words and vectors, one row
            for each word, such as contextual vectors.
        unknown: how to treat words without a vector, as in `Vectors.lookup`.

    >>> v = Vectors(["cat", "dog", "car", "the"], [[2.0, 0.0], [2.0, 1.0], [-1.0, 2.0], [0.5, 0.5]])
    >>> print(similar("the cat", "the dog", v))
    similarity 0.9417, the sum of 4 pairs of words
    cat  dog   0.5381
    the  dog   0.2018
    cat  the   0.1345
    the  the   0.0673
    """
    if vectors is not None:
        check_vectors("similar", vectors)
        sides = [_looked_up(name, side, vectors, unknown) for name, side in (("a", a), ("b", b))]
        skipped = [word for side in (a, b) for word in vectors.skipped(side) if unknown == "skip"]
    else:
        sides = [_given(name, side) for name, side in (("a", a), ("b", b))]
        skipped = []
    (left, x), (right, y) = sides
    if x.shape[1] != y.shape[1]:
        raise ShapeError(
            f"similar: the vectors of a have width {x.shape[1]} but those of b {y.shape[1]}; "
            "compare vectors of the same kind"
        )
    lengths = [float(np.linalg.norm(rows.mean(0))) for rows in (x, y)]
    for name, length in zip("ab", lengths, strict=True):
        if length == 0:
            raise OptionError(f"similar: the mean vector of {name} is zero, which has no direction")
    parts = (x @ y.T) / (len(x) * len(y) * lengths[0] * lengths[1])
    return Similarity(tuple(left), tuple(right), parts, tuple(dict.fromkeys(skipped)))


def _looked_up(
    name: str, side: str | Iterable[str], vectors: Vectors, unknown: str
) -> tuple[list[str], NDArray[np.float64]]:
    words = words_of(side, "similar")
    if not words:
        raise OptionError(f"similar: sentence {name} has no words, expected at least one")
    rows = vectors.lookup(words, unknown)
    if not len(rows):
        raise WordError(f"similar: none of the words of sentence {name} has a vector")
    if unknown == "skip":
        words = [word for word in words if word in vectors]
    return words, rows.astype(np.float64)


def _given(name: str, side: Side) -> tuple[list[str], NDArray[np.float64]]:
    """The words and vectors of a given pair, checked."""
    if isinstance(side, str) or not isinstance(side, Sequence) or len(side) != 2:
        raise OptionError(
            f"similar: {name} is {_brief(side)}; give vectors=…, or pairs of words and vectors"
        )
    words = words_of(list(side[0]), "similar")
    try:
        rows = torch.as_tensor(side[1]).detach().to("cpu", torch.float64).numpy()
    except (ValueError, TypeError, RuntimeError):
        raise ShapeError(
            f"similar: {name} has vectors that are not rows of numbers of equal length; "
            "give vectors=…, or pairs of words and vectors"
        ) from None
    if rows.ndim != 2 or len(rows) != len(words) or rows.size == 0:
        raise ShapeError(
            f"similar: {name} has {len(words)} words for vectors {shape(rows)}, expected "
            "(words,width), one row for each word and at least one"
        )
    if not np.isfinite(rows).all():
        raise OptionError(f"similar: {name} has vectors that are not finite")
    return words, rows


def _brief(side: object) -> str:
    text = repr(side)
    return text if len(text) <= 60 else f"{text[:60]}…"
