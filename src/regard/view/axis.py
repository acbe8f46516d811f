"""Axes: the mapping from numbers to pixels, and their ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from regard.view.numbers import Array, decimals, marks, written
from regard.view.svg import GRID, RULE, SMALL_SIZE, SOFT, Number, label, num, tag, text_width


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic mapping of low … high to pixels ``start`` … ``end``, with ticks."""

    low: Number
    high: Number
    start: Number
    end: Number
    log: bool
    ticks: tuple[float, ...]

    def __call__(self, value: Number) -> float:
        """The pixel of a number."""
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def texts(self) -> list[str]:
        """The labels of the ticks."""
        if not self.log:
            return marks(self.ticks)
        places = [decimals([tick]) for tick in self.ticks]
        powers = None in places
        return [written(t, None if powers else p) for t, p in zip(self.ticks, places, strict=True)]


def fitted(data: Array, start: Number, end: Number, log: bool, *, exact: bool) -> Axis:
    """The axis for the data: exactly its range if exact, else extended to round numbers."""
    low, high = float(data.min()), float(data.max())
    if log:
        if low == high:
            low, high = low / 2, high * 2
        room = 1.0 if exact else (high / low) ** 0.06
        found = log_ticks(low / room, high * room, data.tolist())
        if not exact:
            low = max([tick for tick in found if tick <= low], default=low / room)
            high = min([tick for tick in found if tick >= high], default=high * room)
        inside = [tick for tick in found if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        return Axis(low, high, start, end, True, tuple(inside))
    if low == high:
        half = 0.5 * (abs(low) or 1)
        low, high = low - half, high + half
    if not exact:
        if 0 < low < 0.4 * high:
            low = 0.0
        step, room = tick_step(low, high), 0.04 * (high - low)
        below, above = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
        low = below if low - below <= 0.6 * step else low - room
        high = above if above - high <= 0.6 * step else high + room
    return Axis(low, high, start, end, False, tuple(ticks(low, high)))


def ticks(low: Number, high: Number) -> list[float]:
    """Round numbers (steps of 1, 2 or 5 times a power of ten) inside low … high.

    >>> ticks(0, 1), ticks(-3, 12)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 5.0, 10.0])
    """
    step = tick_step(low, high)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    places = max(0, 1 - math.floor(math.log10(step)))
    return [round(i * step, places) for i in range(first, last + 1)]


def tick_step(low: Number, high: Number, about: int = 6) -> float:
    """The smallest step of 1, 2 or 5 times a power of ten that gives at most ``about`` ticks."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= rough * (1 - 1e-9))


def log_ticks(low: Number, high: Number, values: Iterable[Number]) -> list[float]:
    """Ticks of a logarithmic axis: powers of two when every value is one, else 1-2-5 or decades.

    >>> log_ticks(4, 32, [4, 8, 32]), log_ticks(3, 60, [3, 60]), log_ticks(1, 1e4, [3, 9999])
    ([4.0, 8.0, 16.0, 32.0], [5.0, 10.0, 20.0, 50.0], [1.0, 10.0, 100.0, 1000.0, 10000.0])
    """
    edge = 1e-9
    if all(math.frexp(value)[0] == 0.5 for value in values):
        first, last = math.ceil(math.log2(low) - edge), math.floor(math.log2(high) + edge)
        if 1 <= last - first <= 16:
            return [2.0**i for i in range(first, last + 1)]
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    sparse = last - first > 3
    steps: Sequence[int] = (1,) if sparse else (1, 2, 5)
    every = -(-(last - first) // 6) if sparse else 1
    found = [m * 10.0**i for i in range(first, last + 1) if i % every == 0 for m in steps]
    inside = [tick for tick in found if low * (1 - edge) <= tick <= high * (1 + edge)]
    return inside if len(inside) > 1 else ticks(low, high)


def grid(across: Axis, up: Axis) -> str:
    """Grid lines at the ticks, a stronger one at the bottom or at zero, and the tick labels."""
    right, bottom = num(across.end), num(up.start)
    down = "".join(f"M{num(across(mark))} 0V{bottom}" for mark in across.ticks)
    level = "".join(f"M0 {num(up(mark))}H{right}" for mark in up.ticks)
    drawn = [tag("path", d=down + level, stroke=GRID, class_="grid")]
    base = up(0) if not up.log and up.low < 0 < up.high else up.start
    drawn.append(tag("path", d=f"M0 {num(base)}H{right}", stroke=RULE, class_="grid"))
    reach = -math.inf
    for mark, text in zip(across.ticks, across.texts(), strict=True):
        half = text_width(text, SMALL_SIZE) / 2
        if across(mark) - half > reach + 6:  # a text that would touch the one before is left out
            at = across(mark), up.start + 16
            drawn.append(
                label(text, *at, size=SMALL_SIZE, fill=SOFT, anchor="middle", class_="tick")
            )
            reach = across(mark) + half
    for mark, text in zip(up.ticks, up.texts(), strict=True):
        drawn.append(
            label(text, -8, up(mark), size=SMALL_SIZE, fill=SOFT, anchor="end", class_="tick")
        )
    return "".join(drawn)
