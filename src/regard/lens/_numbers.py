"""Numbers that a user gives: whole ones, and those of layers and heads."""

from __future__ import annotations

from operator import index

from regard.errors import OptionError


def whole(what: str, value: object, least: int = 1) -> int:
    """The value, if it is a whole number from `least` on; `what` names it in the error."""
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise OptionError(f"{what}={value!r}, expected a whole number") from None
    if number < least:
        raise OptionError(f"{what}={value!r}, expected {least} or more")
    return number


def numbered(what: str, value: object, size: int, *, backwards: bool = False) -> int:
    """The value, if it is the number of one of so many; `backwards`: -1 is the last."""
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        number = size
    if isinstance(value, bool) or not (-size if backwards else 0) <= number < size:
        raise OptionError(f"{what} {value!r}, but there are {size}, numbered from 0")
    return number
