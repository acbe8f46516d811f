"""Dropout at a fraction of the usual cost.

PyTorch draws one number per element, one after the other; in a small Transformer that is an
eighth of the time of a step. Sixteen random bits per element are enough, so one draw of 64 serves
four.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import OptionError

LEVELS = 2**16


class Dropout(nn.Module):
    """x with a share of its numbers set to 0 and the others raised in turn, while training.

    The share is exact to 1/65,536 and the raise is by the inverse of the true share that is kept,
    so that the expected value is x. Random numbers come from PyTorch's generator of the CPU.

    >>> Dropout(0.5).eval()(torch.ones(3))
    tensor([1., 1., 1.])

    Srivastava et al., "Dropout", 2014.
    """

    def __init__(self, share: float | int = 0.1) -> None:
        super().__init__()
        if not 0.0 <= share < 1.0:
            raise OptionError(f"Dropout: share={share}, expected 0 up to, but not including, 1")
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """x, of any shape."""
        dropped = min(round(self.share * LEVELS), LEVELS - 1)
        if not self.training or dropped == 0:
            return x
        return _Drop.apply(x, dropped)  # type: ignore[no-untyped-call,no-any-return]

    def extra_repr(self) -> str:
        return f"share={self.share}"


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dropped: int) -> Tensor:
        keep = _bits(x) >= dropped - LEVELS // 2
        ctx.factor = LEVELS / (LEVELS - dropped)
        # A mask of the dtype of x: multiplying by bool goes through a slow conversion twice.
        keep = keep.to(x.dtype).mul_(ctx.factor)
        ctx.save_for_backward(keep)
        return x * keep

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return grad * keep, None


def _bits(like: Tensor) -> Tensor:
    """Sixteen random bits for each element, as int16 of the shape of ``like``, where it is."""
    count = like.numel()
    drawn = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return drawn.view(torch.int16)[:count].view(like.shape).to(like.device)
