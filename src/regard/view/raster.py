"""Pictures as PNG and PDF, without a browser: SVG, drawn by typst (the extra ``pictures``).

Lines stay lines in the PDF and words stay words, with their fonts inside.
"""

from __future__ import annotations

import re
from typing import Any

from regard.errors import OptionError
from regard.view.svg import FONT, Number

_FONTS = "Inter,'Helvetica Neue',Arial,'Liberation Sans','Noto Sans','DejaVu Sans'"
_PAGE = (
    "#set document(date: none, title: sys.inputs.title)\n"
    "#set page(width: auto, height: auto, margin: 0pt, fill: none)\n"
    '#image(bytes(sys.inputs.svg), format: "svg", alt: sys.inputs.title)\n'
)
_TURNED = re.compile(r'<text[^>]* direction="rtl"[^>]*>')
_MOST_PIXELS = 16_384


def png(svg: str, title: str, scale: Number, side: Number) -> bytes:
    """The picture, whose longer side is ``side``, as PNG, ``scale`` pixels for each of its own."""
    if not 0 < scale <= _MOST_PIXELS / side:
        raise OptionError(
            f"png: scale expected > 0 and at most {_MOST_PIXELS / side:.1f} (that is "
            f"{_MOST_PIXELS:,} pixels), got {scale}; 2 is sharp on most screens"
        )
    # A pixel of SVG is 3/4 of a point.
    return _typeset(svg, title, format="png", ppi=float(96 * scale))


def pdf(svg: str, title: str) -> bytes:
    """The picture as PDF, one page of its size."""
    return _typeset(svg, title, format="pdf")


def _typeset(svg: str, title: str, **options: Any) -> bytes:
    try:
        import typst
    except ImportError:
        raise OptionError(
            f"{options['format']}: expected typst, which draws it, and it is not installed; "
            "pip install 'regard[pictures]', or save as .svg"
        ) from None
    inputs = {"svg": _plain(svg), "title": title}
    made = typst.compile(_PAGE.encode(), sys_inputs=inputs, **options)
    return bytes(made)


def _plain(svg: str) -> str:
    """The SVG for a renderer without system fonts and without the direction attribute.

    It reorders right-to-left text itself, but does not mirror its anchor; that is done here.
    """

    def turned(match: re.Match[str]) -> str:
        tag = match[0].replace(' direction="rtl"', "")
        if ' text-anchor="end"' in tag:
            return tag.replace(' text-anchor="end"', "")
        return tag if "text-anchor" in tag else tag[:-1] + ' text-anchor="end">'

    return _TURNED.sub(turned, svg.replace(f'font-family="{FONT}"', f'font-family="{_FONTS}"'))
