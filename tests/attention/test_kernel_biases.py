"""Biases and scores on every kernel, with their gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck

from regard import ALiBi, RelativeBias, attend, causal, window
from regard.attention.masks import Mask
from regard.attention.scores import NAMED, Additive, Bilinear, Score
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
    both,
    differentiable,
    fast,
    float32_inputs,
    float32_noise,
    inputs,
    leaves,
    noise,
    ready,
    written,
)

BIASES: dict[str, Callable[[], Tensor]] = {
    "(b,h,q,k)": lambda: float32_noise(2, 6, 61, 67, seed=7),
    "(h,q,k)": lambda: float32_noise(6, 61, 67, seed=7),
    "(q,k)": lambda: float32_noise(61, 67, seed=7),
    "(b,1,1,k)": lambda: float32_noise(2, 1, 1, 67, seed=7),
    "(q,1)": lambda: float32_noise(61, 1, seed=7),
    "(1,k)": lambda: float32_noise(1, 67, seed=7),
    "(k,q) transposed": lambda: float32_noise(67, 61, seed=7).mT,
    "every second": lambda: float32_noise(61, 134, seed=7)[:, ::2],
}
biases = pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES.keys())


@fast
@biases
@pytest.mark.parametrize("name", ["none", "padding"])
def test_tensor_bias(regime: str, bias: Callable[[], Tensor], name: str) -> None:
    check(regime, float32_inputs(61, 67, h=6, g=2), MASKS[name](61, 67), bias())


@both
@biases
@pytest.mark.parametrize("name", ["none", "causal"])
def test_gradient_of_the_bias(regime: str, bias: Callable[[], Tensor], name: str) -> None:
    check(regime, float32_inputs(61, 67, h=6, g=2), MASKS[name](61, 67), bias(), bias_gradient=True)


def test_fused_refuses_a_bias_that_needs_a_gradient() -> None:
    given, bias = float32_inputs(7, 7), torch.zeros(7, 7, requires_grad=True)
    with pytest.raises(OptionError, match="no gradient of the bias"):
        attend(*given, bias=bias, kernel="fused")
    with torch.no_grad():
        assert attend(*given, bias=bias, kernel="fused").shape == (2, 3, 7, 5)


@both
@pytest.mark.parametrize(("q", "k"), [(63, 65), (65, 63), (1, 64)])
def test_alibi(regime: str, q: int, k: int) -> None:
    given, alibi = float32_inputs(q, k, b=batch(q, k), h=6, g=3), ALiBi(6)
    upstream, mask = from_above(given), causal.tensor(q, k)

    def attended(kernel: str) -> Callable[..., Tensor]:
        return lambda *x: attend(*x, mask=causal, bias=alibi, kernel=kernel)

    distance = (torch.arange(k) - (torch.arange(q) + k - q)[:, None]).abs()
    bias = -torch.tensor(alibi.slopes)[:, None, None] * distance
    doubles = [x.double() for x in given]
    exact = with_gradients(lambda *x: plain(*x, mask=mask, bias=bias), doubles, upstream)
    plainly = with_gradients(lambda *x: plain(*x, mask=mask, bias=bias), given, upstream)
    with ready(regime, COARSE_BLOCKS) as kernel:
        got = with_gradients(attended(kernel), given, upstream)
    within_budget(got, exact, plainly, roundings(regime, given, mask, bias, exact))


@both
@pytest.mark.parametrize("name", ["none", "causal", "padding"])
@pytest.mark.parametrize(("q", "k"), [(63, 65), (65, 63), (1, 64)])
def test_relative_bias_and_its_table(regime: str, name: str, q: int, k: int) -> None:
    given, mask = float32_inputs(q, k, b=batch(q, k), h=6, g=3), MASKS[name](q, k)
    upstream, whole = from_above(given), written(mask, q, k)
    module = RelativeBias(6, buckets=12, max_distance=23)
    table = module.table.detach()
    rows = module.bucket(torch.arange(k) - (torch.arange(q) + k - q)[:, None])

    def by_hand(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
        return plain(q, k, v, mask=whole, bias=table[rows].permute(2, 0, 1))

    exact = with_gradients(by_hand, [x.double() for x in (*given, table)], upstream)
    plainly = with_gradients(by_hand, [*given, table], upstream)
    tracked = leaves(*given)
    with ready(regime, COARSE_BLOCKS) as kernel:
        output = attend(*tracked, mask=mask, bias=module, kernel=kernel)
        gradients = torch.autograd.grad(output, [*tracked, module.table], upstream)
    free = roundings(regime, given, whole, table[rows].permute(2, 0, 1), exact[:4])
    within_budget([output.detach(), *gradients], exact, plainly, [*free, torch.zeros(1)])


@pytest.mark.parametrize("bias", [ALiBi(3), RelativeBias(3)], ids=["ALiBi", "RelativeBias"])
def test_fused_refuses_a_bias_it_would_have_to_write_out(bias: ALiBi | RelativeBias) -> None:
    with pytest.raises(OptionError, match="would have to be materialized"):
        attend(*float32_inputs(7, 7), bias=bias, kernel="fused")


def with_rounded_sums(
    given: list[Tensor], score: Score, learned: list[nn.Parameter], upstream: Tensor
) -> list[Tensor]:
    """Output and gradients, exact but for the log-sum-exp, which is float32 arithmetic.

    torch's operation computes its gradients from that: its last place is a common factor of all the
    weights in a row.
    """
    q, k, v = leaves(*(x.double() for x in given))
    keys, values = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores, above = score(q, keys), upstream.double()
    output = torch.softmax(scores, -1) @ values
    with torch.no_grad():
        weights = (scores - scores.float().logsumexp(-1, keepdim=True)).exp()
        slopes = weights * (above @ values.mT - (above * output).sum(-1, keepdim=True))
    parts = torch.autograd.grad([scores, values], [q, k, v, *learned], [slopes, weights.mT @ above])
    return [output.detach(), *parts]


def check_score(
    regime: str, given: list[Tensor], score: str | Score, simple: Score | None = None
) -> None:
    """As `check`, and the gradients of what the score learns."""
    call = NAMED[score] if isinstance(score, str) else score
    learned = list(call.parameters()) if isinstance(call, nn.Module) else []
    precise = copy.deepcopy(call).double() if isinstance(call, nn.Module) else call
    precisely = list(precise.parameters()) if isinstance(precise, nn.Module) else []
    upstream = from_above(given)

    def run(function: Callable[..., Tensor], dtype: torch.dtype, extra: list[nn.Parameter]):
        tracked = leaves(*(x.to(dtype) for x in given))
        output = function(*tracked)
        gradients = torch.autograd.grad(output, [*tracked, *extra], upstream.to(dtype))
        return [output.detach(), *gradients]

    exact = run(lambda *x: plain(*x, score=precise), torch.float64, precisely)
    plainly = run(lambda *x: plain(*x, score=simple or call), torch.float32, learned)
    if regime == "fused":
        rounded = with_rounded_sums(given, precise, precisely, upstream)
        changes = [x - y for x, y in zip(rounded, exact, strict=True)]
        plainly = [(x + y).float() for x, y in zip(plainly, changes, strict=True)]
    with ready(regime, COARSE_BLOCKS) as kernel:
        got = run(lambda *x: attend(*x, score=score, kernel=kernel), torch.float32, learned)
    within_budget(got, exact, plainly)


@fast
@pytest.mark.parametrize("score", ["dot", "scaled_dot", "cosine"])
def test_named_scores(regime: str, score: str) -> None:
    check_score(regime, float32_inputs(61, 67, h=6, g=3), score)


@fast
@pytest.mark.parametrize("origin", [0.0, 30.0])
def test_gaussian(regime: str, origin: float) -> None:
    """The distance of two points does not depend on where the origin is.

    Plainly, it is three products: -|q - k|² / 2 = q·k - |q|²/2 - |k|²/2, about the first query.
    """

    def three_products(q: Tensor, k: Tensor) -> Tensor:
        near = q[..., :1, :].detach()
        q, k = q - near, k - near
        of_q, of_k = (x.square().sum(-1, keepdim=True) / 2 for x in (q, k))
        return q @ k.mT - of_q - of_k.mT

    q, k, v = float32_inputs(61, 67, h=6, g=3)
    check_score(regime, [q + origin, k + origin, v], "gaussian", three_products)


@fast
@pytest.mark.parametrize("heads", [None, 6])
def test_bilinear(regime: str, heads: int | None) -> None:
    check_score(regime, float32_inputs(61, 67, h=6, g=3), Bilinear(5, heads=heads))


@both
def test_additive(regime: str) -> None:
    check_score(regime, float32_inputs(61, 67, h=6, g=3), Additive(5, hidden=7))


def _transposed(q: Tensor, k: Tensor) -> Tensor:
    return (k @ q.mT).mT / 2


def _same(q: Tensor, k: Tensor) -> Tensor:
    return (q.sum(-1, keepdim=True) / 3).expand(*q.shape[:-1], k.shape[-2])


@both
@pytest.mark.parametrize("g", [1, 3, 6])
@pytest.mark.parametrize("score", [_transposed, _same], ids=["transposed", "expanded"])
def test_a_function_may_return_any_layout(regime: str, g: int, score: Score) -> None:
    q, k, v = inputs(61, 67, h=6, g=g)
    upstream = from_above([q, k, v])
    wanted = with_gradients(lambda q, v: plain(q, k, v, score=score), [q, v], upstream)
    with ready(regime, COARSE_BLOCKS) as kernel:
        got = with_gradients(
            lambda q, v: attend(q, k, v, score=score, kernel=kernel), [q, v], upstream
        )
    for have, want in zip(got, wanted, strict=True):
        torch.testing.assert_close(have, want, rtol=1e-13, atol=1e-14)


def test_fused_refuses_a_score_that_is_no_dot_product() -> None:
    with pytest.raises(OptionError, match="does not reduce to a dot product"):
        attend(*float32_inputs(7, 7), score=_transposed, kernel="fused")


differences = pytest.mark.parametrize("regime", ["reference", "plain", "many blocks", "fused"])


@differences
@pytest.mark.parametrize("mask", [None, causal], ids=["none", "causal"])
def test_gradcheck(regime: str, mask: Mask | None) -> None:
    given = leaves(*inputs(5, 5, b=1, h=2, g=1, d=2))
    with ready(regime, (2, 2, 8)) as kernel:
        assert gradcheck(lambda *x: attend(*x, mask=mask, kernel=kernel), given)


@differentiable
def test_gradcheck_of_unequal_lengths_and_widths(regime: str) -> None:
    """With rows that see nothing, a bias that is broadcast, and batch entries in turn."""
    given = inputs(5, 3, b=2, h=2, g=1, d=2, e=3)
    bias = noise(2, 1, 3, seed=7)
    mask = causal & window(2)
    with ready(regime, (2, 2, 8)) as kernel:
        assert gradcheck(
            lambda q, k, v, bias: attend(q, k, v, mask=mask, bias=bias, kernel=kernel),
            leaves(*given, bias),
        )
