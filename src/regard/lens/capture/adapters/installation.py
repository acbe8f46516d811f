"""A process-wide patch, in place while any thread captures."""

from __future__ import annotations

import threading
from collections.abc import Callable

Undo = Callable[[], None]


class Installation:
    """A reference-counted patch: applied by the first user, undone by the last."""

    def __init__(self, change: Callable[[], Undo | None]) -> None:
        """`change` applies the patch and returns its undo; None if it cannot be applied yet."""
        self._change = change
        self._lock = threading.Lock()
        self._count = 0
        self._undo: Undo | None = None

    def add(self) -> None:
        """Apply the patch, if this is the first user."""
        with self._lock:
            self._count += 1
            if self._undo is None:
                self._undo = self._change()

    def drop(self) -> None:
        """Undo the patch, if this was the last user."""
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._undo is not None:
                self._undo()
                self._undo = None
