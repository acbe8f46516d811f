"""The viewer in a real Chromium: each view shown and clicked, its numbers those of the look."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import torch

import regard
from regard.view import Explained, Layer, Method, Sparsity, Text, View, html, payload
from regard.view.widget import answered

Opened = Callable[..., Any]


@pytest.fixture(scope="module")
def opened(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """Opens a page from disk with the network off, and sees that it asks for nothing else."""
    folder = tmp_path_factory.mktemp("pages")
    contexts: list[tuple[Any, list[str], list[str]]] = []

    def open_page(page: str, state: dict[str, Any] | None = None, **options: Any) -> Any:
        path = folder / f"{len(contexts)}.html"
        path.write_text(page, encoding="utf-8")
        context = browser.new_context(offline=True, **options)
        shown = context.new_page()
        shown.set_default_timeout(20_000)
        requests: list[str] = []
        troubles: list[str] = []
        shown.on("request", lambda request: requests.append(request.url))
        shown.on("pageerror", lambda error: troubles.append(str(error)))
        shown.on("console", lambda said: troubles.append(said.text) if said.type == "error" else 0)
        contexts.append((context, requests, troubles))
        shown.goto(path.as_uri() + (f"#{quote(json.dumps(state))}" if state else ""))
        shown.wait_for_selector(".viewer")
        return shown

    yield open_page
    for number, (context, requests, troubles) in enumerate(contexts):
        assert troubles == [], troubles
        assert requests, "the page itself"
        for address in requests:  # the page, once more where a test loads it anew
            assert address.startswith("file://")
            assert address.split("#")[0].endswith(f"/{number}.html")
        context.close()


@pytest.fixture(scope="module")
def page_of(view: View) -> str:
    return view.html()


def exact(view: View, layer: int, *heads: int) -> np.ndarray:
    """The weights between words, on average over the heads."""
    one = view.layers[layer]
    weights = one.look.weights()[0, list(heads)].numpy().astype(np.float64).mean(0)
    rows, columns = view.texts[one.queries].units(), view.texts[one.keys].units()
    summed = np.stack([weights[:, list(unit.tokens)].sum(1) for unit in columns], 1)
    return np.stack([summed[list(unit.tokens)].mean(0) for unit in rows])


def number(text: str) -> float:
    return 0.00025 if text == "<0.001" else float(text.replace("−", "-"))


def seconds(limit: float) -> float:
    """The limit on a machine of its own; on one that others use, too, as much longer as we wait."""
    return limit * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def tab(page: Any, name: str) -> None:
    page.click(f'[role=tab][data-view="{name}"]')


def test_head_view_shows_the_weights_of_a_word(opened: Opened, view: View, page_of: str) -> None:
    page = opened(page_of, {"view": "head", "heads": [1, 3], "query": -1, "threshold": 0})
    page.click('.list.from .item:has-text("street")')
    row = exact(view, 0, 1, 3)[5]
    shown = page.locator(".list.to .item").all()
    assert len(shown) == 12
    for item, weight in zip(shown, row, strict=True):
        value = item.locator(".value")
        assert number(value.inner_text()) == pytest.approx(weight, abs=6e-4)
    drawn = page.eval_on_selector_all(".strands path", "all => all.map(p => ({...p.dataset}))")
    assert len(drawn) == 24
    for link in drawn:
        assert link["query"] == "5"
        weight = exact(view, 0, int(link["head"]))[5, int(link["key"])]
        assert float(link["weight"]) == pytest.approx(weight, abs=2e-5)


def test_head_view_threshold_layer_heads_and_tokens(
    opened: Opened, view: View, page_of: str
) -> None:
    page = opened(page_of, {"view": "head", "query": -1, "heads": [0], "threshold": 0})
    page.locator('input[type="range"]').fill("55")  # 0.55² = 0.3025
    drawn = page.locator(".strands path").count()
    assert drawn == int((exact(view, 0, 0) >= 0.3025).sum()) > 0
    assert page.locator(".controls output").inner_text() == "30.3 %"
    page.select_option('select[aria-label="Layer"]', label="cross 1")
    assert page.locator(".strands path").count() == int((exact(view, 3, 0) >= 0.3025).sum())
    assert page.locator(".columns > .caption").all_inner_texts() == ["target", "source"]
    assert page.locator(".list.from .item").count() == 6
    page.click('button[aria-label="Head 2"]')
    several = (exact(view, 3, 0) >= 0.3025).sum() + (exact(view, 3, 2) >= 0.3025).sum()
    assert page.locator(".strands path").count() == int(several)
    page.click('button:has-text("Tokens")')
    assert page.locator(".list.to .item").count() == 14
    colours = page.eval_on_selector_all(
        ".strands path", "a => a.map(p => p.getAttribute('stroke'))"
    )
    assert len(set(colours)) == 2


def test_head_view_of_the_word_that_is_looked_at(opened: Opened, view: View, page_of: str) -> None:
    page = opened(page_of, {"view": "head", "heads": [2], "threshold": 0})
    page.click('.list.to .item:has-text("animal")')
    column = exact(view, 0, 2)[:, 1]
    found = [number(text) for text in page.locator(".list.from .value").all_inner_texts()]
    assert found == pytest.approx(column.tolist(), abs=6e-4)


def test_matrix_says_the_cell_and_enters_its_steps(
    opened: Opened, view: View, page_of: str
) -> None:
    page = opened(page_of, {"view": "matrix", "heads": [1], "query": -1, "layer": 0})
    assert page.locator(".live").inner_text() == "12 × 12"
    canvas = page.locator(".matrix canvas")
    weights = exact(view, 0, 1)
    canvas.focus()
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.locator(".live b").all_inner_texts() == ["cross", "animal"]
    assert number(page.locator(".live .value").inner_text()) == pytest.approx(
        weights[3, 1], abs=6e-4
    )
    # The pointer finds the same cells: every one that is said has the weight of the look.
    box = canvas.bounding_box()
    seen = set()
    words = [unit.label for unit in view.texts["source"].units()]
    for part in (0.3, 0.4, 0.5):
        page.mouse.move(box["x"] + part * box["height"], box["y"] + part * box["height"] + 60)
        asks, looked = page.locator(".live b").all_inner_texts()
        value = number(page.locator(".live .value").inner_text())
        assert value == pytest.approx(weights[words.index(asks), words.index(looked)], abs=6e-4)
        seen.add((asks, looked))
    assert len(seen) == 3
    page.mouse.down()
    page.mouse.up()
    assert page.locator('[role=tab][aria-selected="true"]').inner_text() == "Steps"
    assert page.locator(".steps h2").count() == 6


def test_matrix_draws_the_weights(opened: Opened, view: View, page_of: str) -> None:
    """The stronger a cell, the darker it is drawn, on light paper."""
    state = {"view": "matrix", "heads": [0], "query": -1, "theme": "light", "tokens": True}
    page = opened(page_of, state)
    box = page.locator(".matrix canvas").bounding_box()
    tokens = view.texts["source"].tokens
    weights = view.layers[0].look.weights()[0, 0].numpy()
    spots = [(x, y) for x in range(150, 420, 45) for y in range(150, 420, 45)]
    drawn = page.evaluate(
        """spots => { const c = document.querySelector('#viewer').shadowRoot
          .querySelector('.matrix canvas'), pen = c.getContext('2d');
          return spots.map(([x, y]) => [...pen.getImageData(x - 2, y - 2, 5, 5).data]); }""",
        spots,
    )
    found: list[tuple[float, int]] = []
    for (x, y), pixels in zip(spots, drawn, strict=True):
        light = np.array(pixels).reshape(25, 4)[:, :3].sum(1)
        if np.ptp(light) > 3:
            continue  # where two cells meet
        page.mouse.move(box["x"] + x, box["y"] + y)
        asks, looked = page.locator(".live b").all_inner_texts()
        weight = float(weights[tokens.index(asks), tokens.index(looked)])
        found.append((weight, int(light.min())))
    found.sort()
    assert len(found) > 15
    assert found[0][0] < 0.01
    assert found[-1][0] > 0.3
    lightness = np.array([light for _, light in found])
    assert (np.diff(lightness) <= 0).all()
    assert lightness[0] - lightness[-1] > 200


def test_overview_has_the_entropies_and_opens_a_head(
    opened: Opened, view: View, page_of: str
) -> None:
    page = opened(page_of, {"view": "overview"})
    found = page.eval_on_selector_all(".atlas button", "all => all.map(b => +b.dataset.entropy)")
    shares = [layer.look.entropy()[0].mean(-1) / np.log(layer.sizes[1]) for layer in view.layers]
    assert found == pytest.approx(torch.cat(shares).tolist(), abs=2e-4)
    page.locator(".atlas button").nth(6).click()
    assert page.locator('[role=tab][aria-selected="true"]').inner_text() == "Matrix"
    assert page.locator('select[aria-label="Layer"]').input_value() == "1"
    assert page.locator('.heads [aria-pressed="true"]').inner_text() == "2"


def test_steps_have_the_numbers_of_the_look(opened: Opened, view: View, page_of: str) -> None:
    page = opened(page_of, {"view": "steps", "heads": [3], "layer": 1, "query": 8, "key": 6})
    look = view.layers[1].look
    said = page.locator(".steps").inner_text().replace("−", "-")
    assert page.locator(".steps h2").all_inner_texts() == [
        "Query and key", "Score", "Scale and mask", "Softmax", "Value times weight", "Sum",
    ]  # fmt: skip
    score = float(look.compared([8], [3])[0, 0, 0, 6])
    assert f"q · k = {score:.4f}" in said
    assert f"divided by √8 = {score / 8**0.5:.4f}" in said
    weights = look.weights([8], [3])[0, 0, 0]
    for row in page.locator(".softmax tr").all():
        key = int(row.get_attribute("data-key"))
        shown = number(row.locator(".weight").inner_text())
        assert shown == pytest.approx(float(weights[key]), abs=6e-5)
    vectors = [text.split() for text in page.locator(".vector .values").all_inner_texts()]
    expected = {0: look.q[0, 3, 8], 1: look.k[0, 1, 6], 3: look.v[0, 1, 6], 5: look.output[0, 3, 8]}
    for place, vector in expected.items():
        found = [number(text) for text in vectors[place][:8]]
        assert found == pytest.approx(vector.tolist(), abs=6e-5)
    page.click('.strip[data-role="key"] .item:has-text("cross")')
    score = float(look.compared([8], [3])[0, 0, 0, 4])
    assert f"q · k = {score:.4f}" in page.locator(".steps").inner_text().replace("−", "-")


def test_steps_of_a_masked_cell(opened: Opened, page_of: str) -> None:
    page = opened(page_of, {"view": "steps", "heads": [0], "layer": 2, "query": 1, "key": 4})
    assert "Masked: this key may not be looked at" in page.locator(".steps").inner_text()


def test_steps_that_were_not_saved_are_said_to_be_missing(opened: Opened, view: View) -> None:
    page = opened(view.html(steps=["it"]), {"view": "steps", "query": 8, "key": 3})
    assert page.locator(".steps h2").count() == 6
    page.click('.strip[data-role="query"] .item:has-text("street")')
    assert page.locator(".absent").inner_text() == (
        "The numbers of this pair are not in this file; it has those of it."
    )


def test_explain_has_the_scores_and_cannot_cut_in_a_file(
    opened: Opened, view: View, page_of: str
) -> None:
    page = opened(page_of)
    assert page.locator('[role=tab][aria-selected="true"]').inner_text() == "Explain"
    assert view.explained is not None
    for method in view.explained.methods:
        cells = page.locator(f'td[data-method="{method.name}"] .figure').all_inner_texts()
        scores = np.asarray(method.scores).tolist()
        assert [number(text) for text in cells] == pytest.approx(scores, abs=5.1e-3)
    agreements = page.locator(".agreement").all_inner_texts()
    assert agreements[:3] == [f"agrees with knockout {x}" for x in ("0.41", "−0.20", "0.55")]
    assert page.locator(".lead").inner_text() == "Cutting it changes most."
    button = page.locator(".cut").first
    assert button.is_disabled()
    assert "Cutting needs the model" in page.locator(".reason").inner_text()
    page.click('.answers .pick:has-text("street")')
    heads = view.explained.methods[0].by_head(11)
    assert heads is not None
    told = page.locator(".chips button").nth(5).get_attribute("aria-label")
    assert told == f"encoder 2, head 1: {heads[1, 1, 5]:.4f}"
    page.locator(".chips button").nth(5).click()
    assert page.locator('[role=tab][aria-selected="true"]').inner_text() == "Head"
    assert page.locator('select[aria-label="Layer"]').input_value() == "1"
    assert page.locator(".list.from .strong").inner_text() == "it"


def test_compare_shows_both_sides(opened: Opened, page_of: str) -> None:
    page = opened(page_of)
    tab(page, "compare")
    assert page.locator(".pair .sentence b").all_inner_texts() == ["bat", "bat"]
    assert page.locator(".chart .value").all_text_contents() == ["1.00", "0.90", "0.60", "0.44"]
    assert "Fledermaus" in page.locator(".pair .other").inner_text()
    assert page.locator(".pair .one .figure").all_inner_texts() == ["0.41", "0.22", "0.71"]


def test_search_finds_words_one_after_the_other(opened: Opened, page_of: str) -> None:
    page = opened(page_of, {"view": "head", "query": -1})
    page.fill('input[type="search"]', "the")
    assert page.locator(".controls .caption").inner_text() == "1 of 2"
    assert page.locator(".list.from .strong").inner_text() == "The"
    page.keyboard.press("Enter")
    assert page.locator(".list.from .strong").inner_text() == "the"
    assert page.locator(".list.from .found").count() == 2
    page.fill('input[type="search"]', "zebra")
    assert page.locator(".controls .caption").inner_text() == "not there"


def test_keyboard_alone(opened: Opened, view: View, page_of: str) -> None:
    page = opened(page_of, {"view": "explain", "query": -1})

    def focused() -> str:
        return str(
            page.evaluate(
                """() => { const a = document.querySelector('#viewer').shadowRoot.activeElement;
                  return a ? (a.getAttribute('aria-label') || a.textContent) : ''; }"""
            )
        )

    def reach(name: str) -> None:
        for _ in range(40):
            page.keyboard.press("Tab")
            if focused() == name:
                return
        raise AssertionError(f"Tab never reached {name!r}")

    reach("Explain")
    page.keyboard.press("ArrowRight")
    assert focused() == "Compare"
    page.keyboard.press("ArrowRight")
    assert focused() == "Head"
    reach("Words that ask")
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    assert page.locator(".list.from .strong").inner_text() == "didn't"
    assert page.locator(".live b").inner_text() == "didn't"
    page.keyboard.press("ArrowRight")
    assert focused() == "Words that are looked at"
    page.keyboard.press("End")
    assert page.locator(".list.to .strong").inner_text() == "</s>"
    page.keyboard.press("]")
    assert page.locator('select[aria-label="Layer"]').input_value() == "1"
    page.keyboard.press("t")
    assert page.locator(".list.to .item").count() == 14
    page.keyboard.press("5")
    reach(f"encoder 2, head 0, entropy {entropy_of(view, 1, 0):.2f} of 1")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.locator('[role=tab][aria-selected="true"]').inner_text() == "Matrix"
    assert page.locator('select[aria-label="Layer"]').input_value() == "2"
    page.locator('[role=tab][aria-selected="true"]').focus()
    reach("Attention matrix; arrow keys move the cell, plus and minus zoom")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("+")
    page.keyboard.press("Enter")
    assert page.locator(".steps h2").count() == 6
    page.keyboard.press("/")
    page.keyboard.press("1")
    assert page.locator(".lead").inner_text() == "Cutting it changes most."


def entropy_of(view: View, layer: int, head: int) -> float:
    entropy = view.layers[layer].look.entropy()[0, head].mean()
    return float(entropy) / float(np.log(view.layers[layer].sizes[1]))


EVIL = "</script><img src=x onerror=\"window.hacked=1\"><svg onload='window.hacked=1'>"


def test_words_are_text_and_nothing_runs(opened: Opened, samples: Any) -> None:
    words = [EVIL, "<b>bold</b>", "\u202eturned", "\n", " ", "שלום", "مرحبا", "注意力", "𝔘🙂"]
    text = Text(EVIL, words, words, range(9))
    methods = [Method(EVIL, np.arange(9.0), heads=np.ones((1, 4, 9)), note=EVIL, agreement=0.5)]
    view = View(
        {EVIL: text},
        [Layer(EVIL, "self", EVIL, EVIL, samples.looked(9)) for _ in range(2)],
        explained=Explained(1, EVIL, EVIL, methods, EVIL, [EVIL]),
        compared=samples.compared(),
        title=EVIL,
    )
    page = opened(view.html())
    for name in ("explain", "compare", "head", "matrix", "overview", "steps"):
        tab(page, name)
        page.wait_for_timeout(30)
        assert page.evaluate("window.hacked") is None
        assert page.locator(".main img, .main b b, .main script").count() == 0
    assert page.locator("h1").inner_text() == EVIL
    tab(page, "head")
    shown = page.locator(".list.from .word").all_inner_texts()
    assert shown == [EVIL, "<b>bold</b>", "\ufffdturned", "␊", "␣", *words[5:]]
    directions = page.eval_on_selector_all(
        ".list.from .word", "all => all.map(w => getComputedStyle(w).direction)"
    )
    assert [i for i, one in enumerate(directions) if one == "rtl"] == [5, 6]


def test_dark_and_light(opened: Opened, page_of: str) -> None:
    page = opened(page_of, {"view": "head"}, color_scheme="dark")

    def paper() -> str:
        return str(page.eval_on_selector(".viewer", "v => getComputedStyle(v).backgroundColor"))

    assert paper() == "rgb(21, 23, 27)"
    page.click(".theme")
    assert paper() == "rgb(253, 253, 251)"
    assert page.locator(".theme").inner_text() == "Dark"


@pytest.mark.parametrize("name", ["explain", "compare", "head", "matrix", "overview", "steps"])
def test_a_phone_is_wide_enough(opened: Opened, page_of: str, name: str) -> None:
    page = opened(page_of, {"view": name}, viewport={"width": 360, "height": 720})
    page.wait_for_timeout(50)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    edges = page.eval_on_selector_all(
        ".main > * > *", "all => all.map(e => e.getBoundingClientRect().right)"
    )
    assert max(edges) <= 360


def test_the_state_stands_in_the_address(opened: Opened, page_of: str) -> None:
    page = opened(page_of)
    tab(page, "head")
    page.click('.list.from .item:has-text("animal")')
    address = page.evaluate("decodeURIComponent(location.hash.slice(1))")
    assert json.loads(address)["query"] == 1
    page.reload()
    assert page.locator(".list.from .strong").inner_text() == "animal"


@pytest.mark.parametrize("broken", ["%E0%A4%A", "{", '{"layer":99,"heads":[-1,"x"],"view":"none"}'])
def test_a_broken_address_is_passed_over(opened: Opened, page_of: str, broken: str) -> None:
    page = opened(page_of)
    page.evaluate("hash => history.replaceState(null, '', '#' + hash)", broken)
    page.reload()
    assert page.locator('[role=tab][aria-selected="true"]').inner_text() == "Explain"
    tab(page, "head")
    assert page.locator(".list.from .item").count() > 0
    assert page.locator('.heads [aria-pressed="true"]').count() > 0


def test_4096_words_open_in_three_seconds(opened: Opened, samples: Any) -> None:
    text = Text.of([f"word{i}" for i in range(4096)])
    look = samples.looked(4096, heads=12, width=16)
    layers = [Layer(f"layer {i + 1}", "self", "t", "t", look) for i in range(6)]
    # One layer is computed, and stands in the file six times: the size is that of six.
    most = Sparsity().links(layers)
    assert most == 12
    made = payload.build({"t": text}, layers[:1], sparsity=Sparsity(most, 0.0))
    made["layers"] = [{**made["layers"][0], "name": layer.name} for layer in layers]
    made["steps"] *= 6
    page = html.page(made, "")
    assert 12_000_000 < len(page.encode()) < 25_000_000
    start = time.perf_counter()
    shown = opened(page, {"view": "head", "threshold": 0})
    shown.wait_for_selector(".list.from .item")
    assert time.perf_counter() - start < seconds(3)
    assert shown.locator(".list.from .item").count() < 60
    assert "the 12 strongest links" in shown.locator(".held").inner_text()
    shown.fill('input[type="search"]', "word3210")
    row = shown.locator(".list.from .strong")
    assert row.inner_text() == "word3210"
    drawn = shown.eval_on_selector_all(".strands path", "all => all.map(p => ({...p.dataset}))")
    rows = look.weights([3210], [0, 1, 2])[0, :, 0]
    assert len(drawn) == 36
    for link in drawn:
        assert link["query"] == "3210"
        weight = float(rows[int(link["head"]), int(link["key"])])
        assert float(link["weight"]) == pytest.approx(weight, abs=2e-5)
    start = time.perf_counter()
    tab(shown, "matrix")
    assert shown.locator(".live").inner_text() != ""
    tab(shown, "overview")
    shown.wait_for_selector(".atlas canvas")
    assert time.perf_counter() - start < seconds(3)


def test_matrix_of_8000_words_zooms_to_single_cells(opened: Opened) -> None:
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(3, 8000, 8, generator=draw) * 1.5
    look = regard.look(x[0], x[1], x[2], mask=regard.window(40))
    view = View(
        {"t": Text.of([f"w{i}" for i in range(8000)])}, [Layer("one", "self", "t", "t", look)]
    )
    values, keys = look.top(1)
    weight, key = float(values[5000, 0]), int(keys[5000, 0])
    page = opened(view.html(), {"view": "matrix", "query": 5000, "key": key})
    assert page.locator(".live b").all_inner_texts() == ["w5000", f"w{key}"]
    shown = page.locator(".live .value").inner_text()
    assert number(shown) == pytest.approx(weight, abs=6e-4)
    canvas = page.locator(".matrix canvas")
    canvas.focus()

    def inked() -> int:
        """Pixels that are neither paper nor empty cell: links that were drawn."""
        return int(
            page.evaluate(
                """() => { const c = document.querySelector('#viewer').shadowRoot
                  .querySelector('.matrix canvas');
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


HOST = """<!doctype html><meta charset="utf-8"><div id="one"></div><div id="two"></div>
<script type="module">
  const source = document.createElement("script");
  const url = URL.createObjectURL(new Blob([%s], { type: "text/javascript" }));
  const { default: widget } = await import(url);
  for (const name of ["one", "two"]) {
    const heard = [];
    const given = %s[name];
    const model = {
      get: (key) => given[key],
      set: (key, value) => { given[key] = value; },
      save_changes: () => {},
      on: (event, listener) => { if (event === "msg:custom") heard.push(listener); },
      off: () => {},
      send: async (message) => {
        const reply = await window.asked(name, JSON.stringify(message));
        heard.forEach((listener) => listener(JSON.parse(reply)));
      },
    };
    widget.render({ model, el: document.getElementById(name) });
  }
</script>"""


def test_two_live_viewers_on_one_page_ask_and_do_not_disturb_each_other(
    browser: Any, view: View, samples: Any
) -> None:
    def cut(given: dict[str, Any]) -> dict[str, Any]:
        assert given["links"][0] == [7, 1]
        return {"before": "Das Tier war zu müde", "after": "Das Tier war sehr müde", "note": "One."}

    def refused(given: dict[str, Any]) -> dict[str, Any]:
        raise regard.OptionError("cut: at most 3 links")

    views = {
        "one": View(view.texts, view.layers, explained=view.explained, answers={"cut": cut}),
        "two": View(view.texts, view.layers[:1], explained=view.explained, title="Second",
                    answers={"cut": refused}),
    }  # fmt: skip
    given = {
        name: {"payload": payload.text_of(one.payload(steps=())), "live": one.live}
        for name, one in views.items()
    }
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.set_default_timeout(20_000)
    kinds: list[tuple[str, str]] = []

    def asked(name: str, message: str) -> str:
        question = json.loads(message)
        kinds.append((name, question["kind"]))
        return json.dumps(answered(views[name], question))

    page.expose_function("asked", asked)
    escaped = [json.dumps(x).replace("<", "\\u003c") for x in (html.module(), given)]
    page.set_content(HOST % tuple(escaped))
    one, two = page.locator("#one"), page.locator("#two")
    one.locator(".answers").wait_for()
    one.locator('tr[data-word="1"] .cut').click()
    assert one.locator(".outcome .after").inner_text().strip() == "Das Tier war sehr müde"
    assert one.locator(".outcome .changed").all_inner_texts() == ["sehr"]
    assert two.locator(".outcome").is_hidden()
    two.locator('tr[data-word="1"] .cut').click()
    assert two.locator(".outcome [role=alert]").inner_text() == "cut: at most 3 links"
    one.locator('tr[data-word="1"] .cut').click()
    assert one.locator(".outcome").is_hidden()
    one.locator('[role=tab][data-view="steps"]').click()
    one.locator('.strip[data-role="query"] .item:has-text("street")').click()
    look = view.layers[0].look
    one.locator(".steps h2").first.wait_for()
    one.locator('.strip[data-role="key"] .item:has-text("because")').click()
    score = float(look.compared([6], [0])[0, 0, 0, 7])
    page.wait_for_function(
        "text => document.querySelector('#one').shadowRoot.querySelector('.steps')"
        ".textContent.replaceAll('−', '-').includes(text)",
        arg=f"q · k = {score:.4f}",
    )
    assert two.locator('[role=tab][aria-selected="true"]').inner_text() == "Explain"
    assert two.locator("h1").inner_text() == "Second"
    assert {name for name, kind in kinds if kind == "steps"} == {"one"}
    context.close()


def test_a_payload_of_another_version_is_refused_in_words(opened: Opened, view: View) -> None:
    made = view.payload()
    made["version"] = 2
    page = opened(html.page(made, ""))
    assert page.locator("[role=alert]").inner_text() == (
        "This viewer reads regard.view 1, and was given regard.view 2."
    )


def test_colours_of_heads_can_be_told_apart() -> None:
    """The palettes keep their distance for protanopes, deuteranopes and tritanopes."""
    source = html.source("colour.js")
    for name, paper in (("LIGHT_HEADS", "#fdfdfb"), ("DARK_HEADS", "#15171b")):
        found = re.findall(r"#[0-9a-f]{6}", source.split(f"{name} = [")[1].split("]")[0])
        assert len(found) == len(set(found)) == 7
        for kind in MATRICES:
            seen = [simulated(colour, kind) for colour in [paper, *found]]
            apart = [np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i]]
            assert min(apart) > 0.1, (name, kind)


# Machado, Oliveira and Fernandes, 2009: severity 1.0, in linear RGB.
MATRICES = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
               [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
               [0.004733, 0.691367, 0.303900]],
}  # fmt: skip


def simulated(colour: str, kind: str) -> np.ndarray:
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(MATRICES[kind]) @ linear, 0, 1)
    return np.where(seen <= 0.0031308, seen * 12.92, 1.055 * seen ** (1 / 2.4) - 0.055)


def test_the_file_is_written_whole(view: View, tmp_path: Path) -> None:
    view.save(tmp_path / "x.html")
    assert (tmp_path / "x.html").read_text("utf-8").endswith("</script></body></html>\n")
