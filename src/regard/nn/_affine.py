"""x W + b, and what becomes of it, by the fastest way on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from regard import native
from regard.attention.call import wrapped_by_torch_func


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x ``(…, d_in)`` times weight ``(d_in, d_out)``, and the bias added."""
    (d_in, d_out), width = weight.shape, x.shape[-1]
    if isinstance(weight, native.Int8Matrix) and weight.multiplies and x.dtype == torch.float32:
        return native.Int8Product.apply(x, weight, bias)  # type: ignore[no-any-return, no-untyped-call]
    if (
        width == d_in > 0
        and (bias is None or bias.shape == (d_out,))
        and d_out % 16 == 0
        and native.fits(x.numel() * d_out, x, weight, bias)
    ):
        rows = x.reshape(x.numel() // width, width).contiguous()
        bias = None if bias is None else bias.contiguous()
        if native.bfloat16_products() and d_in % 2 == 0:
            panels = native.panels(weight, torch.bfloat16)
            y = torch.ops.regard.affine_panels(rows, panels, bias, d_out)
        else:
            y = torch.ops.regard.affine(rows, weight.contiguous(), bias)
        return y.view(*x.shape[:-1], d_out)  # type: ignore[no-any-return]
    elsewhere = x.device.type != "cpu" or d_in == 0
    if bias is None or elsewhere or wrapped_by_torch_func(x, weight, bias):
        return F.linear(x, weight.T, bias)
    # In two steps: in one, torch copies the bias to every row before it multiplies.
    y = torch.mm(x.reshape(-1, width), weight).add_(bias)
    return y.view(*x.shape[:-1], d_out)


def heads(x: Tensor, counts: list[int], width: int) -> list[Tensor]:
    """Columns of x ``(b, n, …)`` as several times so many heads ``(b, h, n, width)``."""
    parts = torch.split(x, [count * width for count in counts], -1)
    return [
        part.view(*x.shape[:2], count, width).transpose(1, 2)
        for part, count in zip(parts, counts, strict=True)
    ]
