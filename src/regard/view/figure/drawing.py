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
"""Between the edge of the card and its content."""
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

    @property
    def read(self) -> Read:
        """The selected input word."""
        return self.found.reads[self.selected]

    def text(self) -> str:
        """The three questions and their answers."""
        return terminal.text(self.found)

    def picture(self) -> Picture:
        """Headline, links, bars and caption; or the links alone, to set above each other."""
        headline = self.read.cut_headline if self.cut else self.read.headline
        told = list(self.title or ()) or headline
        if self.title is None:
            body, height = self._whole(told)
        else:
            head, high = paragraph(told, 10, WIDTH, size=15)
            links, tall = self._links(WIDTH, labels=False)
            body, height = head + moved(links, 0, high + 10), high + 10 + tall
        spoken = "".join(text for text, _ in told)
        title = f"{spoken} {self.found.text}"
        return Picture(WIDTH, math.ceil(height), body, title, dark_style())

    def _whole(self, told: Sequence[Span]) -> tuple[str, Number]:
        head, high = paragraph(told, 16, WIDTH, size=25, weight=600)
        y = high + 8
        body, tall = self._links(WIDTH - 2 * INSET, labels=True)
        left, one = self._choices()
        right, other = self._columns()
        card = 24 + tall + 22 + max(one, other) + 18
        marks = [
            head,
            tag("rect", x=0.5, y=y, width=WIDTH - 1, height=card, rx=12, **boxed("card", "rule")),
            moved(body, INSET, y + 24),
            tag("path", d=f"M{INSET} {num(y + tall + 36)}H{WIDTH - INSET}", **line("rule")),
            moved(left + moved(right, LEFT + 52, 0), INSET, y + tall + 52),
        ]
        y += card + 28
        caption = self.read.cut_caption if self.cut else self.found.caption
        below, high = paragraph(caption, y, WIDTH, size=15, base="soft")
        return "".join([*marks, below]), y + high - 8

    def _links(self, width: int, *, labels: bool) -> tuple[str, Number]:
        """Source, ribbons and output, and their height."""
        found, reads = self.found, self.found.reads
        shown = self._by_worth()
        order = sorted(shown)
        source = [reads[i].word for i in order]
        output, places = self._output()
        size = size_for((source, output), width)
        above = place(source, width, size, wanted=[order.index(i) for i in shown])
        below = place(output, width, size, wanted=[places.index(found.written_at)], most=4)
        pitch = size * 1.75
        top = (22 if labels else 0) + pitch / 2
        rows = max(one.line for one in above) + 1
        bottom = top + rows * pitch + (REACH if labels else SHORT)
        at = {order[one.number]: one for one in above if one.number >= 0}
        to = {places[one.number]: one for one in below if one.number >= 0}
        one, other = at[self.selected], to[found.written_at]
        first = top + one.line * pitch + pitch / 2 - 1
        ends = one.x, first, other.x, bottom + other.line * pitch - pitch / 2 + 1
        marks = []
        if not any(each.line for each in (*at.values(), *to.values())):
            marks += self._alignment(at, to, top + pitch / 2 + 2, bottom - pitch / 2 - 2)
        marks.append(self._ribbon(*ends))
        marks += [_word(each, top + each.line * pitch, size) for each in above if each.number < 0]
        for i, each in at.items():
            role = "over" if labels and rows > 1 else ""
            if i == self.selected:
                role = "gone" if self.cut else "hit"
            marks.append(_word(each, top + each.line * pitch, size, role))
        for each in below:
            marks.append(self._written(each, bottom + each.line * pitch, size, strike=labels))
        x, y = (ends[0] + ends[2]) / 2, (ends[1] + ends[3]) / 2
        if one.line or other.line:  # between the two blocks of text
            y = max(y, bottom - pitch / 2 - REACH / 2)
        marks.append(self._pill(x, y))
        last = bottom + max(each.line for each in below) * pitch + pitch / 2
        if labels:
            marks.append(text(found.labels["reads"], 0, 6, size=12, colour="soft"))
            marks.append(text(found.labels["writes"], 0, last + 12, size=12, colour="soft"))
        else:
            told = self._shares()
            marks.append(text(told, other.x, last + 10, size=13, anchor="middle", colour="soft"))
        return "".join(marks), last + 20

    def _by_worth(self) -> list[int]:
        """The input words, the selected one first, then those looked at or missed most."""
        reads = self.found.reads
        real = [i for i, one in enumerate(reads) if not one.special or i == self.selected]
        return sorted(
            real, key=lambda i: (i != self.selected, -max(reads[i].looked, reads[i].matters))
        )

    def _shares(self) -> str:
        """The probability of the written word; after a cut, also of the one written instead."""
        found, read = self.found, self.read
        if found.kind == "vector":
            return f"cosine {read.probability if self.cut else 1:.2f}"
        told = f"{found.word} {percent(read.probability if self.cut else found.probability)}"
        names = [word for word, _ in found.alternatives]
        if self.cut and read.flips and read.writes in names:
            told += f", {read.writes} {percent(read.probabilities[names.index(read.writes)])}"
        return told

    def _alignment(
        self, at: dict[int, Placed], to: dict[int, Placed], top: Number, bottom: Number
    ) -> list[str]:
        """Thin lines between written words and those they are aligned with."""
        return [
            tag("path", d=_curve(at[b].x, top, to[a].x, bottom), stroke_width=1.6, **line("rule"))
            for a, b in self.found.alignment
            if a != self.found.written_at and a in to and b in at
        ]

    def _ribbon(self, *ends: Number) -> str:
        width, dashes = max(1.5, THICK * self.read.looked), None
        if self.cut:
            width, dashes = 3, "3 9"
        return tag("path", d=_curve(*ends), stroke_width=width, stroke_dasharray=dashes,
                   stroke_linecap="round", **line("cut" if self.cut else "accent"))  # fmt: skip

    def _pill(self, x: Number, y: Number) -> str:
        """The weight, or scissors, in the middle of the ribbon."""
        colour = "cut" if self.cut else "accent"
        box = tag("rect", x=x - 26, y=y - 13, width=52, height=26, rx=13, stroke_width=1.5,
                  **boxed("paper", colour))  # fmt: skip
        if self.cut:
            return box + _scissors(x, y)
        looked = f"{self.read.looked:.2f}"
        return box + text(looked, x, y, size=14, weight=600, anchor="middle", colour=colour)

    def _output(self) -> tuple[Sequence[str], Sequence[int]]:
        """The words of the output, and their places in it before the cut."""
        if self.cut:
            return self.read.output, self.read.places
        return self.found.output, range(len(self.found.output))

    def _written(self, one: Placed, y: Number, size: Number, *, strike: bool) -> str:
        """A word of the output; one that a cut changes has what was written before below it."""
        if one.number < 0:
            return _word(one, y, size)
        words, places = self._output()
        was = places[one.number]
        before = self.found.output[was] if was >= 0 else ""
        if words[one.number] == before:
            return _word(one, y, size, "on" if was == self.found.written_at else "")
        mark = ""
        if strike and before:
            old, below = plain(before), y + 0.78 * size + 9
            half = text_width(old, 12) / 2
            mark = text(old, one.x, below, size=12, anchor="middle", colour="soft")
            mark += tag("path", d=f"M{num(one.x - half)} {num(below)}h{num(2 * half)}",
                        **line("soft"))  # fmt: skip
        return mark + _word(one, y, size, "flip")

    def _choices(self) -> tuple[str, Number]:
        """A bar for each alternative, with a mark for what it was before the cut."""
        found, read, cut = self.found, self.read, self.cut
        if found.kind == "vector":
            rows = [("cosine", 1.0, read.probability if cut else 1.0)]
        else:
            rows = [
                (word, p, read.probabilities[i] if cut else p)
                for i, (word, p) in enumerate(found.alternatives)
            ]
        marks = [_bold_and_soft(found.labels["choices"], found.labels["before"], LEFT)]
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

    def _columns(self) -> tuple[str, Number]:
        """For each input word, a hollow bar for attention and a solid one for the cost of a cut."""
        found, width = self.found, WIDTH - 2 * INSET - LEFT - 52
        shown = sorted(self._by_worth()[: found.columns])
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
            ink = ("cut" if self.cut else "accent") if i == self.selected else "soft"
            marks.append(text(plain(read.word), x, floor + 13, size=11.5, room=pitch - 3,
                               anchor="middle", colour=ink))  # fmt: skip
        return "".join(marks) + _key(found, floor + 36), floor + 46


def _scissors(x: Number, y: Number) -> str:
    """Scissors as lines, since few fonts have them."""
    d = "M-3.5 -2.5L7 4M-3.5 2.5L7 -4M-8 -4a2.3 2.3 0 1 0 4.6 0a2.3 2.3 0 1 0 -4.6 0"
    d += "M-8 4a2.3 2.3 0 1 0 4.6 0a2.3 2.3 0 1 0 -4.6 0"
    drawn = tag("path", d=d, stroke_width=1.4, stroke_linecap="round", **line("cut"))
    return moved(drawn, x, y)


def _curve(x1: Number, y1: Number, x2: Number, y2: Number) -> str:
    bend = 0.55 * (y2 - y1)
    points = (x1, y1, x1, y1 + bend, x2, y2 - bend, x2, y2)
    return "M{} {}C{} {} {} {} {} {}".format(*map(num, points))


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


def _bold_and_soft(bold: str, rest: str, room: Number) -> str:
    left = room - text_width(bold, 13 * BOLD) - 8
    strong = tag("tspan", escape(bold), font_weight=600, **fill("ink"))
    soft = tag("tspan", escape(f" {shorten(rest, left, 13)}"), **fill("soft")) if rest else ""
    return tag("text", strong, soft, x=0, y=12.6, font_size=13)


def _key(found: Finding, y: Number) -> str:
    looked, lost = found.labels["looked"], found.labels["lost"]
    x = 32 + text_width(looked, 12)
    return (
        tag("rect", x=0.5, y=y - 5, width=9, height=9, rx=2, stroke_width=1.2, **line("dim"))
        + text(looked, 16, y, size=12, colour="soft")
        + tag("rect", x=x, y=y - 5, width=10, height=10, rx=2, **fill("cut"))
        + text(lost, x + 16, y, size=12, room=260, colour="soft")
    )
