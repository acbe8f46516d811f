"""The chunks of a corpus on several processes or a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from regard.errors import OptionError, RegardError

CONNECT_TIMEOUT = 10.0
"""Seconds to wait for a connection to a Ray cluster."""
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
    """Begin a worker process, which ends with the process that started it."""
    _run.append(run)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_own(chunk: Chunk) -> Done:
    return _run[0](chunk)


def on_processes(question: str, run: Run, chunks: list[Chunk], workers: int) -> Iterator[Done]:
    """Run the chunks on worker processes, each with its own model."""
    if not chunks:
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _take, (run,))
    try:
        with _interrupts_blocked():
            running = [pool.submit(_run_own, chunk) for chunk in chunks]
        yield from (one.result() for one in as_completed(running))
    except BrokenProcessPool:
        raise RegardError(
            f"{question}: a worker process was killed, possibly because memory ran out; "
            "finished parts are kept, and the same command resumes, if necessary "
            "with fewer --workers"
        ) from None
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        # Parts are written atomically, so workers may be terminated.
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Context: Ctrl-C is handled at its end, and never by the processes started in it."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
        try:
            _check_reachable(address)
            ray.init(address=address, log_to_driver=False)
        except (ValueError, OSError) as error:
            reason = str(error).partition(". ")[0].rstrip(".")
            raise OptionError(
                f"{question}: --ray {address}, expected the address of a running cluster, auto or "
                f"local ({reason})"
            ) from None
    if chunks:
        rows = ray.data.from_items([asdict(one) for one in chunks], override_num_blocks=len(chunks))
        for found in rows.map(Worker, concurrency=workers).iter_rows():  # type: ignore[arg-type, unused-ignore]
            yield found["rows"], found["failed"]


def _check_reachable(address: str) -> None:
    """Raise an `OSError` if nothing listens at an address, for which Ray would wait a minute."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), CONNECT_TIMEOUT).close()
