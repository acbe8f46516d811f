"""Two-dimensional vectors as arrows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regard.errors import OptionError, ShapeError
from regard.view.axis import Axis, grid, tick_step
from regard.view.colour import PALETTE, legible
from regard.view.numbers import Numbers, array
from regard.view.picture import Picture, titled
from regard.view.svg import DIM, RULE, SMALL_SIZE, TEXT_SIZE, label, num, tag, text_width, widest

NAME_ROOM = 170


def arrows(
    vectors: Mapping[str, Numbers],
    *,
    title: str = "",
    also: Mapping[str, Numbers] | None = None,
) -> Picture:
    """Vectors (x, y) as arrows from the origin, both axes to one scale.

    ``also`` is a second set in another colour, the same words after attention for example; a
    dotted line then leads from each tip to the tip of the same name.

    >>> picture = arrows({"bat": (1, 0.2), "ball": (0.9, 0.4)}, also={"bat": (0.95, 0.3)})
    >>> picture.svg().count('class="arrow"')
    3
    """
    groups = ("vectors", vectors, PALETTE[0]), ("also", also or {}, PALETTE[1])
    tips = [
        _Tip(str(name), *_vector(argument, name, vector), ink)
        for argument, group, ink in groups
        for name, vector in group.items()
    ]
    if not tips:
        raise ShapeError(
            "arrows: vectors expected at least one name with (x, y), got none; add one"
        )
    across, up = _plane(tips)
    origin = across(0), up(0)
    ends = [(across(tip.x), up(tip.y)) for tip in tips]
    upright = f"M{num(origin[0])} 0V{num(up.start)}"
    marks = [grid(across, up), tag("path", d=upright, stroke=RULE, class_="grid")]
    before = {tip.name: end for tip, end in zip(tips[: len(vectors)], ends, strict=False)}
    for tip, end in zip(tips[len(vectors) :], ends[len(vectors) :], strict=True):
        if start := before.get(tip.name):
            d = f"M{num(start[0])} {num(start[1])}L{num(end[0])} {num(end[1])}"
            marks.append(tag("path", d=d, stroke=DIM, stroke_dasharray="1.5 3.5", class_="path"))
    marks += [_arrow(origin, end, tip.ink) for tip, end in zip(tips, ends, strict=True)]
    boxes = _boxes([tip.name for tip in tips], origin, ends)
    for tip, box in zip(tips, boxes, strict=True):
        at = box.x, box.y + box.height / 2
        fill = legible(tip.ink)
        marks.append(label(tip.name, *at, room=NAME_ROOM, fill=fill, halo=True, class_="name"))
    gutter = widest(up.texts(), SMALL_SIZE) + 10
    edge = widest(across.texts(), SMALL_SIZE) / 2
    left = min(-gutter, *(box.x for box in boxes))
    right = max(across.end + edge, *(box.x + box.width for box in boxes))
    top, bottom = min(-9, *(box.y for box in boxes)), up.start + 26
    spoken = f"vectors {', '.join(tip.name for tip in tips)}"
    return titled(title, spoken, "".join(marks), left, top, right, bottom)


@dataclass(frozen=True)
class _Tip:
    name: str
    x: float
    y: float
    ink: str


@dataclass(frozen=True)
class _Box:
    x: float
    y: float
    width: float
    height: float

    def meets(self, other: _Box) -> bool:
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )


def _vector(argument: str, name: str, vector: Numbers) -> tuple[float, float]:
    where = f"arrows: {argument}[{name!r}]"
    found = array(where, vector, "2")
    if len(found) != 2:
        raise ShapeError(f"{where} expected (x, y), got {len(found)} numbers; project it to 2-D")
    if not np.isfinite(found).all():
        raise OptionError(f"{where} expected finite, got {found.tolist()}; leave it out")
    return float(found[0]), float(found[1])


def _plane(tips: Sequence[_Tip]) -> tuple[Axis, Axis]:
    """The two axes, of one scale, that contain the origin and every tip."""
    sides = [tip.x for tip in tips], [tip.y for tip in tips]
    ranges = [(min(0.0, *values), max(0.0, *values)) for values in sides]
    longest = max(high - low for low, high in ranges) or 1.0
    step = tick_step(0, longest, 5)
    padded: list[tuple[float, float]] = []
    for low, high in ranges:
        spare = max(0.0, 0.5 * longest - (high - low)) / 2  # never thinner than half the other
        padded.append((low - spare - 0.07 * longest, high + spare + 0.07 * longest))
    (left, right), (bottom, top) = padded
    scale = 340 / (1.14 * longest)
    axes: list[Axis] = []
    for low, high, start, end in (
        (left, right, 0, (right - left) * scale),
        (bottom, top, (top - bottom) * scale, 0),
    ):
        found = [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
        axes.append(Axis(low, high, start, end, False, tuple(found)))
    return axes[0], axes[1]


def _arrow(origin: tuple[float, float], end: tuple[float, float], ink: str) -> str:
    (x, y), (tip_x, tip_y) = origin, end
    length = math.hypot(tip_x - x, tip_y - y)
    if length < 1:
        return tag("circle", class_="arrow", cx=x, cy=y, r=3.5, fill=ink)
    along_x, along_y = (tip_x - x) / length, (tip_y - y) / length
    head = min(11.0, length)
    base_x, base_y = tip_x - head * along_x, tip_y - head * along_y
    side_x, side_y = -along_y * head * 0.38, along_x * head * 0.38
    shaft = f"M{num(x)} {num(y)}L{num(base_x)} {num(base_y)}"
    corners = (
        (tip_x, tip_y),
        (base_x + side_x, base_y + side_y),
        (base_x - side_x, base_y - side_y),
    )
    point = "M" + "L".join(f"{num(a)} {num(b)}" for a, b in corners) + "Z"
    body = tag("path", d=shaft, stroke=ink, stroke_width=2.2) + tag("path", d=point, fill=ink)
    return tag("g", body, class_="arrow")


def _boxes(
    names: list[str], origin: tuple[float, float], ends: list[tuple[float, float]]
) -> list[_Box]:
    """A position for each label just beyond its tip, rotated away from others it would cover."""
    from_x, from_y = origin
    shafts = [
        _Box(from_x + (x - from_x) * part / 24, from_y + (y - from_y) * part / 24, 0.0, 0.0)
        for x, y in ends
        for part in range(25)
    ]
    boxes: list[_Box] = []
    for name, (x, y) in zip(names, ends, strict=True):
        width, height = min(text_width(name), float(NAME_ROOM)), TEXT_SIZE + 4.0
        outward = math.atan2(y - origin[1], x - origin[0])
        found: list[tuple[int, _Box]] = []
        for turn in (0, 35, -35, 70, -70, 105, -105, 150, -150):
            angle = outward + math.radians(turn)
            reach_x, reach_y = math.cos(angle), math.sin(angle)
            middle = x + reach_x * (9 + width / 2), y + reach_y * (7 + height / 2)
            box = _Box(middle[0] - width / 2, middle[1] - height / 2, width, height)
            clashes = 10 * sum(box.meets(other) for other in boxes)
            found.append((clashes + sum(box.meets(point) for point in shafts), box))
        boxes.append(min(found, key=lambda each: each[0])[1])  # of equal ones, the first
    return boxes
