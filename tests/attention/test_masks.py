"""Masks against plain predicates of two positions: in full, in blocks, and through `attend`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from regard.attention import attend, which
from regard.attention.kernels import blocked
from regard.attention.masks import (
    ALL,
    NONE,
    SOME,
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

quick = settings(max_examples=60, deadline=None)

BATCH, HEADS = 3, 2
"""The axes that the masks of random expressions may have."""

Predicate = Callable[[int, int], bool]
"""Whether the query at position p may look at the key at position j: ``(p, j)``."""


def noise(*sizes: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*sizes, generator=generator, dtype=torch.float64)


def coins(*sizes: int, seed: int = 0) -> Tensor:
    return torch.rand(*sizes, generator=torch.Generator().manual_seed(seed)) < 0.6


def loop(seen: Predicate, q: int, k: int) -> list[list[bool]]:
    """The mask by definition: query i stands at position i + k - q."""
    return [[seen(i + k - q, j) for j in range(k)] for i in range(q)]


def plain(q: Tensor, k: Tensor, v: Tensor, whole: Tensor) -> Tensor:
    """Attention as the textbook has it, the mask written out; 0 where there is nothing to see."""
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~whole, -torch.inf)
    return torch.softmax(scores, -1).masked_fill(~whole.any(-1, keepdim=True), 0.0) @ v


@contextmanager
def tiny_blocks() -> Iterator[None]:
    """The blocked kernel in blocks of 4 × 3, one block a span, one batch entry at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocked, "SPAN", 1)
        patch.setattr(blocked, "HEIGHT", 4)
        patch.setattr(blocked, "WIDTH", 3)
        yield


REGIMES = (nullcontext, tiny_blocks)


# What each factory means

SIZES = [(1, 1), (2, 2), (13, 13), (1, 7), (3, 7), (5, 13), (13, 5), (7, 1), (11, 2)]
sizes = pytest.mark.parametrize(("q", "k"), SIZES)

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


# Random expressions, each with the mask that it stands for written out by hand

Pair = tuple[Mask, Tensor]
Recipe = Callable[[], Pair]
"""Made only in the test: beartype throws dice, and a strategy may not."""


def written(seen: Callable[[int, Tensor, Tensor], Tensor], q: int, k: int) -> Tensor:
    """The mask ``(b, h, q, k)`` of which batch entry b is ``seen(b, positions, keys)``."""
    p, j = torch.arange(q)[:, None] + k - q, torch.arange(k)
    entries = [seen(b, p, j).expand(q, k) for b in range(BATCH)]
    return torch.stack(entries)[:, None].expand(BATCH, HEADS, q, k)


@st.composite
def singles(draw: st.DrawFn, q: int, k: int, kinds: tuple[str, ...]) -> Recipe:
    kind = draw(st.sampled_from(kinds))
    small = st.integers(0, max(q, k) + 1)
    if kind == "causal":
        return lambda: (causal, written(lambda b, p, j: j <= p, q, k))
    if kind == "window":
        back, ahead = draw(small), draw(small)
        return lambda: (
            window(before=back, after=ahead),
            written(lambda b, p, j: (j >= p - back) & (j <= p + ahead), q, k),
        )
    if kind == "prefix":
        n = draw(small)
        return lambda: (prefix(n), written(lambda b, p, j: j < n, q, k))
    many = draw(st.booleans())
    if kind == "padding":
        ends = draw(st.lists(st.integers(0, k), min_size=BATCH, max_size=BATCH))
        return lambda: (
            padding(ends if many else ends[0]),
            written(lambda b, p, j: j < ends[b * many], q, k),
        )
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    often = draw(st.sampled_from([0.0, 0.1, 0.5, 0.9]))
    if kind == "keys":
        marks = torch.rand(BATCH, k, generator=generator) < often
        return lambda: (
            keys(marks if many else marks[0]),
            written(lambda b, p, j: marks[b * many][j], q, k),
        )
    if kind in ("segments", "packed"):
        ids = torch.randint(0, 2 if kind == "packed" else 3, (BATCH, k), generator=generator)
        if kind == "packed":
            ids = ids.cumsum(1)
        return lambda: (
            segments(ids if many else ids[0]),
            written(lambda b, p, j: ids[b * many][p] == ids[b * many][j], q, k),
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


def single(data: st.DataObject, q: int, k: int) -> Pair:
    """One mask that says exactly which blocks it leaves empty or full."""
    # Sentences packed one after the other do; ids in any order need not.
    mask, seen = data.draw(singles(q, k, (*TIGHT, "packed") if q <= k else TIGHT))()
    note(repr(mask))
    return mask, seen


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


@quick
@given(data=st.data(), q=lengths, k=lengths)
def test_attention_under_an_expression_is_attention_under_its_tensor(
    data: st.DataObject, q: int, k: int
) -> None:
    mask, seen = expression(data, q, k)
    x, y, z = noise(BATCH, HEADS, q, 5), noise(BATCH, HEADS, k, 5, seed=1), noise(3, 2, k, 5)
    wanted = plain(x, y, z, seen)
    close = partial(torch.testing.assert_close, rtol=0, atol=1e-12)
    close(attend(x, y, z, mask=mask), wanted)
    close(attend(x, y, z, mask=mask, kernel="reference"), wanted)
    for regime in REGIMES:
        with regime():
            close(attend(x, y, z, mask=mask, kernel="blocked"), wanted)


# Through attend, for every rank. Axes: leading 2 and 3, batch 3, heads 5, queries 7, keys 11.

Q, K, H, B = 7, 11, 5, 3
AT = torch.arange(K)
ON = torch.arange(Q)[:, None] + K - Q
FEW = torch.tensor([4, 11, 0])
GRID = torch.tensor([[4, 11, 0], [7, 1, 9]])
MARKS, MARK_GRID = coins(B, K, seed=1), coins(2, 3, K, seed=2)
IDS, ID_GRID = coins(B, K, seed=3).long().cumsum(-1), coins(2, 3, K, seed=4).long().cumsum(-1)


def below(counts: Tensor, axes: int) -> Tensor:
    """Which keys come before each count, with `axes` axes between the counts and the keys."""
    return counts[(..., *(None,) * (axes + 1))] > AT


def same(ids: Tensor) -> Tensor:
    return ids[..., K - Q :, None] == ids[..., None, :]


THROUGH: dict[str, tuple[tuple[int, ...], Mask | Tensor, Tensor]] = {
    "2 none of them": ((), prefix(0), torch.zeros(Q, K, dtype=torch.bool)),
    "2 causal": ((), causal, AT <= ON),
    "2 window": ((), window(3), (AT - ON).abs() < 3),
    "2 padding": ((), padding(5), AT < 5),
    "2 padding of one": ((), padding([5]), AT < 5),
    "2 keys": ((), keys(MARKS[0]), MARKS[0]),
    "2 segments": ((), segments(IDS[0]), same(IDS[0])),
    "2 dense": ((), coins(Q, K), coins(Q, K)),
    "2 dense, one head": ((), coins(1, Q, K), coins(1, Q, K)[0]),
    "3 causal": ((B,), causal, AT <= ON),
    "3 padding": ((B,), padding(FEW), below(FEW, 1)),
    "3 keys": ((B,), keys(MARKS), MARKS[:, None]),
    "3 keys for all": ((B,), keys(MARKS[1]), MARKS[1]),
    "3 segments": ((B,), segments(IDS), same(IDS)),
    "3 dense per entry": ((B,), coins(B, Q, K), coins(B, Q, K)),
    "3 dense for all": ((B,), coins(Q, K), coins(Q, K)),
    "3 dense for all, an axis": ((B,), coins(1, Q, K), coins(1, Q, K)),
    "3 dense, one head": ((B,), coins(B, 1, Q, K), coins(B, 1, Q, K)[:, 0]),
    "3 causal, padded": ((B,), causal & padding(FEW), (AT <= ON) & below(FEW, 1)),
    "4 causal or the first": ((B, H), causal | prefix(3), (AT <= ON) | (AT < 3)),
    "4 padding": ((B, H), padding(FEW), below(FEW, 2)),
    "4 padding for all": ((B, H), padding(4), AT < 4),
    "4 keys": ((B, H), keys(MARKS), MARKS[:, None, None]),
    "4 segments": ((B, H), segments(IDS), same(IDS)[:, None]),
    "4 dense per head": ((B, H), coins(H, Q, K), coins(H, Q, K)),
    "4 dense per entry": ((B, H), coins(B, 1, Q, K), coins(B, 1, Q, K)),
    "4 dense keys": ((B, H), coins(B, H, 1, K), coins(B, H, 1, K)),
    "4 dense queries": ((B, H), coins(1, H, Q, 1), coins(1, H, Q, 1)),
    "4 dense": ((B, H), coins(B, H, Q, K), coins(B, H, Q, K)),
    "4 not": ((B, H), ~(causal & keys(MARKS)), ~((AT <= ON) & MARKS[:, None, None])),
    "5 padding": ((2, 3, H), padding(GRID), below(GRID, 2)),
    "5 padding of the last axis": ((2, 3, H), padding(FEW), below(FEW, 2)),
    "5 padding of the first axis": ((2, 3, H), padding(GRID[:, :1]), below(GRID[:, :1], 2)),
    "5 keys": ((2, 3, H), keys(MARK_GRID), MARK_GRID[:, :, None, None]),
    "5 segments": ((2, 3, H), segments(ID_GRID), same(ID_GRID)[:, :, None]),
    "5 segments of the last axis": ((2, 3, H), segments(IDS), same(IDS)[:, None]),
    "5 dense": ((2, 3, H), coins(2, 3, H, Q, K), coins(2, 3, H, Q, K)),
    "5 dense of the first axis": ((2, 3, H), coins(2, 1, 1, Q, K), coins(2, 1, 1, Q, K)),
    "5 dense of the last axis": ((2, 3, H), coins(3, 1, Q, K), coins(3, 1, Q, K)),
    "5 dense per head": ((2, 3, H), coins(H, Q, K), coins(H, Q, K)),
    "5 padded segments": (
        (2, 3, H),
        segments(IDS) & padding(GRID),
        same(IDS)[:, None] & below(GRID, 2),
    ),
}


@pytest.mark.parametrize(("lead", "mask", "seen"), THROUGH.values(), ids=THROUGH.keys())
@pytest.mark.parametrize("width", [13, 17], ids=["one width", "two widths"])
def test_attention_of_every_rank(
    lead: tuple[int, ...], mask: Mask | Tensor, seen: Tensor, width: int
) -> None:
    whole = seen.expand(*lead, Q, K)
    q, k, v = noise(*lead, Q, 13), noise(*lead, K, 13, seed=1), noise(*lead, K, width, seed=2)
    wanted = plain(q, k, v, whole)
    assert wanted.shape == (*lead, Q, width)
    close = partial(torch.testing.assert_close, rtol=0, atol=1e-12)
    close(attend(q, k, v, mask=mask, kernel="reference"), wanted)
    close(attend(q, k, v, mask=dense(whole), kernel="reference"), wanted)
    close(attend(q, k, v, mask=mask), wanted)
    for regime in REGIMES:
        with regime():
            close(attend(q, k, v, mask=mask, kernel="blocked"), wanted)
            close(attend(q, k, v, mask=dense(whole), kernel="blocked"), wanted)


def test_leading_axes_that_only_the_keys_have() -> None:
    q, k, v = noise(H, Q, 13)[None], noise(2, 3, H, K, 13, seed=1), noise(3, H, K, 13, seed=2)
    wanted = plain(q, k, v, below(GRID, 2).expand(2, 3, H, Q, K))
    for regime in REGIMES:
        for kernel in ("reference", "blocked", "auto"):
            with regime():
                output = attend(q, k, v, mask=padding(GRID), kernel=kernel)
            torch.testing.assert_close(output, wanted, rtol=0, atol=1e-12)


def test_heads_that_share_keys_have_masks_of_their_own() -> None:
    seen = coins(6, Q, K)
    q, k, v = noise(B, 6, Q, 13), noise(B, 2, K, 13, seed=1), noise(B, 2, K, 13, seed=2)
    wanted = plain(q, k.repeat_interleave(3, 1), v.repeat_interleave(3, 1), seen)
    for regime in REGIMES:
        for kernel in ("reference", "blocked", "fused"):
            with regime():
                output = attend(q, k, v, mask=seen, kernel=kernel)
            torch.testing.assert_close(output, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernel", ["auto", "reference", "blocked", "fused"])
def test_a_bool_tensor_is_a_dense_mask(kernel: str) -> None:
    q, k, v = noise(B, H, Q, 13), noise(B, H, K, 13, seed=1), noise(B, H, K, 13, seed=2)
    seen = coins(B, 1, Q, K)
    as_tensor = attend(q, k, v, mask=seen, kernel=kernel)
    assert torch.equal(as_tensor, attend(q, k, v, mask=dense(seen), kernel=kernel))
    assert not torch.allclose(as_tensor, attend(q, k, v, mask=~seen, kernel=kernel))


def test_a_bool_tensor_can_be_part_of_an_expression() -> None:
    seen = coins(Q, K)
    assert causal & seen == causal & dense(seen)
    assert prefix(2) | seen == prefix(2) | dense(seen)


@pytest.mark.parametrize("kernel", ["auto", "reference", "blocked"])
@sizes
def test_causal_from_the_start_through_attend(q: int, k: int, kernel: str) -> None:
    x, y, z = noise(2, 3, q, 13), noise(2, 3, k, 13, seed=1), noise(2, 3, k, 13, seed=2)
    output = attend(x, y, z, mask=Causal(from_start=True), kernel=kernel)
    wanted = F.scaled_dot_product_attention(x, y, z, is_causal=True)
    torch.testing.assert_close(output, wanted, rtol=0, atol=1e-12)


# What a mask saves

N = 1024
DIAGONAL = torch.arange(N)[:, None] // 128 == torch.arange(N) // 128
SAVING: dict[str, tuple[Mask | Tensor, float]] = {
    "causal window": (causal & window(32), 0.13),
    "window": (window(32), 0.20),
    "causal": (causal, 0.54),
    "from the past": (~causal, 0.54),
    "prefix": (prefix(64), 0.07),
    "causal window or prefix": (causal & window(32) | prefix(64), 0.20),
    "padding": (padding(200), 0.26),
    "keys": (keys(torch.arange(N) >= 960), 0.07),
    "segments": (segments(torch.arange(N) // 128), 0.13),
    "dense": (DIAGONAL, 0.13),
    "nothing": (prefix(0), 0.0),
}


@pytest.mark.parametrize(("mask", "share"), SAVING.values(), ids=SAVING.keys())
def test_pairs_that_the_mask_rules_out_are_never_scored(mask: Mask | Tensor, share: float) -> None:
    visited = 0

    def dot(q: Tensor, k: Tensor) -> Tensor:
        nonlocal visited
        visited += q.shape[-2] * k.shape[-2]
        return q @ k.mT

    x = noise(N, 3)
    whole = mask.tensor(N) if isinstance(mask, Mask) else mask
    with torch.no_grad():
        output = attend(x, x, x, score=dot, mask=mask, kernel="blocked")
    assert int(whole.expand(1, N, N).sum()) <= visited <= share * N * N
    wanted = attend(x, x, x, score="dot", mask=mask, kernel="reference")
    torch.testing.assert_close(output, wanted, rtol=0, atol=1e-12)


def test_pairs_that_the_mask_rules_out_are_never_scored_on_the_way_back() -> None:
    visited = 0

    def dot(q: Tensor, k: Tensor) -> Tensor:
        nonlocal visited
        visited += q.shape[-2] * k.shape[-2]
        return q @ k.mT

    x = noise(N, 3).requires_grad_()
    output = attend(x, x, x, score=dot, mask=causal & window(32), kernel="blocked")
    forwards = visited
    output.square().sum().backward()
    assert 0 < visited - forwards <= forwards <= 0.13 * N * N


def test_twice_the_length_is_twice_the_work_under_a_window() -> None:
    visited = [0, 0]

    def dot(which: int, q: Tensor, k: Tensor) -> Tensor:
        visited[which] += q.shape[-2] * k.shape[-2]
        return q @ k.mT

    for i, n in enumerate((1024, 2048)):
        x = noise(n, 3)
        attend(x, x, x, score=partial(dot, i), mask=causal & window(32), kernel="blocked")
    assert visited[0] < visited[1] <= 2.1 * visited[0]


def test_a_window_goes_to_the_kernel_that_can_skip() -> None:
    x = noise(N, 3)
    long = noise(1, 4, 600, 3)
    assert which(long, long, long, mask=causal & window(32)).startswith("blocked;")
    assert which(*[x.float()] * 3, mask=causal & window(32)) == "native"


# Equality

LIKE: list[tuple[Callable[[], Mask], Callable[[], Mask]]] = [
    (lambda: window(2), lambda: window(before=1, after=1)),
    (lambda: window(before=3), lambda: window(before=3, after=0)),
    (lambda: causal, lambda: Causal()),
    (lambda: prefix(3), lambda: prefix(3)),
    (lambda: causal & window(3), lambda: causal & window(3)),
    (lambda: ~(causal | prefix(2)), lambda: ~(causal | prefix(2))),
    (lambda: padding([2, 3]), lambda: padding(torch.tensor([2, 3]))),
    (lambda: padding([2, 3]), lambda: padding(torch.tensor([2, 3], dtype=torch.int32))),
    (lambda: keys(coins(7)), lambda: keys(coins(7).clone())),
    (lambda: segments([0, 0, 1]), lambda: segments(torch.tensor([0, 0, 1]))),
    (lambda: segments([0, 0, 1]), lambda: segments(torch.tensor([0, 0, 1], dtype=torch.int32))),
    (lambda: dense(coins(5, 7)), lambda: dense(coins(5, 7).T.contiguous().T)),
]


@pytest.mark.parametrize(("make", "again"), LIKE, ids=[repr(make()) for make, _ in LIKE])
def test_masks_that_say_the_same_are_equal(
    make: Callable[[], Mask], again: Callable[[], Mask]
) -> None:
    one, other = make(), again()
    assert one is not other or one is causal
    assert one == other
    assert hash(one) == hash(other)
    assert {one: 1}[other] == 1


UNLIKE: list[tuple[Mask, object]] = [
    (window(2), window(3)),
    (window(before=1), window(after=1)),
    (causal, Causal(from_start=True)),
    (causal, ~causal),
    (causal & window(3), causal | window(3)),
    (causal & window(3), causal & window(2)),
    (prefix(3), padding(3)),
    (padding([2, 3]), padding([3, 2])),
    (keys(coins(7)), keys(~coins(7))),
    (keys(coins(1, 7)), dense(coins(1, 7))),
    (segments([0, 0, 1]), segments([0, 1, 1])),
    (dense(coins(5, 7)), dense(coins(7, 5))),
    (causal, "causal"),
    (dense(coins(5, 7)), coins(5, 7).tolist()),
]


@pytest.mark.parametrize(
    ("one", "other"), UNLIKE, ids=[f"{one!r}, {other!r}"[:40] for one, other in UNLIKE]
)
def test_masks_that_say_something_else_are_not(one: Mask, other: object) -> None:
    assert one != other
    assert not one == other  # noqa: SIM201


# Words and pictures

NAMES: list[tuple[Mask, str]] = [
    (causal, "causal"),
    (Causal(from_start=True), "causal, from the start"),
    (window(3), "window(3)"),
    (window(before=2, after=2), "window(3)"),
    (window(before=2), "window(before=2, after=0)"),
    (prefix(3), "prefix(3)"),
    (padding(3), "padding(3)"),
    (padding([2, 3]), "padding([2, 3])"),
    (padding(torch.full((17,), 5)), "padding((17))"),
    (keys(torch.tensor([True, False])), "keys([True, False])"),
    (keys(coins(3, 7)), "keys((3,7))"),
    (segments([0, 0, 1]), "segments([0, 0, 1])"),
    (dense(coins(5, 7)), "dense((5,7))"),
    (causal & window(3), "causal & window(3)"),
    (causal | prefix(3), "causal | prefix(3)"),
    (causal & window(3) | prefix(2), "causal & window(3) | prefix(2)"),
    (causal & (window(3) | prefix(2)), "causal & (window(3) | prefix(2))"),
    (~causal & window(3), "~causal & window(3)"),
    (~(causal & window(3)), "~(causal & window(3))"),
    (~(causal | window(3)) & prefix(1), "~(causal | window(3)) & prefix(1)"),
    (~~causal, "causal"),
]


@pytest.mark.parametrize(("mask", "name"), NAMES, ids=[name for _, name in NAMES])
def test_a_mask_is_named_as_it_is_written(mask: Mask, name: str) -> None:
    assert repr(mask) == name


@pytest.mark.parametrize(
    "mask",
    [mask for mask, name in NAMES if "((" not in name and "from" not in name and "[T" not in name],
    ids=repr,
)
def test_what_a_mask_is_called_makes_it_again(mask: Mask) -> None:
    names = {f.__name__: f for f in (window, prefix, padding, segments)} | {"causal": causal}
    assert eval(repr(mask), names) == mask


DRAWINGS: dict[str, tuple[str, str]] = {
    "causal | prefix(3)": (
        str(causal | prefix(3)),
        """
        █ █ █ ░ ░ ░ ░ ░
        █ █ █ ░ ░ ░ ░ ░
        █ █ █ ░ ░ ░ ░ ░
        █ █ █ █ ░ ░ ░ ░
        █ █ █ █ █ ░ ░ ░
        █ █ █ █ █ █ ░ ░
        █ █ █ █ █ █ █ ░
        █ █ █ █ █ █ █ █
        """,
    ),
    "causal & window(3)": (
        (causal & window(3)).draw(6),
        """
        █ ░ ░ ░ ░ ░
        █ █ ░ ░ ░ ░
        █ █ █ ░ ░ ░
        ░ █ █ █ ░ ░
        ░ ░ █ █ █ ░
        ░ ░ ░ █ █ █
        """,
    ),
    "cached": (
        causal.draw(2, 5),
        """
        █ █ █ █ ░
        █ █ █ █ █
        """,
    ),
    "padding": (
        str(causal & padding([2, 3])),
        """
        █ ░ ░
        █ █ ░
        █ █ ░

        █ ░ ░
        █ █ ░
        █ █ █
        """,
    ),
    "keys": (
        str(keys(torch.tensor([True, False, True]))),
        """
        █ ░ █
        █ ░ █
        █ ░ █
        """,
    ),
    "segments": (
        str(segments([0, 0, 1]) | prefix(1)),
        """
        █ █ ░
        █ █ ░
        █ ░ █
        """,
    ),
}


@pytest.mark.parametrize(("drawn", "wanted"), DRAWINGS.values(), ids=DRAWINGS.keys())
def test_drawings(drawn: str, wanted: str) -> None:
    assert drawn == "\n".join(line.strip() for line in wanted.strip().splitlines())


WRITTEN = torch.tensor([[True, False, True], [False, True, False]])


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda: dense(WRITTEN), "█ ░ █\n░ █ ░"),
        (lambda: dense(WRITTEN) & causal, "█ ░ ░\n░ █ ░"),
        (lambda: prefix(1) | dense(WRITTEN), "█ ░ █\n█ █ ░"),
        (lambda: ~dense(WRITTEN), "░ █ ░\n█ ░ █"),
        (lambda: dense(WRITTEN) & causal | prefix(1), "█ ░ ░\n█ █ ░"),
        (lambda: causal & ~dense(WRITTEN), "░ █ ░\n█ ░ █"),
    ],
    ids=["alone", "and", "or", "not", "nested", "and not"],
)
def test_a_dense_mask_is_drawn_in_its_own_size(make: Callable[[], Mask], wanted: str) -> None:
    assert str(make()) == wanted


def test_a_mask_per_head_is_drawn_head_by_head() -> None:
    assert str(dense(torch.stack([WRITTEN, ~WRITTEN]))) == "█ ░ █\n░ █ ░\n\n░ █ ░\n█ ░ █"
