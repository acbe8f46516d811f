"""Pictures are safe, self-contained SVG documents, the same each time."""

from __future__ import annotations

import math
import re
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from regard.errors import FileError, OptionError
from regard.view import Picture, arrows, bars, heatmap, lines, links
from regard.view.svg import PAPER, escape, label, text_width
from tests.view.documents import (
    SVG,
    WORDS,
    Point,
    hover,
    noise,
    of_class,
    parsed,
    points,
    shown,
    softmax,
    texts,
)

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
        yield from points(element.get("d", ""))
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
