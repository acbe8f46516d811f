"""Every score is its formula, in loops and by hand, in every kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from regard.attention import Additive, Bilinear, Scaled, attend, look
from regard.attention.scores import NAMED, DotScore, Score, as_score
from tests.attention.kernel_cases import noise, tiny_blocks
from tests.attention.score_cases import (
    LEARNED,
    SIMPLE,
    UNREDUCED,
    B,
    D,
    G,
    H,
    K,
    Pairwise,
    Q,
    close,
    dot,
    make,
    regimes,
)

every = pytest.mark.parametrize("name", [*SIMPLE, *LEARNED])


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
