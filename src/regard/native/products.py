"""When products with weights, norms and `best_words` run on native operators."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.autograd import forward_ad

from regard.native.library import loaded

ALONE = 2**22
"""The number of multiplications above which PyTorch's threaded operations are faster."""
PANEL = 32
"""Columns of a matrix per panel."""


class _Products(threading.local):
    dtype = torch.float32


_products = _Products()


@contextmanager
def products_in(dtype: torch.dtype) -> Iterator[None]:
    """A context in which this thread's native products with weights are in float32 or bfloat16.

    Sums and results are float32. In bfloat16, native operators run whatever the size of a product,
    since no other operation gives the same numbers.
    """
    before, _products.dtype = _products.dtype, dtype
    try:
        yield
    finally:
        _products.dtype = before


def bfloat16_products() -> bool:
    """Whether this thread's native products with weights are in bfloat16."""
    return _products.dtype == torch.bfloat16


def has_tangent(*tensors: Tensor) -> bool:
    """Whether a forward-mode derivative is being taken with respect to one of the tensors.

    True for all tensors that `torch.func` wraps meanwhile: an inner transform hides the tangent.
    """
    return forward_ad._current_level >= 0 and any(
        forward_ad.unpack_dual(x).tangent is not None  # type: ignore[no-untyped-call]
        or torch._C._functorch.is_functorch_wrapped_tensor(x)
        for x in tensors
    )


def fits(work: int, *tensors: Tensor | None) -> bool:
    """Whether a single-threaded native operator without gradient supports these tensors and pays.

    `work` is the number of multiplications.
    """
    given = [x for x in tensors if x is not None]
    return (
        (work <= ALONE or torch.get_num_threads() == 1 or bfloat16_products())
        and not (torch.is_grad_enabled() and any(x.requires_grad for x in given))
        and all(x.dtype == torch.float32 and x.device.type == "cpu" for x in given)
        and not torch.is_autocast_enabled("cpu")
        and not has_tangent(*given)
        and loaded()
    )
