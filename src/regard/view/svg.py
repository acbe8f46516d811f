"""SVG as text: elements, numbers of fixed format, and labels that fit.

Everything a caller passed goes in as text, escaped; nothing here needs an id, a script, a style
sheet or a font file, so that any number of pictures can stand in one page.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import cache
from itertools import accumulate
from xml.sax import saxutils

# mypy takes an int for a float; beartype, which checks the annotations during tests, does not.
Number = int | float

PAPER = "#fdfdfb"
INK = "#1f2430"
SOFT = "#626a76"
RULE = "#c9ccd1"
GRID = "#e9eaea"
DIM = "#8b929c"
FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,'Noto Sans',sans-serif"

TITLE_SIZE = 15
TEXT_SIZE = 13
SMALL_SIZE = 11.5

# Thousandths of an em: those of Inter, so that a label keeps to its room in the system fonts of
# today, and goes over it by a few pixels at most in the widest of the common ones (DejaVu Sans).
_WIDTHS = {
    "ijl'|": 260,
    "It.,:;!/f \\": 330,
    'r-*"`()[]{}“”': 400,
    "cksvxyzJ": 545,
    "ABCDEFGHKLNOPQRSTUVXYZ&+<=>~−×": 720,
    "w#": 800,
    "mMW%": 930,
    "@…→": 1000,
}
BOLD = 1.18  # how much wider bold is
_WIDTH_OF = {glyph: width for glyphs, width in _WIDTHS.items() for glyph in glyphs}


def num(value: Number) -> str:
    """A coordinate with at most two decimals, and never "-0".

    >>> num(3.0), num(-0.001), num(12.345)
    ('3', '0', '12.35')
    """
    return f"{value:z.2f}".rstrip("0").rstrip(".")


def tag(name: str, /, *children: str, **attributes: Number | str | None) -> str:
    """An element; ``stroke_width`` becomes stroke-width and ``xml__space`` xml:space.

    None is left out; children are markup.

    >>> tag("g", tag("path", d="M0 0h9"), stroke_width=1.5, class_="a & b", fill=None)
    '<g stroke-width="1.5" class="a &amp; b"><path d="M0 0h9"/></g>'
    """
    parts = [name]
    for key, value in attributes.items():
        if value is not None:
            text = escape(value) if isinstance(value, str) else num(value)
            parts.append(f'{key.rstrip("_").replace("__", ":").replace("_", "-")}="{text}"')
    opening = " ".join(parts)
    return f"<{opening}>{''.join(children)}</{name}>" if children else f"<{opening}/>"


def escape(text: str) -> str:
    """Text for XML: markup escaped, characters that XML forbids made visible.

    >>> escape("</b> & \\x00 \\n")
    '&lt;/b&gt; &amp; ␀ ␊'
    """
    return saxutils.escape(visible(text), {'"': "&quot;"})


def visible(text: str) -> str:
    """Text in which control characters are drawn as signs, and invalid ones as U+FFFD.

    >>> visible("a\\tb\\x7f") == "a␉b\\ufffd"
    True
    """
    return "".join(map(_sign, text))


def _sign(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)  # the Control Pictures block draws each of them
    if 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000 or code & 0xFFFE == 0xFFFE:
        return "\ufffd"
    return character


@cache
def _em(character: str) -> int:
    if known := _WIDTH_OF.get(character):
        return known
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    if unicodedata.east_asian_width(character) in "WF":
        return 1180 if ord(character) > 0xFFFF else 1000  # emoji stand a little wider than CJK
    return 720 if character.isupper() else 600


def text_width(text: str, size: Number = TEXT_SIZE) -> float:
    """About how wide a text is drawn, in pixels.

    >>> text_width("cat", 10) < text_width("mat", 10) < text_width("注意", 10)
    True
    """
    return sum(map(_em, text)) * size / 1000


def widest(texts: Iterable[str], size: Number = TEXT_SIZE) -> float:
    """The width of the widest text, 0.0 when there is none."""
    return max((text_width(text, size) for text in texts), default=0.0)


def shorten(text: str, room: Number, size: Number = TEXT_SIZE) -> str:
    """The text, or as much of its beginning as fits before a "…".

    >>> shorten("cat", 60), shorten("internationalization", 60)
    ('cat', 'interna…')
    """
    if text_width(text, size) <= room:
        return text
    left = room - text_width("…", size)
    kept = sum(end * size / 1000 <= left for end in accumulate(map(_em, text)))
    return text[:kept].rstrip(" \u200d") + "…"


def wrap(text: str, room: Number, size: Number) -> list[str]:
    """The lines of a text broken at spaces; a word that is too wide stands shortened."""
    lines: list[str] = []
    for word in text.split():
        if lines and text_width(f"{lines[-1]} {word}", size) <= room:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return [shorten(line, room, size) for line in lines]


def right_to_left(text: str) -> bool:
    """Whether the first letter of a text belongs to a script that runs from right to left."""
    for character in text:
        kind = unicodedata.bidirectional(character)
        if kind in ("L", "R", "AL"):
            return kind != "L"
    return False


def label(
    text: str,
    x: Number,
    y: Number,
    *,
    size: Number = TEXT_SIZE,
    room: Number | None = None,
    anchor: str = "start",
    fill: str = INK,
    weight: int | None = None,
    turn: Number = 0,
    halo: bool = False,
    class_: str | None = None,
) -> str:
    """A text whose middle line is at y, shortened to ``room`` with the whole of it on hover.

    What is left out (size, colour) is inherited from the document that `Picture.svg` makes.
    """
    if not text.strip(" "):
        text = "␣" * len(text)  # a space that is a word should be seen
    fitting = size * BOLD if weight else size
    short = text if room is None else shorten(text, room, fitting)
    hover = tag("title", escape(text)) if short != text else ""
    backwards = right_to_left(text)
    if backwards:  # "start" is then the right-hand edge
        anchor = {"start": "end", "middle": "middle", "end": "start"}[anchor]
    baseline = y + 0.355 * size  # half the height of a capital
    return tag(
        "text",
        hover + escape(short),
        x=x if not turn else None,
        y=baseline if not turn else None,
        transform=f"translate({num(x)} {num(y)}) rotate({num(turn)})" if turn else None,
        dy=0.355 * size if turn else None,
        font_size=size if size != TEXT_SIZE else None,
        font_weight=weight,
        text_anchor=anchor if anchor != "start" else None,
        direction="rtl" if backwards else None,
        fill=fill if fill != INK else None,
        stroke=PAPER if halo else None,
        stroke_width=3 if halo else None,
        paint_order="stroke" if halo else None,
        class_=class_,
    )


def moved(body: str, x: Number, y: Number) -> str:
    """The marks, translated by (x, y)."""
    return tag("g", body, transform=f"translate({num(x)} {num(y)})") if x or y else body
