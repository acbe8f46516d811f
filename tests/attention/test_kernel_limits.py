"""Rows with nothing to attend to, large scores and empty tensors, on every kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from regard import attend, causal, look, padding, window
from regard.attention.masks import Mask
from regard.errors import OptionError
from tests.attention.budget import INF, all_but, check, from_above, with_gradients
from tests.attention.kernel_cases import (
    COARSE_BLOCKS,
    DTYPES,
    Masking,
    differentiable,
    every,
    fast,
    float32_inputs,
    float32_noise,
    inputs,
    leaves,
    ready,
)


@contextmanager
def unless_refused(regime: str) -> Iterator[None]:
    """The flash operation may refuse what it cannot do well; it may not do it badly."""
    try:
        yield
    except OptionError as refusal:
        if regime != "fused" or "kernel='fused' cannot do this call" not in str(refusal):
            raise


ALL_DTYPES = pytest.mark.parametrize("dtype", DTYPES, ids=str)
EMPTY: dict[str, Callable[[], tuple[Masking, Tensor | None, Tensor]]] = {
    # mask, bias, and which rows of (2 entries, 67 queries) see nothing of 61 keys
    "dense mask": lambda: (all_but([0, 33, 66], 67, 61), None, ~all_but([0, 33, 66], 67, 2).mT),
    "no words": lambda: (padding([0, 61]), None, torch.tensor([[True], [False]]).expand(2, 67)),
    "more queries than keys": lambda: (causal, None, (torch.arange(67) < 6).expand(2, 67)),
    "window before the keys": lambda: (
        window(before=1, after=2),
        None,
        (torch.arange(67) < 4).expand(2, 67),
    ),
    "bias": lambda: (
        None,
        torch.zeros(67, 61).masked_fill(~all_but([0, 33, 66], 67, 61), -INF),
        ~all_but([0, 33, 66], 67, 2).mT,
    ),
    "mask and bias": lambda: (
        padding([61, 7]),
        torch.zeros(61).index_fill(0, torch.arange(7), -INF).expand(67, 61),
        torch.tensor([[False], [True]]).expand(2, 67),
    ),
}
FUSED_CANNOT = ("more queries than keys", "window before the keys")


@every
@ALL_DTYPES
@pytest.mark.parametrize("how", EMPTY.keys())
def test_nothing_to_see(regime: str, dtype: torch.dtype, how: str) -> None:
    mask, bias, empty = EMPTY[how]()
    bias = None if bias is None else bias.to(dtype)
    given = leaves(*inputs(67, 61, h=6, g=2, dtype=dtype))
    nothing = empty[:, None, :].expand(2, 6, 67)
    with ready(regime, COARSE_BLOCKS) as kernel:
        if regime == "fused" and how in FUSED_CANNOT:
            with pytest.raises(OptionError, match="would have to be materialized"):
                look(*given, mask=mask, bias=bias, kernel=kernel)
            return
        seen = look(*given, mask=mask, bias=bias, kernel=kernel)
    assert seen.output.isfinite().all()
    assert torch.equal((seen.output == 0).all(-1), nothing)
    assert torch.equal(seen.logsumexp == -INF, nothing)


@fast
@ALL_DTYPES
@pytest.mark.parametrize("how", EMPTY.keys())
def test_nothing_to_see_backwards(regime: str, dtype: torch.dtype, how: str) -> None:
    """What is above the empty rows reaches nothing, however large it is."""
    if regime == "fused" and how in FUSED_CANNOT:
        pytest.skip("refused, as the test above shows")
    mask, bias, empty = EMPTY[how]()
    bias = None if bias is None else bias.to(dtype)
    given = leaves(*inputs(67, 61, h=6, g=2, dtype=dtype))
    nothing = empty[:, None, :].expand(2, 6, 67)
    upstream = from_above(given)
    with ready(regime, COARSE_BLOCKS) as kernel:
        usual, wild = (
            with_gradients(
                lambda *x: attend(*x, mask=mask, bias=bias, kernel=kernel),
                given,
                upstream.masked_fill(nothing.unsqueeze(-1), above),
            )[1:]
            for above in (0.0, 1e4)
        )
    assert (usual[0][nothing] == 0).all()
    for one, other in zip(usual, wild, strict=True):
        assert one.isfinite().all()
        assert (one != 0).any()
        assert torch.equal(one, other)


@differentiable
def test_nothing_to_see_gives_the_bias_no_gradient(regime: str) -> None:
    q, k, v = float32_inputs(67, 61)
    bias = float32_noise(67, 61).masked_fill(~all_but([0, 33, 66], 67, 61), -INF)
    bias[5, 7] = -INF
    bias.requires_grad_()
    with ready(regime, COARSE_BLOCKS) as kernel:
        attend(q, k, v, bias=bias, kernel=kernel).square().sum().backward()
    assert torch.equal(bias.grad == 0, bias == -INF)


@every
@ALL_DTYPES
@pytest.mark.parametrize("value", [-1e4, -1e9])
def test_a_large_negative_bias_hides_nothing(regime: str, dtype: torch.dtype, value: float) -> None:
    """With values of 1 every row that sees anything is 1, whatever its weights."""
    q, k, v = inputs(67, 61, dtype=dtype)
    bias = torch.zeros(67, 61).index_fill(0, torch.tensor([3, 66]), value)
    with ready(regime, COARSE_BLOCKS) as kernel, unless_refused(regime):
        seen = look(*leaves(q, k, torch.ones_like(v)), bias=bias, kernel=kernel)
        error = (seen.output.double() - 1).abs().max()
        assert error <= 4 * torch.finfo(dtype).eps  # a sum of weights, each rounded
        assert (seen.logsumexp[:, :, [3, 66]] < value / 2).all()
        assert seen.logsumexp.isfinite().all()


@fast
@pytest.mark.parametrize("value", [-1e4, -1e9, torch.finfo(torch.float32).min])
def test_a_large_negative_bias_is_only_a_bias(regime: str, value: float) -> None:
    """Output and gradients are those of plain softmax."""
    bias = torch.zeros(67, 61).index_fill(0, torch.tensor([3, 66]), value)
    with unless_refused(regime):
        check(regime, float32_inputs(67, 61), bias=bias, rounding=False)


@every
@pytest.mark.parametrize("mask", [None, causal], ids=["none", "causal"])
@pytest.mark.parametrize("shift", [150.0, -150.0])
def test_scores_far_from_0_leave_other_rows_as_they_are(
    regime: str, mask: Mask | None, shift: float
) -> None:
    """Their exponentials overflow, or are 0, if nothing is subtracted first."""
    q, k, v = float32_inputs(12, 12)
    bias = torch.zeros(12, 12).index_fill(0, torch.tensor([4, 9]), shift)
    near = [i for i in range(12) if i not in (4, 9)]
    with ready(regime, COARSE_BLOCKS) as kernel:
        plainly, seen = (look(q, k, v, mask=mask, bias=b, kernel=kernel) for b in (0 * bias, bias))
        assert torch.equal(seen.output[:, :, near], plainly.output[:, :, near])
        torch.testing.assert_close(seen.output, plainly.output, rtol=0, atol=1e-4)
        torch.testing.assert_close(
            seen.logsumexp, plainly.logsumexp + bias[:, 0], rtol=0, atol=1e-4
        )


@fast
@pytest.mark.parametrize("mask", [None, causal], ids=["none", "causal"])
@pytest.mark.parametrize("sign", [1, -1])
def test_scores_of_ten_thousand(regime: str, mask: Mask | None, sign: int) -> None:
    q, k, v = float32_inputs(65, 65)
    # One direction for all, so that scores lie near ±10,000 and yet compete.
    q = q * 0.05 + torch.tensor([100.0, 0, 0, 0, 0])
    k = k * 0.05 + sign * torch.tensor([100 * math.sqrt(5), 0, 0, 0, 0])
    scores = q @ k.mT / math.sqrt(5)
    assert scores.abs().min() > 9_000
    check(regime, [q, k, v], mask)


@fast
def test_scores_from_minus_to_plus_ten_thousand(regime: str) -> None:
    q, k, v = float32_inputs(65, 67)
    check(regime, [q * 4_000, k, v])


@fast
def test_a_logsumexp_of_zero_is_a_number_like_others(regime: str) -> None:
    """The first query sees one key with a score of 0; the flash operation says 0 for nothing."""
    q, k, v = float32_inputs(65, 65)
    assert (look(0 * q, k, v, mask=causal, kernel="reference").logsumexp[:, :, 0] == 0).all()
    check(regime, [0 * q, k, v], causal)


ZERO = {"batch": (0, 5, 7), "queries": (2, 0, 7), "keys": (2, 5, 0), "both": (2, 0, 0)}
zero = pytest.mark.parametrize(("b", "q", "k"), ZERO.values(), ids=ZERO.keys())


@every
@zero
@pytest.mark.parametrize("mask", [None, causal], ids=["none", "causal"])
def test_zero_lengths(regime: str, b: int, q: int, k: int, mask: Mask | None) -> None:
    given = leaves(*float32_inputs(q, k, b=b, h=6, g=2))
    with ready(regime, COARSE_BLOCKS) as kernel:
        if regime in ("native", "plain", "fused"):
            with pytest.raises(OptionError, match="nothing to compute"):
                attend(*given, mask=mask, kernel=kernel)
            return
        seen = look(*given, mask=mask, kernel=kernel)
    assert seen.output.shape == (b, 6, q, 5)
    assert (seen.output == 0).all()
    assert seen.logsumexp.shape == (b, 6, q)
    assert (seen.logsumexp == -INF).all()
    gradients = torch.autograd.grad(seen.output.sum(), given)
    for leaf, gradient in zip(given, gradients, strict=True):
        assert gradient.shape == leaf.shape
        assert (gradient == 0).all()


@differentiable
@zero
def test_zero_lengths_with_a_written_mask(regime: str, b: int, q: int, k: int) -> None:
    mask = torch.ones(b, 1, q, k, dtype=torch.bool)
    with ready(regime, COARSE_BLOCKS) as kernel:
        if regime == "plain":
            with pytest.raises(OptionError, match="nothing to compute"):
                attend(*float32_inputs(q, k, b=b), mask=mask, kernel=kernel)
            return
        output = attend(*leaves(*float32_inputs(q, k, b=b)), mask=mask, kernel=kernel)
    assert output.shape == (b, 3, q, 5)
    assert (output == 0).all()


@differentiable
@zero
def test_zero_lengths_with_a_bias(regime: str, b: int, q: int, k: int) -> None:
    with ready(regime, COARSE_BLOCKS) as kernel:
        if regime == "plain":
            with pytest.raises(OptionError, match="nothing to compute"):
                attend(*float32_inputs(q, k, b=b), bias=float32_noise(b, 3, q, k), kernel=kernel)
            return
        output = attend(
            *leaves(*float32_inputs(q, k, b=b)), bias=float32_noise(b, 3, q, k), kernel=kernel
        )
    assert output.shape == (b, 3, q, 5)
    assert (output == 0).all()
