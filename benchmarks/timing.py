"""Times of several ways to do the same thing, side by side in one run."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import torch

clock = time.perf_counter
"""What times are read from; `time.thread_time` on a machine that others are using."""


def side_by_side(
    ways: list[Callable[[], object]], rounds: int = 9, least: float = 0.05
) -> list[float]:
    """The best time of each, in seconds; they take turns, so that noise falls on all alike.

    Each turn repeats a way until it has taken `least` seconds.
    """
    repeats = []
    for way in ways:
        way()
        start = clock()
        way()
        repeats.append(max(1, int(least / max(clock() - start, 1e-6))))
    best = [float("inf")] * len(ways)
    for _ in range(rounds):
        for i, way in enumerate(ways):
            start = clock()
            for _ in range(repeats[i]):
                way()
            best[i] = min(best[i], (clock() - start) / repeats[i])
    return best


class Peer:
    """One side in a process of its own, which does one turn whenever it is asked to.

    The process is this program, called with the same options and ``--side``; there `taking_turns`
    answers.
    """

    def __init__(self, side: str, *options: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *sys.argv, "--side", side, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def turn(self, request: object = "") -> float:
        """Seconds of one turn; infinitely many if it cannot run."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(request, file=self._process.stdin, flush=True)
        except BrokenPipeError:
            return float("inf")
        for line in self._process.stdout:
            if line.startswith("took"):
                return float(line.split()[1])
            print(line, end="")  # such as why it is left out
        return float("inf")

    def end(self) -> None:
        with suppress(BrokenPipeError):  # it may never have begun
            if self._process.stdin is not None:
                self._process.stdin.close()
        self._process.wait()


def taking_turns(
    turn: Callable[[str], None], clock: Callable[[], float] = time.perf_counter
) -> None:
    """Do a turn for every request that a `Peer` makes, and tell how long it took."""
    for request in sys.stdin:
        start = clock()
        turn(request.rstrip("\n"))
        print(f"took {clock() - start}", flush=True)


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
