"""Ctrl-C and SIGTERM as a request to stop at the next update."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn


@dataclass
class Stop:
    """The received signal, if any."""

    received: int | None = None

    @property
    def requested(self) -> bool:
        """Whether to stop."""
        return self.received is not None

    def leave(self) -> NoReturn:
        """Raise what the signal would have: KeyboardInterrupt, or exit status 143 for SIGTERM."""
        if self.received == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt


@contextmanager
def stop_signal() -> Iterator[Stop]:
    """Context in which the first SIGINT or SIGTERM is only recorded; the second acts at once.

    Outside the main thread, where Python does not allow handlers, signals act as before.
    """
    stop = Stop()
    before: dict[int, Any] = {}

    def record(number: int, frame: object) -> None:
        stop.received = number
        for one, handler in before.items():
            signal.signal(one, handler)

    if threading.current_thread() is threading.main_thread():
        for one in (signal.SIGINT, signal.SIGTERM):
            before[one] = signal.signal(one, record)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
