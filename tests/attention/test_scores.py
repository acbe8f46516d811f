"""Scores against double loops in plain Python, alone and through every kernel, gradients too."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Additive, Bilinear, Scaled, attend, causal, look, padding
from regard.attention.kernels import blocked
from regard.attention.scores import NAMED, DotScore, Score, as_score
from regard.errors import ShapeError

# Axes: batch 2, heads 6 over kv_heads 3, queries 5, keys 7, width 11; and keys of width 13.
B, H, G, Q, K, D, E = 2, 6, 3, 5, 7, 11, 13
HIDDEN = 4

Vector = list[float]
Pairwise = Callable[[Vector, Vector], float]

close = partial(torch.testing.assert_close, rtol=0, atol=1e-12)


def noise(*sizes: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*sizes, generator=generator, dtype=torch.float64)


@contextmanager
def tiny_blocks() -> Iterator[None]:
    """The blocked kernel in blocks of 2 × 3, one block a span, one batch entry at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocked, "SPAN", 1)
        patch.setattr(blocked, "HEIGHT", 2)
        patch.setattr(blocked, "WIDTH", 3)
        yield


regimes = pytest.mark.parametrize(
    "regime", [nullcontext, tiny_blocks], ids=["as it is", "tiny blocks"]
)


# The definitions, number by number


def dot(q: Vector, k: Vector) -> float:
    return math.fsum(a * b for a, b in zip(q, k, strict=True))


def cosine(q: Vector, k: Vector) -> float:
    lengths = math.sqrt(dot(q, q)) * math.sqrt(dot(k, k))
    return dot(q, k) / lengths if lengths else 0.0


def gaussian(q: Vector, k: Vector) -> float:
    return -math.fsum((a - b) ** 2 for a, b in zip(q, k, strict=True)) / 2


def bilinear(weight: Tensor, q: Vector, k: Vector) -> float:
    return math.fsum(dot(row, k) * a for a, row in zip(q, weight.tolist(), strict=True))


def additive(of_query: Tensor, of_key: Tensor, out: Tensor, q: Vector, k: Vector) -> float:
    columns = zip(of_query.T.tolist(), of_key.T.tolist(), out.tolist(), strict=True)
    return math.fsum(a * math.tanh(dot(w, q) + dot(u, k)) for w, u, a in columns)


def taxi(q: Tensor, k: Tensor) -> Tensor:
    """A score that regard does not know."""
    return -(q.unsqueeze(-2) - k.unsqueeze(-3)).abs().sum(-1) / 3


def taxi_distance(q: Vector, k: Vector) -> float:
    return -math.fsum(abs(a - b) for a, b in zip(q, k, strict=True)) / 3


class Kept(nn.Module):
    """A learned score of the user's own, without `dot`."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(noise(D))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.sin(q * self.weight) @ k.mT


def kept(weight: Vector, q: Vector, k: Vector) -> float:
    return dot([math.sin(a * w) for a, w in zip(q, weight, strict=True)], k)


def make(name: str) -> tuple[str | Score, list[Pairwise], int]:
    """A score, its definition for each head, and the width of the keys that it compares with."""
    module: nn.Module
    if name in ("bilinear", "bilinear wide", "bilinear heads", "bilinear heads wide"):
        key_width = E if "wide" in name else None
        module = Bilinear(D, key_width, H if "heads" in name else None).double()
        weight = module.weight.detach().expand(H, -1, -1)
        return module, [partial(bilinear, weight[h]) for h in range(H)], key_width or D
    if name in ("additive", "additive wide"):
        key_width = E if "wide" in name else None
        module = Additive(D, HIDDEN, key_width).double()
        parts = [x.detach() for x in (module.of_query, module.of_key, module.out)]
        return module, [partial(additive, *parts)] * H, key_width or D
    if name == "module":
        module = Kept()
        return module, [partial(kept, module.weight.tolist())] * H, D
    score, definition = SIMPLE[name]
    return score, [definition] * H, D


SIMPLE: dict[str, tuple[str | Score, Pairwise]] = {
    "dot": ("dot", dot),
    "scaled_dot": ("scaled_dot", lambda q, k: dot(q, k) / math.sqrt(D)),
    "cosine": ("cosine", cosine),
    "gaussian": ("gaussian", gaussian),
    "scaled": (Scaled(0.3), lambda q, k: 0.3 * dot(q, k)),
    "scaled negative": (Scaled(-1.7), lambda q, k: -1.7 * dot(q, k)),
    "function": (taxi, taxi_distance),
}
LEARNED = [
    "bilinear",
    "bilinear wide",
    "bilinear heads",
    "bilinear heads wide",
    "additive",
    "additive wide",
    "module",
]
UNREDUCED = ("additive", "function", "module")
"""What is no dot product of changed queries and keys."""
every = pytest.mark.parametrize("name", [*SIMPLE, *LEARNED])
learned = pytest.mark.parametrize("name", LEARNED)


def test_every_named_score_is_tested() -> None:
    assert set(NAMED) <= set(SIMPLE)


def in_loops(definitions: list[Pairwise], q: Tensor, k: Tensor) -> Tensor:
    """Every score ``(b, h, q, k)``; head h looks at the keys of head h // 2."""
    return torch.tensor(
        [
            [
                [
                    [definitions[h](one.tolist(), other.tolist()) for other in k[b, h * G // H]]
                    for one in q[b, h]
                ]
                for h in range(H)
            ]
            for b in range(B)
        ],
        dtype=torch.float64,
    )


def attend_in_loops(scores: Tensor, v: Tensor) -> Tensor:
    """The softmax of the scores, and the average of the values under it, number by number."""
    output = torch.empty(B, H, Q, v.shape[-1], dtype=torch.float64)
    for b in range(B):
        for h in range(H):
            values = v[b, h * G // H].T.tolist()
            for i in range(Q):
                row = scores[b, h, i].tolist()
                weights = [math.exp(x - max(row)) for x in row]
                for place, column in enumerate(values):
                    output[b, h, i, place] = dot(weights, column) / math.fsum(weights)
    return output


@every
def test_a_score_is_its_double_loop(name: str) -> None:
    score, definitions, key_width = make(name)
    q, k = noise(B, H, Q, D), noise(B, G, K, key_width, seed=1)
    found = as_score(score, "attend")(q, k.repeat_interleave(H // G, 1))
    close(found, in_loops(definitions, q, k))


@every
def test_a_score_that_reduces_is_that_dot_product(name: str) -> None:
    score, definitions, key_width = make(name)
    how = as_score(score, "attend")
    reduces = isinstance(how, DotScore)
    assert reduces == (name.split()[0] not in UNREDUCED)
    if isinstance(how, DotScore):
        q, k = noise(B, H, Q, D), noise(B, G, K, key_width, seed=1)
        changed_q, changed_k, factor = how.dot(q, k)
        wanted = in_loops(definitions, q, k)
        close(changed_q @ changed_k.repeat_interleave(H // G, 1).mT * factor, wanted)


@every
@regimes
def test_attention_with_a_score_is_its_loop_in_every_kernel(
    name: str, regime: Callable[[], nullcontext[None]]
) -> None:
    score, definitions, key_width = make(name)
    q, k = noise(B, H, Q, D), noise(B, G, K, key_width, seed=1)
    v = noise(B, G, K, key_width, seed=2)
    scores = in_loops(definitions, q, k)
    wanted = attend_in_loops(scores, v)
    with regime():
        close(attend(q, k, v, score=score), wanted)
        close(attend(q, k, v, score=score, kernel="reference"), wanted)
        close(attend(q, k, v, score=score, kernel="blocked"), wanted)
        if isinstance(as_score(score, "attend"), DotScore):
            close(attend(q, k, v, score=score, kernel="fused"), wanted)
        seen = look(q, k, v, score=score)
        close(seen.output, wanted)
        close(seen.scores(), scores)
        close(seen.weights(), torch.softmax(scores, -1))
        close(seen.logsumexp, scores.logsumexp(-1))


@pytest.mark.parametrize("name", [*SIMPLE, "bilinear", "additive", "module"])
def test_scores_of_one_sequence_and_of_a_batch(name: str) -> None:
    score, _, _ = make(name)
    q, k, v = noise(B, Q, D), noise(B, K, D, seed=1), noise(B, K, D, seed=2)
    with_heads = attend(q[:, None], k[:, None], v[:, None], score=score, kernel="reference")
    with tiny_blocks():
        for kernel in ("auto", "reference", "blocked"):
            batch = attend(q, k, v, score=score, kernel=kernel)
            close(batch, with_heads[:, 0])
            for b in range(B):
                close(attend(q[b], k[b], v[b], score=score, kernel=kernel), batch[b])


def test_by_hand() -> None:
    # q = (3, 4), k = (6, 8) and (-4, 3): dot 50 and 0, cosine 1 and 0, distance² 25 and 50.
    q = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    k = torch.tensor([[6.0, 8.0], [-4.0, 3.0]], dtype=torch.float64)
    by_hand: list[tuple[str | Score, list[float]]] = [
        ("dot", [50.0, 0.0]),
        ("scaled_dot", [50.0 / math.sqrt(2), 0.0]),
        ("cosine", [1.0, 0.0]),
        ("gaussian", [-12.5, -25.0]),
        (Scaled(0.1), [5.0, 0.0]),
    ]
    for score, wanted in by_hand:
        found = look(q, k, k, score=score).scores()
        close(found, torch.tensor([wanted], dtype=torch.float64))


def test_learned_scores_by_hand() -> None:
    q, k = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 5.0, 7.0]])
    product = Bilinear(2, 3)
    with torch.no_grad():
        product.weight.copy_(torch.tensor([[1.0, 0.0, 2.0], [0.0, -1.0, 1.0]]))
    assert product(q, k).item() == 1 * (3 + 14) + 2 * (-5 + 7)
    network = Additive(2, 1, 3)
    with torch.no_grad():
        network.of_query.copy_(torch.tensor([[0.25], [0.5]]))
        network.of_key.copy_(torch.tensor([[-1.0], [0.0], [0.25]]))
        network.out.fill_(8.0)
    assert network(q, k).item() == pytest.approx(8 * math.tanh(1.25 - 1.25))
    assert network(2 * q, k).item() == pytest.approx(8 * math.tanh(2.5 - 1.25), rel=1e-6)


def test_learned_scores_start_with_spread_one_over_root_width() -> None:
    assert Bilinear(101).weight.std().item() == pytest.approx(101**-0.5, rel=0.05)
    network = Additive(101, 103, 107)
    assert network.of_query.std().item() == pytest.approx(101**-0.5, rel=0.05)
    assert network.of_key.std().item() == pytest.approx(107**-0.5, rel=0.05)
    assert (network.of_query.shape, network.of_key.shape) == ((101, 103), (107, 103))


# Where numbers are delicate


@regimes
@pytest.mark.parametrize("kernel", ["reference", "blocked", "fused", "auto"])
def test_the_cosine_of_a_vector_without_direction_is_0(
    kernel: str, regime: Callable[[], nullcontext[None]]
) -> None:
    q, k, v = noise(B, G, Q, D), noise(B, G, K, D, seed=1), noise(B, G, K, D, seed=2)
    q[:, :, 2], k[:, :, 3] = 0.0, 0.0
    with regime():
        q, k, v = (x.requires_grad_() for x in (q, k, v))
        output = attend(q, k, v, score="cosine", kernel=kernel)
        seen = look(q, k, v, score="cosine", kernel=kernel)
    assert torch.equal(seen.scores()[:, :, 2], torch.zeros(B, G, K, dtype=torch.float64))
    assert torch.equal(seen.scores()[:, :, :, 3], torch.zeros(B, G, Q, dtype=torch.float64))
    close(output[:, :, 2].detach(), v.mean(-2).detach())
    assert output.isfinite().all()
    for gradient in torch.autograd.grad(output.square().sum(), (q, k, v)):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("kernel", ["blocked", "fused"])
@pytest.mark.parametrize("far", [0.0, 10.0, 100.0, 1000.0])
def test_distances_do_not_drown_far_from_the_origin(kernel: str, far: float) -> None:
    # |q - k|² is the same wherever both stand, and float32 subtraction knows it.
    q, k, v = (noise(B, G, n, D, seed=i).float() for i, n in enumerate((Q, K, K)))
    q, k = q + far, k + far
    exact = attend(q.double(), k.double(), v.double(), score="gaussian", kernel="reference")
    scores = (q.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(-1) / -2
    plain = (torch.softmax(scores, -1) @ v - exact).abs().max().item()
    error = (attend(q, k, v, score="gaussian", kernel=kernel) - exact).abs().max().item()
    assert error <= 10 * plain


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "name", ["dot", "scaled_dot", "cosine", "gaussian", "bilinear", "additive"]
)
def test_scores_of_half_precision_are_computed_in_float32(name: str, dtype: torch.dtype) -> None:
    score, _, _ = make(name)
    q, k, v = (noise(B, G, n, D, seed=i).to(dtype) for i, n in enumerate((Q, K, K)))
    exact = attend(q.double(), k.double(), v.double(), score=score, kernel="reference")
    seen = look(q, k, v, score=score, kernel="blocked")
    assert (seen.output.dtype, seen.scores().dtype) == (dtype, torch.float32)
    scores = look(q.double(), k.double(), v.double(), score=score).scores()
    torch.testing.assert_close(seen.scores().double(), scores, rtol=1e-5, atol=1e-5)
    spacing = torch.finfo(dtype).eps
    torch.testing.assert_close(seen.output.double(), exact, rtol=spacing, atol=spacing)


# Functions of the user's own


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


# Gradients


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
