"""Sampling without replacement from large ranges."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random


class Draw:
    """The numbers below a size, each once, in random order.

    A Fisher–Yates shuffle that stores changed places only: its memory grows with the numbers drawn,
    not with the size.

    >>> draw = Draw(5, Random(0))
    >>> sorted(draw.next() for _ in range(5))
    [0, 1, 2, 3, 4]
    """

    def __init__(self, size: int, random: Random) -> None:
        self.left = size
        self._random = random
        self._moved: dict[int, int] = {}

    def next(self) -> int:
        """A number that has not been drawn."""
        place = self._random.randrange(self.left)
        self.left -= 1
        drawn = self._moved.get(place, place)
        last = self._moved.pop(self.left, self.left)
        if place != self.left:
            self._moved[place] = last
        return drawn


def digits(number: int, sizes: Iterable[int]) -> tuple[list[int], int]:
    """The digits of a number in a mixed base, the lowest first, and the rest.

    >>> digits(17, (2, 3))
    ([1, 2], 2)
    """
    found = []
    for size in sizes:
        number, digit = divmod(number, size)
        found.append(digit)
    return found, number
