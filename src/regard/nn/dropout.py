"""Dropout whose mask is a function of a seed and the position, so that none is stored."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard import native
from regard.attention.tracing import wrapped_by_torch_func
from regard.errors import check_share

LEVELS = 2**15
"""The resolution of the dropout probability."""


class Dropout(nn.Module):
    """x with a share of its elements set to 0 and the others scaled up, while training.

    The share is rounded to 1/32,768 and the scale is the inverse of the rounded share that is kept,
    so that the expected value is x. The seed is drawn from PyTorch's CPU generator
    (`torch.manual_seed`).

    >>> Dropout(0.5).eval()(torch.ones(3))
    tensor([1., 1., 1.])

    Srivastava et al., "Dropout", 2014.
    """

    def __init__(self, share: float | int = 0.1) -> None:
        super().__init__()
        check_share("Dropout: share", share)
        self.share = share

    def forward(self, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """x of any shape after dropout, plus `onto` if it is given."""
        dropped = min(round(self.share * LEVELS), LEVELS - 1)
        if not self.training or dropped == 0:
            return x if onto is None else onto + x
        if onto is not None:  # onto is wider under autocast
            x = x.to(torch.promote_types(x.dtype, onto.dtype))
        given = [x] if onto is None else [x, onto]
        fits = x.dtype == torch.float32 and x.device.type == "cpu" and x.shape == given[-1].shape
        if fits and native.loaded() and not wrapped_by_torch_func(*given):
            seed = torch.randint(2**62, (1,), device="cpu")
            onto = None if onto is None else onto.contiguous()
            return torch.ops.regard.drop(  # type: ignore[no-any-return]
                x.contiguous(), onto, seed, dropped, LEVELS
            )
        y = F.dropout(x, dropped / LEVELS)
        return y if onto is None else onto + y

    def extra_repr(self) -> str:
        return f"share={self.share}"
