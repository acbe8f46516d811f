"""The figure as SVG: source above, output below, one ribbon, and what a cut would change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from regard.view.figure import terminal
from regard.view.figure.finding import CLEAR, Finding, Read
from regard.view.figure.layout import PAD, Placed, place, size_for
from regard.view.figure.theme import boxed, dark_style, fill, line, paragraph, text
from regard.view.figure.wording import Span, percent, plain
from regard.view.picture import Picture
from regard.view.svg import BOLD, Number, escape, moved, num, shorten, tag, text_width

WIDTH = 1000
INSET = 28
"""Between the edge of the card and what stands in it."""
REACH, SHORT = 132, 88
"""Height of the ribbons, in the whole figure and alone."""
THICK = 8
"""Width of a ribbon of weight 1."""
LEFT = 400
"""Width of the probabilities."""


@dataclass(frozen=True)
class Figure:
    """The figure of a finding, for one input word, perhaps cut."""

    found: Finding
    selected: int
    cut: bool = False
    title: Sequence[Span] | None = None
    """If not None, the links alone under this line, or under the headline if it is empty."""

    def text(self) -> str:
        """The three questions and their answers."""
        return terminal.text(self.found)

    def picture(self) -> Picture:
        """Headline, links, bars and caption; or the links alone, to set above each other."""
        read = self.found.reads[self.selected]
        told = list(self.title or ()) or (read.cut_headline if self.cut else read.headline)
        if self.title is None:
            return self._whole(read, told)
        head, high = paragraph(told, 0, 10, WIDTH, size=15)
        body, tall = _links(self.found, self.selected, self.cut, WIDTH, labels=False)
        return _picture(self.found, told, head + moved(body, 0, high + 10), high + 10 + tall)

    def _whole(self, read: Read, told: Sequence[Span]) -> Picture:
        head, high = paragraph(told, 0, 16, WIDTH, size=25, weight=600)
        y = high + 8
        body, tall = _links(self.found, self.selected, self.cut, WIDTH - 2 * INSET)
        below, short = _below(self.found, self.selected, self.cut)
        card = 24 + tall + 22 + short + 18
        marks = [
            head,
            tag("rect", x=0.5, y=y, width=WIDTH - 1, height=card, rx=12, **boxed("card", "rule")),
            moved(body, INSET, y + 24),
            tag("path", d=f"M{INSET} {num(y + tall + 36)}H{WIDTH - INSET}", **line("rule")),
            moved(below, INSET, y + tall + 52),
        ]
        y += card + 28
        caption = read.cut_caption if self.cut else self.found.caption
        below, high = paragraph(caption, 0, y, WIDTH, size=15, base="soft")
        marks.append(below)
        return _picture(self.found, told, "".join(marks), y + high - 8)


def _picture(found: Finding, told: Sequence[Span], body: str, height: Number) -> Picture:
    spoken = "".join(text for text, _ in told)
    return Picture(WIDTH, math.ceil(height), body, f"{spoken} {found.text}", dark_style())


def _links(
    found: Finding, selected: int, cut: bool, width: int, *, labels: bool = True
) -> tuple[str, Number]:
    """Source, ribbons and output, and their height."""
    read = found.reads[selected]
    shown = [i for i, one in enumerate(found.reads) if not one.special or i == selected]
    source = [found.reads[i].word for i in shown]
    output = read.output if cut else found.output
    size = size_for((source, output), width)
    wanted = sorted(
        range(len(shown)), key=lambda i: (shown[i] != selected, -_worth(found.reads[shown[i]]))
    )
    above = place(source, width, size, wanted=wanted)
    below = place(output, width, size, wanted=[found.written_at], most=4)
    pitch = size * 1.75
    top = (22 if labels else 0) + pitch / 2
    rows = max(one.line for one in above) + 1
    reach = REACH if labels else SHORT
    bottom = top + rows * pitch + reach
    plainly = "over" if labels and rows > 1 else ""
    at = {shown[one.number]: one for one in above if one.number >= 0}
    to = {one.number: one for one in below if one.number >= 0}
    marks = _alignment(found, at, to, top, bottom, pitch)
    marks.append(_ribbon(read, at[selected], to[found.written_at], cut, top, bottom, pitch))
    marks += [_word(one, top + one.line * pitch, size) for one in above if one.number < 0]
    for i, one in at.items():
        role = plainly if i != selected else "gone" if cut else "hit"
        marks.append(_word(one, top + one.line * pitch, size, role))
    marks += _written(found, read, below, cut, bottom, pitch, size, strike=labels)
    marks.append(_pill(read, at[selected], to[found.written_at], cut, top, bottom, pitch))
    last = bottom + max(one.line for one in below) * pitch + pitch / 2
    if labels:
        marks.append(text(found.labels["reads"], 0, 6, size=12, colour="soft"))
        marks.append(text(found.labels["writes"], 0, last + 12, size=12, colour="soft"))
    else:
        x, told = to[found.written_at].x, _shares(found, read, cut)
        marks.append(text(told, x, last + 10, size=13, anchor="middle", colour="soft"))
    return "".join(marks), last + 20


def _shares(found: Finding, read: Read, cut: bool) -> str:
    """The probability of the written word; after a cut, also of the one written instead."""
    if found.kind == "vector":
        return f"cosine {read.probability if cut else 1:.2f}"
    told = f"{found.word} {percent(read.probability if cut else found.probability)}"
    names = [word for word, _ in found.alternatives]
    if cut and read.flips and read.writes in names:
        told += f", {read.writes} {percent(read.probabilities[names.index(read.writes)])}"
    return told


def _worth(read: Read) -> Number:
    return max(read.looked, read.matters)


def _alignment(
    found: Finding,
    at: dict[int, Placed],
    to: dict[int, Placed],
    top: Number,
    bottom: Number,
    pitch: Number,
) -> list[str]:
    """Thin lines between written words and those they are aligned with, if all fit in one line."""
    if any(one.line for one in (*at.values(), *to.values())):
        return []
    ends = (top + pitch / 2 + 2, bottom - pitch / 2 - 2)
    return [
        tag("path", d=_curve(at[b].x, ends[0], to[a].x, ends[1]), stroke_width=1.6, **line("rule"))
        for a, b in found.alignment
        if a != found.written_at and a in to and b in at
    ]


def _ends(
    one: Placed, other: Placed, top: Number, bottom: Number, pitch: Number
) -> tuple[Number, Number, Number, Number]:
    first = top + one.line * pitch + pitch / 2 - 1
    return one.x, first, other.x, bottom + other.line * pitch - pitch / 2 + 1


def _ribbon(
    read: Read, one: Placed, other: Placed, cut: bool, top: Number, bottom: Number, pitch: Number
) -> str:
    d = _curve(*_ends(one, other, top, bottom, pitch))
    if cut:
        return tag("path", d=d, stroke_width=3, stroke_dasharray="3 9", stroke_linecap="round",
                   **line("cut"))  # fmt: skip
    return tag("path", d=d, stroke_width=max(1.5, THICK * read.looked), stroke_linecap="round",
               **line("accent"))  # fmt: skip


def _pill(
    read: Read, one: Placed, other: Placed, cut: bool, top: Number, bottom: Number, pitch: Number
) -> str:
    """The weight, or scissors, in the middle of the ribbon."""
    x1, y1, x2, y2 = _ends(one, other, top, bottom, pitch)
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    if one.line or other.line:  # between the two blocks of text
        y = max(y, bottom - pitch / 2 - REACH / 2)
    colour = "cut" if cut else "accent"
    box = tag("rect", x=x - 26, y=y - 13, width=52, height=26, rx=13, stroke_width=1.5,
              **boxed("paper", colour))  # fmt: skip
    inner = _scissors(x, y) if cut else text(
        f"{read.looked:.2f}", x, y, size=14, weight=600, anchor="middle", colour=colour
    )  # fmt: skip
    return box + inner


def _scissors(x: Number, y: Number) -> str:
    """Scissors as lines, since few fonts have them."""
    d = "M-3.5 -2.5L7 4M-3.5 2.5L7 -4M-8 -4a2.3 2.3 0 1 0 4.6 0a2.3 2.3 0 1 0 -4.6 0"
    d += "M-8 4a2.3 2.3 0 1 0 4.6 0a2.3 2.3 0 1 0 -4.6 0"
    drawn = tag("path", d=d, stroke_width=1.4, stroke_linecap="round", **line("cut"))
    return moved(drawn, x, y)


def _curve(x1: Number, y1: Number, x2: Number, y2: Number) -> str:
    bend = 0.55 * (y2 - y1)
    points = (x1, y1, x1, y1 + bend, x2, y2 - bend, x2, y2)
    at = [num(value) for value in points]
    return f"M{at[0]} {at[1]}C{at[2]} {at[3]} {at[4]} {at[5]} {at[6]} {at[7]}"


_BOXES = {"hit": ("tint", "accent", "ink"), "gone": ("cuttint", "cut", "cut")}
_FULL = {"on": "accent", "flip": "cut"}


def _word(one: Placed, y: Number, size: Number, role: str = "") -> str:
    """A word, in a box if it has a role."""
    wide = text_width(one.word, size * BOLD) + 2 * PAD
    box = {"x": one.x - wide / 2, "y": y - 0.78 * size, "width": wide, "height": 1.56 * size}
    ink, marks = "ink", ""
    if role == "over":  # a ribbon may run behind it
        marks = tag("rect", **box, **fill("card"))
    elif role in _BOXES:
        under, edge, ink = _BOXES[role]
        marks = tag("rect", **box, rx=6, stroke_width=1.5, **boxed(under, edge))
    elif role in _FULL:
        ink = "on"
        marks = tag("rect", **box, rx=6, **fill(_FULL[role]))
    weight = 600 if role in ("hit", "on", "flip") else None
    marks += text(one.word, one.x, y, size=size, anchor="middle", weight=weight, colour=ink)
    if role == "gone":
        left, long = num(one.x - wide / 2 + PAD), num(wide - 2 * PAD)
        marks += tag("path", d=f"M{left} {num(y)}h{long}", stroke_width=1.4,
                     **line("cut"))  # fmt: skip
    return marks


def _written(
    found: Finding,
    read: Read,
    placed: Sequence[Placed],
    cut: bool,
    top: Number,
    pitch: Number,
    size: Number,
    *,
    strike: bool,
) -> list[str]:
    """The output; after a cut, what was written before stands below each word that changes."""
    marks = []
    for one in placed:
        y = top + one.line * pitch
        own = one.number == found.written_at
        role = "on" if own else ""
        changed = cut and one.number >= 0 and read.output[one.number] != found.output[one.number]
        if changed:
            role = "flip"
        if changed and strike:
            y_old = y + 0.78 * size + 9
            old = plain(found.output[one.number])
            half = text_width(old, 12) / 2
            marks.append(text(old, one.x, y_old, size=12, anchor="middle", colour="soft"))
            marks.append(tag("path", d=f"M{num(one.x - half)} {num(y_old)}h{num(2 * half)}",
                             **line("soft")))  # fmt: skip
        marks.append(_word(one, y, size, role))
    return marks


def _below(found: Finding, selected: int, cut: bool) -> tuple[str, Number]:
    """Probabilities on the left, what each word is worth on the right; and their height."""
    left, one = _choices(found, selected, cut)
    right, other = _columns(found, selected, cut)
    return left + moved(right, LEFT + 52, 0), max(one, other)


def _choices(found: Finding, selected: int, cut: bool) -> tuple[str, Number]:
    """A bar for each alternative, with a mark for what it was before the cut."""
    read = found.reads[selected]
    if found.kind == "vector":
        rows = [("cosine", 1.0, read.probability if cut else 1.0)]
    else:
        rows = [
            (word, p, read.probabilities[i] if cut else p)
            for i, (word, p) in enumerate(found.alternatives)
        ]
    labels = found.labels
    marks = [_bold_and_soft(labels["choices"], labels["before"], LEFT)]
    left, right = 88, LEFT - 58
    for i, (word, before, now) in enumerate(rows):
        y = 38 + 25 * i
        new = cut and read.flips and word == read.writes
        ink = "cut" if new else "ink"
        marks.append(text(word, 0, y, size=14, room=left - 12, weight=600, colour=ink))
        track = {"x": left, "y": y - 5, "height": 10, "rx": 3}
        marks.append(tag("rect", width=right - left, **track, **fill("rule")))
        wide = max(1.0, (right - left) * min(1.0, max(0.0, now)))
        marks.append(tag("rect", width=wide, **track, **fill("cut" if new else "accent")))
        if cut:
            x = left + (right - left) * min(1.0, max(0.0, before))
            marks.append(tag("rect", x=x - 1, y=y - 8, width=2, height=16, **fill("ink")))
        told = f"{now:.2f}" if found.kind == "vector" else percent(now)
        marks.append(text(told, LEFT, y, size=14, anchor="end", colour="ink"))
    return "".join(marks), 38 + 25 * len(rows)


def _bold_and_soft(bold: str, rest: str, room: Number) -> str:
    left = room - text_width(bold, 13 * BOLD) - 8
    strong = tag("tspan", escape(bold), font_weight=600, **fill("ink"))
    soft = tag("tspan", escape(f" {shorten(rest, left, 13)}"), **fill("soft")) if rest else ""
    return tag("text", strong, soft, x=0, y=12.6, font_size=13)


def _columns(found: Finding, selected: int, cut: bool) -> tuple[str, Number]:
    """For each input word a hollow bar, how much it is looked at, and a solid one, what is lost."""
    width = WIDTH - 2 * INSET - LEFT - 52
    real = [i for i, one in enumerate(found.reads) if not one.special or i == selected]
    order = sorted(real, key=lambda i: (i != selected, -_worth(found.reads[i])))
    shown = sorted(order[: found.columns])
    marks = [_bold_and_soft(found.labels["matters"], found.labels["each"], width)]
    pitch, floor, tall = min(64.0, width / len(shown)), 98, 52
    for column, i in enumerate(shown):
        read, x = found.reads[i], pitch * (column + 0.5)
        high = max(1.0, tall * read.looked)
        marks.append(tag("rect", x=x - 9.5, y=floor - high, width=9, height=high, rx=2,
                         stroke_width=1.2, **line("dim")))  # fmt: skip
        high = max(1.0, tall * min(1.0, max(0.0, read.matters)))
        marks.append(tag("rect", x=x + 1, y=floor - high, width=9, height=high, rx=2,
                         **fill("cut")))  # fmt: skip
        if read.matters >= CLEAR:
            marks.append(text(f"−{100 * read.matters:.0f}", x, 35, size=12, weight=600,
                               anchor="middle", colour="cut"))  # fmt: skip
        ink = ("cut" if cut else "accent") if i == selected else "soft"
        marks.append(text(plain(read.word), x, floor + 13, size=11.5, room=pitch - 3,
                           anchor="middle", colour=ink))  # fmt: skip
    return "".join(marks) + _key(found, floor + 36), floor + 46


def _key(found: Finding, y: Number) -> str:
    looked, lost = found.labels["looked"], found.labels["lost"]
    x = 32 + text_width(looked, 12)
    return (
        tag("rect", x=0.5, y=y - 5, width=9, height=9, rx=2, stroke_width=1.2, **line("dim"))
        + text(looked, 16, y, size=12, colour="soft")
        + tag("rect", x=x, y=y - 5, width=10, height=10, rx=2, **fill("cut"))
        + text(lost, x + 16, y, size=12, room=260, colour="soft")
    )
