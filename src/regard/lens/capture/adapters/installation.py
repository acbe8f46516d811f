"""A change of something that all threads share, in place as long as any thread captures."""

from __future__ import annotations

import threading
from collections.abc import Callable

Undo = Callable[[], None]


class Installation:
    """Counts who needs a change; made by the first, undone by the last."""

    def __init__(self, change: Callable[[], Undo | None]) -> None:
        """`change` makes it and returns what undoes it; None if there is nothing to change yet."""
        self._change = change
        self._lock = threading.Lock()
        self._count = 0
        self._undo: Undo | None = None

    def add(self) -> None:
        """One more needs it."""
        with self._lock:
            self._count += 1
            if self._undo is None:
                self._undo = self._change()

    def drop(self) -> None:
        """One less needs it."""
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._undo is not None:
                self._undo()
                self._undo = None
