"""Blocked and fused against the reference, in every shape, mask, dtype and awkward number.

The budget: at most twice the error that plain attention makes in the same precision, three lines of
matrix products and a softmax, gradients too. Errors are root mean squares over a tensor. (The
largest error of a tensor is a matter of luck: it changes by more than a factor of 2 when plain
float32 merely scales before the product and not after it.)
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck

from regard import ALiBi, RelativeBias, attend, causal, look, padding, prefix, segments, window
from regard.attention.kernels import blocked
from regard.attention.masks import Mask
from regard.attention.scores import NAMED, Additive, Bilinear, Score
from regard.errors import OptionError

# Virtual machines that announce AMX and then forbid it end the process at the first bfloat16
# product. oneDNN reads this when it is first used, which is after the tests are collected.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

INF, NAN = math.inf, math.nan
EDGES = (1, 2, 63, 64, 65, 127, 257)
HALF = (torch.bfloat16, torch.float16)
DTYPES = (torch.float32, torch.float64, *HALF)

# What computes a call; "many blocks" is blocked with blocks so small that short rows need many.
every = pytest.mark.parametrize("regime", ["reference", "native", "plain", "many blocks", "fused"])
fast = pytest.mark.parametrize("regime", ["native", "plain", "many blocks", "fused"])
both = pytest.mark.parametrize("regime", ["plain", "many blocks"])
differentiable = pytest.mark.parametrize("regime", ["reference", "plain", "many blocks"])

Masking = Mask | Tensor | None


@contextmanager
def ready(regime: str, height: int = 32, width: int = 16, span: int = 2**13) -> Iterator[str]:
    """The name of the kernel; for many blocks, with blocks so small that short rows need many."""
    with pytest.MonkeyPatch.context() as patch:
        if regime == "many blocks":
            patch.setattr(blocked, "HEIGHT", height)
            patch.setattr(blocked, "WIDTH", width)
            patch.setattr(blocked, "SPAN", span)
            patch.setattr(blocked, "PAIRWISE", 4)
        try:
            yield "blocked" if regime == "many blocks" else regime
        except OptionError as error:
            if "it has float32 and bfloat16" in str(error):
                pytest.skip("refused")
            raise


@contextmanager
def unless_refused(regime: str) -> Iterator[None]:
    """The flash operation may refuse what it cannot do well; it may not do it badly."""
    try:
        yield
    except OptionError as refusal:
        if regime != "fused" or "kernel='fused' cannot do this call" not in str(refusal):
            raise


def leaves(*given: Tensor) -> list[Tensor]:
    return [x.detach().requires_grad_() for x in given]


def noise(*sizes: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


def inputs(
    q: int,
    k: int,
    *,
    b: int = 2,
    h: int = 3,
    g: int | None = None,
    d: int = 5,
    e: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> list[Tensor]:
    g, e = g or h, e or d
    sizes = ((b, h, q, d), (b, g, k, d), (b, g, k, e))
    return [noise(*size, seed=i, dtype=dtype) for i, size in enumerate(sizes)]


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


def written(mask: Masking, q: int, k: int) -> Tensor | None:
    return mask.tensor(q, k) if isinstance(mask, Mask) else mask


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
    with ready(regime) as kernel:
        got = with_gradients(attended(kernel), arguments, upstream)
        with torch.no_grad():
            untracked = attended(kernel)(*arguments)
    free = roundings(regime, given, whole, bias, exact) if rounding else None
    within_budget(got, exact, plainly, free)
    within_budget([untracked], exact[:1], plainly[:1], free)


# Lengths around the edges of blocks, with every mask


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
    given, mask = inputs(q, k, b=batch(q, k)), MASKS[name](q, k)
    upstream, whole = from_above(given), written(mask, q, k)
    doubles = [x.double() for x in given]
    exact = with_gradients(lambda *x: attend(*x, mask=mask, kernel="reference"), doubles, upstream)
    return given, exact, with_gradients(lambda *x: plain(*x, mask=whole), given, upstream)


@fast
@pytest.mark.parametrize(("name", "q", "k"), CASES)
def test_lengths_and_masks(regime: str, name: str, q: int, k: int) -> None:
    given, exact, plainly = case(name, q, k)
    mask = MASKS[name](q, k)
    with ready(regime) as kernel:
        if regime == "fused" and not fused_can(name, q, k):
            with pytest.raises(OptionError, match="would have to be written out"):
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
    given, mask = inputs(65, 65, dtype=torch.float64), MASKS[name](65, 65)
    upstream = from_above(given)
    exact = with_gradients(lambda *x: attend(*x, mask=mask, kernel="reference"), given, upstream)
    with ready(regime) as kernel:
        got = with_gradients(lambda *x: attend(*x, mask=mask, kernel=kernel), given, upstream)
    for have, want in zip(got, exact, strict=True):
        # Sums of 65 terms of size 1: some dozens of roundings of 2.2e-16.
        torch.testing.assert_close(have, want, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", ["none", "causal", "causal & window", "padding", "dense"])
def test_long_sequences_take_many_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real constants: 2 × 1511 × 1523 scores are more than one block holds."""
    q, k = 1511, 1523
    given, mask = inputs(q, k, b=2, h=1, d=7), MASKS[name](q, k)
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


# Heads, widths, strides


@fast
@pytest.mark.parametrize("g", [1, 2, 3])
@pytest.mark.parametrize("mask", [None, causal], ids=["none", "causal"])
def test_grouped_heads(regime: str, g: int, mask: Mask | None) -> None:
    check(regime, inputs(67, 67, h=6, g=g), mask)


@fast
@pytest.mark.parametrize("g", [1, 2, 3])
def test_grouped_heads_share_in_order(regime: str, g: int) -> None:
    q, k, v = inputs(11, 13, h=6, g=g, dtype=torch.float64)
    repeated = [x.repeat_interleave(6 // g, 1) for x in (k, v)]
    with ready(regime) as kernel:
        shared, apart = attend(q, k, v, kernel=kernel), attend(q, *repeated, kernel=kernel)
    torch.testing.assert_close(shared, apart, rtol=1e-13, atol=1e-14)


@both
@pytest.mark.parametrize("e", [1, 3, 11])
@pytest.mark.parametrize("name", ["none", "causal", "padding"])
def test_values_of_another_width(regime: str, e: int, name: str) -> None:
    check(regime, inputs(61, 67, g=1, e=e), MASKS[name](61, 67))


def test_fused_refuses_values_of_another_width() -> None:
    with pytest.raises(OptionError, match="keys have d=5 and values e=11"):
        attend(*inputs(7, 7, e=11), kernel="fused")


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
    given = [layout(x) for x in inputs(61, 61, h=6, g=3)]
    assert not any(x.is_contiguous() for x in given)
    check(regime, given, causal)


@fast
def test_one_query_for_all_rows(regime: str) -> None:
    q, k, v = inputs(61, 61, h=6, g=3)
    check(regime, [q[:, :, :1].expand_as(q), k, v], causal)


@fast
def test_gradients_from_above_in_any_layout(regime: str) -> None:
    given = inputs(61, 67)
    with ready(regime) as kernel:
        for upstream in (noise(2, 3, 5, 61).mT, noise(2, 3, 61, 1).expand(-1, -1, -1, 5)):
            strange, usual = (
                with_gradients(lambda *x: attend(*x, kernel=kernel), given, x)
                for x in (upstream, upstream.contiguous())
            )
            for have, want in zip(strange, usual, strict=True):
                torch.testing.assert_close(have, want)


# Bias


BIASES: dict[str, Callable[[], Tensor]] = {
    "(b,h,q,k)": lambda: noise(2, 6, 61, 67, seed=7),
    "(h,q,k)": lambda: noise(6, 61, 67, seed=7),
    "(q,k)": lambda: noise(61, 67, seed=7),
    "(b,1,1,k)": lambda: noise(2, 1, 1, 67, seed=7),
    "(q,1)": lambda: noise(61, 1, seed=7),
    "(1,k)": lambda: noise(1, 67, seed=7),
    "(k,q) transposed": lambda: noise(67, 61, seed=7).mT,
    "every second": lambda: noise(61, 134, seed=7)[:, ::2],
}
biases = pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES.keys())


@fast
@biases
@pytest.mark.parametrize("name", ["none", "padding"])
def test_tensor_bias(regime: str, bias: Callable[[], Tensor], name: str) -> None:
    check(regime, inputs(61, 67, h=6, g=2), MASKS[name](61, 67), bias())


@both
@biases
@pytest.mark.parametrize("name", ["none", "causal"])
def test_gradient_of_the_bias(regime: str, bias: Callable[[], Tensor], name: str) -> None:
    check(regime, inputs(61, 67, h=6, g=2), MASKS[name](61, 67), bias(), bias_gradient=True)


def test_fused_refuses_a_bias_that_needs_a_gradient() -> None:
    given, bias = inputs(7, 7), torch.zeros(7, 7, requires_grad=True)
    with pytest.raises(OptionError, match="no gradient to the bias"):
        attend(*given, bias=bias, kernel="fused")
    with torch.no_grad():
        assert attend(*given, bias=bias, kernel="fused").shape == (2, 3, 7, 5)


@both
@pytest.mark.parametrize(("q", "k"), [(63, 65), (65, 63), (1, 64)])
def test_alibi(regime: str, q: int, k: int) -> None:
    given, alibi = inputs(q, k, b=batch(q, k), h=6, g=3), ALiBi(6)
    upstream, mask = from_above(given), causal.tensor(q, k)

    def attended(kernel: str) -> Callable[..., Tensor]:
        return lambda *x: attend(*x, mask=causal, bias=alibi, kernel=kernel)

    distance = (torch.arange(k) - (torch.arange(q) + k - q)[:, None]).abs()
    bias = -torch.tensor(alibi.slopes)[:, None, None] * distance
    doubles = [x.double() for x in given]
    exact = with_gradients(lambda *x: plain(*x, mask=mask, bias=bias), doubles, upstream)
    plainly = with_gradients(lambda *x: plain(*x, mask=mask, bias=bias), given, upstream)
    with ready(regime) as kernel:
        got = with_gradients(attended(kernel), given, upstream)
    within_budget(got, exact, plainly, roundings(regime, given, mask, bias, exact))


@both
@pytest.mark.parametrize("name", ["none", "causal", "padding"])
@pytest.mark.parametrize(("q", "k"), [(63, 65), (65, 63), (1, 64)])
def test_relative_bias_and_its_table(regime: str, name: str, q: int, k: int) -> None:
    given, mask = inputs(q, k, b=batch(q, k), h=6, g=3), MASKS[name](q, k)
    upstream, whole = from_above(given), written(mask, q, k)
    module = RelativeBias(6, buckets=12, max_distance=23)
    table = module.table.detach()
    rows = module.bucket(torch.arange(k) - (torch.arange(q) + k - q)[:, None])

    def by_hand(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
        return plain(q, k, v, mask=whole, bias=table[rows].permute(2, 0, 1))

    exact = with_gradients(by_hand, [x.double() for x in (*given, table)], upstream)
    plainly = with_gradients(by_hand, [*given, table], upstream)
    tracked = leaves(*given)
    with ready(regime) as kernel:
        output = attend(*tracked, mask=mask, bias=module, kernel=kernel)
        gradients = torch.autograd.grad(output, [*tracked, module.table], upstream)
    free = roundings(regime, given, whole, table[rows].permute(2, 0, 1), exact[:4])
    within_budget([output.detach(), *gradients], exact, plainly, [*free, torch.zeros(1)])


@pytest.mark.parametrize("bias", [ALiBi(3), RelativeBias(3)], ids=["ALiBi", "RelativeBias"])
def test_fused_refuses_a_bias_it_would_have_to_write_out(bias: ALiBi | RelativeBias) -> None:
    with pytest.raises(OptionError, match="would have to be written out"):
        attend(*inputs(7, 7), bias=bias, kernel="fused")


# Scores


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
    with ready(regime) as kernel:
        got = run(lambda *x: attend(*x, score=score, kernel=kernel), torch.float32, learned)
    within_budget(got, exact, plainly)


@fast
@pytest.mark.parametrize("score", ["dot", "scaled_dot", "cosine"])
def test_named_scores(regime: str, score: str) -> None:
    check_score(regime, inputs(61, 67, h=6, g=3), score)


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

    q, k, v = inputs(61, 67, h=6, g=3)
    check_score(regime, [q + origin, k + origin, v], "gaussian", three_products)


@fast
@pytest.mark.parametrize("heads", [None, 6])
def test_bilinear(regime: str, heads: int | None) -> None:
    check_score(regime, inputs(61, 67, h=6, g=3), Bilinear(5, heads=heads))


@both
def test_additive(regime: str) -> None:
    check_score(regime, inputs(61, 67, h=6, g=3), Additive(5, hidden=7))


def _transposed(q: Tensor, k: Tensor) -> Tensor:
    return (k @ q.mT).mT / 2


def _same(q: Tensor, k: Tensor) -> Tensor:
    return (q.sum(-1, keepdim=True) / 3).expand(*q.shape[:-1], k.shape[-2])


@both
@pytest.mark.parametrize("g", [1, 3, 6])
@pytest.mark.parametrize("score", [_transposed, _same], ids=["transposed", "expanded"])
def test_a_function_may_return_any_layout(regime: str, g: int, score: Score) -> None:
    q, k, v = inputs(61, 67, h=6, g=g, dtype=torch.float64)
    upstream = from_above([q, k, v])
    wanted = with_gradients(lambda q, v: plain(q, k, v, score=score), [q, v], upstream)
    with ready(regime) as kernel:
        got = with_gradients(
            lambda q, v: attend(q, k, v, score=score, kernel=kernel), [q, v], upstream
        )
    for have, want in zip(got, wanted, strict=True):
        torch.testing.assert_close(have, want, rtol=1e-13, atol=1e-14)


def test_fused_refuses_a_score_that_is_no_dot_product() -> None:
    with pytest.raises(OptionError, match="does not reduce to a dot product"):
        attend(*inputs(7, 7), score=_transposed, kernel="fused")


# Gradients against finite differences


differences = pytest.mark.parametrize("regime", ["reference", "plain", "many blocks", "fused"])


@differences
@pytest.mark.parametrize("mask", [None, causal], ids=["none", "causal"])
def test_gradcheck(regime: str, mask: Mask | None) -> None:
    given = leaves(*inputs(5, 5, b=1, h=2, g=1, d=2, dtype=torch.float64))
    with ready(regime, height=2, width=2, span=8) as kernel:
        assert gradcheck(lambda *x: attend(*x, mask=mask, kernel=kernel), given)


@differentiable
def test_gradcheck_of_unequal_lengths_and_widths(regime: str) -> None:
    """With rows that see nothing, a bias that is broadcast, and batch entries in turn."""
    given = inputs(5, 3, b=2, h=2, g=1, d=2, e=3, dtype=torch.float64)
    bias = noise(2, 1, 3, seed=7, dtype=torch.float64)
    mask = causal & window(2)
    with ready(regime, height=2, width=2, span=8) as kernel:
        assert gradcheck(
            lambda q, k, v, bias: attend(q, k, v, mask=mask, bias=bias, kernel=kernel),
            leaves(*given, bias),
        )


# Numbers that are no numbers


ALL_DTYPES = pytest.mark.parametrize("dtype", DTYPES, ids=str)
KINDS = pytest.mark.parametrize(  # the flash operation takes 512 keys at a time
    ("n", "dtype"), [(7, torch.float32), (601, torch.float32), *((67, x) for x in DTYPES)], ids=str
)


def few(n: int, dtype: torch.dtype) -> list[Tensor]:
    return inputs(n, n, b=2, h=4, g=2, dtype=dtype)


@every
@KINDS
@pytest.mark.parametrize("mask", [None, causal], ids=["none", "causal"])
def test_nan_in_a_query_is_in_its_row_alone(
    regime: str, dtype: torch.dtype, n: int, mask: Mask | None
) -> None:
    q, k, v = few(n, dtype)
    q[1, 2, n // 2, 3] = NAN
    with ready(regime) as kernel:
        output = attend(*leaves(q, k, v), mask=mask, kernel=kernel)
    wanted = torch.zeros(2, 4, n, 1, dtype=torch.bool)
    wanted[1, 2, n // 2] = True
    assert torch.equal(output.isnan(), wanted.expand_as(output))


@every
@KINDS
@pytest.mark.parametrize("place", [0, 3, -1])
def test_nan_in_a_key_is_in_the_rows_that_see_it(
    regime: str, dtype: torch.dtype, n: int, place: int
) -> None:
    q, k, v = few(n, dtype)
    k[1, 1, place, 3] = NAN
    with ready(regime) as kernel:
        everywhere = attend(*leaves(q, k, v), kernel=kernel)
        later = attend(*leaves(q, k, v), mask=causal, kernel=kernel)
    wanted = torch.zeros(2, 4, n, 1, dtype=torch.bool)
    wanted[1, 2:] = True  # the two heads that share the second key head
    assert torch.equal(everywhere.isnan(), wanted.expand_as(everywhere))
    wanted[1, 2:, : place % n] = False
    assert torch.equal(later.isnan(), wanted.expand_as(later))


@every
@KINDS
def test_nan_in_a_value_is_in_its_column_alone(regime: str, dtype: torch.dtype, n: int) -> None:
    q, k, v = few(n, dtype)
    v[1, 1, n // 2, 3] = NAN
    with ready(regime) as kernel:
        output = attend(*leaves(q, k, v), kernel=kernel)
    wanted = torch.zeros_like(output, dtype=torch.bool)
    wanted[1, 2:, :, 3] = True
    assert torch.equal(output.isnan(), wanted)


@every
@pytest.mark.parametrize("where", [0, 1, 2], ids=["q", "k", "v"])
def test_nan_throughout(regime: str, where: int) -> None:
    given = inputs(67, 67)
    given[where].fill_(NAN)
    with ready(regime) as kernel:
        assert attend(*leaves(*given), mask=causal, kernel=kernel).isnan().all()


@every
@pytest.mark.parametrize("n", [7, 64, 67])
def test_nan_that_may_see_nothing_is_zero(regime: str, n: int) -> None:
    q, k, v = inputs(n, n)
    q[:, :, 5] = NAN
    with ready(regime) as kernel:
        seen = look(*leaves(q, k, v), mask=_all_but([5], n, n), kernel=kernel)
    assert (seen.output[:, :, 5] == 0).all()
    assert not seen.output.isnan().any()
    assert (seen.logsumexp[:, :, 5] == -INF).all()


@every
@pytest.mark.parametrize("n", [7, 67])
def test_a_bias_of_plus_infinity_is_nan_in_its_row(regime: str, n: int) -> None:
    given = leaves(*inputs(n, n))
    bias = torch.zeros(n, n)
    bias[2, n // 2] = INF
    with ready(regime) as kernel:
        output, usual = attend(*given, bias=bias, kernel=kernel), attend(*given, kernel=kernel)
    wanted = torch.zeros(2, 3, n, 5, dtype=torch.bool)
    wanted[:, :, 2] = True
    assert torch.equal(output.isnan(), wanted)
    torch.testing.assert_close(output[~wanted], usual[~wanted])


@every
@pytest.mark.parametrize("n", [7, 67])
def test_the_logsumexp_of_plus_infinity(regime: str, n: int) -> None:
    bias = torch.zeros(n, n)
    bias[2, n // 2] = INF
    with ready(regime) as kernel:
        logsumexp = look(*leaves(*inputs(n, n)), bias=bias, kernel=kernel).logsumexp
    assert torch.equal(logsumexp == INF, (torch.arange(n) == 2).expand(2, 3, n))


# Nothing to see


def _all_but(rows: list[int], q: int, k: int) -> Tensor:
    return torch.ones(q, k, dtype=torch.bool).index_fill(0, torch.tensor(rows), False)


EMPTY: dict[str, Callable[[], tuple[Masking, Tensor | None, Tensor]]] = {
    # mask, bias, and which rows of (2 entries, 67 queries) see nothing of 61 keys
    "dense mask": lambda: (_all_but([0, 33, 66], 67, 61), None, ~_all_but([0, 33, 66], 67, 2).mT),
    "no words": lambda: (padding([0, 61]), None, torch.tensor([[True], [False]]).expand(2, 67)),
    "more queries than keys": lambda: (causal, None, (torch.arange(67) < 6).expand(2, 67)),
    "window before the keys": lambda: (
        window(before=1, after=2),
        None,
        (torch.arange(67) < 4).expand(2, 67),
    ),
    "bias": lambda: (
        None,
        torch.zeros(67, 61).masked_fill(~_all_but([0, 33, 66], 67, 61), -INF),
        ~_all_but([0, 33, 66], 67, 2).mT,
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
    with ready(regime) as kernel:
        if regime == "fused" and how in FUSED_CANNOT:
            with pytest.raises(OptionError, match="would have to be written out"):
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
    with ready(regime) as kernel:
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
    q, k, v = inputs(67, 61)
    bias = noise(67, 61).masked_fill(~_all_but([0, 33, 66], 67, 61), -INF)
    bias[5, 7] = -INF
    bias.requires_grad_()
    with ready(regime) as kernel:
        attend(q, k, v, bias=bias, kernel=kernel).square().sum().backward()
    assert torch.equal(bias.grad == 0, bias == -INF)


# Large numbers


@every
@ALL_DTYPES
@pytest.mark.parametrize("value", [-1e4, -1e9])
def test_a_large_negative_bias_hides_nothing(regime: str, dtype: torch.dtype, value: float) -> None:
    """With values of 1 every row that sees anything is 1, whatever its weights."""
    q, k, v = inputs(67, 61, dtype=dtype)
    bias = torch.zeros(67, 61).index_fill(0, torch.tensor([3, 66]), value)
    with ready(regime) as kernel, unless_refused(regime):
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
        check(regime, inputs(67, 61), bias=bias, rounding=False)


@every
@pytest.mark.parametrize("mask", [None, causal], ids=["none", "causal"])
@pytest.mark.parametrize("shift", [150.0, -150.0])
def test_scores_far_from_0_leave_other_rows_as_they_are(
    regime: str, mask: Mask | None, shift: float
) -> None:
    """Their exponentials overflow, or are 0, if nothing is subtracted first."""
    q, k, v = inputs(12, 12)
    bias = torch.zeros(12, 12).index_fill(0, torch.tensor([4, 9]), shift)
    near = [i for i in range(12) if i not in (4, 9)]
    with ready(regime) as kernel:
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
    q, k, v = inputs(65, 65)
    # One direction for all, so that scores lie near ±10,000 and yet compete.
    q = q * 0.05 + torch.tensor([100.0, 0, 0, 0, 0])
    k = k * 0.05 + sign * torch.tensor([100 * math.sqrt(5), 0, 0, 0, 0])
    scores = q @ k.mT / math.sqrt(5)
    assert scores.abs().min() > 9_000
    check(regime, [q, k, v], mask)


@fast
def test_scores_from_minus_to_plus_ten_thousand(regime: str) -> None:
    q, k, v = inputs(65, 67)
    check(regime, [q * 4_000, k, v])


@fast
def test_a_logsumexp_of_zero_is_a_number_like_others(regime: str) -> None:
    """The first query sees one key with a score of 0; the flash operation says 0 for nothing."""
    q, k, v = inputs(65, 65)
    assert (look(0 * q, k, v, mask=causal, kernel="reference").logsumexp[:, :, 0] == 0).all()
    check(regime, [0 * q, k, v], causal)


# No numbers at all


ZERO = {"batch": (0, 5, 7), "queries": (2, 0, 7), "keys": (2, 5, 0), "both": (2, 0, 0)}
zero = pytest.mark.parametrize(("b", "q", "k"), ZERO.values(), ids=ZERO.keys())


@every
@zero
@pytest.mark.parametrize("mask", [None, causal], ids=["none", "causal"])
def test_zero_lengths(regime: str, b: int, q: int, k: int, mask: Mask | None) -> None:
    given = leaves(*inputs(q, k, b=b, h=6, g=2))
    with ready(regime) as kernel:
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
    with ready(regime) as kernel:
        if regime == "plain":
            with pytest.raises(OptionError, match="nothing to compute"):
                attend(*inputs(q, k, b=b), mask=mask, kernel=kernel)
            return
        output = attend(*leaves(*inputs(q, k, b=b)), mask=mask, kernel=kernel)
    assert output.shape == (b, 3, q, 5)
    assert (output == 0).all()


@differentiable
@zero
def test_zero_lengths_with_a_bias(regime: str, b: int, q: int, k: int) -> None:
    with ready(regime) as kernel:
        if regime == "plain":
            with pytest.raises(OptionError, match="nothing to compute"):
                attend(*inputs(q, k, b=b), bias=noise(b, 3, q, k), kernel=kernel)
            return
        output = attend(*leaves(*inputs(q, k, b=b)), bias=noise(b, 3, q, k), kernel=kernel)
    assert output.shape == (b, 3, q, 5)
    assert (output == 0).all()


# Dropout


@differentiable
def test_dropout_keeps_a_weight_raised_or_drops_it(regime: str) -> None:
    """With the unit vectors for values the output is the weights themselves."""
    q, k, _ = inputs(127, 131, dtype=torch.float64)
    v = torch.eye(131, dtype=torch.float64).expand(2, 3, 131, 131)
    with ready(regime) as kernel:
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
    given = inputs(37, 41)
    draws = [x[:1].expand(400, -1, -1, -1) for x in given]
    with ready(regime, span=2**19) as kernel:
        usual = attend(*(x[:1] for x in given), kernel=kernel)
        drawn = attend(*draws, dropout=0.25, kernel=kernel)
    off = (drawn.mean(0) - usual[0]) / (drawn.std(0) / math.sqrt(400))
    # 555 means, each of 400 draws: their squared distances from the mean are 1 on average, with a
    # deviation of √2 each; those of a row are correlated, so count rows.
    assert abs(float(off.square().mean()) - 1) < 5 * math.sqrt(2 / (3 * 37))


@differentiable
def test_dropout_follows_the_seed(regime: str) -> None:
    given = inputs(61, 67)

    def drawn(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return attend(*given, dropout=0.5, kernel=kernel)

    with ready(regime) as kernel:
        assert torch.equal(drawn(3), drawn(3))
        assert not torch.equal(drawn(3), drawn(4))
        torch.manual_seed(3)
        one, two = (attend(*given, dropout=0.5, kernel=kernel) for _ in range(2))
        assert not torch.equal(one, two)


@differentiable
def test_looking_draws_the_same_dropout(regime: str) -> None:
    given = inputs(61, 67)
    with ready(regime) as kernel:
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
    given = inputs(5, 7, b=2, h=2, g=1, d=1, e=1, dtype=torch.float64)
    bias = noise(5, 1, seed=7, dtype=torch.float64)

    def attended(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        torch.manual_seed(5)
        return attend(q, k, v, mask=causal, bias=bias, dropout=0.4, kernel=kernel)

    with ready(regime, height=3, width=4, span=24) as kernel:
        assert gradcheck(attended, leaves(*given, bias))


def test_fused_refuses_dropout() -> None:
    with pytest.raises(OptionError, match="it has no dropout"):
        attend(*inputs(7, 7), dropout=0.1, kernel="fused")


# The same again


@every
@pytest.mark.parametrize("name", ["none", "causal", "padding"])
def test_twice_the_same_bits(regime: str, name: str) -> None:
    given, mask = leaves(*inputs(127, 127, h=6, g=3)), MASKS[name](127, 127)
    with ready(regime) as kernel:
        one, two = (attend(*given, mask=mask, kernel=kernel) for _ in range(2))
        assert torch.equal(one, two)
        upstream = from_above(given)
        gradients = (torch.autograd.grad(x, given, upstream) for x in (one, two))
        for first, second in zip(*gradients, strict=True):
            assert torch.equal(first, second)


@every
def test_arguments_are_left_alone(regime: str) -> None:
    given, bias, mask = inputs(67, 67), noise(67, 67), _all_but([3], 67, 67)
    before = [x.clone() for x in (*given, bias, mask)]
    with ready(regime) as kernel:
        attend(*leaves(*given), mask=mask, bias=bias, kernel=kernel)
    for now, then in zip((*given, bias, mask), before, strict=True):
        assert torch.equal(now, then)


@every
def test_a_result_outlives_the_next_call(regime: str) -> None:
    """Whatever memory a kernel keeps from call to call is not the caller's."""
    given, other = leaves(*inputs(67, 67)), leaves(*(-x for x in inputs(67, 67)))
    with ready(regime) as kernel:
        seen = look(*given, kernel=kernel)
        output, logsumexp = seen.output.clone(), seen.logsumexp.clone()
        look(*other, kernel=kernel)
    assert torch.equal(seen.output, output)
    assert torch.equal(seen.logsumexp, logsumexp)


@pytest.mark.parametrize("kernel", ["native", "blocked", "fused"])
def test_threads_do_not_meet(kernel: str) -> None:
    given = [leaves(*(x + i for x in inputs(67, 61 + i))) for i in range(4)]

    def attended(i: int) -> Tensor:
        return attend(*given[i % 4], kernel=kernel).detach()

    alone = [attended(i) for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for i, together in enumerate(pool.map(attended, range(64))):
            assert torch.equal(together, alone[i % 4])
