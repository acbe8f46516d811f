"""Pictures: well-formed, honest about their numbers, inside their frame, and safe with any text."""

from __future__ import annotations

import math
import re
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.errors import FileError, OptionError, ShapeError
from regard.view import Picture, arrows, bars, heatmap, lines, links
from regard.view.colour import PALETTE, contrast, ink_on, legible, luminance, ramp
from regard.view.svg import PAPER, escape, label, text_width

SVG = "{http://www.w3.org/2000/svg}"
ODD = [
    "</script><img onerror=alert(1)>",
    "a&b",
    "\"quoted\" & 'so'",
    "🙂 emoji",
    "注意力機構",
    "שלום עולם!",
    "مرحبا",
    "]]>",
]
IT = "The animal didn't cross the street because it was too tired"
WORDS = IT.split()


def softmax(scores: np.ndarray) -> np.ndarray:
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def noise(*sizes: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=sizes)


def parsed(picture: Picture) -> ET.Element:
    return ET.fromstring(picture.svg())


def of_class(picture: Picture, kind: str) -> list[ET.Element]:
    return [element for element in parsed(picture).iter() if element.get("class") == kind]


def shown(element: ET.Element) -> str:
    """The text of an element, without what it says on hover."""
    parts = [element.text or ""] + [child.tail or "" for child in element]
    return "".join(parts)


def hover(element: ET.Element) -> str | None:
    title = element.find(f"{SVG}title")
    return None if title is None else title.text


def texts(picture: Picture, kind: str) -> list[str]:
    return [shown(element) for element in of_class(picture, kind)]


def number(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))


def gallery() -> dict[str, Callable[[], Picture]]:
    causal = np.where(np.tril(np.ones((8, 11))) > 0, noise(8, 11), -np.inf)
    heads = softmax(noise(2, 11, 11) * 2)
    distance = np.linspace(0.0, 10.0, 25)
    return {
        "cat": lambda: heatmap(
            softmax(noise(3, 3)), rows=WORDS[:3], columns=WORDS[:3], title="a long title " * 7
        ),
        "causal": lambda: heatmap(causal, rows=WORDS[:8], columns=WORDS, title="scores"),
        "odd": lambda: heatmap(noise(8, 8), rows=ODD, columns=ODD, title=ODD[0], numbers=False),
        "large": lambda: heatmap(np.round(noise(40, 30)), rows=range(40), columns=range(30)),
        "row": lambda: heatmap([[0.25]], columns=["a very long label for one cell alone"]),
        "it": lambda: links(heads, WORDS, focus=7, title="it"),
        "align": lambda: links(softmax(noise(5, 7)), WORDS[:5], WORDS[:7]),
        "odd links": lambda: links(softmax(noise(8, 8)), ODD, focus=[0, 5], title=" ".join(ODD)),
        "entropy": lambda: lines(
            {"scaled": ([4, 8, 512], [3.1, 3.0, 3.1]), "not": ([4, 8, 512], [2.6, 1.2, 0.1])},
            x="head width",
            y="entropy",
            log_x=True,
            title="entropy",
        ),
        "many": lambda: lines(
            {f"{ODD[i % 8]} {i}": (distance, np.exp(-distance / (i + 1))) for i in range(23)}
        ),
        "log": lambda: lines({"loss": ([1, 3, 900], [5, 2.5, 3e-6])}, log_x=True, log_y=True),
        "bars": lambda: bars({"cut": -3.2, ODD[0]: 0.4, "ß" * 90: 1234.5}, unit="ms", title="bars"),
        "plane": lambda: arrows(
            {"bat": (1, 0.15), "ball": (0.35, 0.9), "none": (0, 0)},
            also={"bat": (0.8, 0.5), ODD[0]: (-0.2, 0.1)},
            title="arrows",
        ),
        "flat": lambda: arrows({"x" * 60: (-3, 0)}),
    }


GALLERY = gallery()
every = pytest.mark.parametrize("make", GALLERY.values(), ids=GALLERY.keys())


# The document


@every
def test_documents_are_safe_and_the_same_each_time(make: Callable[[], Picture]) -> None:
    svg = make().svg()
    assert svg == make().svg()
    root = ET.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root[0].tag == f"{SVG}title"
    assert root[0].text
    known = {"svg", "title", "g", "rect", "path", "text", "circle"}
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= known
    for element in root.iter():
        for name, value in element.attrib.items():
            assert not name.startswith("on")
            assert name not in ("id", "href")
            assert "url(" not in value
            assert "e-" not in re.sub("[a-z]{2,}[a-z-]*", "", value)  # no 1e-16
            assert not re.search(r"\b(nan|inf)\b|\d\.\d{3}", value)


Point = tuple[float, float]


def drawn(root: ET.Element) -> Iterator[tuple[str, float, float]]:
    """Every corner that is drawn, in the coordinates of the document: what, x, y."""
    yield from _drawn(root, lambda x, y: (x, y), {"font-size": "13", "text-anchor": "start"})


def _drawn(
    element: ET.Element, place: Callable[[float, float], Point], style: dict[str, str]
) -> Iterator[tuple[str, float, float]]:
    for kind, values in re.findall(r"(\w+)\(([^)]*)\)", element.get("transform", "")):
        numbers = [float(value) for value in values.split()]
        place = _shifted(place, *numbers) if kind == "translate" else _turned(place, numbers[0])
    style = style | {key: value for key, value in element.attrib.items() if key in style}
    tag = element.tag.removeprefix(SVG)
    for x, y in _corners(tag, element, style):
        yield (tag, *place(x, y))
    for child in element:
        yield from _drawn(child, place, style)


# A transform list applies from the right, so each of them is composed inside the one before it.
def _shifted(place: Callable[[float, float], Point], dx: float, dy: float) -> Callable[..., Point]:
    return lambda x, y: place(*_turn_then(x, y, 0, dx, dy))


def _turned(place: Callable[[float, float], Point], degrees: float) -> Callable[..., Point]:
    return lambda x, y: place(*_turn_then(x, y, degrees, 0, 0))


def _turn_then(x: float, y: float, degrees: float, dx: float, dy: float) -> Point:
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return x * cos - y * sin + dx, x * sin + y * cos + dy


def _corners(tag: str, element: ET.Element, style: dict[str, str]) -> Iterator[Point]:
    at = {key: float(element.get(key, 0)) for key in ("x", "y", "width", "height", "dy")}
    if tag == "rect":
        yield at["x"], at["y"]
        yield at["x"] + at["width"], at["y"] + at["height"]
    elif tag == "circle":
        cx, cy, r = (float(element.get(key, 0)) for key in ("cx", "cy", "r"))
        yield from ((cx - r, cy - r), (cx + r, cy + r))
    elif tag == "path":
        yield from _path(element.get("d", ""))
    elif tag == "text":
        size = float(style["font-size"])
        wide = sum(0 if unicodedata.combining(c) else _wide(c) for c in shown(element)) * size
        backwards = element.get("direction") == "rtl"
        start = {"start": 0.0, "middle": -wide / 2, "end": -wide}[style["text-anchor"]]
        start = -wide - start if backwards else start
        y = at["y"] + at["dy"]
        yield from ((at["x"] + start, y - 0.75 * size), (at["x"] + start + wide, y + 0.22 * size))


def _wide(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    return 0.3 if character in "iljtfr.,:;'!|()[]/ -" else 0.68 if character.isupper() else 0.57


def _path(d: str) -> Iterator[Point]:
    x = y = 0.0
    for command, values in re.findall(r"([A-Za-z])([^A-Za-z]*)", d):
        numbers = [float(value) for value in re.findall(r"-?[\d.]+", values)]
        if command in "MLC":
            for x, y in zip(numbers[::2], numbers[1::2], strict=True):
                yield x, y
            continue
        if command == "l":
            x, y = x + numbers[0], y + numbers[1]
        elif command in "Hh":
            x = numbers[0] + (x if command == "h" else 0)
        elif command in "Vv":
            y = numbers[0] + (y if command == "v" else 0)
        else:
            assert command in "Zz"
        yield x, y


@every
def test_nothing_is_drawn_outside(make: Callable[[], Picture]) -> None:
    picture = make()
    root = parsed(picture)
    left, top, width, height = map(float, root.get("viewBox", "").split())
    assert (left, top, width, height) == (-20, -20, picture.width + 40, picture.height + 40)
    panel, *rest = [element for element in root if element.tag != f"{SVG}title"]
    assert (panel.get("fill"), panel.get("x"), panel.get("y")) == (PAPER, "-20", "-20")
    for element in rest:
        for tag, x, y in drawn(element):
            slack = 12 if tag == "text" else 1  # the margin is 20
            assert -slack <= x <= picture.width + slack, (tag, x, y)
            assert -slack <= y <= picture.height + slack, (tag, x, y)


def test_the_title_is_drawn_and_said() -> None:
    picture = heatmap([[1.0]], title="one & only")
    assert texts(picture, "title") == ["one & only"]
    assert picture.title == "one & only"
    assert heatmap([[1.0, 2.0]]).title == "heat map, 1 × 2"
    assert texts(heatmap([[1.0]]), "title") == []
    wrapped = texts(heatmap([[1.0]], title="word " * 30), "title")
    assert len(wrapped) > 2
    assert " ".join(wrapped).split() == ["word"] * 30


def test_a_notebook_shows_the_document() -> None:
    picture = bars({"a": 1})
    assert picture._repr_svg_() == picture.svg()


def test_save_writes_the_document(tmp_path: Path) -> None:
    picture = heatmap([[0.5]], rows=["注"])
    for path in (tmp_path / "a.svg", str(tmp_path / "b.SVG")):
        picture.save(path)
        assert Path(path).read_bytes() == picture.svg().encode() + b"\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svg", "b.SVG"]


def test_save_leaves_the_old_file_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.svg"
    path.write_text("old")

    def fail(source: str, target: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(FileError, match=r"save: cannot write .*: disk full"):
        bars({"a": 1}).save(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_save_says_what_is_wrong_with_the_path(tmp_path: Path) -> None:
    picture = bars({"a": 1})
    with pytest.raises(OptionError, match=r"save: .*a\.gif ends in '\.gif', expected \.svg or"):
        picture.save(tmp_path / "a.gif")
    with pytest.raises(FileError, match=r"save: cannot write .*: No such file or directory"):
        picture.save(tmp_path / "none" / "a.svg")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(FileError, match="save: cannot write"):
        picture.save(tmp_path / "folder.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.svg"]


def test_beside_puts_pictures_in_a_row() -> None:
    one, two = heatmap([[1.0]], title="one"), bars({"a": 1, "b": 2, "c": 3}, title="two")
    both = one.beside(two, one, gap=10)
    assert both.width == 2 * one.width + two.width + 20
    assert both.height == max(one.height, two.height)
    assert both.title == "one · two · one"
    assert texts(both, "title") == ["one", "two", "one"]
    assert one.beside() == one
    moves = [element.get("transform") for element in parsed(both)[3:] if element.tag == f"{SVG}g"]
    assert f"translate({one.width + 10} 0)" in moves
    with pytest.raises(OptionError, match="beside: gap expected ≥ 0 and finite, got -1"):
        one.beside(two, gap=-1)


def test_a_picture_has_a_size() -> None:
    with pytest.raises(OptionError, match="Picture: width expected > 0 and finite, got 0"):
        Picture(0, 1, "", "")
    with pytest.raises(OptionError, match="Picture: height expected > 0 and finite, got inf"):
        Picture(1, math.inf, "", "")


# Text


def test_words_of_every_kind_are_shown_as_text() -> None:
    picture = heatmap(noise(8, 8), rows=ODD, columns=ODD)
    for kind in ("row", "column"):
        for element, word in zip(of_class(picture, kind), ODD, strict=True):
            said = shown(element)
            assert said == word or (said.endswith("…") and word.startswith(said[:-1]))
            assert hover(element) == (None if said == word else word)
            backwards = word in ("שלום עולם!", "مرحبا")
            assert (element.get("direction") == "rtl") is backwards


def test_right_to_left_text_keeps_its_side() -> None:
    anchors = {
        (word, side): ET.fromstring(label(word, 0, 0, anchor=side)).get("text-anchor", "start")
        for word in ("cat", "שלום")
        for side in ("start", "middle", "end")
    }
    assert [anchors["cat", side] for side in ("start", "middle", "end")] == [
        "start",
        "middle",
        "end",
    ]
    assert [anchors["שלום", side] for side in ("start", "middle", "end")] == [
        "end",
        "middle",
        "start",
    ]


def test_what_xml_forbids_is_made_visible() -> None:
    assert escape("\x00\n\t\x7f\ud800\uffff") == "␀␊␉\ufffd\ufffd\ufffd"
    assert shown(ET.fromstring(label("  ", 0, 0))) == "␣␣"
    parsed(heatmap([[1.0]], rows=["\x00\x1b[0m\ud800"], title="\x08"))


def test_wide_characters_count_double() -> None:
    assert text_width("注", 10) == 10.0
    assert text_width("🙂", 10) > 10
    assert text_width("e\u0301", 10) == text_width("e", 10)


# heatmap


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
        corners = list(_path(cell.get("d", "")))
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


# links


def test_links_are_as_wide_and_dark_as_their_weights() -> None:
    weights = [[0.7, 0.2, 0.1], [0.0, 1.0, 0.0], [0.3, math.nan, -math.inf]]
    picture = links(weights, WORDS[:3])
    strands = of_class(picture, "link")
    assert len(strands) == 5
    by_weight = {}
    for strand in strands:
        (_, start), *_, (_, end) = _path(strand.get("d", ""))
        place = int(start // 26), int(end // 26)
        by_weight[weights[place[0]][place[1]]] = strand
    assert sorted(by_weight) == [0.1, 0.2, 0.3, 0.7, 1.0]
    for key in ("stroke-width", "opacity"):
        sizes = [float(by_weight[weight].get(key, 0)) for weight in sorted(by_weight)]
        assert sizes == sorted(set(sizes))
    widths = [float(by_weight[weight].get("stroke-width", 0)) for weight in (0.1, 0.7)]
    assert widths[1] - widths[0] == pytest.approx(7.4 * 0.6, abs=0.011)
    assert texts(picture, "left") == texts(picture, "right") == WORDS[:3]


def test_threshold_is_the_weight_that_is_no_longer_drawn() -> None:
    weights = [[0.7, 0.2, 0.1]]
    for threshold, count in ((0, 3), (0.1, 2), (0.2, 1), (0.7, 0)):
        assert len(of_class(links(weights, "a", "xyz", threshold=threshold), "link")) == count


def test_focus_leaves_one_word_and_its_numbers() -> None:
    heads = softmax(noise(2, 11, 11) * 2)
    picture = links(heads, WORDS, focus=7)
    assert len(of_class(picture, "link")) == 22
    starts = {round(next(_path(s.get("d", "")))[1]) // 26 for s in of_class(picture, "link")}
    assert starts == {7}
    bold = [shown(word) for word in of_class(picture, "left") if word.get("font-weight")]
    assert bold == ["it"]
    dimmed = [word for word in of_class(picture, "left") if word.get("fill") == "#8b929c"]
    assert len(dimmed) == 10
    printed = [number(text) for text in texts(picture, "value")]
    np.testing.assert_allclose(printed, heads[:, 7].ravel(), atol=0.005 + 1e-9)
    assert links(heads, WORDS, focus=-4) == picture == links(heads, WORDS, focus=[np.int64(7)])
    several = links(heads, WORDS, focus=[7, 1])
    assert len(of_class(several, "link")) == 44
    assert not of_class(several, "value")


def test_heads_have_colours_and_names() -> None:
    picture = links(softmax(noise(3, 2, 2)), "ab", colours=["#112233", "#0072B2", "#d55e00"])
    groups = [e.get("stroke") for e in parsed(picture).iter(f"{SVG}g") if e.get("stroke")]
    assert groups == ["#112233", "#0072B2", "#d55e00"]
    assert [t for t in texts(picture, "legend") if t] == ["head 0", "head 1", "head 2"]
    assert not of_class(links(softmax(noise(2, 2)), "ab"), "legend")
    eight = links(softmax(noise(8, 2, 2)), "ab")
    assert len({e.get("stroke") for e in parsed(eight).iter(f"{SVG}g") if e.get("stroke")}) == 8


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (
            lambda: links(np.ones((2, 3)), "abc", "xyz"),
            ShapeError,
            "links: left has 3 labels but weights has q=2; give one label per query",
        ),
        (
            lambda: links(np.ones((2, 3)), "ab", "xy"),
            ShapeError,
            "links: right has 2 labels but weights has k=3; give one label per key",
        ),
        (
            lambda: links(np.ones((2, 3)), "ab"),
            ShapeError,
            "links: right expected, because weights has q=2 but k=3, got None",
        ),
        (lambda: links(np.ones(3), "abc"), ShapeError, "links: weights expected shape ([h], q, k)"),
        (
            lambda: links([[-0.5]], "a"),
            OptionError,
            "links: weights expected finite and ≥ 0, got -0.5; give weights, not scores",
        ),
        (lambda: links([[math.inf]], "a"), OptionError, "expected finite and ≥ 0, got inf"),
        (
            lambda: links([[1]], "a", focus=1),
            OptionError,
            "links: focus expected an index of left (0 … 0) or several, got 1; left.index(word)",
        ),
        (lambda: links([[1]], "a", focus=[]), OptionError, "or several, got []"),
        (
            lambda: links(np.ones((2, 1, 1)), "a", colours=["#000000"]),
            ShapeError,
            "links: colours has 1 but weights has h=2; give one per head",
        ),
        (
            lambda: links([[1]], "a", colours=['"/><script>']),
            OptionError,
            'links: colours expected "#rrggbb", got \'"/><script>\'; write it so',
        ),
        (
            lambda: links(np.ones((9, 1, 1)), "a"),
            OptionError,
            "links: colours expected for h=9 heads, got None, and only 8 stay apart",
        ),
    ],
)
def test_links_says_what_is_wrong(
    call: Callable[[], Picture], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        call()


# lines


def test_lines_go_through_their_points() -> None:
    picture = lines({"line": ([0, 5, 10], [0, 10, 5])})
    (path,) = of_class(picture, "line")
    assert list(_path(path.get("d", ""))) == [(0, 240), (230, 0), (460, 120)]
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
    assert next(_path(thread.get("d", ""))) == list(_path(early.get("d", "")))[-1]


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
    xs = [x for x, _ in _path(path.get("d", ""))]
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


# bars


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


# arrows


def test_arrows_have_one_scale_for_both_axes() -> None:
    picture = arrows({"east": (2, 0), "north": (0, 1), "both": (2, 1)})
    tips = []
    for arrow in of_class(picture, "arrow"):
        shaft, head = arrow
        origin, tip = next(_path(shaft.get("d", ""))), next(_path(head.get("d", "")))
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
