"""Work waits for its turn, within limits: of time, of number, and of somebody who waits for it."""

from __future__ import annotations

import asyncio
import math
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
from regard.serve.desk import Desk, GoneError, StoppedError, _stoppable
from regard.serve.recent import Recent
from regard.serve.refusals import RefusedError
from regard.translate import Translator

TEXT = "because it was too tired"


async def never() -> None:
    await asyncio.Event().wait()


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
        desk = Desk(Limits())
        found = await asyncio.gather(*(desk.done(work, never) for _ in range(5)))
        desk.close()
        return list(found)

    assert sorted(asyncio.run(main())) == [1, 2, 3, 4, 5]
    assert {number for number, _ in seen} == {1}
    assert {name for _, name in seen} == {"regard-serve_0"}


def test_an_error_of_the_work_is_passed_on() -> None:
    def work() -> None:
        raise KeyError("word")

    async def main() -> None:
        await Desk(Limits()).done(work, never)

    with pytest.raises(KeyError, match="word"):
        asyncio.run(main())


def test_too_many_are_refused() -> None:
    go = threading.Event()

    async def main() -> tuple[list[Any], str, int]:
        desk = Desk(Limits(waiting=2))
        under_way = [asyncio.ensure_future(desk.done(go.wait, never)) for _ in range(3)]
        await asyncio.sleep(0.05)
        waiting = desk.waiting
        with pytest.raises(RefusedError) as refused:
            await desk.done(go.wait, never)
        go.set()
        done = await asyncio.gather(*under_way)
        done.append(await desk.done(go.wait, never))
        assert refused.value.status == 503
        assert refused.value.headers == {"Retry-After": "5"}
        return done, refused.value.sentence, waiting

    done, sentence, waiting = asyncio.run(main())
    assert done == [True] * 4
    assert waiting == 2
    assert sentence == "2 requests are waiting already, and no more may; try again in a moment"


def test_what_takes_too_long_is_stopped_and_frees_the_place() -> None:
    before = hooks()

    async def main() -> str:
        desk = Desk(Limits(seconds=0.2))
        with pytest.raises(RefusedError) as refused:
            await desk.done(endless, never)
        assert refused.value.status == 503
        until = time.monotonic() + 20
        while hooks() != before and time.monotonic() < until:
            await asyncio.sleep(0.01)
        return refused.value.sentence

    assert asyncio.run(main()) == (
        "not done after 0.2 seconds, which is the limit; "
        "ask about a shorter text, or when there is less to do"
    )
    assert hooks() == before


def test_waiting_counts_as_time() -> None:
    go = threading.Event()
    ran: list[str] = []

    async def main() -> None:
        desk = Desk(Limits(seconds=0.3))
        first = asyncio.ensure_future(desk.done(go.wait, never))
        await asyncio.sleep(0)
        with pytest.raises(RefusedError):
            await desk.done(lambda: ran.append("late"), never)
        with pytest.raises(RefusedError):
            await first
        assert desk.waiting == 0
        go.set()
        desk._hands.shutdown(wait=True)

    asyncio.run(main())
    assert ran == []


def test_what_nobody_waits_for_is_dropped() -> None:
    ran: list[str] = []

    async def main() -> None:
        desk = Desk(Limits())
        with pytest.raises(GoneError):
            await desk.done(endless, lambda: asyncio.sleep(0.05))
        first = asyncio.ensure_future(desk.done(lambda: time.sleep(0.1), never))
        await asyncio.sleep(0)
        with pytest.raises(GoneError):
            await desk.done(lambda: ran.append("in vain"), lambda: asyncio.sleep(0.01))
        await first
        assert await desk.done(lambda: 5, never) == 5

    asyncio.run(main())
    assert ran == []


class After(threading.Event):
    """Set after so many questions whether it is."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = times

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("calls", [1, 20, 150])
def test_a_model_is_stopped_at_work(lens: Lens, calls: int) -> None:
    """The stop reaches into watching, cutting and searching, and nothing is left behind."""
    before, explained = hooks(), lens.explain(TEXT, "it").to_data()
    for work in (lambda: lens.view(TEXT, "it"), lambda: lens.without(TEXT, [("it", "tired")])):
        with pytest.raises(StoppedError):
            _stoppable(work, After(calls), math.inf)
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
    assert said.startswith("not done after 1 seconds, which is the limit; ask about a shorter text")
    assert client.get("/api/health").json()["status"] == "ok"


def test_recent_keeps_what_was_used_last() -> None:
    made: list[str] = []
    recent = Recent[str](3, size=len)

    def get(name: str) -> str:
        return recent.get(name, lambda: made.append(name) or name)  # type: ignore[func-returns-value]

    for name in ("a", "b", "c", "a", "d"):
        get(name)
    assert made == ["a", "b", "c", "d"]
    assert [name in recent for name in "abcd"] == [True, False, True, True]
    assert get("large") == "large"
    assert "large" not in recent
    assert len(recent) == 3
