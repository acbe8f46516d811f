"""Affine maps and layer norm, by native operators where these are faster."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard import native
from regard.attention.tracing import wrapped_by_torch_func


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x ``(…, d_in)`` times weight ``(d_in, d_out)``, plus the bias."""
    (d_in, d_out), width = weight.shape, x.shape[-1]
    if isinstance(weight, native.Int8Matrix) and weight.multiplies and x.dtype == torch.float32:
        return native.Int8Product.apply(x, weight, bias)  # type: ignore[no-any-return, no-untyped-call]
    transformed = wrapped_by_torch_func(x, weight, *(() if bias is None else (bias,)))
    if (
        width == d_in > 0
        and (bias is None or bias.shape == (d_out,))
        and d_out % 16 == 0
        and not transformed
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
    as_it_is = transformed or isinstance(weight, native.Int8Matrix) or x.device.type != "cpu"
    if bias is None or as_it_is or d_in == 0:
        return F.linear(x, weight.T, bias)
    # Two steps: addmm would first copy the bias to every row.
    y = torch.mm(x.reshape(-1, width), weight).add_(bias)
    return y.view(*x.shape[:-1], d_out)


class LayerNorm(nn.LayerNorm):
    """`torch.nn.LayerNorm`, native where no gradient is needed."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (torch names it so)
        """The normalized input ``(…, width)``, times the weight, plus the bias."""
        if (
            self.normalized_shape == input.shape[-1:]
            and self.weight is not None
            and self.bias is not None
            and input.shape[-1] % 16 == 0
            and not wrapped_by_torch_func(input, self.weight, self.bias)
            and native.fits(4 * input.numel(), input, self.weight, self.bias)
        ):
            args = (x.contiguous() for x in (input, self.weight, self.bias))
            return torch.ops.regard.layer_norm(*args, self.eps)  # type: ignore[no-any-return]
        return super().forward(input)
