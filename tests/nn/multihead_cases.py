"""Attention layers in float64 and inputs for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard import ALiBi, RelativeBias, Rotary
from regard.nn import MultiHeadAttention

POSITIONS: dict[str, Callable[[], nn.Module | None]] = {
    "none": lambda: None,
    "rotary": lambda: Rotary(2),
    "rotary-interleaved": lambda: Rotary(2, interleaved=True),
    "alibi": lambda: ALiBi(6),
    "relative": lambda: RelativeBias(6, buckets=6, max_distance=5),
}


def noise(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layer_of(*args: Any, seed: int = 0, **options: Any) -> MultiHeadAttention:
    """A layer in float64 of which no parameter is 0."""
    torch.manual_seed(seed)
    layer = MultiHeadAttention(*args, **options).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return layer


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
