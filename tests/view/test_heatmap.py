"""Heat maps: the numbers given, in colours and digits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch

from regard.errors import OptionError, ShapeError
from regard.view import Picture, heatmap
from regard.view.colour import PALETTE, contrast, ink_on, legible, luminance, ramp
from regard.view.svg import PAPER
from tests.view.documents import WORDS, hover, noise, number, of_class, points, softmax, texts


def test_heatmap_prints_the_numbers_given() -> None:
    weights = softmax(noise(3, 5))
    picture = heatmap(weights, rows="abc", columns=range(5))
    assert len(of_class(picture, "cell")) == 15
    printed = [number(text) for text in texts(picture, "value")]
    np.testing.assert_allclose(printed, weights.ravel(), atol=0.005 + 1e-9)
    assert texts(picture, "row") == ["a", "b", "c"]
    assert texts(picture, "column") == ["0", "1", "2", "3", "4"]
    exact = [number((hover(cell) or "").split(": ")[1]) for cell in of_class(picture, "cell")]
    np.testing.assert_allclose(exact, weights.ravel(), rtol=1e-5)
    assert (hover(of_class(picture, "cell")[7]) or "").startswith("b → 2: 0.")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, -2], ["1", "−2"]),
        ([0.5, 0.25], ["0.50", "0.25"]),
        ([True, False], ["1", "0"]),
        ([0.123456, -0.0001], ["0.12", "0.00"]),
        ([12.3456, 1], ["12.3", "1.0"]),
        ([0.0123, 0.001], ["0.012", "0.001"]),
        ([3e-7, 0], ["3×10⁻⁷", "0"]),
        ([12345.674, 1], ["12,346", "1"]),
        ([1234.5, 1], ["1,234.5", "1.0"]),
        ([-1e9, 2.5e8], ["−10⁹", "2.5×10⁸"]),
    ],
)
def test_heatmap_writes_numbers_as_a_person_would(values: list[float], expected: list[str]) -> None:
    assert texts(heatmap([values]), "value") == expected


def test_heatmap_prints_numbers_only_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(of_class(heatmap(np.ones((12, 2))), "value")) == 24
    assert not of_class(heatmap(np.ones((2, 13))), "value")
    assert len(of_class(heatmap(np.ones((2, 13)), numbers=True), "value")) == 26
    assert not of_class(heatmap(np.ones((2, 2)), numbers=False), "value")
    monkeypatch.setattr("regard.view.image.HOVERED", 3)
    assert len(of_class(heatmap(np.ones((2, 2)), numbers=True), "value")) == 4
    assert len(of_class(heatmap(np.ones((2, 2)), numbers=False), "cell")) == 1


def fills(picture: Picture) -> list[str]:
    return [cell.get("fill", "") for cell in of_class(picture, "cell")]


def test_colours_darken_away_from_zero() -> None:
    up = fills(heatmap([np.linspace(0, 3, 41)]))
    assert all(luminance(a) > luminance(b) for a, b in pairwise(up))
    both = fills(heatmap([np.linspace(-2, 2, 41)]))
    assert both[20] == ramp(0)
    assert all(luminance(a) > luminance(b) for a, b in pairwise(both[20:]))
    assert all(luminance(a) < luminance(b) for a, b in pairwise(both[:21]))
    for orange, blue in zip(both[:18], both[:22:-1], strict=True):
        assert int(orange[1:3], 16) > int(orange[5:], 16)
        assert int(blue[1:3], 16) < int(blue[5:], 16)
    assert fills(heatmap([[-1.0, -4.0]])) == [ramp(-0.25), ramp(-1)]
    assert fills(heatmap([[-1.0, 4.0]])) == [ramp(-0.25), ramp(1)]  # one scale for both signs
    assert fills(heatmap([[0.0, 0.0]])) == [ramp(0)] * 2


def test_numbers_and_names_can_be_read() -> None:
    tints = [ramp(t / 20) for t in range(-20, 21)]
    assert min(contrast(tint, ink_on(tint)) for tint in tints) > 3.9
    assert min(contrast(legible(ink), PAPER) for ink in PALETTE) >= 4.5
    cells = heatmap([[0.0, 1.0]])
    assert [value.get("fill") for value in of_class(cells, "value")] == ["#1f2430", "#ffffff"]


def test_low_and_high_are_the_ends_of_the_colours() -> None:
    picture = heatmap([[0.0, 0.3, 0.6, 0.9]], low=0.3, high=0.6)
    assert fills(picture) == [ramp(0), ramp(0), ramp(1), ramp(1)]
    assert texts(picture, "legend") == ["≤ 0.3", "≥ 0.6"]
    assert texts(heatmap([[0.1, 0.87]]), "legend") == ["0", "0.87"]
    assert texts(heatmap([[0.1, 0.5]], high=1), "legend") == ["0", "1"]
    assert texts(heatmap([[-5, -3]], low=-5, high=-3), "legend") == ["−5", "−3"]
    assert fills(heatmap([[-5, -3]], low=-5, high=-3)) == [ramp(-1), ramp(0)]
    with pytest.raises(
        OptionError, match="heatmap: low expected < high and both finite, got low=2"
    ):
        heatmap([[1.0]], low=2, high=1)
    with pytest.raises(OptionError, match="heatmap: low expected < high and both finite"):
        heatmap([[1.0]], high=math.nan)


def test_masked_cells_are_hatched() -> None:
    picture = heatmap([[1.0, math.nan], [-math.inf, 0.0]], rows="ab", columns="cd")
    masked = of_class(picture, "masked")
    assert [hover(cell) for cell in masked] == ["a → d: masked", "b → c: masked"]
    assert all(cell.get("d", "").count("M") > 3 for cell in masked)
    assert texts(picture, "value") == ["1", "0"]
    assert "masked" in texts(picture, "legend")
    assert "masked" not in texts(heatmap([[1.0]]), "legend")
    for cell, (left, top) in zip(masked, [(52, 0), (0, 52)], strict=True):
        corners = list(points(cell.get("d", "")))
        assert all(left <= x <= left + 51 and top <= y <= top + 51 for x, y in corners)
    assert texts(heatmap([[math.nan]]), "legend") == ["", "masked"]


def test_large_maps_are_merged_by_colour_without_loss() -> None:
    values = np.where(np.tril(np.ones((50, 50))) > 0, np.round(noise(50, 50)), math.nan)
    picture = heatmap(values)
    side = 480 // 50
    area: dict[str, int] = {}
    for path in of_class(picture, "cell"):
        boxes = re.findall(r"M(\d+) (\d+)h(\d+)v(\d+)h-\d+z", path.get("d", ""))
        area[path.get("fill", "")] = sum(int(wide) * int(tall) for *_, wide, tall in boxes)
    limit = np.nanmax(np.abs(values))
    for value in np.unique(values[np.isfinite(values)]):
        assert area[ramp(float(value) / float(limit))] == side**2 * int((values == value).sum())
    assert sum(area.values()) == side**2 * 50 * 51 // 2
    assert len(of_class(picture, "masked")) == 1
    assert len(picture.svg()) < 60_000


def test_labels_are_thinned_rather_than_overprinted() -> None:
    picture = heatmap(np.ones((40, 120)), rows=range(40), columns=[f"w{j}" for j in range(120)])
    places = [float(element.get("y", 0)) for element in of_class(picture, "row")]
    assert len(places) >= 4
    assert min(b - a for a, b in pairwise(places)) >= 12
    columns = of_class(picture, "column")
    xs = [float(re.findall(r"[\d.]+", e.get("transform", ""))[0]) for e in columns]
    assert min(b - a for a, b in pairwise(xs)) >= 12


def test_columns_turn_only_when_they_must() -> None:
    flat = of_class(heatmap(noise(3, 3), columns=WORDS[:1] * 3), "column")
    assert not any(element.get("transform") for element in flat)
    turned = of_class(heatmap(noise(3, 3), columns=["internationally"] * 3), "column")
    assert all("rotate(-45)" in element.get("transform", "") for element in turned)


def test_heatmap_takes_what_numpy_takes() -> None:
    expected = heatmap([[0.25, 0.75]]).svg()
    graph = torch.tensor([[0.25, 0.75]], requires_grad=True)
    for values in (
        np.array([[0.25, 0.75]], np.float16),
        graph,
        ((0.25, 0.75),),
        [graph.detach()[0]],
    ):
        assert heatmap(values).svg() == expected


def test_heatmap_is_exact_to_the_byte() -> None:
    body = heatmap([[1, -1]]).body
    assert body.startswith(
        '<rect class="cell" x="0" y="0" width="51" height="51" fill="#0b3767"><title>1</title>'
        '</rect><rect class="cell" x="52" y="0" width="51" height="51" fill="#6b3204">'
        '<title>−1</title></rect><g font-size="12.5" text-anchor="middle" pointer-events="none">'
        '<text class="value" x="25.5" y="29.94" fill="#ffffff">1</text>'
        '<text class="value" x="77.5" y="29.94" fill="#ffffff">−1</text></g>'
    )


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (
            lambda: heatmap(noise(4, 4), rows=["a", "b", "c"]),
            ShapeError,
            "heatmap: rows has 3 labels but values has 4 rows (values (4,4)); "
            "give one label per row",
        ),
        (
            lambda: heatmap(noise(4, 5), columns=["a"]),
            ShapeError,
            "heatmap: columns has 1 labels but values has 5 columns (values (4,5)); "
            "give one label per column",
        ),
        (
            lambda: heatmap(noise(3)),
            ShapeError,
            "heatmap: values expected shape (rows, columns), none of them 0, got (3); "
            "index or reshape it first",
        ),
        (lambda: heatmap(np.zeros((0, 3))), ShapeError, "none of them 0, got (0,3)"),
        (lambda: heatmap([[1, 2], [3]]), OptionError, "heatmap: values expected numbers"),
        (lambda: heatmap([["a"]]), OptionError, "heatmap: values expected numbers (rows, columns)"),
        (lambda: heatmap([[math.inf]]), OptionError, "expected finite, NaN or −inf, got +inf"),
        (lambda: heatmap(np.zeros((257, 256))), OptionError, "at most 65,536 cells, got (257,256)"),
        (
            lambda: heatmap([[1]], numbers="yes"),
            OptionError,
            "heatmap: numbers expected True, False or \"auto\", got 'yes'; choose one",
        ),
    ],
)
def test_heatmap_says_what_is_wrong(
    call: Callable[[], Picture], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        call()
