"""The chunks of a corpus on several processes or a Ray cluster."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from typing import Any

from regard.errors import RegardError

Done = tuple[int, int]
"""The rows of a finished chunk, and the failed ones among them."""


@dataclass(frozen=True)
class Chunk:
    """Rows of the input: the first, their number, and their offset in a file of JSON lines."""

    number: int
    first: int
    rows: int
    offset: int = 0


Run = Callable[[Chunk], Done]
"""What answers the rows of a chunk and writes its part."""

_run: list[Run] = []
"""What this worker process does with a chunk."""


def _take(run: Run) -> None:
    _run.append(run)


def _run_own(chunk: Chunk) -> Done:
    return _run[0](chunk)


def on_processes(question: str, run: Run, chunks: list[Chunk], workers: int) -> Iterator[Done]:
    """Run the chunks on worker processes, each with its own model."""
    if not chunks:
        return
    remaining, running = iter(chunks), set[Future[Done]]()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, _take, (run,)) as pool:
        try:
            while True:
                for chunk in remaining:
                    running.add(pool.submit(_run_own, chunk))
                    if len(running) >= 2 * workers:
                        break
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (one.result() for one in done)
        except BrokenProcessPool:
            raise RegardError(
                f"{question}: a worker process was killed, possibly because memory ran out; "
                "finished parts are kept, and the same command resumes, if necessary "
                "with fewer --workers"
            ) from None


def on_ray(
    question: str, run: Run, chunks: list[Chunk], workers: int, address: str
) -> Iterator[Done]:
    """Run the chunks as a Ray dataset; Ray restarts dead workers, and repeats their chunks."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise RegardError(f"{question}: --ray needs Ray: pip install 'regard[scale]'") from None

    class Worker:  # a class, so that a worker keeps its model
        def __call__(self, row: dict[str, Any]) -> dict[str, int]:
            rows, failed = run(Chunk(**row))
            return {"rows": rows, "failed": failed}

    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False)
    if chunks:
        rows = ray.data.from_items([asdict(one) for one in chunks], override_num_blocks=len(chunks))
        for found in rows.map(Worker, concurrency=workers).iter_rows():  # type: ignore[arg-type, unused-ignore]
            yield found["rows"], found["failed"]
