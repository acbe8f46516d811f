"""What a run of ``regard …`` gives back."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Result(NamedTuple):
    """The exit status and the text of both streams."""

    status: int
    out: str
    err: str


Run = Callable[..., Result]
