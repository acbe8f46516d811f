"""Validation of array arguments, and formatting of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.errors import OptionError, ShapeError, shape
from regard.view.svg import Number

Numbers = npt.ArrayLike | Sequence[Any]
Array = npt.NDArray[np.float64]

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def array(where: str, values: Numbers, axes: str) -> Array:
    """The values as float64 with the named axes, none of them empty.

    An axis in brackets may be missing and then comes with length 1: "[h], q, k".
    """
    detached = getattr(values, "detach", None)  # a tensor that still has its graph
    try:
        found = np.asarray(detached() if detached else values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"{where} expected numbers ({axes}), got {type(values).__name__} that numpy cannot "
            f"read as such ({error}); give rows of equal length"
        ) from error
    rank = axes.count(",") + 1
    if found.ndim == rank - 1 and "[" in axes:
        found = found[None]
    if found.ndim != rank or not found.size:
        raise ShapeError(
            f"{where} expected shape ({axes}), none of them 0, got {shape(found)}; "
            "index or reshape it first"
        )
    return found


def names(where: str, given: Sequence[object], wanted: int, of: str, each: str) -> list[str]:
    """The labels as strings; raises unless there are ``wanted`` of them."""
    if len(given) != wanted:
        raise ShapeError(f"{where} has {len(given)} labels but {of}; give one label per {each}")
    return [str(text) for text in given]


def decimals(values: Iterable[Number]) -> int | None:
    """Decimals with which the largest number keeps two or three significant digits.

    Others (at most two) when that loses nothing; None when they want a power of ten.

    >>> decimals([1, 2]), decimals([0.5, 0.123]), decimals([153.223, 2.1]), decimals([3e-9])
    (0, 2, 1, None)
    """
    sizes = [abs(value) for value in values]
    largest = max(sizes, default=0)
    if not largest:
        return 0
    exponent = math.floor(math.log10(largest))
    if not -4 <= exponent <= 5:
        return None
    enough = 1 - exponent if exponent < 0 else (2, 1, 1, 0, 0, 0)[exponent]
    exact = (
        places
        for places in range(max(enough, 3))
        if all(abs(size - round(size, places)) <= 1e-7 * largest for size in sizes)
    )
    return next(exact, enough)


def written(value: Number, places: int | None) -> str:
    """A number with thousands separators and a true minus; never "−0".

    >>> written(-1234.5, 1), written(-0.001, 2), written(3.2e-9, None)
    ('−1,234.5', '0.00', '3.2×10⁻⁹')
    """
    if places is None:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        text = mantissa.removesuffix(".0")
        if int(exponent):
            power = "10" + str(int(exponent)).translate(_RAISED)
            text = {"1": power, "-1": "-" + power}.get(text, f"{text}×{power}")
    else:
        text = f"{value:z,.{places}f}"
    return text.replace("-", "−")


def marks(values: Sequence[Number]) -> list[str]:
    """Tick labels, with as many decimals as needed to distinguish them, and a bare 0.

    >>> marks([0, 0.5, 1]), marks([1e6, 1000005])
    (['0', '0.5', '1.0'], ['1,000,000', '1,000,005'])
    """
    places = decimals(values)
    texts = [written(value, places) if value else "0" for value in values]
    if len(set(texts)) < len(texts):
        texts = [f"{value:,.12g}".replace("-", "−") for value in values]
    return texts
