"""Work on several threads, each with torch to itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from regard.attention.operation import watched

Item = TypeVar("Item")
Result = TypeVar("Result")


def available_cores() -> int:
    """Cores that this process may use: its affinity mask, or fewer if PyTorch was given fewer."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, torch.get_num_threads()))


def useful(threads: int | None) -> int:
    """How many of the threads would help; all available cores if None.

    Never more than one per core. One alone during a capture session and under the caller's
    autocast, neither of which reaches other threads.
    """
    if torch.is_autocast_enabled("cpu") or watched():
        return 1
    return available_cores() if threads is None else min(threads, os.cpu_count() or 1)


def in_threads(
    work: Callable[[Item], Result], items: Sequence[Item], threads: int | None = None
) -> list[Result]:
    """The results of the items, in order, of which up to `useful` (threads) run at once.

    Each item runs on one thread alone: operations of a small model take longer when PyTorch
    splits them.

    >>> in_threads(lambda n: n * n, range(5), 2)
    [0, 1, 4, 9, 16]
    """
    threads = min(useful(threads), len(items))
    with _single_threaded():
        if threads < 2:
            return [work(item) for item in items]
        with ThreadPoolExecutor(threads, initializer=lambda: torch.set_num_threads(1)) as pool:
            return list(pool.map(work, items))


@contextmanager
def _single_threaded() -> Iterator[None]:
    """PyTorch's operations run on the calling thread; the previous number is restored."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
