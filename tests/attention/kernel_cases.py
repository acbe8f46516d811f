"""Kernels and random inputs to call them with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import pytest
import torch
from torch import Tensor

from regard.attention import statistics
from regard.attention.kernels import blocked
from regard.attention.masks import Mask
from regard.errors import OptionError

HALF = (torch.bfloat16, torch.float16)
DTYPES = (torch.float32, torch.float64, *HALF)
DOUBLE = {"rtol": 1e-12, "atol": 1e-13}
"""Two orders of summing some hundred float64 numbers of size 1 differ by less than this."""
Masking = Mask | Tensor | None

# What computes a call; "many blocks" is blocked with blocks so small that short rows need many.
REGIMES = ("reference", "native", "plain", "many blocks", "fused")
every = pytest.mark.parametrize("regime", REGIMES)
fast = pytest.mark.parametrize("regime", ["native", "plain", "many blocks", "fused"])
both = pytest.mark.parametrize("regime", ["plain", "many blocks"])
differentiable = pytest.mark.parametrize("regime", ["reference", "plain", "many blocks"])
looking = pytest.mark.parametrize("regime", ["auto", "reference", "native", "many blocks", "fused"])


FINE_BLOCKS = (8, 4, 2**9)
"""Height, width and span of blocks so small that a dozen words need many."""
COARSE_BLOCKS = (32, 16, 2**13)
"""The same for some hundred words, where smaller blocks would only be slow."""


@contextmanager
def blocks_of(height: int, width: int, span: int) -> Iterator[None]:
    """Limits blocks to height × width scores, in the blocked kernel and in queries of a look."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (blocked, statistics):
            patch.setattr(module, "HEIGHT", height)
            patch.setattr(module, "WIDTH", width)
            patch.setattr(module, "SPAN", span)
        patch.setattr(blocked, "PAIRWISE", 4)
        yield


tiny_blocks = partial(blocks_of, 2, 3, 1)
"""Blocks of 2 × 3, one block a span, one batch entry at a time."""
BLOCKINGS = (nullcontext, tiny_blocks)
"""The blocked kernel with its own blocks and with tiny ones."""


@contextmanager
def ready(regime: str, blocks: tuple[int, int, int] = FINE_BLOCKS) -> Iterator[str]:
    """The name of the kernel of a regime; skips the test where the kernel refuses the dtype."""
    many = regime == "many blocks"
    try:
        with blocks_of(*blocks) if many else nullcontext():
            yield "blocked" if many else regime
    except OptionError as error:
        if "it supports float32 and bfloat16" in str(error):
            pytest.skip("refused")
        raise


def noise(*sizes: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers; those of half precision are rounded from float32."""
    drawn = torch.promote_types(dtype, torch.float32)
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*sizes, generator=generator, dtype=drawn).to(dtype)


def inputs(
    q: int,
    k: int,
    *,
    b: int = 2,
    h: int = 3,
    g: int | None = None,
    d: int = 5,
    e: int | None = None,
    lead: tuple[int, ...] | None = None,
    shared: tuple[int, ...] | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> list[Tensor]:
    """Queries ``(b, h, q, d)``, keys ``(b, g, k, d)`` and values ``(b, g, k, e)``.

    For other ranks, `lead` stands for ``(b, h)`` and `shared`, by default the same, for ``(b, g)``.
    """
    if lead is None:
        lead, shared = (b, h), (b, g or h)
    elif shared is None:
        shared = lead
    sizes = (*lead, q, d), (*shared, k, d), (*shared, k, e or d)
    return [noise(*size, seed=seed + i, dtype=dtype) for i, size in enumerate(sizes)]


float32_noise = partial(noise, dtype=torch.float32)
float32_inputs = partial(inputs, dtype=torch.float32)


def leaves(*given: Tensor) -> list[Tensor]:
    """Detached tensors that require gradients."""
    return [x.detach().requires_grad_() for x in given]


def written(mask: Masking, q: int, k: int) -> Tensor | None:
    """The mask as a tensor."""
    return mask.tensor(q, k) if isinstance(mask, Mask) else mask
