"""Selections of queries and heads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import OptionError

Which = SupportsIndex | Sequence[SupportsIndex] | slice | Tensor | NDArray[Any] | None
"""Queries or heads: one, several, a slice, a bool for each, or all (None)."""


def indices(which: Which, size: int, axis: str) -> list[int]:
    """The selected indices along an axis of this size, counted from 0."""
    if which is None:
        return list(range(size))
    if isinstance(which, slice):
        return list(range(size))[which]
    given: Any = which.reshape(-1).tolist() if isinstance(which, Tensor | np.ndarray) else which
    asked = list(given) if isinstance(given, Iterable) else [given]
    if len(asked) == size and all(isinstance(one, bool | np.bool_) for one in asked):
        return [place for place, chosen in enumerate(asked) if chosen]
    for place in asked:
        if isinstance(place, bool | np.bool_) or not isinstance(place, SupportsIndex):
            raise OptionError(
                f"{axis}: {place!r} asked for, expected whole numbers, a slice or {size} bools"
            )
        if not -size <= index(place) < size:
            raise OptionError(f"{axis}: {place} asked for, but there are {size}, numbered from 0")
    return [index(place) % size for place in asked]
