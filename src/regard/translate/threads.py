"""Work on several threads, each with torch to itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(work: Callable[[Item], Result], items: Sequence[Item], threads: int) -> list[Result]:
    """What the work makes of each item, in their order, with so many at once.

    Each thread computes alone: torch shares out none of its operations, which are too small to be
    worth it. More threads than cores would only wait for one another, so there are never more. With
    one thread, or one item, nothing is different from a plain loop.

    >>> in_threads(lambda n: n * n, range(5), 2)
    [0, 1, 4, 9, 16]
    """
    threads = min(threads, len(items), os.cpu_count() or 1)
    if threads < 2 or torch.is_autocast_enabled("cpu"):  # which is for one thread only
        return [work(item) for item in items]
    shared = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=lambda: torch.set_num_threads(1)) as pool:
            return list(pool.map(work, items))
    finally:
        torch.set_num_threads(shared)
