"""Drawing without replacement from spaces too large to write out."""

from __future__ import annotations

from random import Random


class Draw:
    """The numbers below a size, each once, in an order that the random numbers decide.

    A Fisher–Yates shuffle that keeps only the places it has changed, so that its memory grows
    with what was drawn and not with the size.

    >>> draw = Draw(5, Random(0))
    >>> sorted(draw.next() for _ in range(5))
    [0, 1, 2, 3, 4]
    """

    def __init__(self, size: int, random: Random) -> None:
        self.left = size
        self._random = random
        self._moved: dict[int, int] = {}

    def next(self) -> int:
        """A number that was not drawn yet."""
        place = self._random.randrange(self.left)
        self.left -= 1
        drawn = self._moved.get(place, place)
        last = self._moved.pop(self.left, self.left)
        if place != self.left:
            self._moved[place] = last
        return drawn
