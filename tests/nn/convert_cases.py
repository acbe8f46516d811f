"""Sizes and parameters of the models that are converted."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

WIDTH, HEADS, INNER, SOURCE, TARGET = 22, 2, 38, 7, 5
LENGTHS = torch.tensor([7, 4, 1])
PAD = 28


def stirred(module: Any, seed: int = 0) -> Any:
    """The module with no parameter or buffer left at 0 or 1, apart from tables of positions."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, one in (*module.named_parameters(), *module.named_buffers()):
            if "embed_positions" not in name:
                one.add_(torch.randn(one.shape, generator=generator, dtype=one.dtype) * 0.2)
    return module


def hidden_keys(lengths: Tensor, size: int) -> Tensor:
    """Torch's key padding mask: True where there is nothing."""
    return torch.arange(size) >= lengths[:, None]


def close(found: Tensor, wanted: Tensor, tolerance: float = 1e-5) -> None:
    assert found.shape == wanted.shape
    assert wanted.abs().max() > 0.1  # that something is compared at all
    torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance)
