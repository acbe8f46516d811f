"""Balanced sampling of the reference grammar.

A cell is a frame with the genders of its two nouns. From each cell the two readings are drawn in
turn, so that neither frame, genders nor order of the nouns predict the referent; a cell ends with
its smaller reading. The cells of a frame are drawn uniformly, and frames in proportion to the
square root of their size, so that small ones occur but are not exhausted too soon.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from random import Random

from regard.challenge.draw import Draw
from regard.challenge.frames import FRAMES
from regard.challenge.german import Noun
from regard.challenge.pair import Pair
from regard.challenge.reference import noun_pairs, nouns_held_out, of_nouns, topics, topics_held_out
from regard.challenge.wording import Wording

SAME_GENDER = 0.05
"""Share of training sentences whose nouns have the same gender, and so the same pronoun."""
COMMON = 0.5
"""Share of sentences in common wordings."""

Core = tuple[Wording, Noun, Noun]
"""The content of a sentence, without its wording."""
Cell = tuple[list[Core], list[Core]]
"""The contents where *it* refers to the first noun, and to the second."""


@cache
def cells(split: str) -> dict[str, dict[str, Cell]]:
    """The cells of a split, by frame and by the two genders."""
    test = split == "test"
    found: dict[str, dict[str, Cell]] = {}
    for frame in FRAMES.values():
        ways = [
            Wording(topic)
            for topic in topics(frame)
            if (topic.combination in topics_held_out()) == test
        ]
        of_frame: dict[str, Cell] = {}
        for a, b in noun_pairs(frame):
            if nouns_held_out(of_nouns(a, b)) != test or (test and a.gender == b.gender):
                continue
            cell = of_frame.setdefault(a.gender + b.gender, ([], []))
            for way in ways:
                if way.topic.fits(a, b):
                    cell[0 if way.topic.first else 1].append((way, a, b))
        found[frame.name] = {genders: cell for genders, cell in of_frame.items() if all(cell)}
    return {name: of_frame for name, of_frame in found.items() if of_frame}


@cache
def size(split: str) -> int:
    """The number of balanced sentences of a split."""
    return sum(
        2 * min(sum(way.count(a, b) for way, a, b in reading) for reading in cell)
        for of_frame in cells(split).values()
        for cell in of_frame.values()
    )


class _Ways:
    """The common or the other wordings of these contents, drawn without replacement."""

    def __init__(self, cores: list[Core], common: bool, random: Random) -> None:
        self._cores, self._common = cores, common
        counts = (way.common if common else way.count(a, b) - way.common for way, a, b in cores)
        self._ends = list(accumulate(counts))
        self._draw = Draw(self._ends[-1], random)

    def __bool__(self) -> bool:
        return self._draw.left > 0

    def next(self) -> Pair:
        number = self._draw.next()
        place = bisect_right(self._ends, number)
        way, a, b = self._cores[place]
        number -= self._ends[place - 1] if place else 0
        return way.write(number if self._common else number + way.common, a, b)


class _Reading:
    """One reading of a cell: common and other wordings, in the share `COMMON`."""

    def __init__(self, cores: list[Core], random: Random) -> None:
        self._random = random
        self._common = _Ways(cores, True, random)
        self._varied = _Ways(cores, False, random)

    def __bool__(self) -> bool:
        return bool(self._common or self._varied)

    def next(self) -> Pair:
        common = self._random.random() < COMMON
        ways = self._common if (common and self._common) or not self._varied else self._varied
        return ways.next()


class _Cell:
    """The readings of a cell in turn, in random order within each turn."""

    def __init__(self, cell: Cell, random: Random) -> None:
        self._random = random
        self._readings = [_Reading(cores, random) for cores in cell]
        self._turn: list[_Reading] = []

    def __bool__(self) -> bool:
        return bool(self._turn) or all(self._readings)

    def next(self) -> Pair:
        if not self._turn:
            self._turn = self._random.sample(self._readings, 2)
        return self._turn.pop().next()


def draw(split: str, seed: int) -> Iterator[Pair]:
    """All balanced sentences of a split, each once, in an order determined by the seed."""
    random = Random(f"reference {split} {seed}")
    frames, weights = [], []
    for of_frame in cells(split).values():
        alike: list[_Cell] = []
        different: list[_Cell] = []
        for genders, readings in of_frame.items():
            (alike if genders[0] == genders[1] else different).append(_Cell(readings, random))
        frames.append((alike, different))
        weights.append(sum(len(cores) for cell in of_frame.values() for cores in cell) ** 0.5)
    while frames:
        number = random.choices(range(len(frames)), weights)[0]
        alike, different = frames[number]
        chosen = alike if (alike and random.random() < SAME_GENDER) or not different else different
        cell = random.choice(chosen)
        yield cell.next()
        if not cell:
            chosen.remove(cell)
        if not alike and not different:
            del frames[number], weights[number]
