"""Loops in a translation: the same few subwords over and over, until the limit of its length.

A small model that has lost the thread repeats itself, and each repetition makes the next one
likelier. A sequence is a loop when its last subwords are at least four repetitions of the same one
to eight; more, if the source repeats itself as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

PERIOD = 8
"""The longest phrase whose repetition is noticed, in subwords."""
REPEATS = 4
"""How often a phrase must occur in a row to be a loop."""

Runs = Int[Tensor, "b k period"]
"""For each sequence and p from 1 to `PERIOD`: how many of its last subwords, counted from the end
without a gap, are the same as the one p places before."""


class Loops:
    """Finds the loops of k sequences of each of b sentences while they are written."""

    def __init__(
        self, sources: Sequence[Sequence[int]], device: torch.device | None = None
    ) -> None:
        self._least = torch.tensor([_least(source) for source in sources], device=device)[:, None]
        self._runs = torch.zeros(len(sources), 1, PERIOD, dtype=torch.int64, device=device)

    def runs(
        self, written: Int[Tensor, "b k t"], parents: Int[Tensor, "b c"], tokens: Int[Tensor, "b c"]
    ) -> Int[Tensor, "b c period"]:
        """The runs of sequences continued by these tokens, each from one of the k written."""
        b, k, t = written.shape
        last = written.new_full((b, k, PERIOD), -1)
        last[..., : min(t, PERIOD)] = written[..., -PERIOD:].flip(-1)
        places = parents[..., None].expand(-1, -1, PERIOD)
        same = last.gather(1, places) == tokens[..., None]
        return (self._runs.expand(b, k, -1).gather(1, places) + 1) * same

    def are_loops(self, runs: Int[Tensor, "b c period"]) -> Bool[Tensor, "b c"]:
        """Which sequences are loops."""
        return (runs >= self._least).any(-1)

    def keep(self, runs: Int[Tensor, "b k period"], stay: Int[Tensor, " b"] | None = None) -> None:
        """Keep sequences of these runs, of those sentences only that `stay`, if given."""
        self._runs = runs
        if stay is not None:
            self._least = self._least[stay]

    def stay(self, stay: Int[Tensor, " b"]) -> None:
        """Keep these sentences only."""
        self.keep(self._runs[stay], stay)

    def cut(self, place: int, tokens: Sequence[int]) -> tuple[int, ...]:
        """The tokens of the sentence at this place, a loop at their end reduced to one phrase."""
        least = self._least[place, 0].tolist()
        for run, needed in zip(_run_lengths(tokens), least, strict=True):
            if run >= needed:
                return tuple(tokens[: len(tokens) - run])
        return tuple(tokens)


def _least(source: Sequence[int]) -> list[int]:
    """For each period, the run from which a translation of this source is a loop."""
    repeats = REPEATS
    for period in range(1, PERIOD + 1):
        longest = run = 0
        for i in range(period, len(source)):
            run = run + 1 if source[i] == source[i - period] else 0
            longest = max(longest, run)
        if longest >= period:
            repeats = max(repeats, longest // period + 2)
    return [(repeats - 1) * period for period in range(1, PERIOD + 1)]


def _run_lengths(tokens: Sequence[int]) -> list[int]:
    """The runs at the end of one sequence."""
    found = []
    for period in range(1, PERIOD + 1):
        run = 0
        while run + period < len(tokens) and tokens[-1 - run] == tokens[-1 - run - period]:
            run += 1
        found.append(run)
    return found
