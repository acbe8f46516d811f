"""The precision of matrix products, in training and in translation."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Precision(StrEnum):
    """The precision of matrix products.

    In bfloat16, matrix products and attention are rounded; weights, residual sums, norms and the
    softmax of the logits stay float32. bfloat16 has the range of float32, so no loss scaling is
    needed; processors with AVX-512 BF16 or AMX compute it about twice as fast. int8 is for
    translation only and a property of the weights, see `native.Int8Matrix`.
    """

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """Context in which matrix products of this thread have this precision."""
        if self is not Precision.BFLOAT16:
            return nullcontext()
        import torch

        return torch.autocast(device.type, torch.bfloat16)

    def pays(self) -> bool:
        """False for bfloat16 on a machine where it is slower than float32."""
        if self is not Precision.BFLOAT16:
            return True
        import torch

        best = []
        for dtype in (torch.float32, torch.bfloat16):
            x, w = torch.ones(512, 128, dtype=dtype), torch.ones(128, 256, dtype=dtype)
            times = []
            for _ in range(8):
                start = time.perf_counter()
                torch.mm(x, w)
                times.append(time.perf_counter() - start)
            best.append(min(times))
        return best[1] < best[0]


TRAINING = (Precision.FLOAT32.value, Precision.BFLOAT16.value)
"""Precisions for training."""
