"""Random words and weights for the steps."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

Rows = list[list[float]]


def noise(*sizes: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def weights_of(d_in: int, d: int, e: int, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    return noise(d_in, d, seed=seed), noise(d_in, d, seed=seed + 1), noise(d_in, e, seed=seed + 2)


def times(a: Rows, b: Rows) -> Rows:
    return [
        [math.fsum(row[i] * b[i][j] for i in range(len(b))) for j in range(len(b[0]))] for row in a
    ]


def by_loops(q: Rows, k: Rows, v: Rows, divide: bool, seen: list[list[bool]] | None = None) -> dict:
    """scores, scaled, masked, weights, weighted and heads (the sums) of one head."""
    scores = [[math.fsum(a * b for a, b in zip(one, key, strict=True)) for key in k] for one in q]
    root = math.sqrt(len(q[0])) if divide else 1.0
    scaled = [[score / root for score in row] for row in scores]
    masked = [
        [s if seen is None or seen[i][j] else -math.inf for j, s in enumerate(row)]
        for i, row in enumerate(scaled)
    ]
    powers = [[math.exp(s) for s in row] for row in masked]
    weights = [[p / math.fsum(row) if math.fsum(row) else 0.0 for p in row] for row in powers]
    weighted = [
        [[w * part for part in value] for w, value in zip(row, v, strict=True)] for row in weights
    ]
    heads = [[math.fsum(column) for column in zip(*values, strict=True)] for values in weighted]
    return {
        "scores": scores,
        "scaled": scaled,
        "masked": masked,
        "weights": weights,
        "weighted": weighted,
        "heads": heads,
    }


def assert_equal(found: Tensor, wanted: Any, what: str = "") -> None:
    wanted = torch.tensor(wanted, dtype=torch.float64)
    torch.testing.assert_close(
        found.double(), wanted, rtol=0, atol=1e-12, msg=lambda text: f"{what}: {text}"
    )


def sizes(values: Any) -> tuple[int, ...]:
    return (len(values), *sizes(values[0])) if isinstance(values, list) else ()
