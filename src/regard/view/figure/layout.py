"""Where the words of the figure stand: one line each if they fit, several if not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from regard.view.svg import Number, right_to_left, shorten, text_width

LARGE, SMALL = 20, 15
"""Font sizes: the first that fits is taken."""
PAD = 6
"""Between a word and the edge of its box."""
GAP = 6
"""Between two boxes, at least."""
ROOMY = 26
"""Between two boxes of a line that is not justified."""


@dataclass(frozen=True)
class Placed:
    """A word of the figure: where its middle stands, and in which line."""

    number: int
    """Of the word in the text; -1 for an ellipsis."""
    word: str
    x: Number
    line: int


def size_for(rows: Sequence[Sequence[str]], width: Number) -> int:
    """The largest font size at which every row fits into one line; else the smallest."""
    for size in range(LARGE, SMALL, -1):
        if all(_wide(row, size) <= width for row in rows):
            return size
    return SMALL


def place(
    words: Sequence[str], width: Number, size: Number, *, wanted: Iterable[int] = (), most: int = 8
) -> list[Placed]:
    """The words in lines; of many lines, those that have the `wanted` words, in that order.

    A single line is spread over the width, a single word stands at its end. Text that runs from
    right to left begins at the right.
    """
    shown = [shorten(word, width / 2, size) for word in words]
    boxes = [text_width(word, size) + 2 * PAD for word in shown]
    if len(words) == 1:
        return [Placed(0, shown[0], width - boxes[0] / 2, 0)]
    lines = _lines(boxes, width)
    gap = float(GAP)
    if len(lines) == 1:
        gap = (width - sum(boxes)) / (len(boxes) - 1)
        gap = min(gap, 4.0 * ROOMY) if len(boxes) < 4 else gap
    kept, turned = _kept(lines, wanted, most), right_to_left(" ".join(words))
    placed: list[Placed] = []
    for row, number in enumerate(kept):
        x = 0.0
        skipped = row > 0 and number != kept[row - 1] + 1
        if skipped or (row == 0 and number > 0):
            placed.append(Placed(-1, "…", 8.0, row))
            x = 20.0
        for i in lines[number]:
            placed.append(Placed(i, shown[i], x + boxes[i] / 2, row))
            x += boxes[i] + gap
    if turned:
        return [replace(one, x=width - one.x) for one in placed]
    return placed


def _wide(words: Sequence[str], size: Number) -> Number:
    return sum(text_width(word, size) + 2 * PAD + GAP for word in words)


def _lines(boxes: Sequence[Number], width: Number) -> list[list[int]]:
    """The numbers of the words in each line; a line leaves room for an ellipsis."""
    if sum(boxes) + GAP * (len(boxes) - 1) <= width:
        return [list(range(len(boxes)))]
    lines: list[list[int]] = [[]]
    used = 20.0
    for i, box in enumerate(boxes):
        if lines[-1] and used + box > width:
            lines.append([])
            used = 20.0
        lines[-1].append(i)
        used += box + GAP
    return lines


def _kept(lines: Sequence[Sequence[int]], wanted: Iterable[int], most: int) -> list[int]:
    """The numbers of the lines that are shown."""
    if len(lines) <= most:
        return list(range(len(lines)))
    of = {word: number for number, line in enumerate(lines) for word in line}
    order = dict.fromkeys([*(of[word] for word in wanted), *range(len(lines))])
    return sorted(list(order)[:most])
