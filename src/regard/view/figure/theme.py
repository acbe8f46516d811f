"""The colours of the figure, light and dark, and text whose words have roles."""

from __future__ import annotations

import re
from collections.abc import Sequence

from regard.view.figure.wording import Span, joined
from regard.view.svg import BOLD, Number, escape, label, shorten, tag, text_width

LIGHT = {
    "paper": "#fdfdfb", "card": "#f9faf8", "ink": "#1f2430", "soft": "#5d6571", "dim": "#a4a9b1",
    "rule": "#e4e5e3", "accent": "#0072b2", "tint": "#e3f0f8", "cut": "#b04a00",
    "cuttint": "#fbeee3", "on": "#ffffff",
}  # fmt: skip
DARK = {
    "paper": "#15171b", "card": "#191b20", "ink": "#e9e7e2", "soft": "#9ba2ad", "dim": "#626a76",
    "rule": "#2b2f36", "accent": "#6cb8ec", "tint": "#1b3040", "cut": "#f2a065",
    "cuttint": "#3a2718", "on": "#10202b",
}  # fmt: skip
ROLES = {"look": "accent", "cut": "cut"}
LOOSE = 1.07
"""How much wider than estimated a line of text may be in the system's font."""
_PIECE = re.compile(r"\s+|\S+")


def dark_style() -> str:
    """The style sheet that repaints a figure where the reader prefers dark colours.

    The light colours are attributes of the marks, so that programs without style sheets have them.
    """
    rules = [
        f".regard-{name}{{fill:{colour}}}.regard-{name}-line{{stroke:{colour}}}"
        for name, colour in DARK.items()
    ]
    return f"@media(prefers-color-scheme:dark){{{''.join(rules)}}}"


def fill(name: str) -> dict[str, str]:
    """The attributes of a mark that is filled with a colour."""
    return {"fill": LIGHT[name], "class_": f"regard-{name}"}


def line(name: str) -> dict[str, str]:
    """The attributes of a mark that is drawn as a line of a colour."""
    return {"fill": "none", "stroke": LIGHT[name], "class_": f"regard-{name}-line"}


def boxed(name: str, edge: str) -> dict[str, str]:
    """The attributes of a mark that is filled with one colour and outlined in another."""
    return {
        "fill": LIGHT[name],
        "stroke": LIGHT[edge],
        "class_": f"regard-{name} regard-{edge}-line",
    }


def text(
    told: str,
    x: Number,
    y: Number,
    *,
    colour: str,
    size: Number,
    room: Number | None = None,
    anchor: str = "start",
    weight: int | None = None,
) -> str:
    """A text of a colour whose middle line is at y; see `label`."""
    return label(
        told, x, y, size=size, room=room, anchor=anchor, weight=weight, fill=LIGHT[colour],
        class_=f"regard-{colour}",
    )  # fmt: skip


def paragraph(
    told: Sequence[Span],
    y: Number,
    room: Number,
    *,
    size: Number,
    weight: int | None = None,
    base: str = "ink",
) -> tuple[str, Number]:
    """Spans in lines of at most `room` from x = 0, the first around y; and the height of all."""
    wide = size * (BOLD if weight else LOOSE)
    pitch = size * 1.42
    lines: list[list[tuple[str, str]]] = [[]]
    used = 0.0
    for words, role in told:
        for piece in _PIECE.findall(words):
            length = text_width(piece, wide)
            if not piece.isspace() and used + length > room and used:
                lines.append([])
                used = 0.0
            if piece.isspace() and not used:
                continue
            lines[-1].append((shorten(piece, room, wide), role))
            used += length
    marks = [
        tag(
            "text",
            *(
                tag("tspan", escape(piece), **fill(ROLES.get(role, base)))
                for piece, role in joined(pieces)
            ),
            x=0,
            y=y + i * pitch + 0.355 * size,
            font_size=size,
            font_weight=weight,
            xml__space="preserve",
        )
        for i, pieces in enumerate(lines)
        if pieces
    ]
    return "".join(marks), len(marks) * pitch
