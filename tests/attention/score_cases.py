"""Every score, beside its formula for one query and one key."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Additive, Bilinear, Scaled
from regard.attention.scores import Score
from tests.attention.kernel_cases import BLOCKINGS, noise

# Axes: batch 2, heads 6 over kv_heads 3, queries 5, keys 7, width 11; and keys of width 13.
B, H, G, Q, K, D, E = 2, 6, 3, 5, 7, 11, 13
HIDDEN = 4
Vector = list[float]
Pairwise = Callable[[Vector, Vector], float]
close = partial(torch.testing.assert_close, rtol=0, atol=1e-12)


regimes = pytest.mark.parametrize("regime", BLOCKINGS, ids=["as it is", "tiny blocks"])


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
