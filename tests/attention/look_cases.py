"""Looks at random calls, and the whole matrix of weights to compare them with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from regard.attention import statistics
from regard.attention.kernels import blocked
from regard.errors import OptionError

DOUBLE = {"rtol": 1e-12, "atol": 1e-13}
"""Two ways to compute the same from some hundred float64 numbers of size 1."""
REGIMES = ("auto", "reference", "native", "many blocks", "fused")
every = pytest.mark.parametrize("regime", REGIMES)


@contextmanager
def ready(regime: str) -> Iterator[str]:
    """The name of the kernel; for many blocks, with blocks so small that short rows need many.

    What is asked of a look goes through many blocks as well.
    """
    with pytest.MonkeyPatch.context() as patch:
        if regime == "many blocks":
            for module in (blocked, statistics):
                patch.setattr(module, "HEIGHT", 8)
                patch.setattr(module, "WIDTH", 4)
                patch.setattr(module, "SPAN", 2**9)
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
    lead: tuple[int, ...] = (2, 3),
    shared: tuple[int, ...] | None = None,
    *,
    d: int = 5,
    dtype: torch.dtype = torch.float64,
) -> list[Tensor]:
    shared = lead if shared is None else shared
    sizes = ((*lead, q, d), (*shared, k, d), (*shared, k, d))
    return [noise(*size, seed=i, dtype=dtype) for i, size in enumerate(sizes)]
