"""A least recently used cache, limited by the size of its results."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """A least recently used cache of results, up to a total size.

    >>> recent = Recent(room=10, size=len)
    >>> recent.keep("a", "12345")
    >>> recent.keep("b", "1234567")
    >>> recent.get("a"), recent.get("b")
    (None, '1234567')
    """

    def __init__(self, room: int, size: Callable[[T], int]) -> None:
        self._room = room
        self._size = size
        self._held: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._used = 0

    def get(self, asked: Hashable) -> T | None:
        """The result of this question, or None. Not thread-safe."""
        if asked not in self._held:
            return None
        self._held.move_to_end(asked)
        return self._held[asked][0]

    def keep(self, asked: Hashable, result: T) -> None:
        """Store a result, unless it is larger than the cache."""
        size = self._size(result)
        if size > self._room or asked in self._held:
            return
        self._held[asked] = result, size
        self._used += size
        while self._used > self._room:
            _, (_, gone) = self._held.popitem(last=False)
            self._used -= gone

    def __len__(self) -> int:
        return len(self._held)
