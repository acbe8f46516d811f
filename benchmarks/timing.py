"""Times of several ways to do the same thing, side by side in one run."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable

import torch


def side_by_side(
    ways: list[Callable[[], object]], rounds: int = 9, least: float = 0.05
) -> list[float]:
    """The best time of each, in seconds; they take turns, so that noise falls on all alike.

    Each turn repeats a way until it has taken `least` seconds.
    """
    repeats = []
    for way in ways:
        way()
        start = time.perf_counter()
        way()
        repeats.append(max(1, int(least / max(time.perf_counter() - start, 1e-6))))
    best = [float("inf")] * len(ways)
    for _ in range(rounds):
        for i, way in enumerate(ways):
            start = time.perf_counter()
            for _ in range(repeats[i]):
                way()
            best[i] = min(best[i], (time.perf_counter() - start) / repeats[i])
    return best


def machine() -> str:
    """What the figures were measured on, in one line."""
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if "model name" in line), "?")
    threads = torch.get_num_threads()
    return (
        f"{model}, {threads} threads, Python {platform.python_version()}, torch {torch.__version__}"
    )


def peak_bytes() -> int:
    """The most memory that this process has had so far.

    Not from `resource.getrusage`: its figure begins at that of the process which started this one.
    """
    with open("/proc/self/status") as file:
        peak = next(line for line in file if line.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1024
