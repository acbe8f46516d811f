"""Layer norm, by the fastest way on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard import native


class LayerNorm(nn.LayerNorm):
    """`torch.nn.LayerNorm`, native where no gradient is wanted."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (torch names it so)
        """The input ``(…, width)``, with mean 0 and deviation 1 before weight and bias."""
        if (
            self.normalized_shape == input.shape[-1:]
            and self.weight is not None
            and self.bias is not None
            and input.shape[-1] % 16 == 0
            and native.fits(4 * input.numel(), input, self.weight, self.bias)
        ):
            args = (x.contiguous() for x in (input, self.weight, self.bias))
            return torch.ops.regard.layer_norm(*args, self.eps)  # type: ignore[no-any-return]
        return super().forward(input)
