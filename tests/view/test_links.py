"""Links between words, as wide and dark as their weights."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest

from regard.errors import OptionError, ShapeError
from regard.view import Picture, links
from tests.view.documents import (
    SVG,
    WORDS,
    noise,
    number,
    of_class,
    parsed,
    points,
    shown,
    softmax,
    texts,
)


def test_links_are_as_wide_and_dark_as_their_weights() -> None:
    weights = [[0.7, 0.2, 0.1], [0.0, 1.0, 0.0], [0.3, math.nan, -math.inf]]
    picture = links(weights, WORDS[:3])
    strands = of_class(picture, "link")
    assert len(strands) == 5
    by_weight = {}
    for strand in strands:
        (_, start), *_, (_, end) = points(strand.get("d", ""))
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
    starts = {round(next(points(s.get("d", "")))[1]) // 26 for s in of_class(picture, "link")}
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
            'links: colours expected "#rrggbb", got \'"/><script>\'; write it like that',
        ),
        (
            lambda: links(np.ones((9, 1, 1)), "a"),
            OptionError,
            "links: colours expected for h=9 heads, got None, and only 8 can be told apart",
        ),
    ],
)
def test_links_says_what_is_wrong(
    call: Callable[[], Picture], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        call()
