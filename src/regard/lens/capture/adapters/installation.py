"""The adapter of a host that needs a process-wide patch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from regard.lens.capture.session import Handler, Operator, Session

Undo = Callable[[], None]


class Installation:
    """An adapter that patches its host for as long as any session captures."""

    operators: Mapping[Operator, Handler] = {}

    def __init__(self, change: Callable[[], Undo | None]) -> None:
        """`change` applies the patch and returns its undo; None if it cannot be applied yet."""
        self._change = change
        self._lock = threading.Lock()
        self._count = 0
        self._undo: Undo | None = None

    def install(self, session: Session) -> None:
        """Apply the patch, if it is not in place."""
        with self._lock:
            self._count += 1
            if self._undo is None:
                self._undo = self._change()

    def remove(self, session: Session) -> None:
        """Undo the patch, if this was the last session."""
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._undo is not None:
                self._undo()
                self._undo = None
