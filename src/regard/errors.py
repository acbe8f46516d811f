"""The errors that regard raises.

Each text names the function, the argument, what was expected, what was given, and a remedy:
``attend: k has d=48 but q has d=64 (q (2,8,5,64), k (2,8,7,48)); project both to one
head_width``. All derive from `RegardError`, and each also from the built-in kind a caller who
knows nothing of regard would catch.
"""

from __future__ import annotations

from typing import SupportsFloat, SupportsIndex


class RegardError(Exception):
    """Base class of all errors that regard raises."""


class ShapeError(RegardError, ValueError):
    """Shapes that do not match."""


class OptionError(RegardError, ValueError):
    """A value that is unknown, out of range, or not supported by the requested kernel."""


class DtypeError(RegardError, TypeError):
    """Tensors of different or unsupported dtype or device."""


class MemoryLimitError(RegardError, MemoryError):
    """A result larger than the limit that the caller set."""


class StaleError(RegardError, RuntimeError):
    """A record whose tensors have been modified in place since it was made."""


class FileError(RegardError, OSError):
    """A file that cannot be read, parsed or written."""


class WordError(RegardError, LookupError):
    """Word or occurrence not found."""


def shape(tensor: object) -> str:
    """The shape of a tensor as the errors print it.

    >>> import torch
    >>> shape(torch.zeros(2, 8, 5, 64))
    '(2,8,5,64)'
    """
    return "(" + ",".join(str(size) for size in getattr(tensor, "shape", ())) + ")"


def check_whole(name: str, value: object) -> None:
    """Raise unless the value is a whole number.

    >>> check_whole("window: n", 2.5)
    Traceback (most recent call last):
    ...
    regard.errors.OptionError: window: n=2.5, expected a whole number
    """
    if not isinstance(value, int | SupportsIndex):
        raise OptionError(f"{name}={value!r}, expected a whole number")


def check_number(name: str, value: object) -> None:
    """Raise unless the value is a number.

    >>> check_number("Scaled: factor", "a")
    Traceback (most recent call last):
    ...
    regard.errors.OptionError: Scaled: factor='a', expected a number
    """
    if not isinstance(value, float | SupportsFloat | SupportsIndex):
        raise OptionError(f"{name}={value!r}, expected a number")


def check_share(name: str, value: float | int) -> None:
    """Raise unless the value is a number from 0 up to, but not including, 1.

    >>> check_share("Dropout: share", 1.5)
    Traceback (most recent call last):
    ...
    regard.errors.OptionError: Dropout: share=1.5, expected 0 up to, but not including, 1
    """
    check_number(name, value)
    if not 0.0 <= value < 1.0:
        raise OptionError(f"{name}={value}, expected 0 up to, but not including, 1")


def counted(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun in the right number.

    >>> counted(1, "pair"), counted(2500, "pair"), counted(0, "batch", "batches")
    ('1 pair', '2,500 pairs', '0 batches')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
