"""`Picture`: a complete SVG document, to show, save or combine with others."""

from __future__ import annotations

import base64
import math
import os
from dataclasses import dataclass

from regard.errors import OptionError
from regard.files import write_bytes
from regard.view import raster
from regard.view.svg import (
    BOLD,
    FONT,
    INK,
    PAPER,
    TEXT_SIZE,
    TITLE_SIZE,
    Number,
    escape,
    label,
    moved,
    num,
    tag,
    text_width,
    wrap,
)

MARGIN = 20
TITLE_ROOM = 300


@dataclass(frozen=True)
class Picture:
    """A drawing of width × height pixels, whose ``body`` is SVG markup within these bounds.

    ``title`` is what a screen reader says. A margin and a near-white panel are added by `svg`, so
    that it looks alike in a light page, in a dark one and in print. A notebook shows it.

    >>> picture = Picture(40, 10, '<path d="M0 5h40" stroke="#000"/>', "a stroke")
    >>> picture.svg()[:74]
    '<svg xmlns="http://www.w3.org/2000/svg" width="80" height="50" viewBox="-2'
    >>> picture.beside(picture, gap=20).width
    100
    """

    width: Number
    height: Number
    body: str
    title: str
    style: str = ""
    """A style sheet, for instance with dark colours for ``prefers-color-scheme: dark``."""

    def __post_init__(self) -> None:
        for name, size in (("width", self.width), ("height", self.height)):
            if not 0 < size < math.inf:
                raise OptionError(f"Picture: {name} expected > 0 and finite, got {size}; in pixels")

    def data_url(self) -> str:
        """The SVG document as a data: URL."""
        coded = base64.b64encode(self.svg().encode()).decode("ascii")
        return f"data:image/svg+xml;base64,{coded}"

    def svg(self) -> str:
        """The complete document."""
        width, height = self.width + 2 * MARGIN, self.height + 2 * MARGIN
        corner = {"x": -MARGIN, "y": -MARGIN, "width": width, "height": height}
        return tag(
            "svg",
            tag("title", escape(self.title)),
            *([f"<style>{self.style}</style>"] if self.style else []),
            tag("rect", **corner, rx=6, fill=PAPER, class_="regard-paper" if self.style else None),
            self.body,
            xmlns="http://www.w3.org/2000/svg",
            width=width,
            height=height,
            viewBox=" ".join(map(num, corner.values())),
            role="img",
            font_family=FONT,
            font_size=TEXT_SIZE,
            fill=INK,
            direction="ltr",  # not inherited from the page, or every anchor would turn
            style="max-width:100%;height:auto",
        )

    def png(self, scale: Number = 2) -> bytes:
        """The picture as PNG, ``scale`` pixels for each of its own; needs regard[pictures]."""
        side = max(self.width, self.height) + 2 * MARGIN
        return raster.png(self.svg(), self.title, scale, side)

    def pdf(self) -> bytes:
        """The picture as PDF, for a paper; needs regard[pictures]."""
        return raster.pdf(self.svg(), self.title)

    def _repr_svg_(self) -> str:
        return self.svg()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture atomically as .svg, .png or .pdf."""
        forms = {".svg": lambda: self.svg().encode() + b"\n", ".png": self.png, ".pdf": self.pdf}
        write_bytes(path, forms, "save")

    def beside(self, *others: Picture, gap: Number = 24) -> Picture:
        """This picture and others in one, from left to right, their tops aligned."""
        return self._joined("beside", others, gap, across=True)

    def above(self, *others: Picture, gap: Number = 24) -> Picture:
        """This picture and others in one, from top to bottom, their left edges aligned."""
        return self._joined("above", others, gap, across=False)

    def _joined(
        self, caller: str, others: tuple[Picture, ...], gap: Number, *, across: bool
    ) -> Picture:
        if not 0 <= gap < math.inf:
            raise OptionError(f"{caller}: gap expected ≥ 0 and finite, got {gap}; in pixels")
        every = (self, *others)
        bodies: list[str] = []
        at: Number = 0
        for one in every:
            bodies.append(moved(one.body, at if across else 0, 0 if across else at))
            at += (one.width if across else one.height) + gap
        title = " · ".join(one.title for one in every)
        width = at - gap if across else max(one.width for one in every)
        height = max(one.height for one in every) if across else at - gap
        return Picture(width, height, "".join(bodies), title, self.style)


def titled(
    title: str, spoken: str, body: str, left: Number, top: Number, right: Number, bottom: Number
) -> Picture:
    """A picture from markup within these edges, under a title if there is one."""
    # A title may widen a narrow picture a little before it takes a second line.
    size = TITLE_SIZE * BOLD
    room = max(right - left, min(text_width(title, size), TITLE_ROOM))
    lines = wrap(title, room, size)
    pitch = 20
    head = len(lines) * pitch + 14 if lines else 0
    marks = [
        label(line, 0, i * pitch + pitch / 2, size=TITLE_SIZE, weight=600, class_="title")
        for i, line in enumerate(lines)
    ]
    marks.append(moved(body, -left, head - top))
    height = math.ceil(head + bottom - top)
    return Picture(math.ceil(room), height, "".join(marks), title if lines else spoken)
