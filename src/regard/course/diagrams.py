"""Diagrams of the Transformer and its parts; boxes name the objects of regard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from regard.view import Picture

ATTENTION, NETWORK, NORM, TABLE, OUTPUT, PLAIN = (
    "#cfe3f3", "#fbe0c4", "#e8eaed", "#cdebdf", "#f1d9e6", "#ffffff",
)  # fmt: skip
LINE, SOFT, DARK = "#5b6470", "#626a76", "#1b629f"
MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"
HEIGHT, GAP, WIDTH = 42, 18, 220
Number = int | float
Point = tuple[Number, Number]


class Canvas:
    """The SVG elements of a diagram: boxes, arrows, texts and vectors as cells."""

    def __init__(self) -> None:
        self.marks: list[str] = []

    def text(self, text: str, x: Number, y: Number, *, size: Number = 13, anchor: str = "middle",
             mono: bool = False, bold: bool = False, fill: str = "#1f2430") -> None:  # fmt: skip
        """A vertically centred text."""
        family = f' font-family="{MONO}"' if mono else ""
        weight = ' font-weight="600"' if bold else ""
        self.marks.append(
            f'<text x="{x:g}" y="{y + 0.355 * size:g}" font-size="{size:g}" fill="{fill}" '
            f'text-anchor="{anchor}"{family}{weight}>{escape(text)}</text>'
        )

    def box(self, x: Number, y: Number, title: str, name: str = "", fill: str = PLAIN,
            width: Number = WIDTH, height: Number = HEIGHT) -> None:  # fmt: skip
        """A box with a title and the name of its object."""
        self.frame(x, y, width, height, fill)
        middle = y + height / 2
        self.text(title, x + width / 2, middle - 8 if name else middle, bold=bool(name))
        if name:
            self.text(name, x + width / 2, middle + 9, size=11, mono=True, fill=SOFT)

    def frame(self, x: Number, y: Number, width: Number, height: Number, fill: str = "none",
              dashed: bool = False) -> None:  # fmt: skip
        """A rounded rectangle."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.marks.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" '
            f'fill="{fill}" stroke="{LINE}" stroke-width="1"{dash}/>'
        )

    def arrow(self, *points: Point, head: bool = True) -> None:
        """A line through the points, with a head on its vertical or horizontal end."""
        path = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
        self.marks.append(f'<path d="{path}" fill="none" stroke="{LINE}" stroke-width="1.3"/>')
        if head:
            (before_x, before_y), (x, y) = points[-2:]
            dx, dy = (x > before_x) - (x < before_x), (y > before_y) - (y < before_y)
            back_x, back_y = x - 7 * dx, y - 7 * dy
            sides = (
                f"{back_x + 4 * dy:g},{back_y + 4 * dx:g} {back_x - 4 * dy:g},{back_y - 4 * dx:g}"
            )
            self.marks.append(f'<polygon points="{x:g},{y:g} {sides}" fill="{LINE}"/>')

    def cells(
        self, x: Number, y: Number, values: Sequence[Number], most: Number, size: Number
    ) -> None:
        """A vector as cells: blue above zero, orange below, darker the larger."""
        for i, value in enumerate(values):
            ink = "#0072b2" if value >= 0 else "#d55e00"
            shade = min(1.0, abs(value) / most) if most else 0.0
            place = f'x="{x + i * size:g}" y="{y:g}" width="{size:g}" height="{size:g}"'
            self.marks.append(f'<rect {place} fill="#ffffff"/>')
            self.marks.append(
                f'<rect {place} fill="{ink}" fill-opacity="{shade:.2f}" stroke="{LINE}" '
                f'stroke-width="0.8"><title>{value:.3f}</title></rect>'
            )

    def picture(self, width: Number, height: Number, title: str) -> Picture:
        return Picture(width, height, "".join(self.marks), title)


def _pile(
    canvas: Canvas, x: Number, bottom: Number, boxes: Sequence[tuple[str, str, str]]
) -> list[Number]:
    """Draw boxes from the bottom up with arrows between them; returns the top of each."""
    tops = []
    for i, (title, name, fill) in enumerate(boxes):
        top = bottom - (i + 1) * HEIGHT - i * GAP
        if i:
            canvas.arrow((x + WIDTH / 2, top + HEIGHT + GAP), (x + WIDTH / 2, top + HEIGHT))
        canvas.box(x, top, title, name, fill)
        tops.append(top)
    return tops


def _residual(canvas: Canvas, x: Number, below: Number, norm_top: Number) -> None:
    """Draw the residual connection of a sublayer."""
    start, into = below + GAP / 2, norm_top + HEIGHT / 2
    canvas.arrow((x + WIDTH / 2, start), (x - 16, start), (x - 16, into), (x, into))


def transformer(blocks: int = 6, source: str = "The animal was tired",
                target: str = "<s> Das Tier war", writes: str = "müde") -> Picture:  # fmt: skip
    """The whole Transformer: the encoder at the left, the decoder at the right, read from below.

    >>> "nn.Encoder" in transformer().svg()
    True
    """
    canvas = Canvas()
    left, right, bottom = 114, 454, 640
    norm = ("add, then norm", "x + …, LayerNorm", NORM)
    network = ("feed-forward", "nn.FeedForward", NETWORK)
    reads = [
        ("embedding + position", "nn.Embedding", TABLE),
        ("self-attention", "nn.MultiHeadAttention", ATTENTION), norm, network, norm,
    ]  # fmt: skip
    writes_with = [
        ("embedding + position", "nn.Embedding", TABLE),
        ("masked self-attention", "nn.MultiHeadAttention, causal", ATTENTION), norm,
        ("attention to the encoder", "nn.MultiHeadAttention, context", ATTENTION), norm,
        network, norm, ("a score for every word", "Transformer.logits", OUTPUT),
        ("softmax: probabilities", "torch.softmax", OUTPUT),
    ]  # fmt: skip
    lower, upper = (_pile(canvas, x, bottom, b) for x, b in ((left, reads), (right, writes_with)))
    for x, tops, last, name in (
        (left, lower, 4, "nn.Encoder"), (right, upper, 6, "nn.Decoder"),
    ):  # fmt: skip
        top, foot = tops[last] - 8, tops[1] + HEIGHT + GAP - 4
        canvas.frame(x - 28, top, WIDTH + 40, foot - top, dashed=True)
        side = x - 38 if x == left else x + WIDTH + 22
        anchor = "end" if x == left else "start"
        canvas.text(f"{blocks} ×", side, (top + foot) / 2 - 10, size=18, anchor=anchor, bold=True)
        canvas.text(name, side, (top + foot) / 2 + 12, size=11, anchor=anchor, mono=True, fill=SOFT)
        for i in range(1, last, 2):
            _residual(canvas, x, tops[i] + HEIGHT, tops[i + 1])
    out = (left + WIDTH / 2, lower[4])
    into = upper[3] + HEIGHT / 2
    lane = left + WIDTH + 45
    canvas.arrow(out, (out[0], out[1] - 34), (lane, out[1] - 34), (lane, into), (right, into))
    for x, text in ((left, source), (right, target)):
        canvas.arrow((x + WIDTH / 2, bottom + 22), (x + WIDTH / 2, bottom))
        canvas.text(text, x + WIDTH / 2, bottom + 34)
    canvas.arrow((right + WIDTH / 2, upper[-1]), (right + WIDTH / 2, upper[-1] - 20))
    canvas.text(writes, right + WIDTH / 2, upper[-1] - 32, bold=True)
    canvas.text("reads", left + WIDTH / 2, bottom + 54, size=12, fill=SOFT)
    canvas.text("what is written so far", right + WIDTH / 2, bottom + 54, size=12, fill=SOFT)
    body = f'<g transform="translate(0 {-(upper[-1] - 42):g})">{"".join(canvas.marks)}</g>'
    return Picture(right + WIDTH + 100, bottom + 62 - upper[-1] + 42, body, "The whole Transformer")


def block() -> Picture:
    """A block of the encoder, post-norm as in the paper, and pre-norm."""
    canvas = Canvas()
    bottom, left, right = 300, 40, 350
    norm, plus = ("norm", "LayerNorm", NORM), ("add", "x + f(x)", PLAIN)
    attention = ("self-attention", "nn.MultiHeadAttention", ATTENTION)
    network = ("feed-forward", "nn.FeedForward", NETWORK)
    added = ("add, then norm", "norm(x + f(x))", NORM)
    after = _pile(canvas, left, bottom - 60, [attention, added, network, added])
    before = _pile(canvas, right, bottom + 60, [norm, attention, plus, norm, network, plus])
    for i in (0, 2):
        _residual(canvas, left, after[i] + HEIGHT, after[i + 1])
    for i in (0, 3):
        _residual(canvas, right, before[i] + HEIGHT, before[i + 2])
    for x, tops, name in ((left, after, '"after"'), (right, before, '"before"')):
        middle, foot = x + WIDTH / 2, tops[0] + HEIGHT
        canvas.arrow((middle, foot + 30), (middle, foot))
        canvas.arrow((middle, tops[-1]), (middle, tops[-1] - 22))
        canvas.text("x", middle, foot + 40)
        canvas.text(f"norm_place={name}", middle, foot + 62, size=12, mono=True, fill=SOFT)
    top = before[-1] - 24
    body = f'<g transform="translate(-20 {-top:g})">{"".join(canvas.marks)}</g>'
    return Picture(right + WIDTH - 20, bottom + 132 - top, body, "A block, in two arrangements")


def scaled_dot_product(n: int = 3, d: int = 4) -> Picture:
    """Scaled dot-product attention over n words as matrices, from left to right."""
    canvas = Canvas()
    size, y = 18, 60

    def matrix(name: str, x: Number, rows: int, columns: int, fill: str, under: str) -> Number:
        top = y - rows * size / 2
        for i in range(rows):
            for j in range(columns):
                canvas.marks.append(
                    f'<rect x="{x + j * size:g}" y="{top + i * size:g}" width="{size}" '
                    f'height="{size}" fill="{fill}" stroke="{LINE}" stroke-width="0.8"/>'
                )
        middle = x + columns * size / 2
        canvas.text(name, middle, top - 14, bold=True)
        canvas.text(under, middle, top + rows * size + 13, size=11, mono=True, fill=SOFT)
        return x + columns * size

    def sign(text: str, x: Number, wide: Number = 26) -> Number:
        canvas.text(text, x + wide / 2, y, size=14)
        return x + wide

    x = matrix("Q", 0, n, d, "#bcd7ef", "n × d")
    x = matrix("Kᵀ", sign("×", x), d, n, "#fbd9b5", "d × n")
    x = matrix("scores", sign("=", x), n, n, "#ffffff", "n × n")
    x = sign("÷ √d, mask, softmax", x + 8, 150)
    x = matrix("weights", sign("=", x, 20), n, n, "#dfe6ee", "rows sum to 1")
    x = matrix("V", sign("×", x, 34), n, d, "#c3e6d8", "n × d")
    x = matrix("Z", sign("=", x), n, d, "#d9d2ea", "n × d")
    canvas.text("attend(Q, K, V, mask=…)", x / 2, y + 78, size=12, mono=True)
    return canvas.picture(x, y + 92, "Scaled dot-product attention")


def multi_head(heads: int = 4) -> Picture:
    """Several heads, concatenated and combined by one matrix."""
    canvas = Canvas()
    wide, gap = 104, 14
    total = heads * wide + (heads - 1) * gap
    middle = total / 2
    canvas.box(0, 0, "combine all heads", "W_O", TABLE, width=total)
    canvas.box(0, 64, "side by side", "torch.cat", PLAIN, width=total)
    canvas.arrow((middle, 64), (middle, HEIGHT))
    for i in range(heads):
        x = i * (wide + gap)
        canvas.box(x, 134, f"head {i}", "attend(q, k, v)", ATTENTION, width=wide)
        canvas.arrow((x + wide / 2, 134), (x + wide / 2, 64 + HEIGHT))
        for j, name in enumerate(("W_Q", "W_K", "W_V")):
            at = x + j * (wide - 32) / 2
            canvas.box(at, 204, name, "", TABLE, width=32, height=26)
            canvas.arrow((at + 16, 204), (at + 16, 134 + HEIGHT))
            canvas.arrow((at + 16, 256), (at + 16, 230))
        canvas.arrow((x, 256), (x + wide, 256), head=False)
    canvas.arrow((wide / 2, 256), (total - wide / 2, 256), head=False)
    canvas.arrow((middle, 276), (middle, 256), head=False)
    canvas.text("x, the vectors of all words", middle, 288)
    canvas.text("nn.MultiHeadAttention", middle, 308, size=12, mono=True, fill=SOFT)
    return canvas.picture(total, 316, f"Attention with {heads} heads")


def word_path(words: Sequence[str], word: int,
              stages: Sequence[tuple[str, Sequence[Sequence[Number]]]]) -> Picture:  # fmt: skip
    """The vectors of all words at each stage of a model, a column per word, that of `word` framed.

    ``stages`` are names, each with one vector per word; the first is drawn at the bottom.

    >>> word_path(["a", "b"], 1, [("x", [[0.5, -1.0], [1.0, 0.0]])]).width
    330
    """
    canvas = Canvas()
    size, rise, name_room = 12, 50, 130
    longest = max(len(vector) for _, vectors in stages for vector in vectors)
    pitch = max(100, longest * size + 28, *(9 * len(w) + 20 for w in words))
    height = rise * (len(stages) - 1) + size + 44
    for i, w in enumerate(words):
        middle = name_room + (i + 0.5) * pitch
        canvas.text(w, middle, height - 10, bold=i == word)
        for level, (_, vectors) in enumerate(stages):
            vector = [float(value) for value in vectors[i]]
            most = max(abs(float(v)) for row in vectors for v in row)
            y = height - 30 - level * rise - size
            canvas.cells(middle - len(vector) * size / 2, y, vector, most, size)
            if level + 1 < len(stages):
                canvas.arrow((middle, y - 4), (middle, y - rise + size + 5))
    for level, (name, _) in enumerate(stages):
        canvas.text(name, 0, height - 30 - level * rise - size / 2, anchor="start", size=12.5)
    canvas.frame(name_room + word * pitch + 4, 0, pitch - 8, height, dashed=True)
    return canvas.picture(name_room + len(words) * pitch, height, f"The path of {words[word]}")


def masks(shown: Mapping[str, Sequence[Sequence[bool]]]) -> Picture:
    """Masks, two in a row: a row per query, a column per key, dark where the query may attend.

    >>> masks({"causal": [[True, False], [True, True]]}).svg().count("may attend to")
    3
    """
    canvas = Canvas()
    cell, left, top, gap = 20, 46, 62, 44
    most = max(len(rows) for rows in shown.values()), max(len(rows[0]) for rows in shown.values())
    wide, tall = left + most[1] * cell + gap, top + most[0] * cell + gap
    for number, (name, rows) in enumerate(shown.items()):
        x, y = number % 2 * wide, number // 2 * tall
        canvas.text(name, x, y + 10, anchor="start", bold=True)
        canvas.text("key: is looked at →", x + left, y + 34, anchor="start", size=11, fill=SOFT)
        canvas.text("query ↓", x, y + top - 10, anchor="start", size=11, fill=SOFT)
        for i, row in enumerate(rows):
            canvas.text(str(i), x + left - 8, y + top + (i + 0.5) * cell, size=11, anchor="end")
            for j, may in enumerate(row):
                if not i:
                    canvas.text(str(j), x + left + (j + 0.5) * cell, y + top - 10, size=11)
                says = f"{i} {'may attend to' if may else 'does not see'} {j}"
                canvas.marks.append(
                    f'<rect x="{x + left + j * cell:g}" y="{y + top + i * cell:g}" width="{cell}" '
                    f'height="{cell}" fill="{DARK if may else PLAIN}" stroke="{LINE}" '
                    f'stroke-width="0.6"><title>{says}</title></rect>'
                )
    foot = -(-len(shown) // 2) * tall - gap
    for at, fill, says in ((0, DARK, "may attend"), (120, PLAIN, "hidden: weight 0")):
        canvas.frame(at, foot + 22, 14, 14, fill)
        canvas.text(says, at + 22, foot + 29, anchor="start", size=12)
    return canvas.picture(min(2, len(shown)) * wide - gap, foot + 38, ", ".join(shown))
