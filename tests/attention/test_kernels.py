"""Every kernel on every shape of a call: as exact as plain float32, gradients too."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from regard import attend, causal
from regard.attention.kernels import blocked
from regard.attention.masks import Mask
from regard.errors import OptionError
from tests.attention.budget import (
    MASKS,
    batch,
    check,
    from_above,
    plain,
    roundings,
    with_gradients,
    within_budget,
)
from tests.attention.kernel_cases import (
    COARSE_BLOCKS,
    HALF,
    both,
    fast,
    float32_inputs,
    float32_noise,
    inputs,
    ready,
    written,
)

EDGES = (1, 2, 63, 64, 65, 127, 257)


def fused_can(name: str, q: int, k: int) -> bool:
    """What the flash operation can express without a mask written out for it."""
    return name in ("none", "padding", "dense") or (name == "causal" and (q == k or q == 1))


CASES = [
    (name, q, k)
    for name in MASKS
    for q in EDGES
    for k in EDGES
    if name != "segments" or q <= k  # segments are given for the keys, and queries are among them
]


@cache
def case(name: str, q: int, k: int) -> tuple[list[Tensor], ...]:
    """Inputs, what is exact, and what plain float32 gives."""
    given, mask = float32_inputs(q, k, b=batch(q, k)), MASKS[name](q, k)
    upstream, whole = from_above(given), written(mask, q, k)
    doubles = [x.double() for x in given]
    exact = with_gradients(lambda *x: attend(*x, mask=mask, kernel="reference"), doubles, upstream)
    return given, exact, with_gradients(lambda *x: plain(*x, mask=whole), given, upstream)


@fast
@pytest.mark.parametrize(("name", "q", "k"), CASES)
def test_lengths_and_masks(regime: str, name: str, q: int, k: int) -> None:
    given, exact, plainly = case(name, q, k)
    mask = MASKS[name](q, k)
    with ready(regime, COARSE_BLOCKS) as kernel:
        if regime == "fused" and not fused_can(name, q, k):
            with pytest.raises(OptionError, match="would have to be materialized"):
                attend(*given, mask=mask, kernel=kernel)
            return
        got = with_gradients(
            lambda *x: attend(*x, mask=mask, kernel=kernel), given, from_above(given)
        )
        with torch.no_grad():
            untracked = attend(*given, mask=mask, kernel=kernel)
    free = roundings(regime, given, written(mask, q, k), None, exact)
    within_budget(got, exact, plainly, free)
    within_budget([untracked], exact[:1], plainly[:1], free)


@fast
@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize(
    ("name", "q", "k"),
    [
        (name, q, k)
        for name in ("none", "causal", "padding", "dense")
        for q, k in [(1, 1), (2, 2), (1, 63), (65, 65), (127, 127), (257, 257)]
    ],
)
def test_low_precision(regime: str, dtype: torch.dtype, name: str, q: int, k: int) -> None:
    check(regime, inputs(q, k, b=batch(q, k), dtype=dtype), MASKS[name](q, k))


@fast
@pytest.mark.parametrize("name", ["none", "causal", "padding", "dense"])
def test_float64_is_the_reference(regime: str, name: str) -> None:
    given, mask = inputs(65, 65), MASKS[name](65, 65)
    upstream = from_above(given)
    exact = with_gradients(lambda *x: attend(*x, mask=mask, kernel="reference"), given, upstream)
    with ready(regime, COARSE_BLOCKS) as kernel:
        got = with_gradients(lambda *x: attend(*x, mask=mask, kernel=kernel), given, upstream)
    for have, want in zip(got, exact, strict=True):
        # Sums of 65 terms of size 1: some dozens of roundings of 2.2e-16.
        torch.testing.assert_close(have, want, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", ["none", "causal", "causal & window", "padding", "dense"])
def test_long_sequences_take_many_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real constants: 2 × 1511 × 1523 scores are more than one block holds."""
    q, k = 1511, 1523
    given, mask = float32_inputs(q, k, b=2, h=1, d=7), MASKS[name](q, k)
    upstream, whole = from_above(given), written(mask, q, k)
    doubles = [x.double() for x in given]
    exact = with_gradients(lambda *x: attend(*x, mask=mask, kernel="reference"), doubles, upstream)
    plainly = with_gradients(lambda *x: plain(*x, mask=whole), given, upstream)
    calls: list[int] = []
    many = blocked._many_blocks
    monkeypatch.setattr(blocked, "_many_blocks", lambda *x: calls.append(1) or many(*x))
    got = with_gradients(lambda *x: attend(*x, mask=mask, kernel="blocked"), given, upstream)
    assert calls
    within_budget(got, exact, plainly)


@fast
@pytest.mark.parametrize("g", [1, 2, 3])
@pytest.mark.parametrize("mask", [None, causal], ids=["none", "causal"])
def test_grouped_heads(regime: str, g: int, mask: Mask | None) -> None:
    check(regime, float32_inputs(67, 67, h=6, g=g), mask)


@fast
@pytest.mark.parametrize("g", [1, 2, 3])
def test_grouped_heads_share_in_order(regime: str, g: int) -> None:
    q, k, v = inputs(11, 13, h=6, g=g)
    repeated = [x.repeat_interleave(6 // g, 1) for x in (k, v)]
    with ready(regime, COARSE_BLOCKS) as kernel:
        shared, apart = attend(q, k, v, kernel=kernel), attend(q, *repeated, kernel=kernel)
    torch.testing.assert_close(shared, apart, rtol=1e-13, atol=1e-14)


@both
@pytest.mark.parametrize("e", [1, 3, 11])
@pytest.mark.parametrize("name", ["none", "causal", "padding"])
def test_values_of_another_width(regime: str, e: int, name: str) -> None:
    check(regime, float32_inputs(61, 67, g=1, e=e), MASKS[name](61, 67))


def test_fused_refuses_values_of_another_width() -> None:
    with pytest.raises(OptionError, match="keys have d=5 and values e=11"):
        attend(*float32_inputs(7, 7, e=11), kernel="fused")


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "last axis transposed": lambda x: x.mT.contiguous().mT,
    "heads beside the width": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "every third": lambda x: x.repeat_interleave(3, -1)[..., ::3],
    "a part": lambda x: nn.functional.pad(x, (1, 2, 3, 4))[..., 3:-4, 1:-2],
    "expanded batch": lambda x: x[:1].expand_as(x),
    "expanded heads": lambda x: x[:, :1].expand_as(x),
    "expanded width": lambda x: x[..., :1].expand_as(x),
}


@fast
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_layouts(regime: str, layout: Callable[[Tensor], Tensor]) -> None:
    given = [layout(x) for x in float32_inputs(61, 61, h=6, g=3)]
    assert not any(x.is_contiguous() for x in given)
    check(regime, given, causal)


@fast
def test_one_query_for_all_rows(regime: str) -> None:
    q, k, v = float32_inputs(61, 61, h=6, g=3)
    check(regime, [q[:, :, :1].expand_as(q), k, v], causal)


@fast
def test_gradients_from_above_in_any_layout(regime: str) -> None:
    given = float32_inputs(61, 67)
    with ready(regime, COARSE_BLOCKS) as kernel:
        for upstream in (
            float32_noise(2, 3, 5, 61).mT,
            float32_noise(2, 3, 61, 1).expand(-1, -1, -1, 5),
        ):
            strange, usual = (
                with_gradients(lambda *x: attend(*x, kernel=kernel), given, x)
                for x in (upstream, upstream.contiguous())
            )
            for have, want in zip(strange, usual, strict=True):
                torch.testing.assert_close(have, want)
