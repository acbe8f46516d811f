"""The page in a real Chromium: type, pick, cut, compare, share, save; text stays text."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from regard.lens import Lens

TEXT = "because it was too tired"
OTHER = "the bat hit it"
NASTY = "it </script><img src=x onerror=alert(1)> was"

Opened = Callable[..., Any]


@pytest.fixture
def opened(browser: Any, served: str) -> Iterator[Opened]:
    """Opens the page; in the end nothing may have failed, run or come from elsewhere."""
    contexts: list[tuple[Any, list[str], list[str]]] = []

    def open_page(query: str = "", **options: Any) -> Any:
        context = browser.new_context(**options)
        page = context.new_page()
        page.set_default_timeout(60_000)
        requests: list[str] = []
        troubles: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on("console", lambda said: troubles.append(said.text) if said.type == "error" else 0)
        contexts.append((context, requests, troubles))
        page.goto(served + query)
        return page

    yield open_page
    for context, requests, troubles in contexts:
        context.close()
        # A refusal of the API is told on the page; the browser counts it as an error of its own.
        assert [one for one in troubles if "status of 422" not in one] == []
        assert [url for url in requests if not url.startswith((served, f"blob:{served}"))] == []


def query(page: Any) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def until(page: Any, expression: str) -> None:
    """Wait until it is true; playwright's own way needs eval, which the page forbids."""
    end = time.monotonic() + 60
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(50)


def test_type_pick_and_cut(opened: Opened, lens: Lens) -> None:
    page = opened()
    page.fill("#text", TEXT)
    page.keyboard.press("Enter")
    page.wait_for_selector(".sentence .word")
    assert page.locator("#told").inner_text() == "Pick a word to see what it looks at."
    assert page.locator(".sentence").first.inner_text() == TEXT
    page.click('.sentence .word:text-is("it")')
    page.wait_for_selector(".viewer")
    explanation = lens.explain(TEXT, "it")
    assert page.locator(".viewer h1").inner_text() == "it"
    assert page.locator(".viewer .lead").inner_text() == explanation.conclusion
    assert page.locator(".translation").inner_text() == explanation.said
    assert page.locator("#model").inner_text() == "tiny"
    assert query(page) == {"text": TEXT, "word": "1"}
    page.click('tr[data-word="0"] .cut')
    page.wait_for_selector(".outcome .after")
    found = lens.without(TEXT, [("it", "because")])
    assert page.locator(".outcome .before").inner_text() == found.before
    assert page.locator(".outcome .after").inner_text().strip() == found.after.strip()
    assert page.locator(".outcome .note").inner_text() == found.note
    page.click('tr[data-word="4"] .cut')
    both = lens.without(TEXT, [("it", "because"), ("it", "tired")])
    page.wait_for_selector(f'.outcome .note:text-is("{both.note}")')


def test_steps_of_any_cell_are_asked_for(opened: Opened, lens: Lens) -> None:
    page = opened(f"?text={quote(TEXT)}&word=1&view=steps&layer=1&heads=1&query=3&key=2")
    page.wait_for_selector(".steps li")
    look = lens.view(TEXT, "it").layers[1].look
    weight = float(look.weights()[0, 1, 3, 2])
    assert f"{weight:.4f}" in page.locator(".steps").inner_text()


def test_cuts_and_picks_by_keyboard_keep_the_place(opened: Opened) -> None:
    page = opened(f"?text={quote(TEXT)}&word=4")
    page.wait_for_selector(".answers .cut")

    def focused() -> str:
        return str(
            page.evaluate("document.querySelector('#viewer').shadowRoot.activeElement?.ariaLabel")
        )

    page.locator('tr[data-word="1"] .cut').focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".outcome .after")
    assert focused().startswith("Restore the link to ")
    page.keyboard.press("Enter")
    assert focused().startswith("Cut the link to ")
    page.locator('tr[data-word="1"] .pick').focus()
    page.keyboard.press("Enter")
    assert page.locator('tr[data-word="1"] .pick[aria-pressed="true"]').count() == 1
    assert (
        page.evaluate("document.querySelector('#viewer').shadowRoot.activeElement?.className")
        == "pick"
    )


def test_an_address_that_makes_no_sense_shows_what_there_is(opened: Opened) -> None:
    page = opened(f"?text={quote(TEXT)}&word=4&view=matrix&layer=abc&query=1.5&threshold=x&theme=y")
    page.wait_for_selector(".viewer canvas")
    assert "undefined" not in page.locator(".viewer").inner_text()


def test_the_permalink_restores_what_was_seen(opened: Opened) -> None:
    page = opened(f"?text={quote(TEXT)}&word=4")
    page.wait_for_selector(".viewer")
    page.click('[role=tab][data-view="head"]')
    page.click('button[aria-label="Head 1"]')
    page.click(".theme")
    page.click('.list.from .item:has-text("because")')
    until(page, "location.search.includes('query=')")
    link = page.url
    assert query(page)["view"] == "head"
    shown = page.locator(".viewer .main").inner_text()
    again = opened(f"?{urlsplit(link).query}")
    again.wait_for_selector(".viewer .list .item")
    assert again.url == link
    assert again.locator(".viewer .main").inner_text() == shown
    assert again.locator('.sentence .word[aria-pressed="true"]').inner_text() == "tired"
    dark = "getComputedStyle(document.body).backgroundColor"
    assert again.evaluate(dark) == page.evaluate(dark) == "rgb(21, 23, 27)"


def test_back_and_forward(opened: Opened) -> None:
    page = opened(f"?text={quote(TEXT)}")
    page.click('.sentence .word:text-is("it")')
    page.wait_for_selector(".viewer")
    page.click('.sentence .word:text-is("tired")')
    page.wait_for_selector('.viewer h1:text-is("tired")')
    page.go_back()
    page.wait_for_selector('.viewer h1:text-is("it")')
    page.go_back()
    page.wait_for_selector(".viewer", state="detached")
    assert page.locator('.sentence .word[aria-pressed="true"]').count() == 0
    page.go_forward()
    page.wait_for_selector('.viewer h1:text-is("it")')


def test_compare(opened: Opened, lens: Lens) -> None:
    page = opened()
    page.click("#two")
    page.fill("#both", "it")
    page.fill("#text-one", TEXT)
    page.fill("#text-other", OTHER)
    page.keyboard.press("Enter")
    page.wait_for_selector(".viewer .pair")
    found = lens.compare("it", TEXT, OTHER)
    assert page.locator(".viewer .lead").inner_text() == found.conclusion
    assert query(page) == {"compare": "it", "one": TEXT, "other": OTHER}
    page.reload()
    page.wait_for_selector(".viewer .pair")
    assert page.input_value("#text-other") == OTHER


def test_save_and_copy(opened: Opened, browser: Any, served: str, tmp_path: Path) -> None:
    page = opened(f"?text={quote(TEXT)}&word=1", permissions=["clipboard-read", "clipboard-write"])
    page.wait_for_selector(".viewer")
    with page.expect_download() as download:
        page.click("#save")
    assert download.value.suggested_filename == "regard-it.html"
    path = tmp_path / "saved.html"
    download.value.save_as(path)
    context = browser.new_context(offline=True)
    saved = context.new_page()
    saved.goto(path.as_uri())
    saved.wait_for_selector(".viewer .answers")
    assert saved.locator(".viewer h1").inner_text() == TEXT
    context.close()
    page.click("#copy")
    page.wait_for_selector('#copy:text-is("Copied")')
    copied = urlsplit(page.evaluate("navigator.clipboard.readText()"))
    assert f"{copied.scheme}://{copied.netloc}/" == served
    assert parse_qs(copied.query) == {"text": [TEXT], "word": ["1"]}


def test_markup_is_shown_as_text(opened: Opened) -> None:
    page = opened()
    page.fill("#text", NASTY)
    page.click(".go")
    page.wait_for_selector(".sentence .word")
    assert page.locator(".sentence").inner_text() == NASTY
    page.click('.sentence .word:text-is("onerror")')
    page.wait_for_selector(".viewer")
    for view in ("explain", "head", "matrix", "overview", "steps"):
        page.click(f'[role=tab][data-view="{view}"]')
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    page.goto(page.url.replace("word=", "word=%3Cimg%3E"))
    page.wait_for_selector(".sentence .word")
    assert page.locator("img").count() == 0


def test_what_the_server_refuses_is_told(opened: Opened) -> None:
    page = opened(f"?text={quote(TEXT)}&word=99")
    page.wait_for_selector("#told.failed")
    assert page.locator("#told").inner_text() == "word 99, but the text has 5, numbered from 0"
    page.click('.sentence .word:text-is("it")')
    page.wait_for_selector(".viewer")
    assert page.locator("#told").inner_text() == ""


def test_by_keyboard_alone(opened: Opened) -> None:
    page = opened()
    until(page, "document.activeElement.id === 'text'")
    page.keyboard.type("because it was")
    page.keyboard.press("Enter")
    page.wait_for_selector(".sentence .word")
    until(page, "document.activeElement.className === 'word'")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector('.viewer h1:text-is("it")')


def test_a_phone_is_wide_enough(opened: Opened) -> None:
    page = opened(f"?text={quote(TEXT)}&word=1", viewport={"width": 360, "height": 740})
    page.wait_for_selector(".viewer")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_texts_of_other_directions(opened: Opened) -> None:
    page = opened(f"?text={quote('שלום עולם 猫が 好き')}&word=1")
    page.wait_for_selector(".viewer")
    words = page.locator(".sentence").first.locator(".word").all_inner_texts()
    assert "".join(words) == "שלוםעולם猫が好き"
    assert words[:2] == ["שלום", "עולם"]
    assert (
        page.locator(".viewer h1").inner_text()
        == page.locator('.sentence .word[aria-pressed="true"]').inner_text()
    )


def test_the_link_says_all_and_nothing_twice(opened: Opened) -> None:
    """`read` and `written` are each other's inverse."""
    page = opened()
    place = {
        "kind": "one", "text": "a & b = c+d? #e, \u00e9\u732b", "word": 3, "compared": "",
        "one": "", "other": "",
        "state": {"view": "head", "layer": 2, "heads": [0, 3], "tokens": True, "query": 5,
                  "key": -1, "threshold": 0.25, "cut": [1, 4], "theme": "dark"},
    }  # fmt: skip
    back = page.evaluate(
        """async place => {
            const { read, written } = await import("/serve/static/link.js");
            return [written(place), read(written(place))];
        }""",
        place,
    )
    place["state"].pop("key")  # type: ignore[attr-defined]  # goes without saying
    assert json.loads(json.dumps(back[1])) == place
    assert "heads=0,3" in back[0]
    assert "cut=1,4" in back[0]
