"""Kernels and random inputs for the tests of the operation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from regard.attention.kernels import blocked
from regard.errors import OptionError

REGIMES = ("reference", "native", "plain", "many blocks", "fused")
every = pytest.mark.parametrize("regime", REGIMES)
DOUBLE = {"rtol": 1e-12, "atol": 1e-13}
"""Two orders of summing some hundred float64 numbers of size 1 differ by less than this."""


@contextmanager
def ready(regime: str) -> Iterator[str]:
    """The name of the kernel; for many blocks, with blocks so small that short rows need many."""
    with pytest.MonkeyPatch.context() as patch:
        if regime == "many blocks":
            patch.setattr(blocked, "HEIGHT", 8)
            patch.setattr(blocked, "WIDTH", 4)
            patch.setattr(blocked, "SPAN", 2**9)
        try:
            yield "blocked" if regime == "many blocks" else regime
        except OptionError as error:
            if "it has float32 and bfloat16" in str(error):
                pytest.skip("refused")
            raise


def noise(*sizes: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


def inputs(
    q: int,
    k: int,
    *,
    b: int = 2,
    h: int = 3,
    g: int | None = None,
    d: int = 5,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> list[Tensor]:
    sizes = ((b, h, q, d), (b, g or h, k, d), (b, g or h, k, d))
    return [noise(*size, seed=seed + i, dtype=dtype) for i, size in enumerate(sizes)]
