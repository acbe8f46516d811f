"""Lines, bars and arrows: every point where its number says."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import combinations, pairwise

import numpy as np
import pytest

from regard.errors import OptionError, ShapeError
from regard.view import Picture, arrows, bars, lines
from regard.view.colour import PALETTE
from regard.view.svg import text_width
from tests.view.documents import SVG, of_class, parsed, points, shown, texts


def test_lines_go_through_their_points() -> None:
    picture = lines({"line": ([0, 5, 10], [0, 10, 5])})
    (path,) = of_class(picture, "line")
    assert list(points(path.get("d", ""))) == [(0, 240), (230, 0), (460, 120)]
    assert texts(picture, "name") == ["line"]
    assert texts(picture, "tick") == ["0", "2", "4", "6", "8", "10"] * 2


def test_names_of_lines_never_overlap() -> None:
    for count in (2, 9, 40):
        picture = lines({f"line {i}": ([0, 1], [i, 1]) for i in range(count)})
        names = sorted(float(name.get("y", 0)) for name in of_class(picture, "name"))
        assert len(names) == count
        assert min(b - a for a, b in pairwise(names)) >= 16
        assert len(of_class(picture, "thread")) >= count - 1
    apart = lines({"low": ([0, 1], [0, 0]), "high": ([0, 1], [1, 1])})
    assert not of_class(apart, "thread")
    low, high = of_class(apart, "name")
    assert float(low.get("y", 0)) > float(high.get("y", 0))


def test_a_name_leads_back_to_a_line_that_ends_early() -> None:
    picture = lines({"early": ([0, 1, 2], [0, 1, math.nan]), "late": ([0, 4], [5, 5])})
    (thread,) = of_class(picture, "thread")
    (early, _) = of_class(picture, "line")
    assert next(points(thread.get("d", ""))) == list(points(early.get("d", "")))[-1]


def test_a_missing_value_leaves_a_gap() -> None:
    xs = np.arange(40.0)
    ys = np.where((xs == 10) | (xs == 12), math.nan, xs)
    picture = lines({"gap": (xs, ys)})
    (path,) = of_class(picture, "line")
    assert path.get("d", "").count("M") == 3
    assert path.get("d", "").count("L") == 9 + 0 + 26
    assert len(list(parsed(picture).iter(f"{SVG}circle"))) == 1  # the lonely point


def test_logarithmic_axes() -> None:
    widths = [4, 8, 16, 32, 64, 128, 256, 512]
    picture = lines({"a": (widths, range(8))}, log_x=True)
    assert texts(picture, "tick")[:8] == [str(width) for width in widths]
    (path,) = of_class(picture, "line")
    xs = [x for x, _ in points(path.get("d", ""))]
    assert [round(b - a, 1) for a, b in pairwise(xs)] == [65.7] * 7
    assert texts(lines({"a": ([3, 60], [1, 2])}, log_x=True), "tick")[:4] == ["5", "10", "20", "50"]
    decades = texts(lines({"a": ([1, 2], [1e-6, 1e6])}, log_y=True), "tick")
    assert {"10⁻⁶", "10⁶"} <= set(decades)


def test_many_lines_stay_apart_by_colour_and_dash() -> None:
    picture = lines({str(i): ([0, 1], [i, i]) for i in range(21)})
    styles = {(e.get("stroke"), e.get("stroke-dasharray")) for e in of_class(picture, "line")}
    assert len(styles) == 21


def test_constant_and_single_points_can_be_drawn() -> None:
    for pair in (([3], [7]), ([0], [0]), ([1, 2], [5, 5])):
        parsed(lines({"a": pair}))
        if min(pair[1]) > 0:
            parsed(lines({"a": pair}, log_x=True, log_y=True))
    close = texts(lines({"a": ([1_000_000, 1_000_010], [0, 1])}), "tick")
    assert close[0] == "1,000,000"
    assert len(set(close)) == len(close)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: lines({}), ShapeError, "lines: series expected at least one name with (xs, ys)"),
        (
            lambda: lines({"a": ([1, 2], [1])}),
            ShapeError,
            "lines: series['a'] has 1 ys but 2 xs; give one y per x, NaN where there is none",
        ),
        (lambda: lines({"a": ([], [])}), ShapeError, "lines: series['a'] xs expected shape (n)"),
        (
            lambda: lines({"a": ([[1]], [1])}),
            ShapeError,
            "lines: series['a'] xs expected shape (n)",
        ),
        (lambda: lines({"a": ([math.nan], [1])}), OptionError, "series['a'] expected finite xs"),
        (lambda: lines({"a": ([1], [math.inf])}), OptionError, "and ys finite or NaN"),
        (lambda: lines({"a": ([1], [math.nan])}), OptionError, "but not all NaN"),
        (
            lambda: lines({"a": ([0, 1], [1, 1])}, log_x=True),
            OptionError,
            "lines: series['a'] expected xs > 0 because of log_x=True, got 0; drop it or log_x",
        ),
        (
            lambda: lines({"a": ([0, 1], [1, -2])}, log_y=True),
            OptionError,
            "lines: series['a'] expected ys > 0 because of log_y=True, got -2; drop it or log_y",
        ),
    ],
)
def test_lines_says_what_is_wrong(
    call: Callable[[], Picture], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        call()


def test_bars_are_as_long_as_their_numbers() -> None:
    values = {"b": 12.5, "a": -4.0, "c": 0.0, "d": 3.25}
    picture = bars(values, unit="ms")
    boxes = of_class(picture, "bar")
    lengths = [float(box.get("width", 0)) for box in boxes]
    scale = lengths[0] / 12.5
    np.testing.assert_allclose(lengths, [12.5 * scale, 4 * scale, 0, 3.25 * scale], atol=0.02)
    zero = float(boxes[0].get("x", 0))
    assert float(boxes[1].get("x", 0)) + lengths[1] == pytest.approx(zero, abs=0.02)
    assert texts(picture, "name") == list(values)
    assert texts(picture, "value") == ["12.50 ms", "−4.00 ms", "0.00 ms", "3.25 ms"]
    assert texts(bars({"a": 1}), "value") == ["1"]


def test_bars_never_write_zero_for_what_is_not() -> None:
    assert texts(bars({"a": 123.456, "b": 0.001}), "value") == ["123.5", "0.001"]


def test_bars_says_what_is_wrong() -> None:
    with pytest.raises(ShapeError, match="bars: values expected at least one name"):
        bars({})
    with pytest.raises(OptionError, match=r"bars: values\['a'\] expected finite, got nan; leave"):
        bars({"a": math.nan})


def test_arrows_have_one_scale_for_both_axes() -> None:
    picture = arrows({"east": (2, 0), "north": (0, 1), "both": (2, 1)})
    tips = []
    for arrow in of_class(picture, "arrow"):
        shaft, head = arrow
        origin, tip = next(points(shaft.get("d", ""))), next(points(head.get("d", "")))
        tips.append((tip[0] - origin[0], origin[1] - tip[1]))
    (east, zero), (none, north), both = tips
    assert zero == pytest.approx(0, abs=0.02)
    assert none == pytest.approx(0, abs=0.02)
    assert east == pytest.approx(2 * north, abs=0.05)
    assert both == pytest.approx((east, north), abs=0.02)


def test_arrows_before_and_after() -> None:
    before, after = {"bat": (1, 0.1), "ball": (0.4, 0.9)}, {"bat": (0.8, 0.5), "new": (-1, 0)}
    picture = arrows(before, also=after)
    assert texts(picture, "name") == ["bat", "ball", "bat", "new"]
    assert len(of_class(picture, "path")) == 1  # from bat to bat
    inks = [arrow[1].get("fill") for arrow in of_class(picture, "arrow")]
    assert inks == [PALETTE[0]] * 2 + [PALETTE[1]] * 2
    assert not of_class(arrows(before), "path")
    assert texts(arrows({}, also=after), "name") == ["bat", "new"]


def test_names_of_arrows_do_not_overlap() -> None:
    vectors = {f"word{i}": (0.9 + 0.02 * i, 0.7 - 0.02 * i) for i in range(4)}
    names = of_class(arrows(vectors | {"zero": (0, 0)}), "name")
    boxes = []
    for name in names:
        x, y = float(name.get("x", 0)), float(name.get("y", 0))
        boxes.append((x, y - 10, x + text_width(shown(name)), y + 3))
    for one, two in combinations(boxes, 2):
        apart = one[2] <= two[0] or two[2] <= one[0] or one[3] <= two[1] or two[3] <= one[1]
        assert apart, (one, two)


def test_arrows_says_what_is_wrong() -> None:
    with pytest.raises(ShapeError, match="arrows: vectors expected at least one name"):
        arrows({})
    with pytest.raises(ShapeError, match=r"arrows: also\['a'\] expected \(x, y\), got 3 numbers"):
        arrows({"b": (1, 2)}, also={"a": (1, 2, 3)})
    with pytest.raises(OptionError, match=r"arrows: vectors\['a'\] expected finite, got \[nan, 1"):
        arrows({"a": (math.nan, 1)})
