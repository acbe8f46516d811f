"""Random calls on every kernel, and how far from the exact result each may be."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from regard import attend, causal, padding, prefix, segments, window
from regard.attention.masks import Mask
from regard.attention.scores import Score
from tests.attention.kernel_cases import COARSE_BLOCKS, Masking, leaves, noise, ready, written

INF, NAN = math.inf, math.nan


def plain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    score: Score | None = None,
) -> Tensor:
    """Attention in the precision of its input, as anybody would write it down."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT / math.sqrt(q.shape[-1]) if score is None else score(q, k)
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    if mask is None:
        return torch.softmax(scores, -1) @ v
    nothing = ~mask.any(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(~mask, -INF).masked_fill(nothing, 0.0), -1)
    return weights.masked_fill(nothing, 0.0) @ v


def from_above(given: list[Tensor]) -> Tensor:
    """The gradient of the output, rounded to the precision of the input."""
    return noise(*given[0].shape[:-1], given[2].shape[-1], seed=99, dtype=given[0].dtype)


def with_gradients(
    function: Callable[..., Tensor], given: list[Tensor], upstream: Tensor
) -> list[Tensor]:
    """What the function returns and the gradient of each argument."""
    tracked = leaves(*given)
    output = function(*tracked)
    return [output.detach(), *torch.autograd.grad(output, tracked, upstream.to(output.dtype))]


def roundings(
    regime: str, given: list[Tensor], mask: Tensor | None, bias: Tensor | None, exact: list[Tensor]
) -> list[Tensor]:
    """What one rounding of each term does to output and gradients, before anything cancels.

    The gradient of a score is weight · (g·v − mean of g·v). Where a single key is seen the two
    cancel, in plain attention by chance without a rest; a rest of a rounding is fair. And torch's
    operation keeps the log-sum-exp for its gradients in the precision of the scores: the last place
    of that number is a common factor of all the weights in a row.
    """
    eps = torch.finfo(given[0].dtype).eps
    upstream = from_above(given).double()
    q, k, v = (x.detach().double() for x in given[:3])
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    places = torch.eye(k.shape[-2], dtype=torch.float64).expand(*k.shape[:-1], -1)
    weights = plain(q, k, places, mask, bias)
    factor = 1 / math.sqrt(q.shape[-1])
    terms = weights * (upstream.abs() @ v.abs().mT)
    wrong_by_all = torch.zeros_like(weights)
    if regime == "fused":
        scores = q @ k.mT * factor + (0.0 if bias is None else bias.double())
        scores = scores if mask is None else scores.masked_fill(~mask, -INF)
        last = scores.logsumexp(-1, keepdim=True).abs().nan_to_num(posinf=0.0)
        wrong_by_all = weights * last
        towards = upstream @ v.mT
        terms = terms + wrong_by_all * (towards - (weights * towards).sum(-1, keepdim=True)).abs()

    def gathered(x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, groups)).sum(2)

    sizes = [
        exact[0],
        terms @ k.abs() * factor,
        gathered(terms.mT @ q.abs() * factor),
        gathered(wrong_by_all.mT @ upstream.abs()) + exact[3].abs(),
    ]
    if len(exact) > 4:
        sizes.append(terms.sum_to_size(exact[4].shape))
    return [eps * size for size in sizes]


NAMES = ("output", "gradient of q", "gradient of k", "gradient of v", "gradient of bias")


def rms(x: Tensor) -> float:
    return float(x.double().square().mean().sqrt())


def within_budget(
    got: list[Tensor],
    exact: list[Tensor],
    plainly: list[Tensor],
    free: list[Tensor] | None = None,
) -> None:
    """Each at most twice as wrong as plain arithmetic, or wrong by one rounding."""
    for i, (have, want, simple) in enumerate(zip(got, exact, plainly, strict=True)):
        name = NAMES[min(i, 4)]
        assert have.shape == want.shape, name
        assert have.dtype == simple.dtype, name
        error, budget = rms(have.double() - want), rms(simple.double() - want)
        least = rms(free[i]) if free else 0.0
        assert error <= max(2 * budget, least), f"{name}: {error:.2e}, plainly {budget:.2e}"


def check(
    regime: str,
    given: list[Tensor],
    mask: Masking = None,
    bias: Tensor | None = None,
    *,
    bias_gradient: bool = False,
    rounding: bool = True,
) -> None:
    """Output, tracked and not, and gradients of one call, within the budget."""
    whole = written(mask, given[0].shape[-2], given[1].shape[-2])
    arguments = [*given, bias] if bias is not None and bias_gradient else given
    upstream = from_above(given)

    def attended(kernel: str) -> Callable[..., Tensor]:
        return lambda q, k, v, b=bias: attend(q, k, v, mask=mask, bias=b, kernel=kernel)

    doubles = [x.double() for x in arguments]
    exact = with_gradients(attended("reference"), doubles, upstream)
    plainly = with_gradients(lambda q, k, v, b=bias: plain(q, k, v, whole, b), arguments, upstream)
    with ready(regime, COARSE_BLOCKS) as kernel:
        got = with_gradients(attended(kernel), arguments, upstream)
        with torch.no_grad():
            untracked = attended(kernel)(*arguments)
    free = roundings(regime, given, whole, bias, exact) if rounding else None
    within_budget(got, exact, plainly, free)
    within_budget([untracked], exact[:1], plainly[:1], free)


def batch(q: int, k: int) -> int:
    """More entries where rows are few, so that an error is the mean over enough of them."""
    return 20 if min(q, k) <= 2 else 2


def _padding(q: int, k: int) -> Mask:
    return padding([k, k // 2] * (batch(q, k) // 2))


def _segments(q: int, k: int) -> Mask:
    ids = torch.stack([torch.arange(k) // 20, torch.arange(k) // 50])
    return segments(ids.repeat(batch(q, k) // 2, 1))


def _dense(q: int, k: int) -> Tensor:
    generator = torch.Generator().manual_seed(q * k)
    return torch.rand(batch(q, k), 1, q, k, generator=generator) < 0.5


MASKS: dict[str, Callable[[int, int], Masking]] = {
    "none": lambda q, k: None,
    "causal": lambda q, k: causal,
    "causal & window": lambda q, k: causal & window(9),
    "padding": _padding,
    "segments": _segments,
    "causal | prefix": lambda q, k: causal | prefix(3),
    "dense": _dense,
}


def all_but(rows: list[int], q: int, k: int) -> Tensor:
    return torch.ones(q, k, dtype=torch.bool).index_fill(0, torch.tensor(rows), False)
