"""Dropout on every kernel, and calls that leave their arguments and each other alone."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from regard import attend, causal, look
from regard.errors import OptionError
from tests.attention.budget import MASKS, all_but, from_above
from tests.attention.kernel_cases import (
    COARSE_BLOCKS,
    differentiable,
    every,
    float32_inputs,
    float32_noise,
    inputs,
    leaves,
    noise,
    ready,
)


@differentiable
def test_dropout_keeps_a_weight_raised_or_drops_it(regime: str) -> None:
    """With the unit vectors for values the output is the weights themselves."""
    q, k, _ = inputs(127, 131)
    v = torch.eye(131, dtype=torch.float64).expand(2, 3, 131, 131)
    with ready(regime, COARSE_BLOCKS) as kernel:
        weights = attend(q, k, v, kernel=kernel)
        dropped = attend(q, k, v, dropout=0.3, kernel=kernel)
    kept = dropped != 0
    torch.testing.assert_close(dropped, weights * kept / 0.7, rtol=1e-12, atol=0)
    count = kept.numel()
    # Five standard deviations of a binomial count.
    assert abs(int(kept.sum()) - 0.7 * count) < 5 * math.sqrt(0.7 * 0.3 * count)
    # Each batch entry, head and query is dropped for itself.
    lines = kept.flatten(0, 2).to(torch.float32)
    assert len(torch.unique(lines, dim=0)) == len(lines)


@differentiable
def test_dropout_leaves_the_mean(regime: str) -> None:
    given = float32_inputs(37, 41)
    draws = [x[:1].expand(400, -1, -1, -1) for x in given]
    with ready(regime, (32, 16, 2**19)) as kernel:
        usual = attend(*(x[:1] for x in given), kernel=kernel)
        drawn = attend(*draws, dropout=0.25, kernel=kernel)
    off = (drawn.mean(0) - usual[0]) / (drawn.std(0) / math.sqrt(400))
    # 555 means, each of 400 draws: their squared distances from the mean are 1 on average, with a
    # deviation of √2 each; those of a row are correlated, so count rows.
    assert abs(float(off.square().mean()) - 1) < 5 * math.sqrt(2 / (3 * 37))


@differentiable
def test_dropout_follows_the_seed(regime: str) -> None:
    given = float32_inputs(61, 67)

    def drawn(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return attend(*given, dropout=0.5, kernel=kernel)

    with ready(regime, COARSE_BLOCKS) as kernel:
        assert torch.equal(drawn(3), drawn(3))
        assert not torch.equal(drawn(3), drawn(4))
        torch.manual_seed(3)
        one, two = (attend(*given, dropout=0.5, kernel=kernel) for _ in range(2))
        assert not torch.equal(one, two)


@differentiable
def test_looking_draws_the_same_dropout(regime: str) -> None:
    given = float32_inputs(61, 67)
    with ready(regime, COARSE_BLOCKS) as kernel:
        torch.manual_seed(3)
        attended = attend(*given, dropout=0.5, kernel=kernel)
        torch.manual_seed(3)
        seen = look(*given, dropout=0.5, kernel=kernel)
        usual = look(*leaves(*given), kernel=kernel)
    assert torch.equal(seen.output, attended)
    assert torch.equal(seen.weights(), usual.weights())
    torch.testing.assert_close(seen.logsumexp, usual.logsumexp)


@differentiable
def test_dropout_backwards_is_dropout_forwards(regime: str) -> None:
    given = inputs(5, 7, b=2, h=2, g=1, d=1, e=1)
    bias = noise(5, 1, seed=7)

    def attended(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        torch.manual_seed(5)
        return attend(q, k, v, mask=causal, bias=bias, dropout=0.4, kernel=kernel)

    with ready(regime, (3, 4, 24)) as kernel:
        assert gradcheck(attended, leaves(*given, bias))


def test_fused_refuses_dropout() -> None:
    with pytest.raises(OptionError, match="it does not support dropout"):
        attend(*float32_inputs(7, 7), dropout=0.1, kernel="fused")


@every
@pytest.mark.parametrize("name", ["none", "causal", "padding"])
def test_twice_the_same_bits(regime: str, name: str) -> None:
    given, mask = leaves(*float32_inputs(127, 127, h=6, g=3)), MASKS[name](127, 127)
    with ready(regime, COARSE_BLOCKS) as kernel:
        one, two = (attend(*given, mask=mask, kernel=kernel) for _ in range(2))
        assert torch.equal(one, two)
        upstream = from_above(given)
        gradients = (torch.autograd.grad(x, given, upstream) for x in (one, two))
        for first, second in zip(*gradients, strict=True):
            assert torch.equal(first, second)


@every
def test_arguments_are_left_alone(regime: str) -> None:
    given, bias, mask = float32_inputs(67, 67), float32_noise(67, 67), all_but([3], 67, 67)
    before = [x.clone() for x in (*given, bias, mask)]
    with ready(regime, COARSE_BLOCKS) as kernel:
        attend(*leaves(*given), mask=mask, bias=bias, kernel=kernel)
    for now, then in zip((*given, bias, mask), before, strict=True):
        assert torch.equal(now, then)


@every
def test_a_result_outlives_the_next_call(regime: str) -> None:
    """Whatever memory a kernel keeps from call to call is not the caller's."""
    given, other = leaves(*float32_inputs(67, 67)), leaves(*(-x for x in float32_inputs(67, 67)))
    with ready(regime, COARSE_BLOCKS) as kernel:
        seen = look(*given, kernel=kernel)
        output, logsumexp = seen.output.clone(), seen.logsumexp.clone()
        look(*other, kernel=kernel)
    assert torch.equal(seen.output, output)
    assert torch.equal(seen.logsumexp, logsumexp)


@pytest.mark.parametrize("kernel", ["native", "blocked", "fused"])
def test_threads_do_not_meet(kernel: str) -> None:
    given = [leaves(*(x + i for x in float32_inputs(67, 61 + i))) for i in range(4)]

    def attended(i: int) -> Tensor:
        return attend(*given[i % 4], kernel=kernel).detach()

    alone = [attended(i) for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for i, together in enumerate(pool.map(attended, range(64))):
            assert torch.equal(together, alone[i % 4])
