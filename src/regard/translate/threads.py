"""Work on several threads, each with single-threaded PyTorch."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from regard.attention.operation import watched
from regard.text import by_length

Result = TypeVar("Result")

BATCHES, LARGE = 2, 16
"""Batches per thread, so that all threads finish at about the same time, and the minimum items of
each for which a thread's share is divided."""


def available_cores() -> int:
    """Cores that this process may use: its affinity mask, or fewer if PyTorch was given fewer."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, torch.get_num_threads()))


def useful(threads: int | None) -> int:
    """The number of threads to use, at most one per core; all available cores if None.

    One during a capture session and under autocast, neither of which reaches other threads.
    """
    if torch.is_autocast_enabled("cpu") or watched():
        return 1
    return available_cores() if threads is None else min(threads, os.cpu_count() or 1)


def in_batches(
    work: Callable[[list[int]], Sequence[Result]],
    lengths: Sequence[int],
    budget: int,
    threads: int | None = None,
) -> list[Result]:
    """The result of each item, in order; `work` computes a batch of items of like length.

    `budget` is the tokens of a batch. `work` gets the numbers of its items, on one of up to
    ``useful(threads)`` threads. PyTorch runs single-threaded in each: it is slower on a small model
    if it splits operations.

    >>> in_batches(lambda rows: [f"item {i}" for i in rows], [3, 9, 4], budget=20)
    ['item 0', 'item 1', 'item 2']
    """
    threads = useful(threads)
    each = -(-len(lengths) // threads)  # a batch for every thread
    if threads > 1 and each >= BATCHES * LARGE:
        each = -(-each // BATCHES)
    batches = list(by_length(lengths, budget, each))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if min(threads, len(batches)) < 2:
            done = list(map(work, batches))
        else:
            with ThreadPoolExecutor(
                threads, initializer=torch.set_num_threads, initargs=(1,)
            ) as pool:
                done = list(pool.map(work, batches))
    finally:
        torch.set_num_threads(before)
    found: dict[int, Result] = {}
    for rows, results in zip(batches, done, strict=True):
        found.update(zip(rows, results, strict=True))
    return [found[row] for row in range(len(lengths))]
