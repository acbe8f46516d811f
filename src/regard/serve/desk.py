"""Where work waits for its turn: one piece at a time, beside the event loop.

One piece at a time, because what watching wraps is wrapped for the whole process, and because a
model at work already uses the cores that torch was given. Work that takes too long, or that nobody
waits for any more, is dropped: at once if its turn has not come, else when the model next calls one
of its modules.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from torch.nn.modules import module

from regard.serve.limits import Limits
from regard.serve.refusals import RefusedError, busy

T = TypeVar("T")


class StoppedError(Exception):
    """Work was stopped on the way."""


class GoneError(Exception):
    """Whoever asked does not wait any more."""


class Desk:
    """Does work one piece at a time and within limits, while the event loop goes on."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._hands = ThreadPoolExecutor(1, thread_name_prefix="regard-serve")
        self._held = 0
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many pieces of work wait for their turn."""
        return max(0, self._held - 1)

    async def done(self, work: Callable[[], T], gone: Callable[[], Awaitable[object]]) -> T:
        """What the work returns.

        Args:
            work: runs in a thread of its own.
            gone: gives what is over when whoever asked has left.
        """
        self._take()
        stop = threading.Event()
        until = time.monotonic() + self._limits.seconds
        handed = self._hands.submit(_stoppable, work, stop, until)
        handed.add_done_callback(self._release)
        left = asyncio.ensure_future(gone())
        ready = asyncio.wrap_future(handed)
        either: set[asyncio.Future[Any]] = {ready, left}
        try:
            await asyncio.wait(
                either, timeout=self._limits.seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if ready.done():
                return ready.result()
            if left.done():
                raise GoneError
            raise self._too_slow()
        except StoppedError:
            raise self._too_slow() from None
        finally:
            stop.set()
            left.cancel()
            ready.cancel()
            handed.cancel()

    def close(self) -> None:
        """Take no more work; what waits is dropped."""
        self._hands.shutdown(wait=False, cancel_futures=True)

    def _take(self) -> None:
        with self._lock:
            if self._held > self._limits.waiting:
                raise busy(
                    f"{self._limits.waiting} requests are waiting already, and no more may; "
                    "try again in a moment"
                )
            self._held += 1

    def _release(self, _: Future[Any]) -> None:
        with self._lock:
            self._held -= 1

    def _too_slow(self) -> RefusedError:
        return busy(
            f"not done after {self._limits.seconds:g} seconds, which is the limit; "
            "ask about a shorter text, or when there is less to do"
        )


def _stoppable(work: Callable[[], T], stop: threading.Event, until: float) -> T:
    with _stopping(stop, until):
        return work()


@contextmanager
def _stopping(stop: threading.Event, until: float) -> Iterator[None]:
    """A context in which the modules of this thread stop when they are told to, or time is up."""
    own = threading.get_ident()

    def check(*_: object) -> None:
        if threading.get_ident() == own and (stop.is_set() or time.monotonic() > until):
            raise StoppedError

    check()
    hook = module.register_module_forward_pre_hook(check)
    try:
        yield
    finally:
        hook.remove()
