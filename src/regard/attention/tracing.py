"""Whether the values of tensors can be read: not while tracing, nor under torch.func."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor


def values_unavailable(*tensors: Tensor) -> bool:
    """Whether elements cannot be read: while tracing, and for meta, fake or functorch tensors."""
    return torch.compiler.is_compiling() or any(map(_without_data, tensors))


def _without_data(x: Tensor) -> bool:
    if x.is_meta or isinstance(x, FakeTensor):
        return True
    try:
        return x.data_ptr() == 0 and x.numel() > 0
    except RuntimeError:
        return True  # a wrapper of torch.func


def wrapped_by_torch_func(*tensors: Tensor) -> bool:
    """Whether a transform of torch.func, such as grad or vmap, wraps one of the tensors."""
    return not torch.compiler.is_compiling() and any(
        map(torch._C._functorch.is_functorch_wrapped_tensor, tensors)
    )
