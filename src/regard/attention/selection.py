"""Selections of queries and heads."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import SupportsIndex

import torch
from torch import Tensor

from regard.errors import OptionError

Which = SupportsIndex | Sequence[SupportsIndex] | slice | Tensor | None
"""Queries or heads: one, several, a slice, a bool tensor, or all (None)."""


def indices(which: Which, size: int, axis: str) -> list[int]:
    """The selected indices along an axis of this size, counted from 0."""
    if which is None:
        return list(range(size))
    if isinstance(which, slice):
        return list(range(size))[which]
    if isinstance(which, Tensor) and which.dtype == torch.bool:
        which = which.nonzero()
    if isinstance(which, Tensor):
        which = which.reshape(-1).tolist()
    asked = [index(which)] if isinstance(which, SupportsIndex) else [index(i) for i in which]
    for place in asked:
        if not -size <= place < size:
            raise OptionError(f"{axis}: {place} asked for, but there are {size}, numbered from 0")
    return [place % size for place in asked]
