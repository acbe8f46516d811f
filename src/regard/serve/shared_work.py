"""Deduplication of concurrent requests: the same question is answered once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from regard.serve.work_queue import GoneError

T = TypeVar("T")
Gone = Callable[[], Awaitable[object]]
"""Returns when the client has disconnected."""


@dataclass
class _UnderWay(Generic[T]):
    task: asyncio.Future[T]
    clients: int = 0


class SharedWork(Generic[T]):
    """Work in progress, by question; it is cancelled when its last client disconnects."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, _UnderWay[T]] = {}

    async def done(self, key: Hashable, start: Callable[[], Awaitable[T]], gone: Gone) -> T:
        """The result of `start`, or of an earlier call with the same key that is still running."""
        if key not in self._under_way:
            self._under_way[key] = _UnderWay(asyncio.ensure_future(start()))
        one = self._under_way[key]
        one.clients += 1
        left = asyncio.ensure_future(gone())
        either: set[asyncio.Future[Any]] = {one.task, left}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not one.task.done():
                raise GoneError
            return one.task.result()
        finally:
            left.cancel()
            one.clients -= 1
            if one.clients == 0:
                del self._under_way[key]
                one.task.cancel()
