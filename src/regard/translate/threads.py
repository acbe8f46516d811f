"""Work on several threads, each with torch to itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from regard.attention.operation import watched

Item = TypeVar("Item")
Result = TypeVar("Result")


def useful(threads: int) -> int:
    """How many of the threads would help.

    At most one a core: more would only wait for one another. One alone while somebody watches or
    cuts, and under the caller's autocast: neither reaches into other threads.
    """
    if torch.is_autocast_enabled("cpu") or watched():
        return 1
    return min(threads, os.cpu_count() or 1)


def in_threads(work: Callable[[Item], Result], items: Sequence[Item], threads: int) -> list[Result]:
    """What the work makes of each item, in their order, with so many at once.

    Each thread computes alone: torch shares out none of its operations, which are too small to be
    worth it. There are never more than are `useful`. With one thread, or one item, nothing is
    different from a plain loop.

    >>> in_threads(lambda n: n * n, range(5), 2)
    [0, 1, 4, 9, 16]
    """
    threads = min(useful(threads), len(items))
    if threads < 2:
        return [work(item) for item in items]
    shared = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=lambda: torch.set_num_threads(1)) as pool:
            return list(pool.map(work, items))
    finally:
        torch.set_num_threads(shared)
