"""Line and bar charts. Lines are labelled where they end instead of in a legend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import SupportsFloat

import numpy as np

from regard.errors import OptionError, ShapeError
from regard.view.axis import Axis, fitted, grid
from regard.view.colour import PALETTE, legible
from regard.view.numbers import Array, Numbers, array, decimals, written
from regard.view.picture import Picture, titled
from regard.view.svg import RULE, SMALL_SIZE, SOFT, Number, label, num, tag, widest

NAME_ROOM = 170
NAME_PITCH = 17
FEW_POINTS = 24
INKS = PALETTE[:7]  # yellow is too faint for a thin line
DASHES = (None, "7 4", "2 3")


def lines(
    series: Mapping[str, tuple[Numbers, Numbers]],
    *,
    title: str = "",
    x: str = "",
    y: str = "",
    log_x: bool = False,
    log_y: bool = False,
) -> Picture:
    """A line per name through its points (xs, ys), labelled where it ends.

    ``x`` and ``y`` name the axes; ``log_x`` and ``log_y`` make them logarithmic. A NaN in ys
    leaves a gap.

    >>> picture = lines({"x²": ([0, 1, 2, 3], [0, 1, 4, 9])}, x="x", title="a square")
    >>> picture.svg().count('class="line"')
    1
    """
    points = {str(name): _points(name, pair, log_x, log_y) for name, pair in series.items()}
    if not points:
        raise ShapeError(
            "lines: series expected at least one name with (xs, ys), got none; add one"
        )
    names = list(points)
    width, height = 460, max(240, NAME_PITCH * len(names))
    across = fitted(np.concatenate([xs for xs, _ in points.values()]), 0, width, log_x, exact=True)
    every_y = np.concatenate([ys[~np.isnan(ys)] for _, ys in points.values()])
    up = fitted(every_y, height, 0, log_y, exact=False)

    ends = [_end(xs, ys, across, up) for xs, ys in points.values()]
    places = _spread([end_y for _, end_y in ends], NAME_PITCH, 0, height)
    led = [
        abs(place - end_y) > 3 or width - end_x > 3
        for place, (end_x, end_y) in zip(places, ends, strict=True)
    ]
    name_x = width + (28 if any(led) else 12)
    marks = [grid(across, up)]
    for i, (xs, ys) in enumerate(points.values()):
        ink, dash = INKS[i % len(INKS)], DASHES[i // len(INKS) % len(DASHES)]
        marks.append(_curve(xs, ys, across, up, ink, dash))
        if led[i] and names[i]:
            d = f"M{num(ends[i][0])} {num(ends[i][1])}L{name_x - 4} {num(places[i])}"
            marks.append(tag("path", d=d, stroke=ink, opacity=0.45, class_="thread"))
        at = name_x, places[i]
        marks.append(label(names[i], *at, room=NAME_ROOM, fill=legible(ink), class_="name"))
    gutter = math.ceil(widest(up.texts(), SMALL_SIZE)) + 10
    right = max(
        name_x + min(widest(names), NAME_ROOM), width + widest(across.texts(), SMALL_SIZE) / 2
    )
    marks.append(_axis_names(x, y, width, height, gutter))
    top, bottom = -28 if y else -9, height + (46 if x else 24)
    spoken = "line chart of " + ", ".join(names)
    return titled(title, spoken, "".join(marks), -gutter, top, math.ceil(right), bottom)


def _points(
    name: str, pair: tuple[Numbers, Numbers], log_x: bool, log_y: bool
) -> tuple[Array, Array]:
    where = f"lines: series[{name!r}]"
    if len(pair) != 2:
        raise ShapeError(f"{where} expected (xs, ys), got {len(pair)} of them; give a pair")
    xs, ys = array(f"{where} xs", pair[0], "n"), array(f"{where} ys", pair[1], "n")
    if len(xs) != len(ys):
        raise ShapeError(
            f"{where} has {len(ys)} ys but {len(xs)} xs; give one y per x, NaN where there is none"
        )
    if not np.isfinite(xs).all() or np.isinf(ys).any() or np.isnan(ys).all():
        raise OptionError(
            f"{where} expected finite xs, and ys finite or NaN but not all NaN; drop the others"
        )
    for log, axis, values in ((log_x, "x", xs), (log_y, "y", ys[~np.isnan(ys)])):
        if log and values.min() <= 0:
            raise OptionError(
                f"{where} expected {axis}s > 0 because of log_{axis}=True, got {values.min():g}; "
                f"drop it or log_{axis}"
            )
    return xs, ys


def _axis_names(x: str, y: str, width: int, height: int, gutter: int) -> str:
    """The label of the y axis above it, that of the x axis below its middle."""
    above = label(y, -gutter, -20, size=12, room=width + gutter, fill=SOFT, class_="axis")
    at = width / 2, height + 38
    below = label(x, *at, size=12, room=width, anchor="middle", fill=SOFT, class_="axis")
    return (above if y else "") + (below if x else "")


def _end(xs: Array, ys: Array, across: Axis, up: Axis) -> tuple[float, float]:
    last = int(np.flatnonzero(~np.isnan(ys))[-1])
    return across(float(xs[last])), up(float(ys[last]))


def _curve(xs: Array, ys: Array, across: Axis, up: Axis, ink: str, dash: str | None) -> str:
    """The line, broken at NaN, with dots if it has few points, and at isolated ones."""
    runs: list[list[str]] = [[]]
    for x, y in zip(xs.tolist(), ys.tolist(), strict=True):
        if math.isnan(y):
            runs.append([])
        else:
            runs[-1].append(f"{num(across(x))} {num(up(y))}")
    d = "".join("M" + "L".join(run) for run in runs if run)
    path = tag("path", class_="line", d=d, fill="none", stroke=ink, stroke_dasharray=dash)
    few = len(xs) <= FEW_POINTS
    dotted = [at.split() for run in runs for at in run if few or len(run) == 1]
    dots = [tag("circle", cx=cx, cy=cy, r=2.6, fill=ink) for cx, cy in dotted]
    return tag("g", path, *dots, stroke_width=2, stroke_linejoin="round")


def _spread(wanted: Sequence[Number], gap: Number, low: Number, high: Number) -> list[float]:
    """The positions closest to those wanted (least squares), at least ``gap`` apart in low … high.

    >>> _spread([10, 12, 50], 10, 0, 100)
    [6.0, 16.0, 50.0]
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    shifted = [wanted[i] - rank * gap for rank, i in enumerate(order)]
    every, top = range(len(order)), high - (len(order) - 1) * gap
    places = [0.0] * len(order)
    for rank, i in enumerate(order):
        means = [[fmean(shifted[a : b + 1]) for b in every[rank:]] for a in every[: rank + 1]]
        flat = max(map(min, means))  # isotonic regression: the largest of the smallest means
        places[i] = min(max(flat, low), max(low, top)) + rank * gap
    return places


def bars(values: Mapping[str, SupportsFloat], *, title: str = "", unit: str = "") -> Picture:
    """A horizontal bar per name, in the order given, with its number and unit at the end.

    All start from zero, so that lengths can be compared; those below it go to the left.

    >>> picture = bars({"reference": 12.5, "fused": 3.25}, unit="ms", title="time per call")
    >>> "3.25 ms" in picture.svg()
    True
    """
    numbers = {str(name): float(value) for name, value in values.items()}
    if not numbers:
        raise ShapeError("bars: values expected at least one name with a number, got none; add one")
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise OptionError(f"bars: values[{name!r}] expected finite, got {value}; leave it out")
    texts = [f"{text} {unit}".strip() for text in _bar_texts(list(numbers.values()))]
    low, high = min(0.0, *numbers.values()), max(0.0, *numbers.values())
    scale = 320 / ((high - low) or 1)
    pitch, thick, gap = 28, 18, 8
    room = widest(texts, 12.5)
    zero = -low * scale + (room + gap if low < 0 else 0)
    marks: list[str] = []
    for i, (name, value) in enumerate(numbers.items()):
        y, length = (i + 0.5) * pitch, abs(value) * scale
        start = zero - length if value < 0 else zero
        ink = PALETTE[1 if value < 0 else 0]
        box = {"x": start, "y": y - thick / 2, "width": length, "height": thick}
        marks.append(tag("rect", class_="bar", **box, fill=ink, rx=1.5))
        marks.append(label(name, -12, y, room=NAME_ROOM, anchor="end", class_="name"))
        end, anchor = (start - gap, "end") if value < 0 else (zero + length + gap, "start")
        marks.append(label(texts[i], end, y, size=12.5, anchor=anchor, fill=SOFT, class_="value"))
    bottom = pitch * len(numbers)
    marks.append(tag("path", d=f"M{num(zero)} 0V{bottom}", stroke=RULE, class_="grid"))
    left = -12 - math.ceil(min(widest(numbers), NAME_ROOM))
    right = math.ceil(zero + high * scale + gap + room)
    return titled(title, f"bars of {', '.join(numbers)}", "".join(marks), left, 0, right, bottom)


def _bar_texts(values: list[float]) -> list[str]:
    """The numbers with equal decimals, unless a nonzero number would round to 0."""
    places = decimals(values)
    if any(value and not float(f"{value:.{places or 0}f}") for value in values):
        return [written(value, decimals([value])) for value in values]
    return [written(value, places) for value in values]
