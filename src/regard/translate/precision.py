"""In which numbers products are computed: float32, or bfloat16, of which some processors do twice
as many (those with AVX-512 BF16 or AMX).

Products, attention's among them, are rounded to it; weights, the sums between layers, norms and
what becomes of logits stay float32. bfloat16 has eight bits of precision, and reaches as far as
float32: nothing needs to be scaled for it.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

PRECISIONS = ("float32", "bfloat16")
"""Of products while training."""
TRANSLATING = (*PRECISIONS, "int8")
"""Of products while translating; int8 is a property of the weights, see `native.Int8Matrix`."""


def products_in(
    precision: str, device: torch.device | None = None
) -> AbstractContextManager[object]:
    """A context, for this thread, in which products with weights are in one of `PRECISIONS`."""
    if precision != "bfloat16":
        return nullcontext()
    import torch

    return torch.autocast("cpu" if device is None else device.type, torch.bfloat16)


def bfloat16_pays() -> bool:
    """Whether products in bfloat16 are faster than in float32 on this machine, by trying."""
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
