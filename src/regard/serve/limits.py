"""How much one request may ask for, and how much may be asked at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from regard.errors import OptionError


@dataclass(frozen=True)
class Limits:
    """What the server takes on; whatever is beyond is answered with a clear refusal.

    >>> Limits(text=0)
    Traceback (most recent call last):
    regard.errors.OptionError: Limits: text expected above 0, got 0
    """

    text: int = 2_000
    """Characters of a text."""
    tokens: int = 512
    """Tokens of a text: a character that the tokenizer has to spell by its bytes is several."""
    body: int = 65_536
    """Bytes of a request's body."""
    seconds: int | float = 60
    """For one request, waiting for its turn included."""
    waiting: int = 64
    """Requests that wait for their turn, at most; one more is at work."""
    links: int = 64
    """Links that are cut at once."""
    kept: int = 32_000_000
    """Bytes of recent explanations that are kept, so that a click does not compute them again."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise OptionError(f"Limits: {field.name} expected a number, got {value!r}")
            if not 0 < value < math.inf:
                raise OptionError(f"Limits: {field.name} expected above 0, got {value}")
