"""Deduplication of concurrent requests: the same question is answered once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from regard.serve.work_queue import GoneError

T = TypeVar("T")
Gone = Callable[[], Awaitable[object]]
"""Returns when the client has disconnected."""


@dataclass
class _UnderWay(Generic[T]):
    task: asyncio.Task[T]
    abandoned: asyncio.Event
    clients: int = 0


class SharedWork(Generic[T]):
    """Work in progress, by question; it is dropped when its last client disconnects."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, _UnderWay[T]] = {}

    async def done(self, key: Hashable, start: Callable[[Gone], Awaitable[T]], gone: Gone) -> T:
        """The result of `start`, or of an earlier call with the same key that is still running."""
        one = self._under_way.get(key) or self._started(key, start)
        one.clients += 1
        left = asyncio.ensure_future(gone())
        try:
            await asyncio.wait({one.task, left}, return_when=asyncio.FIRST_COMPLETED)
            if not one.task.done():
                raise GoneError
            return one.task.result()
        finally:
            left.cancel()
            one.clients -= 1
            if one.clients == 0:
                one.abandoned.set()
                self._forget(key, one)

    def _started(self, key: Hashable, start: Callable[[Gone], Awaitable[T]]) -> _UnderWay[T]:
        abandoned = asyncio.Event()
        task = asyncio.ensure_future(start(abandoned.wait))
        one = self._under_way[key] = _UnderWay(task, abandoned)
        one.task.add_done_callback(lambda _: self._forget(key, one))
        return one

    def _forget(self, key: Hashable, one: _UnderWay[T]) -> None:
        if self._under_way.get(key) is one:
            del self._under_way[key]
        if one.task.done() and not one.task.cancelled():
            one.task.exception()  # retrieved, so that asyncio does not log it
