"""Everything that a look tells is what the whole matrix says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from regard import (
    ALiBi,
    Bilinear,
    Scaled,
    Softcap,
    causal,
    look,
    padding,
    window,
)
from regard.attention.masks import Mask
from regard.errors import MemoryLimitError, OptionError
from tests.attention.kernel_cases import (
    DOUBLE,
    float32_inputs,
    float32_noise,
    inputs,
    looking,
    noise,
    ready,
)

INF = math.inf
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


@looking
@ranks
@masks
@pytest.mark.parametrize("biased", [False, True], ids=["", "bias"])
def test_everything_is_what_the_whole_matrix_says(
    regime: str, lead: tuple[int, ...], shared: tuple[int, ...], name: str, biased: bool
) -> None:
    q, k, v = inputs(17, 17, lead=lead, shared=shared)
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
    q, k, _ = inputs(7, 11, lead=lead, shared=shared)
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
    "array": (np.array([6, 2]), [6, 2]),
    "array backwards": (np.arange(7)[::-3], [6, 3, 0]),
    "number of numpy": (np.int64(2), [2]),
    "bools": ([True, False, True, False, False, False, False], [0, 2]),
    "bools of numpy": (np.arange(7) > 4, [5, 6]),
    "bools in a tensor": (torch.arange(7) < 2, [0, 1]),
    "none": ([], []),
    "all": (None, list(range(7))),
}
selections = pytest.mark.parametrize(
    ("asked", "wanted"), SELECTIONS.values(), ids=SELECTIONS.keys()
)


@selections
@pytest.mark.parametrize("method", ["weights", "scores", "contributions"])
def test_queries(asked: Any, wanted: list[int], method: str) -> None:
    seen = look(*inputs(7, 11, h=6, g=3), mask=causal)
    all_of_it = getattr(seen, method)()
    torch.testing.assert_close(
        getattr(seen, method)(queries=asked), all_of_it[:, :, wanted], **DOUBLE
    )


@selections
@pytest.mark.parametrize("method", ["weights", "scores", "contributions"])
def test_heads(asked: Any, wanted: list[int], method: str) -> None:
    seen = look(*inputs(5, 11, h=7, g=1), mask=causal)
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


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ([True, False], "True"),
        (torch.tensor([False, True]), "False"),
        ([1, True], "True"),
        (True, "True"),
        (1.0, "1.0"),
        ([2, 1.0], "1.0"),
        (np.array([1.5]), "1.5"),
        ("last", "'l'"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("as_users_run")
def test_a_selection_that_is_none(asked: Any, named: str) -> None:
    wanted = f"queries: {named} asked for, expected whole numbers, a slice or 7 bools"
    with pytest.raises(OptionError, match=wanted):
        look(*inputs(7, 11)).weights(queries=asked)


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


@pytest.mark.parametrize(
    ("score", "bias", "words"),
    [
        ("scaled_dot", None, "÷ √7"),
        (Scaled(0.3), torch.zeros(5, 5), "× 0.3"),
        (Softcap(2.0), ALiBi(1), "÷ √7, softcap 2, + bias"),
        ("dot", torch.full((5, 5), -INF), "× 1"),
        ("cosine", torch.eye(5), "× 1, + bias"),
    ],
)
def test_the_scaling_in_words(score: Any, bias: Any, words: str) -> None:
    x = noise(1, 5, 7)
    seen = look(x, x, x, score=score, bias=bias)
    assert seen.scaling == words
    if score != "cosine":
        torch.testing.assert_close(seen.compared(), x @ x.mT)


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
    q, k, v = float32_inputs(127, 131)
    scores, weights = whole(q.double(), k.double())
    exact = -(weights * weights.log()).sum(-1)
    scores, weights = whole(q, k)
    plainly = torch.logsumexp(scores, -1) - (weights * scores).sum(-1)
    error, budget = ((x - exact).square().mean().sqrt() for x in (look(q, k, v).entropy(), plainly))
    assert error <= 2 * budget


@looking
def test_received_is_per_query_head(regime: str) -> None:
    q, k, v = inputs(17, 17, h=6, g=2)
    _, weights = whole(q, k)
    with ready(regime) as kernel:
        received = look(q, k, v, kernel=kernel).received()
    assert received.shape == (2, 6, 17)
    torch.testing.assert_close(received, weights.sum(-2), **DOUBLE)
    torch.testing.assert_close(received.sum(-1), torch.full((2, 6), 17.0).double(), **DOUBLE)


@looking
@pytest.mark.parametrize("value", [-1e4, -1e9, torch.finfo(torch.float32).min])
def test_a_large_negative_bias_is_only_a_bias(regime: str, value: float) -> None:
    """All the keys weigh the same, though beside the bias their scores cannot be told apart."""
    zeros = torch.zeros(1, 1, 7, 5)
    k = float32_noise(1, 1, 11, 5)
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
    q, k, v = inputs(67, 67, dtype=dtype)
    bias = 9 * float32_noise(3, 67, 67, seed=7)
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
    q, k, v = float32_inputs(127, 131)
    _, exact = whole(q.double(), k.double())
    _, plainly = whole(q, k)
    ours = look(q, k, v).weights()
    error, budget = ((x - exact).square().mean().sqrt() for x in (ours, plainly))
    assert error <= 2 * budget


@pytest.mark.parametrize("regime", ["auto", "reference", "blocked"])
@pytest.mark.parametrize(("b", "q", "k"), [(0, 7, 11), (2, 0, 11), (2, 7, 0)])
def test_zero_lengths(regime: str, b: int, q: int, k: int) -> None:
    seen = look(*inputs(q, k, b=b), mask=causal, kernel=regime)
    assert seen.weights().shape == seen.scores().shape == (b, 3, q, k)
    assert seen.contributions().shape == (b, 3, q, k)
    assert torch.equal(seen.entropy(), torch.zeros(b, 3, q).double())
    assert torch.equal(seen.received(), torch.zeros(b, 3, k).double())
    assert torch.equal(seen.logsumexp, torch.full((b, 3, q), -INF).double())
    if k:
        assert [x.shape for x in seen.top(2)] == [(b, 3, q, 2)] * 2
