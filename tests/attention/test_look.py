"""What a look says, against the whole matrix written out, in bounded memory."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard import (
    ALiBi,
    Bilinear,
    Look,
    RelativeBias,
    attend,
    causal,
    dense,
    keys,
    look,
    padding,
    segments,
    window,
)
from regard.attention import record
from regard.attention.kernels import blocked
from regard.attention.masks import Mask
from regard.errors import MemoryLimitError, OptionError, StaleError

# Virtual machines that announce AMX and then forbid it end the process at the first bfloat16
# product. oneDNN reads this when it is first used, which is after the tests are collected.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

INF = math.inf
DOUBLE = {"rtol": 1e-12, "atol": 1e-13}
"""Two ways to compute the same from some hundred float64 numbers of size 1."""

REGIMES = ("auto", "reference", "native", "many blocks", "fused")
every = pytest.mark.parametrize("regime", REGIMES)
Masking = Mask | Tensor | None


@contextmanager
def ready(regime: str) -> Iterator[str]:
    """The name of the kernel; for many blocks, with blocks so small that short rows need many.

    What is asked of a look goes through many blocks as well.
    """
    with pytest.MonkeyPatch.context() as patch:
        if regime == "many blocks":
            for module in (blocked, record):
                patch.setattr(module, "HEIGHT", 8)
                patch.setattr(module, "WIDTH", 4)
                patch.setattr(module, "SPAN", 2**9)
        try:
            yield "blocked" if regime == "many blocks" else regime
        except OptionError as error:
            if "it has float32 and bfloat16" in str(error):
                pytest.skip("refused")
            raise


def noise(*sizes: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


RANKS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    # the axes before (n, d) of the queries, and of keys and values
    "(n,d)": ((), ()),
    "(b,n,d)": ((2,), (2,)),
    "(b,h,n,d)": ((2, 3), (2, 3)),
    "(b,h,n,d) grouped": ((2, 6), (2, 3)),
    "(a,b,h,n,d)": ((2, 3, 4), (2, 3, 4)),
    "(a,b,h,n,d) grouped": ((2, 1, 6), (2, 1, 2)),
}
ranks = pytest.mark.parametrize(("lead", "shared"), RANKS.values(), ids=RANKS.keys())


def inputs(
    q: int,
    k: int,
    lead: tuple[int, ...] = (2, 3),
    shared: tuple[int, ...] | None = None,
    *,
    d: int = 5,
    dtype: torch.dtype = torch.float64,
) -> list[Tensor]:
    shared = lead if shared is None else shared
    sizes = ((*lead, q, d), (*shared, k, d), (*shared, k, d))
    return [noise(*size, seed=i, dtype=dtype) for i, size in enumerate(sizes)]


def spread(x: Tensor, lead: tuple[int, ...]) -> Tensor:
    """Keys or values once for each query head."""
    return x.repeat_interleave(lead[-1] // x.shape[-3], -3) if len(lead) > 1 else x


def whole(
    q: Tensor, k: Tensor, mask: Tensor | None = None, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """All scores and all weights, written out."""
    scores = q @ spread(k, q.shape[:-2]).mT / math.sqrt(q.shape[-1])
    scores = scores if bias is None else scores + bias
    scores = scores if mask is None else scores.masked_fill(~mask, -INF)
    return scores, torch.softmax(scores, -1).nan_to_num(0.0)


def _gaps(q: int, k: int) -> Tensor:
    """A mask with a row that sees nothing, one that sees one key, and one that sees two."""
    seen = torch.rand(q, k, generator=torch.Generator().manual_seed(0)) < 0.6
    seen[2] = seen[3] = seen[5] = False
    seen[3, 4] = seen[5, 1] = seen[5, 6] = True
    return seen


MASKS: dict[str, Callable[[], Tensor | None]] = {
    "none": lambda: None,
    "causal": lambda: causal.tensor(17, 17),
    "gaps": lambda: _gaps(17, 17),
}
masks = pytest.mark.parametrize("name", MASKS.keys())


@every
@ranks
@masks
@pytest.mark.parametrize("biased", [False, True], ids=["", "bias"])
def test_everything_is_what_the_whole_matrix_says(
    regime: str, lead: tuple[int, ...], shared: tuple[int, ...], name: str, biased: bool
) -> None:
    q, k, v = inputs(17, 17, lead, shared)
    bias = noise(*lead[-1:][: len(lead) - 1], 17, 17, seed=7) if biased else None
    written = MASKS[name]()
    scores, weights = whole(q, k, written, bias)
    with ready(regime) as kernel:
        mask = causal if name == "causal" else written
        seen = look(q, k, v, mask=mask, bias=bias, kernel=kernel)
        lengths = spread(v.norm(dim=-1, keepdim=True), lead).mT
        logs = torch.where(weights > 0, weights.log(), 0.0)
        pairs = {
            "output": (seen.output, weights @ spread(v, lead)),
            "scores": (seen.scores(), scores),
            "weights": (seen.weights(), weights),
            "contributions": (seen.contributions(), weights * lengths),
            "logsumexp": (seen.logsumexp, torch.logsumexp(scores, -1)),
            "entropy": (seen.entropy(), -(weights * logs).sum(-1)),
            "received": (seen.received(), weights.sum(-2)),
        }
        values, places = seen.top(4)
    for what, (ours, wanted) in pairs.items():
        torch.testing.assert_close(ours, wanted, **DOUBLE, msg=lambda m, w=what: f"{w}: {m}")
    best, at = weights.topk(4, -1)
    torch.testing.assert_close(values, best, **DOUBLE)
    assert torch.equal(places, at.masked_fill(best == 0, -1))
    assert places.dtype == torch.int64


@ranks
def test_shapes(lead: tuple[int, ...], shared: tuple[int, ...]) -> None:
    q, k, _ = inputs(7, 11, lead, shared)
    v = noise(*shared, 11, 13)
    seen = look(q, k, v)
    assert seen.output.shape == (*lead, 7, 13)
    assert seen.q.shape == (*lead, 7, 5)
    assert seen.k.shape == (*shared, 11, 5)
    assert seen.v.shape == (*shared, 11, 13)
    assert seen.logsumexp.shape == (*lead, 7)
    assert seen.scores().shape == (*lead, 7, 11)
    assert seen.weights().shape == (*lead, 7, 11)
    assert seen.weights(queries=[3, 5]).shape == (*lead, 2, 11)
    assert seen.contributions().shape == (*lead, 7, 11)
    assert seen.entropy().shape == (*lead, 7)
    assert seen.received().shape == (*lead, 11)
    assert [x.shape for x in seen.top(3)] == [(*lead, 7, 3)] * 2


# Which queries, which heads


SELECTIONS: dict[str, tuple[Any, list[int]]] = {
    "one": (3, [3]),
    "the last": (-1, [6]),
    "several": ([5, 0, 1, 2], [5, 0, 1, 2]),
    "one twice": ([4, 4], [4, 4]),
    "from the end": ([-2, 1], [5, 1]),
    "tuple": ((2, 6), [2, 6]),
    "range": (range(1, 6, 2), [1, 3, 5]),
    "slice": (slice(2, 5), [2, 3, 4]),
    "open slice": (slice(-2, None), [5, 6]),
    "backwards": (slice(None, None, -3), [6, 3, 0]),
    "tensor": (torch.tensor([6, 2]), [6, 2]),
    "number in a tensor": (torch.tensor(2), [2]),
    "none": ([], []),
    "all": (None, list(range(7))),
}
selections = pytest.mark.parametrize(
    ("asked", "wanted"), SELECTIONS.values(), ids=SELECTIONS.keys()
)


@selections
@pytest.mark.parametrize("method", ["weights", "scores", "contributions"])
def test_queries(asked: Any, wanted: list[int], method: str) -> None:
    seen = look(*inputs(7, 11, (2, 6), (2, 3)), mask=causal)
    all_of_it = getattr(seen, method)()
    torch.testing.assert_close(
        getattr(seen, method)(queries=asked), all_of_it[:, :, wanted], **DOUBLE
    )


@selections
@pytest.mark.parametrize("method", ["weights", "scores", "contributions"])
def test_heads(asked: Any, wanted: list[int], method: str) -> None:
    seen = look(*inputs(5, 11, (2, 7), (2, 1)), mask=causal)
    all_of_it = getattr(seen, method)()
    torch.testing.assert_close(getattr(seen, method)(heads=asked), all_of_it[:, wanted], **DOUBLE)
    both = getattr(seen, method)(queries=[4, 2], heads=asked)
    torch.testing.assert_close(both, all_of_it[:, wanted][:, :, [4, 2]], **DOUBLE)


@pytest.mark.parametrize("asked", [7, -8, [0, 7], torch.tensor([2, -8])], ids=str)
def test_a_query_that_is_not_there(asked: Any) -> None:
    seen = look(*inputs(7, 11))
    with pytest.raises(OptionError, match=r"queries: (7|-8) asked for, but there are 7, numbered"):
        seen.weights(queries=asked)
    with pytest.raises(OptionError, match="heads: 3 asked for, but there are 3"):
        seen.weights(heads=3)


def test_a_matrix_over_the_limit_is_refused() -> None:
    seen = look(*inputs(7, 11))
    size = 2 * 3 * 7 * 11 * 8
    assert seen.weights(limit=size).shape == (2, 3, 7, 11)
    for method in (seen.weights, seen.scores, seen.contributions):
        with pytest.raises(MemoryLimitError, match="2 × 3 heads × 7 queries × 11 keys are 3,696 b"):
            method(limit=size - 1)
    assert seen.weights(queries=0, limit=size // 7).shape == (2, 3, 1, 11)


def test_the_default_limit() -> None:
    x = torch.zeros(1, 2, 16_384, 2)
    with pytest.raises(MemoryLimitError, match="over the limit of 1,073,741,824"):
        look(x, x, x, mask=window(2)).weights()


# The largest weights


def distinct(rows: int, k: int, seed: int = 0) -> Tensor:
    """Scores without ties: in each row the same numbers in another order."""
    generator = torch.Generator().manual_seed(seed)
    orders = torch.stack([torch.randperm(k, generator=generator) for _ in range(rows)])
    return orders.double() * 0.01


def top_of(scores: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """`Look.top` where the bias alone makes the scores."""
    zeros = torch.zeros(scores.shape[-1], 1, dtype=scores.dtype)
    return look(zeros[: scores.shape[-2]], zeros, zeros, bias=scores, kernel="blocked").top(n)


EDGES = [
    (n, k)
    for n in (1, 2, 3, 8)
    for k in sorted(
        {x + y for x in (16 * n, 16 * (2 * n + 1), 16 * (2 * n + 2), 32 * n) for y in (-1, 0, 1)}
    )
]


@pytest.mark.parametrize(("n", "k"), EDGES)
def test_top_around_the_edges_of_two_stages(n: int, k: int) -> None:
    scores = distinct(11, k)
    values, places = top_of(scores, n)
    best, at = torch.softmax(scores, -1).topk(n, -1)
    torch.testing.assert_close(values, best, **DOUBLE)
    assert torch.equal(places, at)


@pytest.mark.parametrize("n", [1, 3, 8])
@pytest.mark.parametrize("k", [523, 528, 543])
def test_top_wherever_the_largest_stand(n: int, k: int) -> None:
    """All behind one maximum of the first stage, side by side, at the ends, or in the rest."""
    columns = k // 16
    places = [
        [5 + i * columns for i in range(n)],
        [5 + i for i in range(n)],
        list(range(n)),
        list(range(k - n, k)),
        [k - 1 - i * columns for i in range(n)],
        [(i * 37) % k for i in range(n)],
    ]
    scores = distinct(len(places), k) / 100
    for row, chosen in enumerate(places):
        for rank, place in enumerate(chosen):
            scores[row, place] = 9.0 - 0.1 * rank
    values, found = top_of(scores, n)
    assert found.tolist() == places
    weights = torch.softmax(scores, -1)
    torch.testing.assert_close(values, weights.gather(-1, torch.tensor(places)), **DOUBLE)


@every
@pytest.mark.parametrize("n", [1, 2, 5, 17])
def test_top_has_exactly_n_columns_largest_first(regime: str, n: int) -> None:
    with ready(regime) as kernel:
        values, places = look(*inputs(17, 17), mask=causal, kernel=kernel).top(n)
    assert values.shape == places.shape == (2, 3, 17, n)
    assert (values.diff(dim=-1) <= 0).all()
    for i in range(17):
        visible = min(i + 1, n)
        assert (values[:, :, i, :visible] > 0).all()
        assert (places[:, :, i, :visible] >= 0).all()
        assert (places[:, :, i, :visible] <= i).all()
        assert (values[:, :, i, visible:] == 0).all()
        assert (places[:, :, i, visible:] == -1).all()
        assert len(set(places[0, 0, i, :visible].tolist())) == visible


@pytest.mark.parametrize("mask", [padding([0, 17]), ~keys(torch.arange(17) >= 0)], ids=repr)
def test_top_of_nothing(mask: Mask) -> None:
    values, places = look(*inputs(17, 17), mask=mask).top(3)
    nothing = 1 if mask == padding([0, 17]) else 2
    assert (values[:nothing] == 0).all()
    assert (places[:nothing] == -1).all()
    assert (places[nothing:] >= 0).all()


def test_top_of_more_than_there_are() -> None:
    seen = look(*inputs(7, 11))
    assert seen.top(11)[0].shape == (2, 3, 7, 11)
    for n in (0, -1, 12):
        with pytest.raises(OptionError, match=f"top: n={n}, expected 1 to k=11"):
            seen.top(n)


@pytest.mark.parametrize("mask", [None, causal, window(30), segments(torch.arange(1031) // 90)])
def test_top_of_long_rows(mask: Mask | None) -> None:
    q, k, v = inputs(1031, 1031, (1, 2), dtype=torch.float32)
    seen = look(q, k, v, mask=mask)
    values, places = seen.top(8)
    best = seen.weights().topk(8, -1).values
    torch.testing.assert_close(values, best)
    there = seen.weights().gather(-1, places.clamp(min=0)).masked_fill(places < 0, 0.0)
    torch.testing.assert_close(there, values)


# Numbers that need no matrix


def test_entropy_by_hand() -> None:
    x = torch.zeros(5, 3)
    assert look(x, x, x).entropy().tolist() == pytest.approx([math.log(5)] * 5)
    wanted = [math.log(i) for i in range(1, 6)]
    assert look(x, x, x, mask=causal).entropy().tolist() == pytest.approx(wanted, abs=1e-6)
    assert look(x, x, x, mask=padding(0)).entropy().tolist() == [0.0] * 5
    assert look(x, x[:1], x[:1]).entropy().tolist() == [0.0] * 5


@pytest.mark.parametrize("mask", [None, causal, window(3)], ids=repr)
@pytest.mark.parametrize("how", ["ALiBi", "-inf", "function", "cosine", "bilinear"])
@pytest.mark.parametrize("regime", ["auto", "many blocks"])
def test_entropy_of_any_score(mask: Mask | None, how: str, regime: str) -> None:
    options: dict[str, Any] = {
        "ALiBi": {"bias": ALiBi(3)},
        "-inf": {"bias": torch.zeros(17, 17).masked_fill(_gaps(17, 17), -INF)},
        "function": {"score": lambda q, k: -torch.cdist(q, k)},
        "cosine": {"score": "cosine"},
        "bilinear": {"score": Bilinear(5).double()},
    }[how]
    with ready(regime) as kernel:
        seen = look(*inputs(17, 17), mask=mask, kernel=kernel, **options)
        entropy = seen.entropy()
    weights = seen.weights()
    wanted = -(weights * torch.where(weights > 0, weights.log(), 0.0)).sum(-1)
    torch.testing.assert_close(entropy, wanted, **DOUBLE)


def test_entropy_within_twice_the_error_of_plain_float32() -> None:
    q, k, v = inputs(127, 131, (2, 3), dtype=torch.float32)
    scores, weights = whole(q.double(), k.double())
    exact = -(weights * weights.log()).sum(-1)
    scores, weights = whole(q, k)
    plainly = torch.logsumexp(scores, -1) - (weights * scores).sum(-1)
    error, budget = ((x - exact).square().mean().sqrt() for x in (look(q, k, v).entropy(), plainly))
    assert error <= 2 * budget


@every
def test_received_is_per_query_head(regime: str) -> None:
    q, k, v = inputs(17, 17, (2, 6), (2, 2))
    _, weights = whole(q, k)
    with ready(regime) as kernel:
        received = look(q, k, v, kernel=kernel).received()
    assert received.shape == (2, 6, 17)
    torch.testing.assert_close(received, weights.sum(-2), **DOUBLE)
    torch.testing.assert_close(received.sum(-1), torch.full((2, 6), 17.0).double(), **DOUBLE)


@every
@pytest.mark.parametrize("value", [-1e4, -1e9, torch.finfo(torch.float32).min])
def test_a_large_negative_bias_is_only_a_bias(regime: str, value: float) -> None:
    """All the keys weigh the same, though beside the bias their scores cannot be told apart."""
    zeros = torch.zeros(1, 1, 7, 5)
    k = noise(1, 1, 11, 5, dtype=torch.float32)
    bias = torch.zeros(7, 11).index_fill(0, torch.tensor([2]), value)
    with ready(regime) as kernel:
        seen = look(zeros, k, k, bias=bias, kernel=kernel)
        answers = seen.weights(), seen.top(11)[0], seen.received() / 7
        entropy = seen.entropy()
    for ours in answers:
        # float32 knows 10,000 to 2^-10, and so its exponential
        torch.testing.assert_close(ours, torch.full_like(ours, 1 / 11), rtol=2**-10, atol=0)
    torch.testing.assert_close(entropy, torch.full((1, 1, 7), math.log(11)), rtol=2**-10, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("regime", ["blocked", "fused", "auto"])
@pytest.mark.parametrize("how", ["nothing", "bias", "bias of the same dtype", "cosine", "bilinear"])
def test_low_precision_weights_are_those_that_were_used(
    dtype: torch.dtype, regime: str, how: str
) -> None:
    """Scores, weights and log-sum-exp belong together, and to the output."""
    q, k, v = inputs(67, 67, (2, 3), dtype=dtype)
    bias = 9 * noise(3, 67, 67, seed=7, dtype=torch.float32)
    options: dict[str, Any] = {
        "nothing": {},
        "bias": {"bias": bias},
        "bias of the same dtype": {"bias": bias.to(dtype)},
        "cosine": {"score": "cosine"},
        "bilinear": {"score": Bilinear(5)},
    }[how]
    try:
        seen = look(q, k, v, kernel=regime, **options)
    except OptionError:
        assert regime == "fused"  # it may refuse, but not round in silence
        return
    assert seen.weights().dtype == torch.float32
    # The flash operation has a quick exponential for these dtypes, good to a fifth of the last
    # place of float16.
    near = {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(seen.logsumexp, seen.scores().logsumexp(-1), **near)
    torch.testing.assert_close(seen.top(5)[0], seen.weights().topk(5, -1).values, rtol=1e-4, atol=0)


def test_weights_within_twice_the_error_of_plain_float32() -> None:
    q, k, v = inputs(127, 131, (2, 3), dtype=torch.float32)
    _, exact = whole(q.double(), k.double())
    _, plainly = whole(q, k)
    ours = look(q, k, v).weights()
    error, budget = ((x - exact).square().mean().sqrt() for x in (ours, plainly))
    assert error <= 2 * budget


@pytest.mark.parametrize("regime", ["auto", "reference", "blocked"])
@pytest.mark.parametrize(("b", "q", "k"), [(0, 7, 11), (2, 0, 11), (2, 7, 0)])
def test_zero_lengths(regime: str, b: int, q: int, k: int) -> None:
    seen = look(*inputs(q, k, (b, 3)), mask=causal, kernel=regime)
    assert seen.weights().shape == seen.scores().shape == (b, 3, q, k)
    assert seen.contributions().shape == (b, 3, q, k)
    assert torch.equal(seen.entropy(), torch.zeros(b, 3, q).double())
    assert torch.equal(seen.received(), torch.zeros(b, 3, k).double())
    assert torch.equal(seen.logsumexp, torch.full((b, 3, q), -INF).double())
    if k:
        assert [x.shape for x in seen.top(2)] == [(b, 3, q, 2)] * 2


# What a look keeps


def test_a_look_holds_no_graph() -> None:
    q, k, v = (x.requires_grad_() for x in inputs(7, 11))
    for kernel in ("reference", "blocked", "fused"):
        seen = look(q, k, v, kernel=kernel)
        answers = [seen.q, seen.k, seen.v, seen.logsumexp, seen.scores(), seen.weights()]
        answers += [seen.entropy(), seen.received(), seen.contributions(), seen.top(3)[0]]
        assert seen.output.requires_grad
        assert not any(x.requires_grad for x in answers), kernel


def test_a_look_in_inference_mode_can_be_asked_outside() -> None:
    given = inputs(7, 11)
    wanted = look(*given, mask=causal)
    with torch.inference_mode():
        seen = look(*(x.clone() for x in given), mask=causal)
    assert torch.equal(seen.entropy(), wanted.entropy())
    assert torch.equal(seen.received(), wanted.received())
    assert torch.equal(seen.top(3)[0], wanted.top(3)[0])
    assert torch.equal(seen.logsumexp, wanted.logsumexp)


QUESTIONS: dict[str, Callable[[Look], object]] = {
    "weights": lambda seen: seen.weights(),
    "scores": lambda seen: seen.scores(queries=[1]),
    "contributions": lambda seen: seen.contributions(),
    "top": lambda seen: seen.top(2),
    "entropy": lambda seen: seen.entropy(),
    "received": lambda seen: seen.received(),
    "logsumexp": lambda seen: seen.logsumexp,
    "q": lambda seen: seen.q,
    "k": lambda seen: seen.k,
    "v": lambda seen: seen.v,
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS.keys())
@pytest.mark.parametrize("changed", [0, 1, 2], ids=["q", "k", "v"])
@pytest.mark.parametrize("lead", [(), (2,), (2, 3)], ids=str)
def test_a_change_in_place_is_noticed(
    question: Callable[[Look], object], changed: int, lead: tuple[int, ...]
) -> None:
    given = inputs(7, 11, lead)
    seen = look(*given, mask=causal)
    output = seen.output.clone()
    question(seen)
    given[changed][..., 0, :] += 1
    with pytest.raises(StaleError, match="changed in place after it was looked at"):
        question(seen)
    assert torch.equal(seen.output, output)


def _table(bias: RelativeBias) -> None:
    with torch.no_grad():
        bias.table += 1


def _weight(score: Bilinear) -> None:
    with torch.no_grad():
        score.weight.zero_()


CHANGES: dict[str, tuple[str, Callable[[], Any], Callable[[Any], object]]] = {
    "bias": ("bias", lambda: noise(7, 11), lambda x: x.zero_()),
    "a learned bias": ("bias", lambda: RelativeBias(3), _table),
    "a learned score": ("score", lambda: Bilinear(5).double(), _weight),
    "dense mask": ("mask", lambda: torch.ones(7, 11).bool(), lambda x: x.logical_not_()),
    "dense": ("mask", lambda: dense(torch.ones(7, 11).bool()), lambda x: x.seen.logical_not_()),
    "padding": ("mask", lambda: padding(torch.tensor([11, 7])), lambda x: x.lengths.zero_()),
    "part of a mask": (
        "mask",
        lambda: causal & ~keys(torch.zeros(11).bool()),
        lambda x: x.right.mask.seen.logical_not_(),
    ),
}


@pytest.mark.parametrize(("argument", "make", "change"), CHANGES.values(), ids=CHANGES.keys())
def test_a_change_of_anything_else_is_noticed(
    argument: str, make: Callable[[], Any], change: Callable[[Any], object]
) -> None:
    given, thing = inputs(7, 11), make()
    seen = look(*given, **{argument: thing})
    seen.weights()
    change(thing)
    with pytest.raises(StaleError, match="changed in place after it was looked at"):
        seen.weights()


def test_no_change_is_no_change() -> None:
    given = inputs(7, 11)
    seen = look(*given)
    before = seen.weights()
    given[0] = given[0] + 1  # another tensor
    attend(*given)
    assert torch.equal(seen.weights(), before)


def test_a_look_says_what_it_is() -> None:
    seen = look(*inputs(7, 11), mask=causal & window(3))
    assert repr(seen) == "Look(3 heads, 7 queries, 11 keys, mask=causal & window(3))"


# Memory


class Largest(TorchDispatchMode):
    """Keeps count of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.most, self.operations = 0, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        for x in result if isinstance(result, tuple | list) else [result]:
            # A view or an expanded tensor is as large as what it stands on.
            if isinstance(x, Tensor):
                self.most = max(self.most, min(x.numel(), x.untyped_storage().nbytes()))
        return result


N = 6000


@pytest.fixture(scope="module")
def long() -> list[Tensor]:
    return [noise(1, 2, N, 16, seed=i, dtype=torch.float32) for i in range(3)]


def test_looking_never_holds_the_matrix(long: list[Tensor]) -> None:
    with Largest() as largest:
        seen = look(*long, mask=causal)
        values, _ = seen.top(8)
        entropy, received = seen.entropy(), seen.received()
    assert 2 * N * 16 <= largest.most < N * N / 2
    # What came out in pieces is right.
    some = torch.tensor([0, 5, 2999, N - 1])
    weights = seen.weights(queries=some)
    torch.testing.assert_close(values[:, :, some], weights.topk(8, -1).values, rtol=1e-5, atol=1e-6)
    logs = torch.where(weights > 0, weights.log(), 0.0)
    torch.testing.assert_close(entropy[:, :, some], -(weights * logs).sum(-1), rtol=1e-5, atol=1e-5)
    # 6000 rows sum to 1, each to a rounding of float32.
    assert abs(float(received.double().sum()) - 2 * N) < 2 * N * 2**-23


@pytest.mark.parametrize("mask", [None, causal], ids=["none", "causal"])
def test_blocked_never_holds_the_matrix(long: list[Tensor], mask: Mask | None) -> None:
    tracked = [x[..., :4].clone().requires_grad_() for x in long]
    with Largest() as largest:
        output = attend(*tracked, mask=mask, kernel="blocked")
        forwards = largest.operations
        output.sum().backward()
    assert largest.operations > 2 * forwards
    assert 2 * N * 4 <= largest.most < N * N / 2
