"""The errors that regard raises.

Each text names the function, the argument, what was expected by axis name, what came, and a
remedy: ``attend: k has d=48 but q has d=64 (q (2,8,5,64), k (2,8,7,48)); project both to one
head_width``. All derive from `RegardError`, and each also from the built-in kind a caller who
knows nothing of regard would catch.
"""

from __future__ import annotations


class RegardError(Exception):
    """What every error of regard is."""


class ShapeError(RegardError, ValueError):
    """Axes that do not fit together."""


class OptionError(RegardError, ValueError):
    """A value that is unknown, impossible, or that the requested kernel cannot express."""


class DtypeError(RegardError, TypeError):
    """Tensors of unequal or unusable dtype or device."""


class MemoryLimitError(RegardError, MemoryError):
    """A result that was asked for, but would be larger than the caller allowed."""


class StaleError(RegardError, RuntimeError):
    """A record of something that has been changed since."""


class FileError(RegardError, OSError):
    """A file that cannot be read, understood or written."""


class WordError(RegardError, LookupError):
    """A word that is not there, or not so often."""


def shape(tensor: object) -> str:
    """The shape of a tensor as the errors print it.

    >>> import torch
    >>> shape(torch.zeros(2, 8, 5, 64))
    '(2,8,5,64)'
    """
    return "(" + ",".join(str(size) for size in getattr(tensor, "shape", ())) + ")"


def counted(count: int, one: str, many: str | None = None) -> str:
    """So many of something, as people say it.

    >>> counted(1, "pair"), counted(2500, "pair"), counted(0, "batch", "batches")
    ('1 pair', '2,500 pairs', '0 batches')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
