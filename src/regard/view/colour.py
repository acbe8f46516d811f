"""Colours that can be told apart with any kind of colour vision, and in grey print.

Lines and heads take the palette of Okabe and Ito ("Color Universal Design", 2008), its yellow
last of all, for it is faint on paper. Values take one ramp: blue above zero and orange below, each
darker the further from zero, so that lightness alone already tells the size.
"""

from __future__ import annotations

from functools import cache

from regard.view.svg import INK, PAPER, Number

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d", "#f0e442")

_BLUE = ("#eff2f6", "#c9dcee", "#8fbbdd", "#4a90c4", "#1b629f", "#0b3767")
_ORANGE = ("#eff2f6", "#f9dcbf", "#f0b27c", "#d9813a", "#a9560f", "#6b3204")


def channels(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of "#rrggbb"."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def mix(one: str, other: str, share: Number) -> str:
    """The colour ``share`` of the way from one to the other.

    >>> mix("#000000", "#ffffff", 0.5)
    '#808080'
    """
    pairs = zip(channels(one), channels(other), strict=True)
    return "#" + "".join(f"{int(a + (b - a) * share + 0.5):02x}" for a, b in pairs)


def ramp(t: Number) -> str:
    """The colour of a value in −1 … 1, clamped to that range.

    >>> ramp(0), ramp(1), ramp(-1)
    ('#eff2f6', '#0b3767', '#6b3204')
    """
    stops = _ORANGE if t < 0 else _BLUE
    place = min(abs(t), 1) * (len(stops) - 1)
    stop = min(int(place), len(stops) - 2)
    return mix(stops[stop], stops[stop + 1], place - stop)


@cache
def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2): 0 for black, 1 for white."""

    def linear(channel: int) -> float:
        c = channel / 255
        return c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4

    red, green, blue = map(linear, channels(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """The contrast ratio (WCAG 2) of two colours, 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def ink_on(colour: str) -> str:
    """Dark or white, whichever reads better on the colour."""
    return max((INK, "#ffffff"), key=lambda ink: contrast(ink, colour))


def legible(colour: str) -> str:
    """The colour, darkened until text in it reads on paper (contrast 4.5).

    >>> legible("#0072b2"), legible("#e69f00")
    ('#0072b2', '#966e13')
    """
    steps = (mix(colour, INK, step / 20) for step in range(21))
    return next(shade for shade in steps if contrast(shade, PAPER) >= 4.5)
