"""The results that were used last, as many as fit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """Results by what was asked; those not asked for longest go when there is no more room.

    >>> recent = Recent(room=10, size=len)
    >>> recent.get("a", lambda: "12345"), recent.get("a", lambda: "never made")
    ('12345', '12345')
    >>> recent.get("b", lambda: "1234567")
    '1234567'
    >>> "a" in recent
    False
    """

    def __init__(self, room: int, size: Callable[[T], int]) -> None:
        self._room = room
        self._size = size
        self._held: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._used = 0

    def get(self, asked: Hashable, made: Callable[[], T]) -> T:
        """What was asked, made if it is not there. To be called from one thread only."""
        if asked in self._held:
            self._held.move_to_end(asked)
            return self._held[asked][0]
        result = made()
        size = self._size(result)
        if size <= self._room:
            self._held[asked] = result, size
            self._used += size
        while self._used > self._room:
            _, (_, gone) = self._held.popitem(last=False)
            self._used -= gone
        return result

    def __contains__(self, asked: Hashable) -> bool:
        return asked in self._held

    def __len__(self) -> int:
        return len(self._held)
