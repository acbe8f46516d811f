"""Work waits for its turn, within limits: of time, of number, and of somebody who waits for it."""

from __future__ import annotations

import asyncio
import functools
import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.modules import module

from regard.lens import Lens
from regard.lens.capture.session import current
from regard.serve import Limits
from regard.serve.answers import Answers
from regard.serve.recent import Recent
from regard.serve.refusals import RefusedError
from regard.serve.shared_work import SharedWork
from regard.serve.work_queue import GoneError, StoppedError, WorkQueue, stoppable
from regard.translate import Translator

TEXT = "because it was too tired"


async def never() -> None:
    await asyncio.Event().wait()


def called(work: Callable[[], Any]) -> Any:
    """The answer to a question that is a function."""
    return work()


def queue(limits: Limits | None = None, workers: int = 1) -> WorkQueue[Callable[[], Any], Any]:
    return WorkQueue(called, limits or Limits(), workers)


def endless() -> None:
    """A model that would not come to an end."""
    layer = torch.nn.Linear(1, 1)
    while True:
        layer(torch.zeros(1))


def hooks() -> int:
    return len(module._global_forward_pre_hooks)


def test_work_is_done_beside_the_loop_one_at_a_time() -> None:
    running: list[int] = []
    seen: list[tuple[int, str]] = []

    def work() -> int:
        running.append(1)
        seen.append((len(running), threading.current_thread().name))
        time.sleep(0.01)
        running.pop()
        return len(seen)

    async def main() -> list[int]:
        works = queue()
        found = await asyncio.gather(*(works.done(work, never) for _ in range(5)))
        works.close()
        return list(found)

    assert sorted(asyncio.run(main())) == [1, 2, 3, 4, 5]
    assert {number for number, _ in seen} == {1}
    assert {name for _, name in seen} == {"regard-serve_0"}


def test_an_error_of_the_work_is_passed_on() -> None:
    def work() -> None:
        raise KeyError("word")

    async def main() -> None:
        await queue().done(work, never)

    with pytest.raises(KeyError, match="word"):
        asyncio.run(main())


def test_too_many_are_refused() -> None:
    go = threading.Event()

    async def main() -> tuple[list[Any], str, int]:
        works = queue(Limits(waiting=2))
        under_way = [asyncio.ensure_future(works.done(go.wait, never)) for _ in range(3)]
        await asyncio.sleep(0.05)
        waiting = works.waiting
        with pytest.raises(RefusedError) as refused:
            await works.done(go.wait, never)
        go.set()
        done = await asyncio.gather(*under_way)
        done.append(await works.done(go.wait, never))
        assert refused.value.status == 503
        assert refused.value.headers == {"Retry-After": "5"}
        return done, refused.value.sentence, waiting

    done, sentence, waiting = asyncio.run(main())
    assert done == [True] * 4
    assert waiting == 2
    assert sentence == "2 requests are already waiting, which is the limit; try again in a moment"


def test_what_takes_too_long_is_stopped_and_frees_the_place() -> None:
    before = hooks()

    async def main() -> str:
        works = queue(Limits(seconds=0.2))
        with pytest.raises(RefusedError) as refused:
            await works.done(endless, never)
        assert refused.value.status == 503
        until = time.monotonic() + 20
        while hooks() != before and time.monotonic() < until:
            await asyncio.sleep(0.01)
        return refused.value.sentence

    assert asyncio.run(main()) == (
        "not finished after 0.2 seconds, which is the limit; "
        "ask about a shorter text, or try again later"
    )
    assert hooks() == before


def test_waiting_counts_as_time() -> None:
    go = threading.Event()
    ran: list[str] = []

    async def main() -> None:
        works = queue(Limits(seconds=0.3))
        first = asyncio.ensure_future(works.done(go.wait, never))
        await asyncio.sleep(0)
        with pytest.raises(RefusedError):
            await works.done(lambda: ran.append("late"), never)
        with pytest.raises(RefusedError):
            await first
        assert works.waiting == 0
        go.set()
        works._pool.shutdown(wait=True)

    asyncio.run(main())
    assert ran == []


def test_what_nobody_waits_for_is_dropped() -> None:
    ran: list[str] = []

    async def main() -> None:
        works = queue()
        with pytest.raises(GoneError):
            await works.done(endless, lambda: asyncio.sleep(0.05))
        first = asyncio.ensure_future(works.done(lambda: time.sleep(0.1), never))
        await asyncio.sleep(0)
        with pytest.raises(GoneError):
            await works.done(lambda: ran.append("in vain"), lambda: asyncio.sleep(0.01))
        await first
        assert await works.done(lambda: 5, never) == 5

    asyncio.run(main())
    assert ran == []


class After:
    """True after so many calls."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("calls", [1, 20, 150])
def test_a_model_is_stopped_at_work(lens: Lens, calls: int) -> None:
    """The stop reaches into watching, cutting and searching, and nothing is left behind."""
    before, explained = hooks(), lens.explain(TEXT, "it").to_data()
    for work in (lambda: lens.view(TEXT, "it"), lambda: lens.without(TEXT, [("it", "tired")])):
        with pytest.raises(StoppedError):
            stoppable(called, work, After(calls), math.inf)
        assert hooks() == before
        assert current() is None
    assert lens.explain(TEXT, "it").to_data() == explained


class Slow(Lens):
    """A lens that would not come to an end."""

    def summary(self, text: str, **options: Any) -> Any:
        endless()


def test_the_time_of_a_request_is_limited(
    translator: Translator, checked: Callable[..., Any]
) -> None:
    client = checked(Slow(translator), Limits(seconds=1.0))
    said = client.refused("/api/heads", 503, json={"text": TEXT})
    assert said.startswith(
        "not finished after 1 seconds, which is the limit; ask about a shorter text"
    )
    assert client.get("/api/health").json()["status"] == "ok"


def test_recent_keeps_what_was_used_last() -> None:
    recent = Recent[str](3, size=len)
    for name in ("a", "b", "c", "a", "d"):
        if recent.get(name) is None:
            recent.keep(name, name)
    assert [recent.get(name) for name in "abcd"] == ["a", None, "c", "d"]
    recent.keep("large", "large")
    assert recent.get("large") is None
    assert len(recent) == 3


def nap() -> int:
    time.sleep(0.2)
    return os.getpid()


def test_processes_work_side_by_side_and_one_that_is_killed_is_replaced() -> None:
    async def main() -> None:
        works = queue(Limits(seconds=60), workers=2)
        found = await asyncio.gather(*(works.done(nap, never) for _ in range(4)))
        assert len(set(found)) == 2
        assert os.getpid() not in found
        with pytest.raises(RefusedError, match="a server process was killed; try again"):
            await works.done(functools.partial(os._exit, 3), never)
        assert await works.done(os.getpid, never) not in {*found, os.getpid()}
        with pytest.raises(GoneError):
            await works.done(endless, lambda: asyncio.sleep(0.05))
        with pytest.raises(GoneError):
            await works.done(endless, lambda: asyncio.sleep(0.05))
        assert await works.done(abs_of_minus_five, never) == 5  # both were stopped
        assert works.waiting == 0
        works.close()

    asyncio.run(main())


def abs_of_minus_five() -> int:
    return abs(-5)


def test_the_same_question_is_answered_once_and_dropped_when_all_have_left() -> None:
    asked: list[str] = []

    async def main() -> None:
        shared, finish = SharedWork[int](), asyncio.Event()

        async def start() -> int:
            asked.append("a")
            try:
                await finish.wait()
            except asyncio.CancelledError:
                asked.append("dropped")
                raise
            return len(asked)

        async def leaves() -> None:
            await asyncio.sleep(0)

        many = [asyncio.create_task(shared.done("a", start, never)) for _ in range(3)]
        with pytest.raises(GoneError):
            await shared.done("a", start, leaves)
        finish.set()
        assert await asyncio.gather(*many) == [1, 1, 1]
        finish.clear()
        with pytest.raises(GoneError):
            await shared.done("a", start, leaves)
        assert not shared._under_way
        await asyncio.sleep(0)

    asyncio.run(main())
    assert asked == ["a", "a", "dropped"]


def test_work_that_all_clients_have_left_is_stopped() -> None:
    async def main() -> None:
        works, shared = queue(), SharedWork[Any]()
        with pytest.raises(GoneError):
            await shared.done("a", lambda: works.done(endless, never), lambda: asyncio.sleep(0.05))
        assert await works.done(lambda: 5, never) == 5
        works.close()

    asyncio.run(main())


def test_questions_that_join_are_prepared_together_and_answered_one_by_one() -> None:
    go, together = threading.Event(), list[list[int]]()

    def answer(question: int) -> int:
        go.wait(20)
        if question == 3:
            raise KeyError("three")
        return -question

    async def main() -> list[int | BaseException]:
        works = WorkQueue(answer, Limits(), 1, lambda question: question < 9, together.append)
        many = [asyncio.ensure_future(works.done(i, never)) for i in (0, 1, 2, 3, 9, 4, 5)]
        await asyncio.sleep(0)
        many[2].cancel()
        await asyncio.sleep(0)
        go.set()
        found = await asyncio.gather(*many, return_exceptions=True)
        works.close()
        return found

    found = asyncio.run(main())
    assert found[:2] + found[4:] == [0, -1, -9, -4, -5]
    assert isinstance(found[2], asyncio.CancelledError)
    assert isinstance(found[3], KeyError)
    assert together == [[1, 3], [4, 5]]


def test_what_cannot_be_prepared_is_answered_all_the_same(lens: Lens) -> None:
    texts = [TEXT, "", "it was tired", "it " * 600, TEXT]
    answers = Answers(lens, Limits())
    answers.translate_ahead(texts)
    assert len(answers._analyses) == 2
    for text in texts[:3:2]:
        ahead = answers._analyses.get(text)
        assert ahead is not None
        assert ahead.written == lens.analyse(text).written
