"""Pages of long texts in a real Chromium: small enough, quick enough, exact when zoomed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

import regard
from regard.view import Explained, Layer, Method, Sparsity, Text, View
from regard.view import page as pages
from tests.view.pages import cells, door, number

Opened = Callable[..., Any]


def seconds(limit: float) -> float:
    """The limit on a machine of its own; on one that others use, too, as much longer as we wait."""
    return limit * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@pytest.mark.parametrize(
    ("words", "tokens", "most", "megabytes", "limit"),
    [(512, 666, 16, 6, 1), (4096, 4096, 12, 25, 3)],
)
def test_long_texts_open_quickly(
    opened: Opened, samples: Any, words: int, tokens: int, most: int, megabytes: int, limit: float
) -> None:
    text = Text("", [f"w{i}" for i in range(tokens)], [f"w{i}" for i in range(words)],
                [min(i, words - 1) for i in range(tokens)])  # fmt: skip
    look = samples.looked(tokens, heads=12, width=16)
    layers = [Layer(f"layer {i}", "self", "t", "t", look) for i in range(6)]
    assert Sparsity().links(layers) == most
    # One layer is computed, and stands in the file six times: the size is that of six.
    made = View({"t": text}, layers[:1], sparsity=Sparsity(most, 0.0)).payload([])
    made["layers"] = [{**made["layers"][0], "name": layer.name} for layer in layers]
    made["steps"] *= 6
    document = pages.page(made, "")
    assert 0.3 * megabytes < len(document.encode()) / 1e6 < megabytes
    start = time.perf_counter()
    page = opened(document)
    assert time.perf_counter() - start < seconds(limit)
    assert page.locator("canvas.whole").count() == 1
    page.evaluate("document.querySelector('[data-read=\"321\"]').click()")
    weights = look.weights([321])[0, :, 0]
    hit = int(page.locator(".text .hit").get_attribute("data-read"))
    assert hit == int(
        weights[:, : words - 1].max(0).values.index_fill(0, torch.tensor(321), 0).argmax()
    )
    for (_, head), weight in cells(page).items():
        kept = float(weights[head].topk(most).values[-1])
        if weight > 0 or float(weights[head, hit]) > kept:
            assert weight == pytest.approx(float(weights[head, hit]), abs=2e-5)
    box = page.locator(".text .hit").bounding_box()
    frame = page.locator(".text").first.bounding_box()
    assert frame["y"] <= box["y"] <= frame["y"] + frame["height"]  # scrolled into sight
    start = time.perf_counter()
    door(page, "matrix")
    page.wait_for_selector(".live .value")
    door(page, "heads")
    assert time.perf_counter() - start < seconds(limit)


def test_matrix_of_8000_words_zooms_to_single_cells(opened: Opened) -> None:
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(3, 8000, 8, generator=draw) * 1.5
    look = regard.look(x[0], x[1], x[2], mask=regard.window(40))
    words = Text.of([f"w{i}" for i in range(8000)])
    values, keys = look.top(2)
    key = next(int(k) for k in keys[5000] if int(k) != 5000)
    weight = float(values[5000][keys[5000] == key])
    begin = Explained(5000, "t", "t", [Method("x", torch.ones(8000))])
    layer = Layer("one", "self", "t", "t", look)
    page = opened(View({"t": words}, [layer], explained=begin).html(steps=()))
    door(page, "matrix")
    page.wait_for_selector(".live .value")
    assert page.locator(".live b").all_inner_texts() == ["w5000", f"w{key}"]
    assert number(page.locator(".live .value").inner_text()) == pytest.approx(weight, abs=6e-4)
    page.focus(".matrix canvas")

    def inked() -> int:
        """Pixels that are neither paper nor empty cell: links that were drawn."""
        return int(
            page.evaluate(
                """() => { const c = document.querySelector('.matrix canvas');
                  const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
                  let n = 0;
                  for (let i = 0; i < d.length; i += 4)
                    if (d[i] < 150 && d[i + 2] > d[i] + 40) n += 1;
                  return n; }"""
            )
        )

    assert inked() > 500
    start = time.perf_counter()
    for _ in range(14):
        page.keyboard.press("+")
    assert time.perf_counter() - start < seconds(5)
    page.keyboard.press("ArrowRight")
    assert page.locator(".live b").all_inner_texts() == ["w5000", f"w{key + 1}"]
    assert inked() > 500
    page.keyboard.press("0")
    assert inked() > 500
