"""The page of a finding in a real Chromium: its numbers are the lens's, and links are cut."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from regard.lens import Lens, Why
from regard.view import Figure

TIRED = "The animal didn't cross the street because it was too tired."
HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "a\u2028b",
    "\u202eevil",
    "كتاب",
    "🦊🦊",
    "中文",
)


@pytest.fixture(scope="module")
def why() -> Why:
    return Lens.open("pocket-en-de").why(TIRED, "es", most=6, control=2)


@pytest.fixture(scope="module")
def page(browser: Any, why: Why, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The page, opened from disk with the network off; nothing else may be asked for."""
    path = tmp_path_factory.mktemp("figure") / "it.html"
    other = replace(why, word="Das", position=0)  # to select
    why.view(other).save(path)
    assert path.stat().st_size < 300_000
    context = browser.new_context(offline=True, viewport={"width": 1300, "height": 900})
    shown, troubles, requests = context.new_page(), [], []
    shown.set_default_timeout(20_000)
    shown.on("pageerror", lambda error: troubles.append(str(error)))
    shown.on("console", lambda said: troubles.append(said.text) if said.type == "error" else 0)
    shown.on("request", lambda request: requests.append(request.url))
    shown.goto(path.as_uri())
    yield shown
    assert troubles == []
    assert all(one.startswith("file://") for one in requests)
    context.close()


@pytest.fixture(autouse=True)
def restored(page: Any) -> None:
    """Each test begins with the link that is looked at most, uncut."""
    page.evaluate("document.querySelector('.scissors.cut')?.click()")
    page.click("[data-read='1']")


def headline(page: Any) -> str:
    return str(page.locator("h1").inner_text())


def test_the_numbers_are_those_of_the_lens(page: Any, why: Why) -> None:
    assert headline(page) == "When it writes es, it looks back at animal."
    assert page.locator(".scissors b").inner_text() == f"{why.looked_at.looked:.2f}"
    cells = page.eval_on_selector_all(
        "[data-cell]", "all => all.map(one => [one.dataset.cell, +one.dataset.weight])"
    )
    assert len(cells) == 18
    for place, weight in cells:
        layer, head = map(int, place.split())
        assert weight == pytest.approx(float(why.attention[layer, head, 1]), abs=1e-4)
    steps = page.locator(".flow strong").all_inner_texts()
    told = (why.steps.product, why.steps.scaled, why.steps.weight)
    assert [float(one) for one in steps] == pytest.approx(told, abs=6e-3)
    page.click("[data-cell='2 2']")
    product = page.locator(".flow strong").first.inner_text()
    assert float(product) == pytest.approx(float(why.row.product[2, 2, 1]), abs=6e-3)
    link = next(one for one in why.links if (one.layer, one.head, one.key) == (2, 2, "animal"))
    told = page.locator(".effect").inner_text().replace("−", "-")
    assert f"changes by {link.cut:.2f} (measured)" in told


def test_cutting_changes_headline_word_and_bars(page: Any, why: Why) -> None:
    page.click(".scissors")
    assert headline(page) == "Without that link it writes sie instead of es."
    assert page.locator(".word.flip").evaluate("one => one.firstChild.textContent") == "sie"
    assert page.locator(".word.flip s").inner_text() == "es"
    assert page.locator(".word.gone").inner_text() == "animal"
    assert "cut" in page.locator(".ribbon").get_attribute("class")
    shares = page.locator(".choices .value").all_inner_texts()
    now = why.matters_most.probabilities
    assert shares[:2] == [f"{100 * share:.0f}\xa0%" for share in now[:2]]
    assert page.locator(".track u").count() == len(now)
    assert page.locator(".flow strong").all_inner_texts()[1:] == ["−∞", "0"]
    page.click(".scissors")
    assert headline(page) == "When it writes es, it looks back at animal."


def test_columns_cut_and_words_select(page: Any) -> None:
    page.click("[data-column='7']")
    assert headline(page) == "Without it it still writes es, at 79\xa0% instead of 92\xa0%."
    assert page.locator(".word.gone").inner_text() == "it"
    page.click("[data-read='5']")
    assert headline(page) == "When it writes es, it looks at street with at most 0.63."
    assert page.locator("[data-cell][aria-pressed=true]").get_attribute("data-cell") == "0 0"


def test_another_written_word_is_selected(page: Any) -> None:
    page.click("[data-written='0']")
    assert headline(page).startswith("When it writes Das, it looks ")
    assert page.locator(".word.on").inner_text() == "Das"
    page.click("[data-written='7']")
    assert page.locator(".word.on").inner_text() == "es"


def test_the_keyboard_is_enough(page: Any) -> None:
    page.focus("[data-read='1']")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.read") == "2"
    page.keyboard.press("ArrowLeft")
    page.focus(".scissors")
    page.keyboard.press("Enter")
    assert headline(page).startswith("Without that link")
    assert page.evaluate("document.activeElement.className") == "scissors cut"
    page.keyboard.press("Enter")


def test_targets_are_large_enough_and_nothing_leaves_a_phone(page: Any) -> None:
    for width in (1300, 390):
        page.set_viewport_size({"width": width, "height": 844})
        page.wait_for_timeout(50)
        sizes = page.eval_on_selector_all(
            "button", "all => all.map(b => b.getBoundingClientRect()).map(r => [r.width, r.height])"
        )
        assert min(min(size) for size in sizes) >= 24
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width
    page.set_viewport_size({"width": 1300, "height": 900})


def test_hostile_text_is_text(browser: Any, why: Why) -> None:
    data = json.loads(json.dumps({**why.to_data(), "row": why.row.to_data()}))
    for one, word in zip(data["words"], HOSTILE, strict=False):
        one["word"] = word
    data["text"] = data["note"] = " ".join(HOSTILE)
    data["output_words"] = [*HOSTILE, "x" * 400, *data["output_words"][7:]]
    figure = Figure([data])
    context = browser.new_context(viewport={"width": 390, "height": 844})
    shown = context.new_page()
    asked: list[Any] = []
    shown.on("dialog", lambda dialog: (asked.append(dialog), dialog.dismiss()))
    shown.set_content(figure.html())
    assert shown.locator("img").count() == 0
    assert shown.locator("[data-read='0']").inner_text() == HOSTILE[0]
    assert "\u202e" not in shown.locator("[data-read='2']").inner_text()
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    shown.set_content(figure.svg())
    assert shown.locator("img").count() == 0
    assert asked == []
    assert not re.search("[\u2028\u202e]", figure.svg())
    context.close()
