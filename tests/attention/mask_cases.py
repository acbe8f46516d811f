"""Masks beside what they mean: predicates of positions, and tensors written out in full."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import note, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.attention.masks import (
    Mask,
    causal,
    dense,
    keys,
    padding,
    prefix,
    segments,
    window,
)

quick = settings(max_examples=60, deadline=None)
BATCH, HEADS = 3, 2
"""The axes that the masks of random expressions may have."""


def coins(*sizes: int, seed: int = 0) -> Tensor:
    return torch.rand(*sizes, generator=torch.Generator().manual_seed(seed)) < 0.6


SIZES = [(1, 1), (2, 2), (13, 13), (1, 7), (3, 7), (5, 13), (13, 5), (7, 1), (11, 2)]
sizes = pytest.mark.parametrize(("q", "k"), SIZES)
Pair = tuple[Mask, Tensor]
Recipe = Callable[[], Pair]
"""Made only in the test: beartype throws dice, and a strategy may not."""


def from_predicate(seen: Callable[[int, Tensor, Tensor], Tensor], q: int, k: int) -> Tensor:
    """The mask ``(b, h, q, k)`` of which batch entry b is ``seen(b, positions, keys)``."""
    p, j = torch.arange(q)[:, None] + k - q, torch.arange(k)
    entries = [seen(b, p, j).expand(q, k) for b in range(BATCH)]
    return torch.stack(entries)[:, None].expand(BATCH, HEADS, q, k)


@st.composite
def singles(draw: st.DrawFn, q: int, k: int, kinds: tuple[str, ...]) -> Recipe:
    kind = draw(st.sampled_from(kinds))
    small = st.integers(0, max(q, k) + 1)
    if kind == "causal":
        return lambda: (causal, from_predicate(lambda b, p, j: j <= p, q, k))
    if kind == "window":
        back, ahead = draw(small), draw(small)
        return lambda: (
            window(before=back, after=ahead),
            from_predicate(lambda b, p, j: (j >= p - back) & (j <= p + ahead), q, k),
        )
    if kind == "prefix":
        n = draw(small)
        return lambda: (prefix(n), from_predicate(lambda b, p, j: j < n, q, k))
    many = draw(st.booleans())
    if kind == "padding":
        ends = draw(st.lists(st.integers(0, k), min_size=BATCH, max_size=BATCH))
        return lambda: (
            padding(ends if many else ends[0]),
            from_predicate(lambda b, p, j: j < ends[b * many], q, k),
        )
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    often = draw(st.sampled_from([0.0, 0.1, 0.5, 0.9]))
    if kind == "keys":
        marks = torch.rand(BATCH, k, generator=generator) < often
        return lambda: (
            keys(marks if many else marks[0]),
            from_predicate(lambda b, p, j: marks[b * many][j], q, k),
        )
    if kind in ("segments", "packed"):
        ids = torch.randint(0, 2 if kind == "packed" else 3, (BATCH, k), generator=generator)
        if kind == "packed":
            ids = ids.cumsum(1)
        return lambda: (
            segments(ids if many else ids[0]),
            from_predicate(lambda b, p, j: ids[b * many][p] == ids[b * many][j], q, k),
        )
    axes = draw(
        st.sampled_from(
            [(q, k), (1, k), (q, 1), (HEADS, q, k), (BATCH, 1, q, k), (BATCH, HEADS, 1, k)]
        )
    )
    seen = torch.rand(axes, generator=generator) < often
    return lambda: (dense(seen), seen.expand(BATCH, HEADS, q, k))


def joined(parts: tuple[Recipe, str, Recipe]) -> Recipe:
    def make() -> Pair:
        (one, seen), (other, also) = parts[0](), parts[2]()
        return (one & other, seen & also) if parts[1] == "&" else (one | other, seen | also)

    return make


def negated(part: Recipe) -> Recipe:
    def make() -> Pair:
        mask, seen = part()
        return ~mask, ~seen

    return make


TIGHT = ("causal", "window", "prefix", "padding", "keys", "dense")


def expression(data: st.DataObject, q: int, k: int) -> Pair:
    """Any masks, joined by any operators."""
    kinds = (*TIGHT, "segments", "packed") if q <= k else TIGHT
    recipes = st.recursive(
        singles(q, k, kinds),
        lambda inner: (
            st.tuples(inner, st.sampled_from("&|"), inner).map(joined) | inner.map(negated)
        ),
        max_leaves=5,
    )
    mask, seen = data.draw(recipes)()
    note(repr(mask))
    return mask, seen


lengths = st.integers(1, 19)
