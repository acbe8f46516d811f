"""Where questions wait for their turn, beside the event loop: for one thread, or for processes.

A worker answers one question at a time: a model at work uses the cores that torch was given, and
what is captured while it runs belongs to one question. Work that takes too long, or that nobody
waits for any more, is dropped: at once if its turn has not come, else when the model next calls one
of its modules.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import contextmanager
from multiprocessing.sharedctypes import RawArray
from typing import Any, Generic, TypeVar

from torch.nn.modules import module

from regard.serve.limits import Limits
from regard.serve.refusals import RefusedError, busy

Q = TypeVar("Q")
"""A question, which can be pickled."""
A = TypeVar("A")
"""An answer, which can be pickled."""


class StoppedError(Exception):
    """Work was stopped on the way."""


class GoneError(Exception):
    """The client has closed its connection."""


class WorkQueue(Generic[Q, A]):
    """Answers questions within limits, while the event loop goes on.

    Args:
        answer: computes the answer to a question.
        limits: of time and of how many may wait.
        workers: processes that answer; 1 is a thread of this process. They are forked, so they
            share the memory of the model, which must run on one thread in each.
    """

    def __init__(self, answer: Callable[[Q], A], limits: Limits, workers: int = 1) -> None:
        self._answer, self._limits, self._workers = answer, limits, workers
        self._stops = RawArray("b", limits.waiting + workers)
        self._free = list(range(len(self._stops)))
        self._lock = threading.Lock()
        self._pool = self._started()

    @property
    def waiting(self) -> int:
        """How many questions wait for their turn."""
        return max(0, len(self._stops) - len(self._free) - self._workers)

    async def done(self, question: Q, gone: Callable[[], Awaitable[object]]) -> A:
        """The answer to a question; `gone` returns when nobody waits for it any more."""
        pool, slot = self._pool, self._take()
        until = time.monotonic() + self._limits.seconds
        try:
            handed = self._submitted(pool, question, slot, until)
        except BrokenExecutor:
            self._release(slot)
            raise self._restarted(pool) from None
        handed.add_done_callback(lambda _: self._release(slot))
        left, ready = asyncio.ensure_future(gone()), asyncio.wrap_future(handed)
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
        except BrokenExecutor:
            raise self._restarted(pool) from None
        finally:
            if not ready.done():
                self._stops[slot] = 1
            left.cancel()
            ready.cancel()
            handed.cancel()

    def close(self) -> None:
        """Take no more work; what waits is dropped."""
        self._stops[:] = [1] * len(self._stops)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _started(self) -> Executor:
        if self._workers == 1:
            return ThreadPoolExecutor(1, thread_name_prefix="regard-serve")
        processes = ProcessPoolExecutor(
            self._workers,
            multiprocessing.get_context("fork"),
            initializer=_begin,
            initargs=(self._answer, self._stops),
        )
        processes.submit(int).result()  # forks all of them, now
        return processes

    def _restarted(self, broken: Executor) -> RefusedError:
        """Fork other workers, if that has not happened yet; what to say meanwhile."""
        if self._pool is broken:
            self._pool = self._started()
        return busy("a process of the server was killed; ask again")

    def _submitted(self, pool: Executor, question: Q, slot: int, until: float) -> Future[A]:
        if self._workers > 1:
            return pool.submit(_in_process, question, slot, until)
        return pool.submit(stoppable, self._answer, question, lambda: self._stops[slot] > 0, until)

    def _take(self) -> int:
        with self._lock:
            if not self._free:
                raise busy(
                    f"{self._limits.waiting} requests are waiting already, and no more may; "
                    "try again in a moment"
                )
            slot = self._free.pop()
        self._stops[slot] = 0
        return slot

    def _release(self, slot: int) -> None:
        with self._lock:
            self._free.append(slot)

    def _too_slow(self) -> RefusedError:
        return busy(
            f"not done after {self._limits.seconds:g} seconds, which is the limit; "
            "ask about a shorter text, or when there is less to do"
        )


def _begin(answer: Callable[[Any], Any], stops: Any) -> None:
    """Prepare a process that was forked: Ctrl+C is the server's, with which it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _inherited[:] = [answer, stops]
    threading.Thread(
        target=_end_with, args=(multiprocessing.parent_process(),), daemon=True
    ).start()


_inherited: list[Any] = []
"""In a process that was forked: what answers, and the flags that stop it."""


def _end_with(server: Any) -> None:
    server.join()
    os._exit(0)


def _in_process(question: Any, slot: int, until: float) -> Any:
    answer, stops = _inherited
    return stoppable(answer, question, lambda: stops[slot] > 0, until)


def stoppable(
    answer: Callable[[Q], A], question: Q, stopped: Callable[[], bool], until: float
) -> A:
    """The answer, unless it is stopped or time is up: then `StoppedError`."""
    with _stopping(stopped, until):
        return answer(question)


@contextmanager
def _stopping(stopped: Callable[[], bool], until: float) -> Iterator[None]:
    """A context in which the modules of this thread stop when they are told to, or time is up."""
    own = threading.get_ident()

    def check(*_: object) -> None:
        if threading.get_ident() == own and (stopped() or time.monotonic() > until):
            raise StoppedError

    check()
    hook = module.register_module_forward_pre_hook(check)
    try:
        yield
    finally:
        hook.remove()
