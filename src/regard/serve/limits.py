"""Limits of a request, and of waiting requests."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from regard.errors import OptionError


@dataclass(frozen=True)
class Limits:
    """The limits of the server; requests beyond them are refused.

    >>> Limits(text=0)
    Traceback (most recent call last):
    regard.errors.OptionError: Limits: text expected above 0, got 0
    """

    text: int = 2_000
    """Characters of a text."""
    tokens: int = 512
    """Tokens of a text; a character that is encoded by its bytes is several."""
    body: int = 65_536
    """Bytes of a request's body."""
    seconds: int | float = 60
    """Time limit of a request, waiting included."""
    waiting: int = 64
    """Maximum waiting requests, besides those being answered."""
    links: int = 64
    """Maximum links to cut in one request."""
    kept: int = 32_000_000
    """Bytes of recent replies to cache."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise OptionError(f"Limits: {field.name} expected a number, got {value!r}")
            if not 0 < value < math.inf:
                raise OptionError(f"Limits: {field.name} expected above 0, got {value}")
