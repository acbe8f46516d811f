"""Results as plain lists and numbers, for JSON, and as pandas frames."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from regard.errors import OptionError

if TYPE_CHECKING:
    import pandas

DIGITS = 4


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """The value with tensors as lists, rounded numbers, and None for nan and infinity.

    >>> rounded({"a": (0.123456, float("nan")), "b": 1})
    {'a': [0.1235, None], 'b': 1}
    """
    if isinstance(value, Tensor):
        if value.isfinite().all():  # at once: Python's round takes most of the time of a figure
            return np.round(value.double().cpu().numpy(), digits).tolist()
        return rounded(value.tolist(), digits)
    if isinstance(value, float):
        return round(value, digits) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: rounded(one, digits) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one, digits) for one in value]
    return value


def frame(data: Any, columns: list[str] | None = None) -> pandas.DataFrame:
    """A DataFrame of columns or of rows; an error if pandas is not installed."""
    try:
        import pandas
    except ImportError:
        raise OptionError(
            "to_frame: pandas is not installed; pip install pandas, or use to_data()"
        ) from None
    return pandas.DataFrame(data, columns=columns)
