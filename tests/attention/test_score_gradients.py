"""Functions as scores, and the gradients of everything that a score is made of."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.parametrizations import weight_norm

from regard.attention import Additive, RelativeBias, attend, causal, look, padding
from regard.attention.scores import Score, as_score
from regard.errors import ShapeError
from tests.attention.kernel_cases import noise, tiny_blocks
from tests.attention.score_cases import (
    HIDDEN,
    LEARNED,
    SIMPLE,
    UNREDUCED,
    B,
    D,
    E,
    G,
    H,
    K,
    Q,
    close,
    make,
    regimes,
)

learned = pytest.mark.parametrize("name", LEARNED)


@regimes
def test_a_function_sees_blocks_of_queries_and_keys_with_one_head_each(
    regime: Callable[[], nullcontext[None]],
) -> None:
    q, k, v = noise(B, H, Q, D), noise(B, G, K, D, seed=1), noise(B, G, K, E, seed=2)
    shapes: set[tuple[int, ...]] = set()
    pairs = 0

    def score(some: Tensor, others: Tensor) -> Tensor:
        nonlocal pairs
        shapes.add((*some.shape[1::2], *others.shape[1::2]))
        pairs += some.shape[0] * some.shape[2] * others.shape[2]
        return some @ others.mT

    with regime(), torch.no_grad():
        output = attend(q, k, v, score=score, kernel="blocked")
    assert shapes == {(H, D, H, D)}
    assert pairs == B * Q * K
    close(output, attend(q, k, v, score="dot", kernel="reference"))


@regimes
def test_what_a_function_returned_is_left_as_it_was(
    regime: Callable[[], nullcontext[None]],
) -> None:
    returned: list[tuple[Tensor, Tensor]] = []

    def score(q: Tensor, k: Tensor) -> Tensor:
        scores = q @ k.mT
        returned.append((scores, scores.detach().clone()))
        return scores

    x = noise(B, H, Q, D).requires_grad_()
    with regime():
        for kernel in ("reference", "blocked"):
            mask = causal & padding([3, 5])
            output = attend(x, x, x, score=score, mask=mask, kernel=kernel)
            output.sum().backward()
            look(x, x, x, score=score, mask=mask, kernel=kernel).weights()
    assert len(returned) > 4
    for scores, copy in returned:
        assert torch.equal(scores, copy)


@regimes
@pytest.mark.parametrize("kernel", ["reference", "blocked"])
def test_a_function_that_returns_the_wrong_shape(
    kernel: str, regime: Callable[[], nullcontext[None]]
) -> None:
    q, k, v = noise(B, H, 1, D), noise(B, G, 3, D, seed=1), noise(B, G, 3, E, seed=2)
    text = (
        "attend: score returned (2,6,3,1) for a block q (2,6,1,11), k (2,3,3,11); "
        "expected (b,h,q,k) = (2,6,1,3)"
    )
    for entry in (slice(0, 2), slice(0, 1)):
        if regime is tiny_blocks and entry.stop == 2:
            continue  # there a block is of one batch entry
        wanted = re.escape(text.replace("(2,", f"({entry.stop},"))
        with regime(), torch.no_grad(), pytest.raises(ShapeError, match=f"^{wanted}$"):
            attend(q[entry], k[entry], v[entry], score=lambda q, k: k @ q.mT, kernel=kernel)


def parameters(score: str | Score) -> list[Tensor]:
    return list(score.parameters()) if isinstance(score, nn.Module) else []


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        (name, kernel)
        for name in (*SIMPLE, *LEARNED)
        for kernel in ("blocked", "fused", "auto")
        if kernel != "fused" or name.split()[0] not in UNREDUCED
    ],
)
@regimes
def test_gradients_reach_everything(
    name: str, kernel: str, regime: Callable[[], nullcontext[None]]
) -> None:
    score, _, key_width = make(name)
    how = as_score(score, "attend")
    q, k = noise(B, H, Q, D), noise(B, G, K, key_width, seed=1)
    v = noise(B, G, K, key_width, seed=2)
    wanted_for = [x.requires_grad_() for x in (q, k, v)] + parameters(score)
    shared = [x.repeat_interleave(H // G, 1) for x in (k, v)]
    direction = noise(B, H, Q, key_width, seed=3)
    plain = torch.softmax(how(q, shared[0]), -1) @ shared[1]
    wanted = torch.autograd.grad((plain * direction).sum(), wanted_for)
    with regime():
        output = attend(q, k, v, score=score, kernel=kernel)
        found = torch.autograd.grad((output * direction).sum(), wanted_for)
    assert all(gradient.abs().max() > 1e-3 for gradient in wanted)
    for gradient, true in zip(found, wanted, strict=True):
        close(gradient, true)


@learned
@regimes
def test_gradients_reach_parameters_when_nothing_else_wants_them(
    name: str, regime: Callable[[], nullcontext[None]]
) -> None:
    score, _, key_width = make(name)
    assert isinstance(score, nn.Module)
    q, k = noise(B, H, Q, D), noise(B, G, K, key_width, seed=1)
    v = noise(B, G, K, E, seed=2)
    shared = [x.repeat_interleave(H // G, 1) for x in (k, v)]
    plain = torch.softmax(score(q, shared[0]), -1) @ shared[1]
    wanted = torch.autograd.grad(plain.square().sum(), parameters(score))
    with regime():
        attend(q, k, v, score=score, kernel="blocked").square().sum().backward()
    for parameter, true in zip(score.parameters(), wanted, strict=True):
        assert parameter.grad is not None
        close(parameter.grad, true)


def test_gradients_of_a_learned_score_on_a_long_sequence() -> None:
    # Long enough for many blocks and merged spans in their true sizes.
    score = Additive(3, 5).double()
    q, k, v = noise(1, 2, 131, 3), noise(1, 2, 211, 3, seed=1), noise(1, 2, 211, 3, seed=2)
    wanted_for = [x.requires_grad_() for x in (q, k, v)] + parameters(score)
    mask = causal.tensor(131, 211)
    plain = torch.softmax(score(q, k).masked_fill(~mask, -torch.inf), -1) @ v
    wanted = torch.autograd.grad(plain.square().sum(), wanted_for)
    output = attend(q, k, v, score=score, mask=causal, kernel="blocked")
    close(output, plain)
    for gradient, true in zip(
        torch.autograd.grad(output.square().sum(), wanted_for), wanted, strict=True
    ):
        torch.testing.assert_close(gradient, true, rtol=1e-10, atol=1e-10)


@regimes
@pytest.mark.parametrize("kernel", ["reference", "blocked", "auto"])
@pytest.mark.parametrize("needed", [True, False], ids=["q needs it too", "only the closure"])
def test_gradients_reach_what_a_function_closes_over(
    kernel: str, needed: bool, regime: Callable[[], nullcontext[None]]
) -> None:
    q, k, v = noise(B, H, Q, D), noise(B, G, K, D, seed=1), noise(B, G, K, E, seed=2)
    q.requires_grad_(needed)
    leaf, root = noise(D, seed=3).requires_grad_(), noise(D, D, seed=4).requires_grad_()
    idle = noise(D, seed=5)
    made = torch.tanh(root @ root)  # no leaf, and its own graph holds tensors

    def score(q: Tensor, k: Tensor) -> Tensor:
        return (q * leaf + idle) @ made @ k.mT / D

    wanted_for = [leaf, root, *([q] if needed else [])]
    shared = [x.repeat_interleave(H // G, 1) for x in (k, v)]
    plain = torch.softmax(score(q, shared[0]), -1) @ shared[1]
    wanted = torch.autograd.grad(
        plain.square().sum() + made.square().sum(), wanted_for, retain_graph=True
    )
    with regime():
        output = attend(q, k, v, score=score, kernel=kernel)
        loss = output.square().sum() + made.square().sum()
        found = torch.autograd.grad(loss, wanted_for)
    for gradient, true in zip(found, wanted, strict=True):
        close(gradient, true)
    assert idle.grad is None


@regimes
def test_gradients_of_a_function_that_closes_over_what_the_queries_come_from(
    regime: Callable[[], nullcontext[None]],
) -> None:
    x = noise(B, Q, D).requires_grad_()

    def score(q: Tensor, k: Tensor) -> Tensor:
        return (q * x.mean((0, 1))) @ k.mT

    plain = torch.softmax(score(2 * x, x), -1) @ x
    (wanted,) = torch.autograd.grad(plain.square().sum(), x)
    with regime():
        output = attend(2 * x, x, x, score=score, kernel="blocked")
        (found,) = torch.autograd.grad(output.square().sum(), x)
    close(found, wanted)


@regimes
def test_two_layers_can_share_a_learned_score(regime: Callable[[], nullcontext[None]]) -> None:
    score = Additive(D, HIDDEN).double()
    x = noise(B, Q, D)
    plain = x
    for _ in range(2):
        plain = torch.softmax(score(plain, plain), -1) @ plain
    wanted = torch.autograd.grad(plain.square().sum(), parameters(score))
    with regime():
        found = x
        for _ in range(2):
            found = attend(found, found, found, score=score, kernel="blocked")
        found.square().sum().backward()
    for parameter, true in zip(score.parameters(), wanted, strict=True):
        assert parameter.grad is not None
        close(parameter.grad, true)


class Long(nn.Module):
    """Attention of so many scores that they are computed again for the backward pass."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part
        if part == "bias":
            self.inner: nn.Module = RelativeBias(2)
        elif part == "score":
            self.inner = Additive(3, 5)
        else:
            self.inner = weight_norm(Additive(3, 5), "of_query")
        self.double()

    def forward(self, x: Tensor, kernel: str) -> Tensor:
        if self.part == "bias":
            return attend(x, x, x, bias=self.inner, kernel=kernel)
        return attend(x, x, x, score=self.inner, kernel=kernel)


@pytest.mark.parametrize("trained", [True, False], ids=["trained", "frozen"])
@pytest.mark.parametrize("part", ["bias", "score", "parametrized score"])
def test_gradients_with_the_parameters_of_a_functional_call(part: str, trained: bool) -> None:
    """The module has its own parameters back when the gradients are computed."""
    layer, x = Long(part), noise(1, 2, 150, 3).requires_grad_()
    given = {
        name: noise(*own.shape, seed=i).requires_grad_(trained)
        for i, (name, own) in enumerate(layer.named_parameters())
    }
    wanted_for = [x, *given.values()] if trained else [x]
    found = []
    for kernel in ("plain", "blocked"):
        with tiny_blocks():
            output = functional_call(layer, given, (x, kernel))
        found.append(torch.autograd.grad(output.square().sum(), wanted_for))
    for true, gradient in zip(*found, strict=True):
        assert true.abs().max() > 1e-3
        torch.testing.assert_close(gradient, true, rtol=1e-10, atol=1e-10)


@learned
@regimes
def test_nothing_that_was_looked_at_has_a_gradient_but_the_output(
    name: str, regime: Callable[[], nullcontext[None]]
) -> None:
    score, _, key_width = make(name)
    q, k, v = noise(B, H, Q, D), noise(B, G, K, key_width, seed=1), noise(B, G, K, E, seed=2)
    with regime():
        seen = look(q, k, v, score=score)
        assert seen.output.requires_grad
        others = {
            "scores": seen.scores(),
            "weights": seen.weights(queries=[1]),
            "contributions": seen.contributions(),
            "top": seen.top(2)[0],
            "entropy": seen.entropy(),
            "received": seen.received(),
            "logsumexp": seen.logsumexp,
        }
    assert [what for what, tensor in others.items() if tensor.requires_grad] == []
