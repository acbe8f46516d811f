"""Attention under a mask of every kind and rank, and the work that a mask saves."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from regard.attention import attend, which
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
from tests.attention.kernel_cases import BLOCKINGS, noise, written
from tests.attention.mask_cases import BATCH, HEADS, coins, expression, lengths, quick, sizes


def plain(q: Tensor, k: Tensor, v: Tensor, whole: Tensor) -> Tensor:
    """Attention as the textbook has it, the mask written out; 0 where there is nothing to see."""
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~whole, -torch.inf)
    return torch.softmax(scores, -1).masked_fill(~whole.any(-1, keepdim=True), 0.0) @ v


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
    for blocks in BLOCKINGS:
        with blocks():
            close(attend(x, y, z, mask=mask, kernel="blocked"), wanted)


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
    for blocks in BLOCKINGS:
        with blocks():
            close(attend(q, k, v, mask=mask, kernel="blocked"), wanted)
            close(attend(q, k, v, mask=dense(whole), kernel="blocked"), wanted)


def test_leading_axes_that_only_the_keys_have() -> None:
    q, k, v = noise(H, Q, 13)[None], noise(2, 3, H, K, 13, seed=1), noise(3, H, K, 13, seed=2)
    wanted = plain(q, k, v, below(GRID, 2).expand(2, 3, H, Q, K))
    for blocks in BLOCKINGS:
        for kernel in ("reference", "blocked", "auto"):
            with blocks():
                output = attend(q, k, v, mask=padding(GRID), kernel=kernel)
            torch.testing.assert_close(output, wanted, rtol=0, atol=1e-12)


def test_heads_that_share_keys_have_masks_of_their_own() -> None:
    seen = coins(6, Q, K)
    q, k, v = noise(B, 6, Q, 13), noise(B, 2, K, 13, seed=1), noise(B, 2, K, 13, seed=2)
    wanted = plain(q, k.repeat_interleave(3, 1), v.repeat_interleave(3, 1), seen)
    for blocks in BLOCKINGS:
        for kernel in ("reference", "blocked", "fused"):
            with blocks():
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
    assert seen & causal == dense(seen) & causal
    assert seen | causal == dense(seen) | causal
    assert prefix(2) | seen == prefix(2) | dense(seen)


@pytest.mark.parametrize("kernel", ["auto", "reference", "blocked"])
@sizes
def test_causal_from_the_start_through_attend(q: int, k: int, kernel: str) -> None:
    x, y, z = noise(2, 3, q, 13), noise(2, 3, k, 13, seed=1), noise(2, 3, k, 13, seed=2)
    output = attend(x, y, z, mask=Causal(from_start=True), kernel=kernel)
    wanted = F.scaled_dot_product_attention(x, y, z, is_causal=True)
    torch.testing.assert_close(output, wanted, rtol=0, atol=1e-12)


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
    whole = written(mask, N, N)
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
