"""A queue of questions for a worker thread or worker processes, outside the event loop.

A worker answers one question at a time, since a capture session belongs to one question. Waiting
questions that share a preparation, such as translation, are handed to a worker as a group, which
prepares all of them at once. Work that takes too long, or whose client has disconnected, is
dropped: at once if it has not started, else at the model's next module call.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.sharedctypes import RawArray
from typing import Any, Generic, TypeVar

from torch.nn.modules import module

from regard.serve.limits import Limits
from regard.serve.refusals import RefusedError, busy

Q = TypeVar("Q")
"""A question, which can be pickled."""
A = TypeVar("A")
"""An answer, which can be pickled."""
TOGETHER = 8
"""Maximum questions of a group."""


class StoppedError(Exception):
    """The work was stopped."""


class GoneError(Exception):
    """The client has closed its connection."""


@dataclass(eq=False)
class _Item(Generic[Q, A]):
    question: Q
    slot: int
    until: float
    answer: asyncio.Future[A]


Handed = list[tuple[Any, int, float]]
"""A group of questions, each with the number of its stop flag and its deadline."""
Outcome = tuple[Any, Exception | None]
"""An answer, or the error instead."""


class WorkQueue(Generic[Q, A]):
    """Answers questions within limits, without blocking the event loop.

    Args:
        answer: computes the answer to a question.
        limits: of time and of waiting questions.
        workers: worker processes; 1 is a thread of this process. They are forked, so they share the
            memory of the model, which must be single-threaded in each.
        joins: whether a question may be answered in a group.
        prepare: called by the worker with a group of questions, before it answers each.
    """

    def __init__(
        self,
        answer: Callable[[Q], A],
        limits: Limits,
        workers: int = 1,
        joins: Callable[[Q], bool] = lambda question: False,
        prepare: Callable[[list[Q]], object] = lambda questions: None,
    ) -> None:
        self._answer, self._prepare, self._joins = answer, prepare, joins
        self._limits, self._workers = limits, workers
        self._stops = RawArray("b", limits.waiting + workers)
        self._free = list(range(len(self._stops)))
        self._queued: deque[_Item[Q, A]] = deque()
        self._idle = workers
        self._pool = self._started()

    @property
    def waiting(self) -> int:
        """The number of waiting questions."""
        return len(self._queued)

    async def done(self, question: Q, gone: Callable[[], Awaitable[object]]) -> A:
        """The answer to a question; `gone` returns when its client has disconnected."""
        slot, until = self._take(), time.monotonic() + self._limits.seconds
        item: _Item[Q, A] = _Item(question, slot, until, asyncio.Future())
        self._queued.append(item)
        self._hand_out()
        left = asyncio.ensure_future(gone())
        either: set[asyncio.Future[Any]] = {item.answer, left}
        try:
            await asyncio.wait(
                either, timeout=self._limits.seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if item.answer.done():
                return item.answer.result()
            if left.done():
                raise GoneError
            raise self._too_slow()
        except StoppedError:
            raise self._too_slow() from None
        except BrokenExecutor:
            raise busy("a server process was killed; try again") from None
        finally:
            left.cancel()
            if not item.answer.done():
                self._stops[slot] = 1
                item.answer.cancel()
            if item in self._queued:
                self._queued.remove(item)
                self._free.append(slot)

    def close(self) -> None:
        """Stop the workers; waiting questions are dropped."""
        self._stops[:] = [1] * len(self._stops)
        for item in self._queued:
            item.answer.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _started(self) -> Executor:
        if self._workers == 1:
            return ThreadPoolExecutor(1, thread_name_prefix="regard-serve")
        processes = ProcessPoolExecutor(
            self._workers,
            multiprocessing.get_context("fork"),
            initializer=_begin,
            initargs=(self._answer, self._prepare, self._stops),
        )
        processes.submit(int).result()  # forks all of them, now
        return processes

    def _hand_out(self) -> None:
        """Hand waiting questions to idle workers."""
        while self._idle and self._queued:
            group, pool, loop = self._group(), self._pool, asyncio.get_running_loop()
            ended = partial(self._ended, group, pool)
            self._idle -= 1
            try:
                job = self._submitted(pool, [(one.question, one.slot, one.until) for one in group])
            except BrokenExecutor as error:
                job = Future()
                job.set_exception(error)
            job.add_done_callback(partial(_in_loop, loop, ended))

    def _group(self) -> list[_Item[Q, A]]:
        """The first waiting question, and following ones that may join: a worker's fair share."""
        share = min(TOGETHER, -(-len(self._queued) // self._workers))
        group = [self._queued.popleft()]
        while len(group) < share and all(
            self._joins(one.question) for one in (group[0], self._queued[0])
        ):
            group.append(self._queued.popleft())
        return group

    def _submitted(self, pool: Executor, handed: Handed) -> Future[list[Outcome]]:
        if self._workers > 1:
            return pool.submit(_in_process, handed)
        return pool.submit(_outcomes, self._answer, self._prepare, self._stops, handed)

    def _ended(self, group: list[_Item[Q, A]], pool: Executor, job: Future[list[Outcome]]) -> None:
        """Deliver a worker's answers, and hand it more questions."""
        self._idle += 1
        self._free += [item.slot for item in group]
        failed = CancelledError() if job.cancelled() else job.exception()
        if isinstance(failed, BrokenExecutor) and self._pool is pool:
            self._pool = self._started()
        found = [(None, failed)] * len(group) if failed is not None else job.result()
        for item, (answer, error) in zip(group, found, strict=True):
            if item.answer.done():
                continue
            if error is None:
                item.answer.set_result(answer)
            else:
                item.answer.set_exception(error)
        self._hand_out()

    def _take(self) -> int:
        if not self._free:
            raise busy(
                f"{self._limits.waiting} requests are already waiting, which is the limit; "
                "try again in a moment"
            )
        slot = self._free.pop()
        self._stops[slot] = 0
        return slot

    def _too_slow(self) -> RefusedError:
        return busy(
            f"not finished after {self._limits.seconds:g} seconds, which is the limit; "
            "ask about a shorter text, or try again later"
        )


def _in_loop(
    loop: asyncio.AbstractEventLoop, ended: Callable[[Any], None], job: Future[Any]
) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(ended, job)


def _begin(answer: Callable[[Any], Any], prepare: Callable[[Any], object], stops: Any) -> None:
    """Initialise a worker process: it ignores Ctrl+C, and ends with the server."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _inherited[:] = [answer, prepare, stops]
    threading.Thread(
        target=_end_with, args=(multiprocessing.parent_process(),), daemon=True
    ).start()


_inherited: list[Any] = []
"""In a worker process: the functions that answer and prepare, and the stop flags."""


def _end_with(server: Any) -> None:
    server.join()
    os._exit(0)


def _in_process(handed: Handed) -> list[Outcome]:
    answer, prepare, stops = _inherited
    return _outcomes(answer, prepare, stops, handed)


def _outcomes(
    answer: Callable[[Any], Any], prepare: Callable[[Any], object], stops: Any, handed: Handed
) -> list[Outcome]:
    """The outcome of each question of a group."""
    alive = [one for one in handed if not stops[one[1]]]
    if len(alive) > 1:
        with suppress(Exception):  # then each question fails or succeeds on its own
            questions, slots, until = ([one[i] for one in alive] for i in range(3))
            stoppable(prepare, questions, lambda: all(stops[i] for i in slots), max(until))
    found: list[Outcome] = []
    for question, slot, limit in handed:
        try:
            found.append((stoppable(answer, question, lambda i=slot: stops[i] > 0, limit), None))  # type: ignore[misc]
        except Exception as error:
            found.append((None, error))
    return found


def stoppable(
    answer: Callable[[Q], A], question: Q, stopped: Callable[[], bool], until: float
) -> A:
    """The answer; module calls of this thread raise `StoppedError` if stopped or time is up."""
    own = threading.get_ident()

    def check(*_: object) -> None:
        if threading.get_ident() == own and (stopped() or time.monotonic() > until):
            raise StoppedError

    check()
    hook = module.register_module_forward_pre_hook(check)
    try:
        return answer(question)
    finally:
        hook.remove()
