"""The views as pictures, for a paper or a page."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from regard.errors import OptionError
from regard.view import _grids
from regard.view._colour import PALETTE, channels, ramp
from regard.view._data import Array
from regard.view._svg import (
    BOLD,
    GRID,
    INK,
    RULE,
    SMALL_SIZE,
    SOFT,
    Number,
    label,
    moved,
    num,
    tag,
    text_width,
    widest,
    wrap,
)
from regard.view.chart import lines as line_chart
from regard.view.choice import Choice
from regard.view.graph import links
from regard.view.image import heatmap
from regard.view.picture import Picture, titled
from regard.view.records import Compared, Explained, Layer, Side, Text
from regard.view.terminal import head_names, mean_entropies

MOST_LINKED = 80
"""Words up to which lines between two columns can be told apart."""
STRONGEST = 40
"""Of a longer text, the words that are drawn for one that looks at them."""
SIDE = 256
MAP = 24
"""Cells along the side of a small map."""
INKS = PALETTE[:7]


def head(choice: Choice, threshold: Number) -> Picture:
    """Lines from the words that ask to those they look at, a colour per head."""
    title = f"{choice.layer.name}, {head_names(choice.heads)}"
    colours = [INKS[head % len(INKS)] for head in choice.heads]
    legend = [f"head {head}" for head in choice.heads]
    asking = choice.asking
    if max(len(choice.queries), len(choice.keys)) <= MOST_LINKED:
        names = [unit.label for unit in choice.queries], [unit.label for unit in choice.keys]
        return links(
            choice.weights(), *names, title=title, colours=colours, heads=legend,
            threshold=threshold, focus=asking,
        )  # fmt: skip
    if asking is None:
        raise OptionError(
            f"picture: word expected for lines between {len(choice.queries)} and "
            f"{len(choice.keys)} words, got None; name the word that asks, or draw the matrix"
        )
    row = choice.weights([choice.queries[asking]])
    best = np.sort(np.argsort(-row.mean((0, 1)), kind="stable")[:STRONGEST])
    title += f": the {len(best)} of {len(choice.keys)} words it looks at most"
    return links(
        row[:, :, best], [choice.queries[asking].label], [choice.keys[i].label for i in best],
        title=title, colours=colours, heads=legend, threshold=threshold, focus=0,
    )  # fmt: skip


def matrix(choice: Choice) -> Picture:
    """The map of one head; a long text's in blocks, each the mean of its cells."""
    title = f"{choice.layer.name}, head {choice.head}"
    grid = _grids.pooled(choice.layer, choice.head, choice.queries, choice.keys, SIDE)
    if grid.shape == (len(choice.queries), len(choice.keys)):
        if choice.layer.sizes[1] <= SIDE:
            grid = np.where(_masked(choice), np.nan, grid)
        rows, columns = ([unit.label for unit in side] for side in (choice.queries, choice.keys))
        return heatmap(grid, rows=rows, columns=columns, title=title, low=0)
    return heatmap(grid, title=f"{title}, {len(choice.queries)} × {len(choice.keys)} words", low=0)


def _masked(choice: Choice) -> npt.NDArray[np.bool_]:
    """Where no token of the one word may look at any token of the other."""
    scores = _grids.headed(choice.layer.look.scores(heads=[choice.head]), 2)
    seen = np.isfinite(scores).astype(np.float64)
    return np.asarray(_grids.merged(seen, choice.queries, choice.keys)[0] == 0)


def overview(layers: Sequence[Layer]) -> Picture:
    """Every head of every layer as a small map, its entropy a bar below."""
    side, gap, room = 44, 10, 18
    left = math.ceil(widest([layer.name for layer in layers])) + 16
    marks: list[str] = []
    most = max(layer.heads for layer in layers)
    for head in range(most):
        at = left + head * (side + gap) + side / 2
        marks.append(label(str(head), at, 8, size=SMALL_SIZE, fill=SOFT, anchor="middle"))
    for i, layer in enumerate(layers):
        y = 22 + i * (side + room)
        marks.append(label(layer.name, 0, y + side / 2, fill=SOFT, class_="layer"))
        for head, entropy in enumerate(mean_entropies(layer)):
            x = left + head * (side + gap)
            marks.append(_small_map(layer, head, x, y, side))
            bar = {"y": y + side + 4, "height": 3, "rx": 1.5}
            marks.append(tag("rect", x=x, width=side, **bar, fill=GRID))
            width = max(side * min(entropy, 1.0), 1)
            marks.append(tag("rect", x=x, width=width, **bar, fill=SOFT, class_="entropy"))
    right: Number = left + most * (side + gap) - gap
    bottom = 22 + len(layers) * (side + room)
    note = "bars: entropy, short where each word looks at few others"
    marks.append(label(note, left, bottom + 8, size=SMALL_SIZE, fill=SOFT))
    right = max(right, left + text_width(note, SMALL_SIZE))
    spoken = f"{len(layers)} layers of attention, a small map per head"
    return titled("", spoken, "".join(marks), 0, 0, math.ceil(right), bottom + 18)


def _small_map(layer: Layer, head: int, x: Number, y: Number, side: int) -> str:
    """The map of a head as an image, so that a hundred of them stay a small file."""
    units = [Text.of([""] * size).units() for size in layer.sizes]
    grid = _grids.pooled(layer, head, units[0], units[1], MAP)
    grid = np.sqrt(grid / (grid.max() or 1))
    pixels = np.array([[channels(ramp(float(v))) for v in row] for row in grid], dtype=np.uint8)
    times = max(1, 96 // max(grid.shape))  # whole squares, so that no program smooths them away
    pixels = pixels.repeat(times, 0).repeat(times, 1)
    data = base64.b64encode(_png(pixels)).decode("ascii")
    return tag(
        "image", class_="map", x=x, y=y, width=side, height=side, preserveAspectRatio="none",
        href=f"data:image/png;base64,{data}",
    )  # fmt: skip


def _png(pixels: np.ndarray) -> bytes:
    """Colours ``(rows, columns, 3)`` of 8 bits as a PNG file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    high, wide, _ = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines, 9)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def explain(explained: Explained, texts: Mapping[str, Text]) -> Picture:
    """The answers side by side: a row per word, a column of bars per method."""
    words = texts[explained.looked_at].words
    values = [method.values(len(words)) for method in explained.methods]
    shown = _strongest_words(values)
    left = math.ceil(min(widest([words[i] for i in shown], 14 * BOLD), 150)) + 22
    column, pitch = 168, 27
    width = left + column * len(values) - 26
    marks: list[str] = []
    y: Number = 0
    for line in wrap(explained.sentence, max(width, 420), 14):
        marks.append(label(line, 0, y + 7, size=14, class_="sentence"))
        y += 22
    y += 12 if y else 0
    for j, method in enumerate(explained.methods):
        x = left + j * column
        marks.append(label(method.name.capitalize(), x, y + 8, weight=600, class_="method"))
        said = method.note
        if method.agreement is not None:
            said = f"agrees with knockout {_fixed(method.agreement)}"
        marks.append(label(said, x, y + 26, size=SMALL_SIZE, room=column - 12, fill=SOFT,
                           class_="agreement"))  # fmt: skip
    y += 50
    for row, i in enumerate(shown):
        at = y + row * pitch
        marks.append(label(words[i], 0, at, size=14, room=150, class_="word"))
        for j, scores in enumerate(values):
            marks.append(moved(_score_bar(scores, i), left + j * column, at))
    word = texts[explained.text].words[explained.word]
    title = f"What “{word}” depends on"
    bottom = y + pitch * len(shown) - 10
    return titled(title, title, "".join(marks), 0, 0, max(width, 420), bottom)


def _strongest_words(values: Sequence[Array], most: int = 24) -> list[int]:
    """All words, or of many those that some method finds strongest, in their order."""
    worth = np.nanmax([np.abs(x) / (np.nanmax(np.abs(x)) or 1) for x in values], axis=0)
    if len(worth) <= most:
        return list(range(len(worth)))
    return sorted(int(i) for i in np.argsort(-worth, kind="stable")[:most])


def _score_bar(scores: Array, i: int) -> str:
    if np.isnan(scores[i]):
        return label("·", 38, 0, size=12.5, anchor="end", fill=SOFT, class_="value")
    low, high = min(0.0, float(np.nanmin(scores))), max(0.0, float(np.nanmax(scores)))
    span, score = (high - low) or 1.0, float(scores[i])
    best = i == int(np.nanargmax(scores))
    start = 46 + 92 * (min(score, 0) - low) / span
    bar = {"x": start, "y": -5, "width": 92 * abs(score) / span, "height": 10, "rx": 1}
    number = label(
        _fixed(score), 38, 0, size=12.5, anchor="end", fill=INK if best else SOFT,
        weight=600 if best else None, class_="value",
    )  # fmt: skip
    return number + tag("rect", class_="bar", **bar, fill=PALETTE[1 if score < 0 else 0])


def compare(compared: Compared) -> Picture:
    """The two sentences with what pulled the word, and the cosine by layer below."""
    blocks = [
        _side(side, ink) for side, ink in ((compared.one, PALETTE[0]), (compared.other, PALETTE[1]))
    ]
    tall = max(height for _, height in blocks)
    marks: list[str] = []
    y: Number = 0
    for line in wrap(compared.sentence, 620, 14):
        marks.append(label(line, 0, y + 7, size=14, class_="sentence"))
        y += 22
    y += 14 if y else 0
    for i, (body, _) in enumerate(blocks):
        marks.append(moved(body, 340 * i, y))
    cosines = compared.values()
    name = f"cosine of the two “{compared.word}”"
    chart = line_chart({"": (np.arange(len(cosines)), cosines)}, x="after layer", y=name)
    marks.append(moved(chart.body, 0, y + tall + 26))
    bottom = y + tall + 26 + chart.height
    title = f"“{compared.word}” in two sentences"
    return titled(title, title, "".join(marks), 0, 0, max(660, chart.width), bottom)


def _side(side: Side, ink: str) -> tuple[str, Number]:
    """One sentence, and below it what pulled the word, its neighbours and its translation."""
    marks = [tag("path", d="M0 0h312", stroke=ink, stroke_width=2)]
    said = " ".join(f"[{w}]" if i == side.place else w for i, w in enumerate(side.words))
    y: Number = 18
    for line in wrap(said, 312, 14):
        marks.append(label(line, 0, y, size=14, class_="sentence"))
        y += 21
    for title, pairs in (("pulled by", side.pulled), ("nearest", side.neighbours)):
        if not pairs:
            continue
        marks.append(label(title, 0, y + 8, size=SMALL_SIZE, fill=SOFT))
        y += 28
        most = max(abs(float(value)) for _, value in pairs) or 1.0
        for word, value in pairs:
            marks.append(label(word, 0, y, room=110, class_="word"))
            marks.append(label(_fixed(value), 160, y, size=12.5, anchor="end", fill=SOFT))
            width = 140 * abs(float(value)) / most
            marks.append(tag("rect", x=172, y=y - 4, width=width, height=8, fill=ink, rx=1))
            y += 21
    if side.translation:
        marks.append(label("translated as", 0, y + 8, size=SMALL_SIZE, fill=SOFT))
        y += 28
        for line in wrap(side.translation, 312, 13):
            marks.append(label(line, 0, y, class_="translation"))
            y += 19
    marks.append(tag("path", d=f"M0 {num(y)}h312", stroke=RULE))
    return "".join(marks), y + 2


def _fixed(value: Number) -> str:
    text = f"{value:.2f}"
    return ("0.00" if text == "-0.00" else text).replace("-", "−")
