"""Links between words: what attends to what, as lines from one column to another."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import SupportsFloat, SupportsIndex

import numpy as np

from regard.errors import OptionError, ShapeError
from regard.view.colour import PALETTE, legible, mix
from regard.view.numbers import Array, Numbers, array, decimals, names, written
from regard.view.picture import Picture, titled
from regard.view.svg import BOLD, DIM, INK, SMALL_SIZE, SOFT, Number, label, num, tag, widest

WORD_ROOM = 130
WORD_SIZE = 14
PITCH = 26  # from one word to the next
GAP = 12  # between a word and its lines
SPAN = 190  # between the columns


def links(
    weights: Numbers,
    left: Sequence[object],
    right: Sequence[object] | None = None,
    *,
    title: str = "",
    colours: Sequence[str] | None = None,
    heads: Sequence[object] | None = None,
    threshold: SupportsFloat = 0.0,
    focus: SupportsIndex | Sequence[SupportsIndex] | None = None,
) -> Picture:
    """Two columns of words, and from each word on the left lines to those it attends to.

    A line is as wide and as dark as its weight; those at or below ``threshold`` are not drawn.
    ``weights`` is ``(q, k)``, or ``(h, q, k)`` with a colour ("#rrggbb") per head; NaN and −inf
    are masked. ``right`` is ``left`` again unless given. ``heads`` names the heads, else they are
    numbered from 0. ``focus``, an index or several into ``left``, leaves only the lines of those
    words; with one, the numbers stand at the right.

    >>> words = ["the", "cat", "sat"]
    >>> picture = links([[0.7, 0.2, 0.1], [0, 1, 0], [0, 0.5, 0.5]], words, focus=2)
    >>> picture.svg().count('class="link"')
    2
    """
    per_head = _heads(weights)
    from_words, to_words = _words(left, right, per_head)
    focused = _focused(focus, len(from_words))
    count = len(per_head)
    inks = _inks(colours, count)
    numbered = [f"head {head}" for head in range(count)]
    if heads is not None:
        numbered = names("links: heads", heads, count, f"weights has h={count}", "head")
    drawn = per_head > float(threshold)
    if focused is not None:
        drawn &= np.isin(np.arange(len(from_words)), focused)[:, None]
    kept = np.where(drawn, per_head, 0.0)

    rows = max(len(from_words), len(to_words))
    starts, ends = (
        [((rows - len(words)) / 2 + i + 0.5) * PITCH for i in range(len(words))]
        for words in (from_words, to_words)
    )
    size = WORD_SIZE if focused is None else WORD_SIZE * BOLD
    near = math.ceil(min(widest(from_words, size), WORD_ROOM)) + GAP
    far = near + SPAN
    marks = [_strands(kept, inks, starts, ends, near, far)]
    for i, word in enumerate(from_words):
        fill, weight = (
            (INK, None) if focused is None else (INK, 600) if i in focused else (DIM, None)
        )
        marks.append(label(word, near - GAP, starts[i], size=WORD_SIZE, room=WORD_ROOM,
                           anchor="end", fill=fill, weight=weight, class_="left"))  # fmt: skip
    received = kept.max(axis=(0, 1)) / (kept.max() or 1)
    for j, word in enumerate(to_words):
        fill = INK if focused is None else mix(DIM, INK, float(received[j]))
        marks.append(label(word, far + GAP, ends[j], size=WORD_SIZE, room=WORD_ROOM,
                           fill=fill, class_="right"))  # fmt: skip
    edge: Number = far + GAP + math.ceil(min(widest(to_words, WORD_SIZE), WORD_ROOM))
    if focused is not None and len(focused) == 1:
        text, edge = _numbers(kept[:, focused[0]], inks, ends, edge)
        marks.append(text)
    bottom: Number = rows * PITCH
    if count > 1:
        text, bottom = _head_names(numbered, inks, (near + far) / 2, bottom)
        marks.append(text)
    spoken = f"links from {len(from_words)} words to {len(to_words)}"
    return titled(title, spoken, "".join(marks), 0, 0, edge, bottom)


def _heads(weights: Numbers) -> Array:
    heads = array("links: weights", weights, "[h], q, k")
    heads = np.where(np.isnan(heads) | np.isneginf(heads), 0.0, heads)
    wrong = heads[(heads < 0) | np.isposinf(heads)]
    if wrong.size:
        raise OptionError(
            f"links: weights expected finite and ≥ 0, got {wrong[0]:g}; give weights, not scores"
        )
    return heads


def _words(
    left: Sequence[object], right: Sequence[object] | None, heads: Array
) -> tuple[list[str], list[str]]:
    _, q, k = heads.shape
    from_words = names("links: left", left, q, f"weights has q={q}", "query")
    if right is not None:
        return from_words, names("links: right", right, k, f"weights has k={k}", "key")
    if q != k:
        raise ShapeError(
            f"links: right expected, because weights has q={q} but k={k}, got None; "
            "give one label per key"
        )
    return from_words, from_words


def _focused(focus: SupportsIndex | Sequence[SupportsIndex] | None, words: int) -> list[int] | None:
    if focus is None:
        return None
    found = np.atleast_1d(np.asarray(focus))
    if found.dtype.kind not in "iu" or found.min() < -words or found.max() >= words:
        raise OptionError(
            f"links: focus expected an index of left (0 … {words - 1}) or several, got {focus!r}; "
            "left.index(word) finds one"
        )
    return sorted({int(index) % words for index in found})


def _inks(colours: Sequence[str] | None, heads: int) -> Sequence[str]:
    if colours is None:
        if heads > len(PALETTE):
            raise OptionError(
                f"links: colours expected for h={heads} heads, got None, and only "
                f"{len(PALETTE)} can be told apart; choose among the heads or give colours"
            )
        return PALETTE[:heads]
    if len(colours) != heads:
        raise ShapeError(
            f"links: colours has {len(colours)} but weights has h={heads}; give one per head"
        )
    for colour in colours:
        if not re.fullmatch("#[0-9a-fA-F]{6}", colour):
            raise OptionError(
                f'links: colours expected "#rrggbb", got {colour!r}; write it like that'
            )
    return colours


def _strands(
    kept: Array,
    inks: Sequence[str],
    starts: list[float],
    ends: list[float],
    near: Number,
    far: Number,
) -> str:
    """The lines, weakest first, with a small offset between heads."""
    full = max(1.0, float(kept.max()))
    middle = num((near + far) / 2)
    apart = min(5, 16 / len(kept))
    groups: list[str] = []
    for head, (weights, ink) in enumerate(zip(kept, inks, strict=True)):
        shift = (head - (len(kept) - 1) / 2) * apart
        strands: list[str] = []
        for flat in np.argsort(weights, axis=None, kind="stable").tolist():
            i, j = divmod(flat, len(ends))
            if share := float(weights[i, j]) / full:
                y, z = num(starts[i] + shift), num(ends[j] + shift)
                d = f"M{num(near)} {y}C{middle} {y} {middle} {z} {num(far)} {z}"
                width, opacity = 0.6 + 7.4 * share, 0.18 + 0.72 * math.sqrt(share)
                strands.append(tag("path", class_="link", d=d, stroke_width=width, opacity=opacity))
        groups.append(tag("g", *strands, fill="none", stroke=ink) if strands else "")
    return "".join(groups)


def _numbers(
    weights: Array, inks: Sequence[str], ends: list[float], edge: Number
) -> tuple[str, Number]:
    """The weights of one word, a column per head, and the right edge of the last column."""
    places = decimals(weights[weights > 0].tolist())
    marks: list[str] = []
    for row, ink in zip(weights.tolist(), inks, strict=True):
        texts = [written(weight, places) if weight else "" for weight in row]
        edge += 16 + math.ceil(widest(texts, 12.5))
        marks += [
            label(text, edge, y, size=12.5, anchor="end", fill=legible(ink), class_="value")
            for text, y in zip(texts, ends, strict=True)
            if text
        ]
    return "".join(marks), edge


def _head_names(
    numbered: Sequence[str], inks: Sequence[str], middle: Number, top: Number
) -> tuple[str, Number]:
    """The legend, a stroke and a name per head, and its lower edge."""
    step, per_row = 76, 3
    marks: list[str] = []
    for head, ink in enumerate(inks):
        row, place = divmod(head, per_row)
        in_row = min(per_row, len(inks) - row * per_row)
        x, y = middle + (place - in_row / 2) * step + 6, top + 22 + row * 18
        stroke = f"M{num(x)} {num(y)}h14"
        marks.append(tag("path", class_="legend", d=stroke, stroke=ink, stroke_width=4))
        marks.append(
            label(numbered[head], x + 20, y, size=SMALL_SIZE, room=54, fill=SOFT, class_="legend")
        )
    return "".join(marks), top + 30 + (len(inks) - 1) // per_row * 18
