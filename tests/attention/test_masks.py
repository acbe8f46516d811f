"""Masks are their predicates, their expressions what the operators say, their blocks the whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.attention import attend
from regard.attention.mask import ALL, NONE, SOME
from regard.attention.masks import (
    Causal,
    Mask,
    causal,
    dense,
    keys,
    padding,
    prefix,
    segments,
    window,
)
from tests.attention.mask_cases import (
    BATCH,
    HEADS,
    SIZES,
    TIGHT,
    Pair,
    coins,
    expression,
    lengths,
    quick,
    singles,
    sizes,
)

Predicate = Callable[[int, int], bool]
"""Whether the query at position p may look at the key at position j: ``(p, j)``."""


def loop(seen: Predicate, q: int, k: int) -> list[list[bool]]:
    """The mask by definition: query i stands at position i + k - q."""
    return [[seen(i + k - q, j) for j in range(k)] for i in range(q)]


OF_POSITIONS: list[tuple[Mask, Predicate]] = [
    (causal, lambda p, j: j <= p),
    (window(1), lambda p, j: j == p),
    (window(2), lambda p, j: abs(p - j) <= 1),
    (window(5), lambda p, j: abs(p - j) <= 4),
    (window(before=2, after=3), lambda p, j: p - 2 <= j <= p + 3),
    (window(before=3, after=0), lambda p, j: p - 3 <= j <= p),
    (window(before=3), lambda p, j: p - 3 <= j <= p),
    (window(after=2), lambda p, j: p <= j <= p + 2),
    (window(before=0, after=0), lambda p, j: j == p),
    (prefix(0), lambda p, j: False),
    (prefix(1), lambda p, j: j < 1),
    (prefix(3), lambda p, j: j < 3),
    (prefix(101), lambda p, j: True),
    (causal & window(3), lambda p, j: p - 2 <= j <= p),
    (causal | prefix(3), lambda p, j: j <= p or j < 3),
    (~causal, lambda p, j: j > p),
    (~(causal & ~window(2)), lambda p, j: j > p or abs(p - j) <= 1),
]


@sizes
@pytest.mark.parametrize(
    ("mask", "seen"), OF_POSITIONS, ids=[repr(mask) for mask, _ in OF_POSITIONS]
)
def test_masks_of_positions_are_their_predicates(
    mask: Mask, seen: Predicate, q: int, k: int
) -> None:
    whole = mask.tensor(q, k)
    assert (whole.dtype, whole.shape) == (torch.bool, (q, k))
    assert whole.tolist() == loop(seen, q, k)


@sizes
def test_causal_from_the_start_is_torchs(q: int, k: int) -> None:
    whole = Causal(from_start=True).tensor(q, k)
    assert whole.tolist() == [[j <= i for j in range(k)] for i in range(q)]


@sizes
def test_padding_is_its_predicate(q: int, k: int) -> None:
    assert padding(k // 2).tensor(q, k).tolist() == [loop(lambda p, j: j < k // 2, q, k)]
    lengths = [k, 0, k // 2]
    whole = padding(lengths).tensor(q, k)
    assert whole.shape == (3, 1, q, k)
    for entry, length in enumerate(lengths):
        assert whole[entry, 0].tolist() == loop(lambda p, j: j < length, q, k)  # noqa: B023
    assert torch.equal(padding(torch.tensor(lengths, dtype=torch.int32)).tensor(q, k), whole)


@sizes
def test_keys_is_its_predicate(q: int, k: int) -> None:
    marks = [[(5 * j + row) % 3 != 1 for j in range(k)] for row in range(2)]
    assert keys(torch.tensor(marks[1])).tensor(q, k).tolist() == loop(
        lambda p, j: marks[1][j], q, k
    )
    whole = keys(torch.tensor(marks)).tensor(q, k)
    assert whole.shape == (2, 1, q, k)
    for row in range(2):
        assert whole[row, 0].tolist() == loop(lambda p, j: marks[row][j], q, k)  # noqa: B023


@pytest.mark.parametrize(("q", "k"), [(q, k) for q, k in SIZES if q <= k])
def test_segments_is_its_predicate(q: int, k: int) -> None:
    packed = [3 * j // k for j in range(k)]
    mixed = [(7 * j) % 5 - 2 for j in range(k)]
    for ids in (packed, mixed):
        assert segments(ids).tensor(q, k).tolist() == loop(lambda p, j: ids[p] == ids[j], q, k)  # noqa: B023
    whole = segments(torch.tensor([packed, mixed])).tensor(q, k)
    assert whole.shape == (2, 1, q, k)
    for row, ids in enumerate((packed, mixed)):
        assert whole[row, 0].tolist() == loop(lambda p, j: ids[p] == ids[j], q, k)  # noqa: B023


@sizes
def test_dense_is_what_was_written(q: int, k: int) -> None:
    seen = coins(q, k)
    assert torch.equal(dense(seen).tensor(q, k), seen)
    assert torch.equal(dense(seen[:1]).tensor(q, k), seen[:1].expand(q, k))
    assert torch.equal(dense(seen[:, :1]).tensor(q, k), seen[:, :1].expand(q, k))
    many = coins(3, 2, q, k)
    assert torch.equal(dense(many).tensor(q, k), many)


def test_a_written_out_mask_is_a_copy() -> None:
    seen = coins(5, 7)
    kept = seen.clone()
    dense(seen).tensor(5, 7).logical_not_()
    assert torch.equal(seen, kept)


def test_a_causal_window_of_three_lets_position_five_see_three_four_and_five() -> None:
    assert (causal & window(3)).tensor(8)[5].nonzero().flatten().tolist() == [3, 4, 5]
    assert window(3).tensor(8)[5].nonzero().flatten().tolist() == [3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    "mask",
    [causal, window(3), window(before=2, after=1), prefix(4), causal & window(5) | prefix(2)],
    ids=repr,
)
def test_the_last_queries_of_many_see_what_they_see_alone(mask: Mask) -> None:
    whole = mask.tensor(17)
    for q in (1, 2, 11, 17):
        assert torch.equal(mask.tensor(q, 17), whole[17 - q :])


def single(data: st.DataObject, q: int, k: int) -> Pair:
    """One mask that says exactly which blocks it leaves empty or full."""
    # Sentences packed one after the other do; ids in any order need not.
    mask, seen = data.draw(singles(q, k, (*TIGHT, "packed") if q <= k else TIGHT))()
    note(repr(mask))
    return mask, seen


def in_full(mask: Mask, q: int, k: int) -> Tensor:
    return mask.tensor(q, k).expand(BATCH, HEADS, q, k)


@quick
@given(data=st.data(), q=lengths, k=lengths)
def test_expressions_are_what_their_operators_say(data: st.DataObject, q: int, k: int) -> None:
    mask, seen = expression(data, q, k)
    assert torch.equal(in_full(mask, q, k), seen)


@quick
@given(data=st.data(), q=lengths, k=lengths)
def test_de_morgan_and_double_negation(data: st.DataObject, q: int, k: int) -> None:
    (one, _), (other, _) = expression(data, q, k), expression(data, q, k)
    full = partial(in_full, q=q, k=k)
    assert torch.equal(full(~(one & other)), full(~one | ~other))
    assert torch.equal(full(~(one | other)), full(~one & ~other))
    assert torch.equal(full(~~one), full(one))
    assert ~~one == one
    assert not full(one & ~one).any()
    assert full(one | ~one).all()


@st.composite
def edges(draw: st.DrawFn, n: int) -> np.ndarray:
    """Block boundaries 0 < … < n."""
    inner = draw(st.lists(st.integers(1, n - 1), max_size=4, unique=True)) if n > 1 else []
    return np.array([0, *sorted(inner), n], np.int64)


def grades(seen: Tensor, rows: np.ndarray, cols: np.ndarray) -> list[list[int]]:
    """What the cover would say if it looked at every pair."""

    def grade(block: Tensor) -> int:
        return ALL if block.all() else SOME if block.any() else NONE

    return [[grade(seen[:, :, a:b, c:d]) for c, d in pairwise(cols)] for a, b in pairwise(rows)]


@settings(max_examples=150, deadline=None)
@given(data=st.data(), q=lengths, k=lengths)
def test_cover_is_sound(data: st.DataObject, q: int, k: int) -> None:
    mask, seen = expression(data, q, k)
    rows, cols = data.draw(edges(q)), data.draw(edges(k))
    said, true = mask.cover(rows, cols, q, k), np.array(grades(seen, rows, cols))
    assert said.shape == true.shape
    assert np.all((said == true) | (said == SOME))


@settings(max_examples=150, deadline=None)
@given(data=st.data(), q=lengths, k=lengths)
def test_cover_of_a_single_mask_is_tight(data: st.DataObject, q: int, k: int) -> None:
    mask, seen = single(data, q, k)
    rows, cols = data.draw(edges(q)), data.draw(edges(k))
    assert mask.cover(rows, cols, q, k).tolist() == grades(seen, rows, cols)
    assert (~mask).cover(rows, cols, q, k).tolist() == grades(~seen, rows, cols)


@quick
@given(data=st.data(), q=lengths, k=lengths)
def test_blocks_paste_to_the_whole(data: st.DataObject, q: int, k: int) -> None:
    mask, seen = expression(data, q, k)
    rows, cols = data.draw(edges(q)).tolist(), data.draw(edges(k)).tolist()
    strips = []
    for a, b in pairwise(rows):
        strip = [
            mask.block(slice(a, b), slice(c, d), q, k).expand(BATCH, HEADS, b - a, d - c)
            for c, d in pairwise(cols)
        ]
        strips.append(torch.cat(strip, -1))
    assert torch.equal(torch.cat(strips, -2), seen)


@quick
@given(data=st.data(), q=lengths, k=lengths)
def test_entries_taken_are_the_entries_of_the_whole(data: st.DataObject, q: int, k: int) -> None:
    mask, seen = expression(data, q, k)
    call = mask.canonical((BATCH,), HEADS, 4, "attend")
    for entries in (slice(0, 1), slice(1, 3), slice(0, BATCH)):
        wanted = seen[entries]
        assert torch.equal(call.take(entries).tensor(q, k).expand(wanted.shape), wanted)


def test_no_offsets_cover_nothing() -> None:
    """A batch without entries has no first and last offset."""
    mask = causal.at(torch.zeros(0, dtype=torch.long))
    edges = np.array([0, 2, 4])
    assert mask.cover(edges, edges, 4, 4).shape == (2, 2)
    empty = torch.zeros(0, 1, 4, 8)
    assert attend(empty, empty, empty, mask=mask, kernel="blocked").shape == empty.shape
