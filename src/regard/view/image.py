"""A matrix as an image: the heat map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import SupportsFloat

import numpy as np

from regard.errors import OptionError, shape
from regard.view.colour import ink_on, ramp
from regard.view.numbers import Array, Numbers, array, decimals, marks, names, written
from regard.view.picture import Picture, titled
from regard.view.svg import (
    RULE,
    SMALL_SIZE,
    SOFT,
    TEXT_SIZE,
    Number,
    escape,
    label,
    moved,
    num,
    tag,
    text_width,
    widest,
)

LABEL_ROOM = 120
VALUE_SIZE = 12.5
NUMBERED = 12  # the side of the largest matrix whose numbers "auto" prints
HOVERED = 1024  # cells; above, they are merged by colour and no longer named on hover
MOST_CELLS = 65_536


def heatmap(
    values: Numbers,
    *,
    rows: Sequence[object] | None = None,
    columns: Sequence[object] | None = None,
    title: str = "",
    numbers: bool | str = "auto",
    low: SupportsFloat | None = None,
    high: SupportsFloat | None = None,
) -> Picture:
    """A matrix as coloured cells, with its numbers when there are few (at most 12 × 12).

    Blue is above zero and orange below. ``low`` and ``high`` are the ends of the colours, else 0
    and the data's own; the legend writes ≤ or ≥ where they cut something off. NaN and −inf are
    masked places, and hatched. Numbers are rounded alike for all cells; colours are not.

    >>> words = ["the", "cat", "sat"]
    >>> weights = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.5, 0.3]]
    >>> picture = heatmap(weights, rows=words, columns=words, title="who looks at whom")
    >>> picture.svg().count('class="cell"')
    9
    """
    matrix = _matrix(values)
    if numbers not in (True, False, "auto"):
        raise OptionError(
            f'heatmap: numbers expected True, False or "auto", got {numbers!r}; choose one'
        )
    left, top = _labels(rows, matrix, "row"), _labels(columns, matrix, "column")
    colours = _colours(matrix, low, high)

    longest = max(matrix.shape)
    places = None
    if printed := numbers is True or (numbers == "auto" and longest <= NUMBERED):
        finite = matrix[np.isfinite(matrix)].tolist()
        places = decimals(finite)
        tall = max(34, min(52, 400 // longest))
        wide = max(tall, math.ceil(widest((written(v, places) for v in finite), VALUE_SIZE)) + 10)
    else:
        labelled = (left or top) and longest <= 64
        tall = wide = max(14 if labelled else 2, min(34, 480 // longest))

    if printed or matrix.size <= HOVERED:
        cells = _cells(matrix, colours, wide, tall, left, top)
        cells += _values(matrix, colours, wide, tall, places) if printed else ""
    else:
        cells = _merged(matrix, colours, wide, tall)
    width, height = wide * matrix.shape[1], tall * matrix.shape[0]
    side, gutter = _row_labels(left, tall)
    head, rise, overhang = _column_labels(top, wide)
    foot, foot_width = _legend(matrix, colours, height + 18)
    spoken = f"heat map, {matrix.shape[0]} × {matrix.shape[1]}"
    right = max(width, overhang, foot_width)
    return titled(title, spoken, cells + side + head + foot, -gutter, -rise, right, height + 26)


def _matrix(values: Numbers) -> Array:
    matrix = array("heatmap: values", values, "rows, columns")
    if np.isposinf(matrix).any():
        raise OptionError("heatmap: values expected finite, NaN or −inf, got +inf; clip them first")
    if matrix.size > MOST_CELLS:
        raise OptionError(
            f"heatmap: values expected at most {MOST_CELLS:,} cells, got {shape(matrix)}; "
            "take a slice or average over blocks"
        )
    return matrix


def _labels(given: Sequence[object] | None, matrix: Array, axis: str) -> list[str]:
    if given is None:
        return []
    size = matrix.shape[0 if axis == "row" else 1]
    of = f"values has {size} {axis}s (values {shape(matrix)})"
    return names(f"heatmap: {axis}s", given, size, of, axis)


@dataclass(frozen=True)
class _Colours:
    """The colour map of low … high; zero, if inside, is the pale middle."""

    low: float
    high: float

    def __call__(self, value: float) -> str:
        inside = min(max(value, self.low), self.high)
        if self.low >= 0:
            return ramp((inside - self.low) / (self.high - self.low))
        if self.high <= 0:
            return ramp((inside - self.high) / (self.high - self.low))
        return ramp(inside / max(-self.low, self.high))


def _colours(matrix: Array, low: SupportsFloat | None, high: SupportsFloat | None) -> _Colours:
    finite = matrix[np.isfinite(matrix)]
    floor = float(finite.min(initial=0.0)) if low is None else float(low)
    ceiling = float(finite.max(initial=0.0)) if high is None else float(high)
    if floor >= ceiling and high is None:
        ceiling = floor + 1
    elif floor >= ceiling and low is None:
        floor = ceiling - 1
    if not -math.inf < floor < ceiling < math.inf:
        raise OptionError(
            f"heatmap: low expected < high and both finite, got low={floor:g}, high={ceiling:g}; "
            "swap them or leave one out"
        )
    return _Colours(floor, ceiling)


def _cells(
    matrix: Array, colours: _Colours, wide: int, tall: int, left: list[str], top: list[str]
) -> str:
    """A mark per cell, with its labels and exact value on hover."""
    drawn: list[str] = []
    for (i, j), value in np.ndenumerate(matrix):
        x, y = j * wide, i * tall
        name = " → ".join([texts[at] for texts, at in ((left, i), (top, j)) if texts])
        said = f"{value:.6g}".replace("-", "−") if math.isfinite(value) else "masked"
        hover = tag("title", escape(f"{name}: {said}" if name else said))
        if math.isfinite(value):
            box = {"x": x, "y": y, "width": wide - 1, "height": tall - 1}
            drawn.append(tag("rect", hover, class_="cell", **box, fill=colours(float(value))))
        else:
            d = _hatching(x, y, wide - 1, tall - 1)
            drawn.append(tag("path", hover, class_="masked", d=d, stroke=RULE))
    return "".join(drawn)


def _values(matrix: Array, colours: _Colours, wide: int, tall: int, places: int | None) -> str:
    """The numbers in the middle of their cells."""
    texts: list[str] = []
    for (i, j), value in np.ndenumerate(matrix):
        if math.isfinite(value):
            x, y = (j + 0.5) * wide - 0.5, (i + 0.5) * tall - 0.5 + 0.355 * VALUE_SIZE
            ink = ink_on(colours(float(value)))
            text = written(float(value), places)
            texts.append(tag("text", text, class_="value", x=x, y=y, fill=ink))
    return tag("g", *texts, font_size=VALUE_SIZE, text_anchor="middle", pointer_events="none")


def _merged(matrix: Array, colours: _Colours, wide: int, tall: int) -> str:
    """The cells of a large matrix: one mark per colour, neighbours in a row joined."""
    runs: dict[str, list[str]] = {}
    for i, row in enumerate(matrix.tolist()):
        tints = [colours(value) if math.isfinite(value) else "" for value in row]
        for tint, run in groupby(range(len(row)), key=tints.__getitem__):
            first, *rest = run
            x, y, length = first * wide, i * tall, (1 + len(rest)) * wide
            box = f"M{x} {y}h{length}v{tall}h-{length}z"
            runs.setdefault(tint, []).append(box if tint else _hatching(x, y, length, tall))
    masked = "".join(runs.pop("", []))
    drawn = [
        tag("path", class_="cell", fill=tint, d="".join(boxes), shape_rendering="crispEdges")
        for tint, boxes in sorted(runs.items())
    ]
    if masked:
        drawn.append(tag("path", class_="masked", d=masked, stroke=RULE))
    return "".join(drawn)


def _hatching(x: Number, y: Number, wide: Number, tall: Number) -> str:
    """Diagonal hatching of a rectangle, continuous with that of its neighbours."""
    strokes: list[str] = []
    start = -(x + y) % 6
    while start < wide + tall:  # along a stroke, x and y measured from the corner add to start
        first, last = max(0, start - tall), min(wide, start)
        length = num(last - first)
        strokes.append(f"M{num(x + first)} {num(y + start - first)}l{length}-{length}")
        start += 6
    return "".join(strokes)


def _every(labels: list[str], pitch: int, room: int) -> int:
    """Every how many labels one is drawn, so that none overlap; fewer if they are numbers."""
    if all(text.isdecimal() for text in labels):
        return next(n for n in (1, 2, 5, 10, 20, 50, 100, 200) if n * pitch >= 2 * room)
    return math.ceil(room / pitch)


def _row_labels(labels: list[str], tall: int) -> tuple[str, Number]:
    """The labels left of the cells, and their width."""
    if not labels:
        return "", 0
    size = TEXT_SIZE if tall >= 18 else SMALL_SIZE
    every = _every(labels, tall, 14)
    drawn = [
        label(text, -8, (i + 0.5) * tall, size=size, room=LABEL_ROOM, anchor="end", class_="row")
        for i, text in enumerate(labels)
        if i % every == 0
    ]
    return "".join(drawn), math.ceil(min(widest(labels[::every], size), LABEL_ROOM)) + 8


def _column_labels(labels: list[str], wide: int) -> tuple[str, Number, Number]:
    """The labels above the cells, their height and their right edge."""
    if not labels:
        return "", 0, 0
    size = TEXT_SIZE if wide >= 18 else SMALL_SIZE
    every = _every(labels, wide, 14)
    shown = [((j + 0.5) * wide, text) for j, text in enumerate(labels) if j % every == 0]
    widths = [min(text_width(text, size), LABEL_ROOM) for _, text in shown]
    if max(widths) <= wide * every - 4:
        drawn = [
            label(text, x, -13, size=size, anchor="middle", class_="column") for x, text in shown
        ]
        return "".join(drawn), 22, max(x + w / 2 for (x, _), w in zip(shown, widths, strict=True))
    drawn = [
        label(text, x - 3, -9, size=size, room=LABEL_ROOM, turn=-45, class_="column")
        for x, text in shown
    ]
    slant = math.sqrt(0.5)
    overhang = max(x + w * slant + 5 for (x, _), w in zip(shown, widths, strict=True))
    return "".join(drawn), math.ceil(max(widths) * slant + 16), math.ceil(overhang)


def _legend(matrix: Array, colours: _Colours, y: Number) -> tuple[str, Number]:
    """The legend, colour bar and hatching, and its right edge."""
    drawn: list[str] = []
    x: Number = 0
    finite = matrix[np.isfinite(matrix)]
    if finite.size:
        start, end = marks([colours.low, colours.high])
        start = "≤ " + start if finite.min() < colours.low else start
        end = "≥ " + end if finite.max() > colours.high else end
        drawn.append(label(start, x, y, size=SMALL_SIZE, fill=SOFT, class_="legend"))
        x = math.ceil(text_width(start, SMALL_SIZE)) + 6
        span = colours.high - colours.low
        strips = [
            tag("path", d=f"M{4 * i} 0h4v8h-4z", fill=colours(colours.low + span * (i + 0.5) / 32))
            for i in range(32)
        ]
        drawn.append(moved(tag("g", *strips, shape_rendering="crispEdges"), x, y - 4))
        x += 4 * 32 + 6
        drawn.append(label(end, x, y, size=SMALL_SIZE, fill=SOFT, class_="legend"))
        x += math.ceil(text_width(end, SMALL_SIZE)) + 16
    if finite.size < matrix.size:
        d = _hatching(x, y - 5, 18, 10)
        drawn.append(tag("path", class_="legend", d=d, stroke=RULE))
        drawn.append(label("masked", x + 24, y, size=SMALL_SIZE, fill=SOFT, class_="legend"))
        x += 24 + math.ceil(text_width("masked", SMALL_SIZE)) + 16
    return "".join(drawn), x - 16
