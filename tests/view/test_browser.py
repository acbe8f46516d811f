"""The page of attention in a real Chromium: shown, clicked, its numbers those of the look."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.view import Compared, Explained, Layer, Method, Side, Text, View
from tests.view.pages import cells, door, number

Opened = Callable[..., Any]
DOORS = ("heads", "matrix", "measures", "layers", "compare", "data")


@pytest.fixture(scope="module")
def shown(opened: Opened, view: View) -> Any:
    """One page for the tests that leave it as they find it, up to the selection."""
    return opened(view.html())


def exact(view: View, layer: int) -> np.ndarray:
    """The weights (h, q, k) between words."""
    one = view.layers[layer]
    weights = one.look.weights()[0].numpy().astype(np.float64)
    rows, columns = view.texts[one.queries].units(), view.texts[one.keys].units()
    summed = np.stack([weights[:, :, list(unit.tokens)].sum(2) for unit in columns], 2)
    return np.stack([summed[:, list(unit.tokens)].mean(1) for unit in rows], 1)


def test_a_word_is_shaded_by_its_strongest_head(shown: Any, view: View) -> None:
    shown.click('.text .word:has-text("street")')
    weights = np.stack([exact(view, 0), exact(view, 1)])[:, :, 5]
    strongest = weights.max((0, 1))
    titles = shown.eval_on_selector_all(".text .word", "all => all.map(w => w.title)")
    found = [float(title.rsplit(": ", 1)[1]) for title in titles]
    assert found == pytest.approx(strongest[:11].tolist(), abs=6e-4)
    others = [i for i in range(11) if i != 5]
    best = max(others, key=lambda i: strongest[i])
    layer, head = divmod(int(weights[:, :, best].argmax()), 4)
    assert shown.locator("h1").inner_text() == (
        f"street attends most to itself, then to {view.texts['source'].words[best]} "
        f"({strongest[best]:.2f}, layer {layer}, head {head})."
    )
    assert shown.locator(".text .on").inner_text() == "street"
    shades = shown.eval_on_selector_all(
        ".text .word:not(.on):not(.hit)",
        "all => all.map(w => [+w.title.split(': ').at(-1), "
        "+(w.style.background.match(/[\\d.]+(?=%)/) ?? [0])[0]])",
    )
    assert len(shades) == 9
    assert max(shade for _, shade in shades) > 10
    shades.sort()
    assert [shade for _, shade in shades] == sorted(shade for _, shade in shades)
    for (layer, head), weight in cells(shown).items():
        assert weight == pytest.approx(weights[layer, head, best], abs=2e-5)


def test_a_column_selects_a_key_and_a_cell_a_head(shown: Any, view: View) -> None:
    shown.click('.text .word:has-text("street")')
    shown.click("[data-column='1']")
    assert shown.locator(".text .hit").inner_text() == "animal"
    shown.click("[data-cell='1 3']")
    look = view.layers[1].look
    told = shown.locator(".flow strong").all_inner_texts()
    product = float(look.compared([6], [3])[0, 0, 0, 1])
    weight = float(look.weights([6], [3])[0, 0, 0, 1])
    assert [number(one) for one in told] == pytest.approx(
        [product, product / 8**0.5, weight], abs=6e-3
    )
    assert "÷ √8, nothing masked" in shown.locator(".flow").inner_text()
    assert f"weight {weight:.2f}" in shown.locator(".effect").inner_text()
    vectors = shown.eval_on_selector_all(
        ".flow .vector", "all => all.map(v => [...v.children].map(c => c.title))"
    )
    values = [look.q[0, 3, 6], look.k[0, 1, 1], look.v[0, 1, 1], weight * look.v[0, 1, 1],
              look.output[0, 3, 6]]  # fmt: skip
    for texts, vector in zip(vectors, values, strict=True):
        assert [number(text) for text in texts] == pytest.approx(vector.tolist(), abs=6e-4)
    assert shown.locator(".flow h3").all_inner_texts() == [
        "Query and key", "Score", "Scale", "Softmax", "Weight × value", "Sum",
    ]  # fmt: skip


def test_the_steps_of_words_are_those_of_their_strongest_tokens(shown: Any, view: View) -> None:
    """*tired* has two tokens; the link to it is almost all to the second."""
    shown.click('.text .word:has-text("it")')
    shown.click("[data-cell='0 2']")
    weights = view.layers[0].look.weights([8], [2])[0, 0, 0, 11:13]
    assert weights[1] > 100 * weights[0]
    told = shown.locator(".flow strong").last.inner_text()
    assert number(told) == pytest.approx(float(weights[1]), abs=6e-4)
    heading = shown.locator(".how h2").inner_text()
    assert f"strongest of 2 pairs of subwords; the words' weight is {weights.sum():.2f}" in heading


def test_masked_and_missing_steps_say_so(opened: Opened, samples: Any) -> None:
    layer = Layer("one", "masked", "t", "t", samples.looked(4, mask=regard.causal))
    view = View({"t": Text.of(list("abcd"))}, [layer])
    page = opened(view.html())
    page.click('.text .word:has-text("b")')
    page.click("[data-column='3']")
    assert page.locator(".flow strong").all_inner_texts()[1:] == ["−∞", "0.000"]
    assert "may not be attended to" in page.locator(".flow").inner_text()
    page = opened(view.html(steps=["a"]))  # opens on d
    assert page.locator(".how .note").inner_text().startswith("This page lacks the numbers of")
    page = opened(regard.view.attention_view(layer.look.weights(), list("abcd")).html())
    assert page.locator(".how .note").count() == 1


def test_the_caption_is_that_of_the_explained_word(shown: Any) -> None:
    shown.click('.text .word:has-text("it")')
    assert shown.locator(".say").inner_text() == "Cutting it changes most."
    shown.click('.text .word:has-text("cross")')
    told = shown.locator(".say").inner_text()
    assert told.startswith("These are the weights")
    assert "cut" not in told  # nothing can be cut here


def test_matrix_says_the_cell(shown: Any, view: View) -> None:
    shown.click('.text .word:has-text("street")')
    shown.click("[data-cell='0 1']")
    door(shown, "matrix")
    weights = exact(view, 0)[1]
    words = [unit.label for unit in view.texts["source"].units()]
    canvas = shown.locator(".matrix canvas")
    canvas.focus()
    shown.keyboard.press("ArrowUp")
    asks, looked = shown.locator(".live b").all_inner_texts()
    assert asks == "the"
    seen = {(asks, looked)}
    box = canvas.bounding_box()
    for part in (0.3, 0.4, 0.5):  # the pointer finds the same cells
        at = part * box["height"]
        shown.mouse.move(box["x"] + at, box["y"] + at + 60)
        asks, looked = shown.locator(".live b").all_inner_texts()
        value = number(shown.locator(".live .value").inner_text())
        assert value == pytest.approx(weights[words.index(asks), words.index(looked)], abs=6e-4)
        seen.add((asks, looked))
    assert len(seen) == 4
    assert shown.locator(".live").inner_text().startswith("encoder 1, head 1: ")


def test_matrix_draws_the_weights(shown: Any, view: View) -> None:
    """The stronger a cell, the darker it is drawn, on light paper."""
    shown.set_viewport_size({"width": 1300, "height": 560})  # too small for numbers in the cells
    shown.click('.text .word:has-text("street")')
    shown.click("[data-cell='0 0']")
    door(shown, "matrix")
    shown.locator(".matrix").scroll_into_view_if_needed()
    box = shown.locator(".matrix canvas").bounding_box()
    words = [unit.label for unit in view.texts["source"].units()]
    weights = exact(view, 0)[0]
    spots = [(x, y) for x in range(130, 420, 33) for y in range(130, 420, 33)]
    drawn = shown.evaluate(
        """spots => { const pen = document.querySelector('.matrix canvas').getContext('2d');
          return spots.map(([x, y]) => [...pen.getImageData(x - 2, y - 2, 5, 5).data]); }""",
        spots,
    )
    found: list[tuple[float, int]] = []
    for (x, y), pixels in zip(spots, drawn, strict=True):
        light = np.array(pixels).reshape(25, 4)[:, :3].sum(1)
        if np.ptp(light) > 3:
            continue  # where two cells meet
        shown.mouse.move(box["x"] + x, box["y"] + y)
        asks, looked = shown.locator(".live b").all_inner_texts()
        found.append((weights[words.index(asks), words.index(looked)], int(light.min())))
    found.sort()
    assert len(found) > 15
    assert found[0][0] < 0.01
    assert found[-1][0] > 0.2
    shown.set_viewport_size({"width": 1300, "height": 900})
    lightness = np.array([light for _, light in found])
    assert (np.diff(lightness) <= 3).all()
    assert lightness[0] - lightness[-1] > 150


def test_all_heads_have_their_entropies_and_one_opens(shown: Any, view: View) -> None:
    door(shown, "heads")
    found = shown.eval_on_selector_all(".atlas button", "all => all.map(b => +b.dataset.entropy)")
    shares = [layer.look.entropy()[0].mean(-1) / np.log(layer.sizes[1]) for layer in view.layers]
    assert found == pytest.approx(torch.cat(shares).tolist(), abs=2e-4)
    shown.locator(".atlas button").nth(6).click()
    shown.wait_for_selector('.live:has-text("encoder 2, head 2: ")')


def test_all_measures_have_the_scores(shown: Any, view: View) -> None:
    door(shown, "measures")
    assert view.explained is not None
    scores = [np.asarray(method.scores).tolist() for method in view.explained.methods]
    rows = shown.eval_on_selector_all(
        ".measures tbody tr",
        "all => all.map(r => [...r.querySelectorAll('.number')].map(n => n.textContent))",
    )
    found = [[number(text) for text in column] for column in zip(*rows, strict=True)]
    for one, other in zip(found, scores, strict=True):
        assert one == pytest.approx(other, abs=5.1e-3)
    head = shown.locator(".measures thead").inner_text()
    for told in ("0.41", "−0.20", "0.55"):
        assert f"agrees with cutting {told}" in head
    assert shown.locator(".panel p").first.inner_text() == "What “it” depends on"


def test_layer_by_layer(shown: Any, view: View) -> None:
    shown.click('.text .word:has-text("because")')
    door(shown, "layers")
    for layer, row in enumerate(shown.locator("table.layers tbody tr").all()):
        found = [float(text) for text in row.locator("td").all_inner_texts()]
        assert found == pytest.approx(exact(view, layer)[:, 6, :11].max(0).tolist(), abs=6e-3)


def test_two_sentences_are_compared(shown: Any, opened: Opened, samples: Any) -> None:
    door(shown, "compare")
    assert shown.locator(".pair .sentence b").all_inner_texts() == ["bat", "bat"]
    assert shown.locator(".chart .value").all_text_contents() == ["1.00", "0.90", "0.60", "0.44"]
    assert shown.locator(".chart .layer").all_text_contents() == ["input", "0", "1", "2"]
    assert "Fledermaus" in shown.locator(".pair .other").inner_text()
    assert shown.locator(".pair .one .number").all_inner_texts() == ["0.41", "0.22", "0.71"]
    alone = opened(View(compared=samples.compared()).html())
    assert alone.locator("h1").inner_text() == "bat in two sentences"
    assert alone.locator(".panel .lead").inner_text() == "They part after layer 1."


def test_data_are_the_weights(shown: Any, view: View, tmp_path: Path) -> None:
    shown.click('.text .word:has-text("street")')
    door(shown, "data")
    found: dict[str, list[dict[str, Any]]] = {}
    for kind in ("CSV", "JSON"):
        with shown.expect_download() as download:
            shown.click(f"text=Save as {kind}")
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        text = path.read_text("utf-8")
        found[path.name] = (
            list(csv.DictReader(text.splitlines())) if kind == "CSV" else json.loads(text)
        )
    rows = found["regard.csv"]
    assert len(rows) == len(found["regard.json"]) == 2 * 4 * 12
    keys = [unit.label for unit in view.texts["source"].units()]
    for row, same in zip(rows, found["regard.json"], strict=True):
        assert (row["query"], row["place"]) == ("street", "self")
        weight = exact(view, int(row["layer"]))[int(row["head"]), 5, keys.index(row["key"])]
        assert float(row["attention"]) == same["attention"] == pytest.approx(weight, abs=2e-5)


def test_the_keyboard_is_enough(shown: Any) -> None:
    def focused() -> str:
        return str(shown.evaluate("document.activeElement.textContent"))

    shown.click('.text .word:has-text("street")')
    shown.focus(".text .hit")
    shown.keyboard.press("Home")
    shown.keyboard.press("ArrowRight")
    assert focused() == "animal"
    shown.keyboard.press("Enter")
    assert shown.locator(".text .on").inner_text() == "animal"
    assert focused() == "animal"
    shown.keyboard.press("End")
    assert focused() == "tired"
    shown.locator("[data-door=layers]").focus()
    shown.keyboard.press("Tab")
    assert focused() == "Two sentences"
    door(shown, "heads")
    shown.locator(".atlas button[tabindex='0']").focus()
    before = shown.locator(".live b").inner_text()
    shown.keyboard.press("ArrowDown")
    assert shown.locator(".live b").inner_text() != before
    shown.keyboard.press("Enter")
    shown.wait_for_selector(".matrix canvas")
    shown.focus(".matrix canvas")
    shown.keyboard.press("+")
    shown.keyboard.press("ArrowDown")
    assert shown.locator(".live .value").count() == 1


def test_axe_finds_nothing_serious(shown: Any, audit: Callable[..., list[str]]) -> None:
    found = audit(shown, "page")
    for name in DOORS:
        door(shown, name)
        found += audit(shown, name, ".deeper")
    assert found == []


EVIL = "</script><img src=x onerror=\"window.hacked=1\"><svg onload='window.hacked=1'>"


def test_words_are_text_and_nothing_runs(opened: Opened, samples: Any) -> None:
    words = [EVIL, "<b>bold</b>", "\u202eturned", "\n", " ", "שלום", "مرحبا", "注意力", "𝔘🙂"]
    text = Text(EVIL, words, words, range(9))
    methods = [Method(EVIL, np.arange(9.0), note=EVIL, agreement=0.5)]
    side = Side(words, 0, [(EVIL, 1.0)], [(EVIL, 1.0)], EVIL)
    view = View(
        {EVIL: text},
        [Layer(EVIL, "self", EVIL, EVIL, samples.looked(9)) for _ in range(2)],
        explained=Explained(1, EVIL, EVIL, methods, EVIL),
        compared=Compared(EVIL, side, side, [1.0, 0.5], EVIL),
        title=EVIL,
    )
    page = opened(view.html(), viewport={"width": 390, "height": 844})
    told = page.locator(".text .word").all_inner_texts()
    assert told == [EVIL, "<b>bold</b>", "\ufffdturned", "␊", "␣", *words[5:]]
    directions = page.eval_on_selector_all(
        ".text .word", "all => all.map(w => getComputedStyle(w).direction)"
    )
    assert [i for i, one in enumerate(directions) if one == "rtl"] == [5, 6]
    for i in (0, 3, 8):
        page.click(f"[data-read='{i}']")
        for name in DOORS:
            door(page, name)
            assert page.evaluate("window.hacked") is None
            assert page.locator("img, script:not(#payload):not([type=module])").count() == 0
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, name


def test_dark_and_light(opened: Opened, view: View) -> None:
    page = opened(view.html(), color_scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(paper) == "rgb(21, 23, 27)"
    page.click("button[aria-label='Switch to the light theme']")
    assert page.evaluate(paper) == "rgb(253, 253, 251)"
    page.click("button[aria-label='Switch to the dark theme']")
    assert page.evaluate(paper) == "rgb(21, 23, 27)"


def test_a_phone_is_wide_enough_and_targets_large(opened: Opened, view: View) -> None:
    page = opened(view.html(), viewport={"width": 390, "height": 844})
    for name in DOORS:
        door(page, name)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
        small = page.eval_on_selector_all(
            "button",
            "all => all.filter(b => { const r = b.getBoundingClientRect(); "
            "return r.width > 0 && Math.min(r.width, r.height) < 24; }).map(b => b.outerHTML)",
        )
        assert small == []
