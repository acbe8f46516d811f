"""`Table`: numbers by word and column, described once; as text, as a picture, and for the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.cells import cell_len

from regard.view.colour import PALETTE
from regard.view.figure.wording import clean
from regard.view.image import heatmap
from regard.view.numbers import Array
from regard.view.picture import Picture, titled
from regard.view.svg import (
    BOLD,
    INK,
    SMALL_SIZE,
    SOFT,
    Number,
    label,
    moved,
    tag,
    visible,
    widest,
    wrap,
)

FOREMOST = 24
"""Most rows of a table of bars."""
BAR = 24
"""Columns of the longest bar of a text."""
PITCH, COLUMN = 27, 168
"""Height of a row and width of a column of a picture."""


@dataclass(frozen=True)
class Table:
    """Rows and columns of numbers: as bars, each column with a scale of its own, or as a map.

    >>> print(Table("cat", ["the", "sat"], [""], np.array([[0.75], [0.25]])).text())
    cat
    the  0.750  ██████████████████
    sat  0.250  ██████
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Array
    """``(rows, columns)``; nan where unknown."""
    notes: Sequence[str] = ()
    """A short explanation of each column."""
    sentence: str = ""
    """The conclusion."""
    footer: str = ""
    is_map: bool = False
    places: int = 2

    def foremost(self) -> Table:
        """The `FOREMOST` rows that are strongest in any column, in their order."""
        sizes = np.abs(np.nan_to_num(self.values))
        worth = (sizes / np.maximum(sizes.max(0), 1e-300)).max(1)
        if len(worth) <= FOREMOST:
            return self
        kept = sorted(int(i) for i in np.argsort(-worth, kind="stable")[:FOREMOST])
        return replace(
            self, rows=[self.rows[i] for i in kept], values=self.values[kept],
            footer=f"The top {FOREMOST} of {len(worth):,} words.",
        )  # fmt: skip

    def data(self) -> dict[str, Any]:
        """The table as JSON data for the page."""
        return {
            "title": self.title,
            "rows": list(self.rows),
            "columns": list(self.columns),
            "notes": list(self.notes),
            "values": [[None if np.isnan(x) else float(f"{x:.5g}") for x in row]
                       for row in self.values],
            "footer": self.footer,
        }  # fmt: skip

    def text(self) -> str:
        """The table for a terminal; the largest number of each of several columns has a star."""
        single = len(self.columns) == 1 and not self.is_map
        body = self._bars() if single else self._numbers()
        notes = [
            f"{name}: {note}" for name, note in zip(self.columns, self.notes, strict=False) if note
        ]
        name = self.columns[0] if single else ""
        lines = [shown(self.title), name, *body, *notes, self.footer, self.sentence]
        return "\n".join(line.rstrip() for line in lines if line)

    def _bars(self) -> list[str]:
        wide, column = max(map(_wide, self.rows)), self.values[:, 0]
        return [
            f"{_padded(row, wide)}  {fixed(x, 3)}  {'█' * round(BAR * min(max(x, 0), 1))}"
            for row, x in zip(self.rows, column, strict=True)
        ]

    def _numbers(self) -> list[str]:
        wide = max(map(_wide, self.rows))
        widths = [max(self.places + 2, _wide(name)) + 2 for name in self.columns]
        best = None if self.is_map else np.nanargmax(self.values, 0)
        star = "" if best is None else " "
        head = [_padded(name, w, right=True) for name, w in zip(self.columns, widths, strict=True)]
        lines = [" " * wide + star.join(head)]
        for i, row in enumerate(self.rows):
            cells = [
                f"{fixed(x, self.places):>{w}}"
                + ("*" if best is not None and best[j] == i else star)
                for j, (x, w) in enumerate(zip(self.values[i], widths, strict=True))
            ]
            lines.append(_padded(row, wide) + "".join(cells))
        return lines

    def picture(self) -> Picture:
        """The table as a picture."""
        if self.is_map:
            named = len(self.rows) * len(self.columns) > 0
            return heatmap(
                self.values, rows=self.rows if named else None,
                columns=self.columns if named else None, title=self.title, low=0,
            )  # fmt: skip
        left = math.ceil(min(widest(self.rows, 14 * BOLD), 150)) + 22
        width = max(left + COLUMN * len(self.columns) - 26, 320)
        marks: list[str] = []
        y: Number = 0
        for line in wrap(self.sentence, max(width, 420), 14):
            marks.append(label(line, 0, y + 7, size=14, class_="sentence"))
            y += 22
        y += 12 if y else 0
        for j, name in enumerate(self.columns):
            x = left + j * COLUMN
            if name:
                marks.append(label(name.capitalize(), x, y + 8, weight=600, class_="column"))
            if self.notes:
                marks.append(label(self.notes[j], x, y + 26, size=SMALL_SIZE, room=COLUMN - 12,
                                   fill=SOFT, class_="note"))  # fmt: skip
        y += 50 if any(self.columns) else 10
        for i, row in enumerate(self.rows):
            marks.append(label(row, 0, y, size=14, room=150, class_="word"))
            for j, column in enumerate(self.values.T):
                marks.append(moved(_svg_bar(column, i), left + j * COLUMN, y))
            y += PITCH
        if self.footer:
            marks.append(label(self.footer, 0, y, size=SMALL_SIZE, fill=SOFT, class_="footer"))
            y += 18
        return titled(self.title, self.title, "".join(marks), 0, 0, width, y - 10)


def _svg_bar(values: Array, i: int) -> str:
    """A number and its bar; the largest number of the column is bold."""
    if np.isnan(values[i]):
        return label("·", 38, 0, size=12.5, anchor="end", fill=SOFT, class_="value")
    low, high = min(0.0, float(np.nanmin(values))), max(0.0, float(np.nanmax(values)))
    span, value = (high - low) or 1.0, float(values[i])
    best = i == int(np.nanargmax(values))
    start = 46 + 92 * (min(value, 0) - low) / span
    bar = {"x": start, "y": -5, "width": 92 * abs(value) / span, "height": 10, "rx": 1}
    number = label(
        fixed(value), 38, 0, size=12.5, anchor="end", fill=INK if best else SOFT,
        weight=600 if best else None, class_="value",
    )  # fmt: skip
    return number + tag("rect", class_="bar", **bar, fill=PALETTE[1 if value < 0 else 0])


def fixed(value: Number, places: int = 2) -> str:
    """A number with a true minus; a dot for nan.

    >>> fixed(-0.001), fixed(-1.5), fixed(math.nan)
    ('0.00', '−1.50', '·')
    """
    if math.isnan(value):
        return "·"
    return f"{value:z.{places}f}".replace("-", "−")


def shown(text: str) -> str:
    """Text without control sequences, safe to print to a terminal."""
    return clean(visible(text))


def _wide(text: str) -> int:
    return cell_len(shown(text))


def _padded(text: str, wide: int, right: bool = False) -> str:
    room = " " * (wide - _wide(text))
    return room + shown(text) if right else shown(text) + room
