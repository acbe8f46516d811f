"""What a look holds: no graph, no matrix, and nothing that has changed since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard import (
    Bilinear,
    Look,
    RelativeBias,
    attend,
    causal,
    dense,
    keys,
    look,
    native,
    padding,
    window,
)
from regard.attention import which
from regard.attention.masks import Mask
from regard.errors import StaleError
from tests.attention.kernel_cases import float32_noise, inputs, noise


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
    given = inputs(7, 11, lead=lead)
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
    return [float32_noise(1, 2, N, 16, seed=i) for i in range(3)]


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


@pytest.mark.parametrize(
    ("mask", "kernel"),
    [
        (~causal, "blocked"),
        (~window(64), "blocked"),
        (causal & ~window(10), "blocked"),
        (causal & window(5), "native"),
    ],
    ids=repr,
)
def test_a_mask_by_distance_is_never_held(long: list[Tensor], mask: Mask, kernel: str) -> None:
    with Largest() as largest:
        attend(*long, mask=mask)
    assert largest.most < N * N / 2
    if native.loaded():
        assert which(*long, mask=mask).split(";")[0] == kernel


@pytest.mark.parametrize("mask", [None, causal], ids=["none", "causal"])
def test_blocked_never_holds_the_matrix(long: list[Tensor], mask: Mask | None) -> None:
    tracked = [x[..., :4].clone().requires_grad_() for x in long]
    with Largest() as largest:
        output = attend(*tracked, mask=mask, kernel="blocked")
        forwards = largest.operations
        output.sum().backward()
    assert largest.operations > 2 * forwards
    assert 2 * N * 4 <= largest.most < N * N / 2
