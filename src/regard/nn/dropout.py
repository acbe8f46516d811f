"""Dropout at a fraction of the usual cost.

PyTorch draws one number per element, one after the other; in a small Transformer that is an
eighth of the time of a step. Here PyTorch's generator draws only a seed, from which compiled code
tells what is dropped, forwards and again backwards, so that nothing is kept. Where nothing can be
compiled, a faster generator draws: fifteen random bits per element are enough, so one draw of 64
serves four; and nothing is compared, since the sign of a difference says as much.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard import compiled
from regard.attention._call import exactly
from regard.errors import OptionError

LEVELS = 2**15


class Dropout(nn.Module):
    """x with a share of its numbers set to 0 and the others raised in turn, while training.

    The share is exact to 1/32,768 and the raise is by the inverse of the true share that is kept,
    so that the expected value is x. PyTorch's generator of the CPU decides the random numbers, so
    `torch.manual_seed` does.

    >>> Dropout(0.5).eval()(torch.ones(3))
    tensor([1., 1., 1.])

    Srivastava et al., "Dropout", 2014.
    """

    def __init__(self, share: float | int = 0.1) -> None:
        super().__init__()
        if not 0.0 <= share < 1.0:
            raise OptionError(f"Dropout: share={share}, expected 0 up to, but not including, 1")
        self.share = share

    def forward(self, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """x, of any shape, and added to `onto` if that is given."""
        dropped = min(round(self.share * LEVELS), LEVELS - 1)
        if not self.training or dropped == 0:
            return x if onto is None else onto + x
        if onto is not None:  # which is wider under autocast
            x = x.to(torch.promote_types(x.dtype, onto.dtype))
        with exactly(x.device):
            return _Drop.apply(x, onto, dropped)  # type: ignore[no-untyped-call,no-any-return]

    def extra_repr(self) -> str:
        return f"share={self.share}"


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, onto: Tensor | None, dropped: int) -> Tensor:
        ctx.added, ctx.dropped = onto is not None, dropped
        ctx.factor = LEVELS / (LEVELS - dropped)
        ctx.seed = None
        if compiled.readable(x, onto) and (onto is None or onto.shape == x.shape):
            ctx.seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
            ctx.shape = x.shape
            return compiled.drop(x, onto, ctx.seed, dropped, LEVELS)
        # Kept where bits ≥ dropped: there the difference is negative, and shifts to -1, else to 0.
        bits = _bits(x).neg_().add_(dropped - 1).bitwise_right_shift_(15)
        kept = bits.to(x.dtype)
        ctx.save_for_backward(kept)
        if onto is None:
            return _scaled(x, kept, -ctx.factor)
        return torch.addcmul(onto, x, kept, value=-ctx.factor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        passed = grad if ctx.added else None
        if ctx.seed is not None:
            with exactly(grad.device):
                plainly = compiled.readable(grad) and not torch.is_grad_enabled()
            y = compiled.drop(
                grad if plainly else torch.ones(ctx.shape), None, ctx.seed, ctx.dropped, LEVELS
            )
            return y if plainly else grad * y, passed, None
        (kept,) = ctx.saved_tensors
        return _scaled(grad, kept, -ctx.factor), passed, None


def _scaled(x: Tensor, y: Tensor, factor: float) -> Tensor:
    """x · y · factor, in one pass."""
    return torch.addcmul(x.new_zeros(()), x, y, value=factor)


def _bits(like: Tensor) -> Tensor:
    """Fifteen random bits for each element, as int16 of the shape of ``like``, where it is."""
    count = like.numel()
    if like.is_meta or type(like) is not Tensor or torch.compiler.is_compiling():
        return torch.empty(like.shape, dtype=torch.int16, device=like.device).random_()
    seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
    bits = np.random.SFC64(seed).random_raw((count + 3) // 4).view(np.int16)[:count]
    return torch.from_numpy(bits).bitwise_and_(0x7FFF).view(like.shape).to(like.device)
