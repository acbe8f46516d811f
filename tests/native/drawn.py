"""Random tensors, and errors beside the exact result."""

from __future__ import annotations

import torch
from torch import Tensor

OPS = torch.ops.regard


def drawn(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def error(found: Tensor, wanted: Tensor) -> float:
    return float((found.detach().double() - wanted).abs().max())
