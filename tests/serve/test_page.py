"""The served page in a real Chromium: type, select, cut, compare, share, save; text stays text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from regard.lens import Lens

TEXT = "because it was too tired"
OTHER = "the bat hit it"
NASTY = "it </script><img src=x onerror=alert(1)> was"

Opened = Callable[..., Any]


@pytest.fixture(scope="module")
def opened(browser: Any, served: str) -> Iterator[Opened]:
    """Opens the page; in the end nothing may have failed, run or come from elsewhere."""
    contexts: list[tuple[Any, list[str], list[str]]] = []

    def open_page(question: dict[str, Any] | None = None, **options: Any) -> Any:
        context = browser.new_context(**options)
        page = context.new_page()
        page.set_default_timeout(20_000)
        requests: list[str] = []
        troubles: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
        page.on("console", lambda said: troubles.append(said.text) if said.type == "error" else 0)
        contexts.append((context, requests, troubles))
        page.goto(f"{served}?{urlencode(question or {'text': TEXT})}")
        page.wait_for_selector(".grid, .told.failed")
        return page

    yield open_page
    for context, requests, troubles in contexts:
        context.close()
        # A refusal of the API is told on the page; the browser counts it as an error of its own.
        assert [one for one in troubles if "status of 4" not in one] == []
        assert [url for url in requests if not url.startswith((served, f"blob:{served}"))] == []


def query(page: Any) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def settled(page: Any) -> str:
    """The headline, once the page has nothing to wait for."""
    page.wait_for_selector(".wrap:not([aria-busy])")
    page.wait_for_selector(".told:empty", state="attached")
    return str(page.locator("h1").inner_text())


def spoken(spans: Any) -> str:
    return "".join(text for text, _ in spans)


def asked(page: Any, text: str) -> str:
    """Types a sentence, and waits for what is found."""
    page.fill(".field", text)
    page.keyboard.press("Enter")
    page.wait_for_selector(".wrap:not([aria-busy]) .say")
    return settled(page)


def test_type_select_and_cut(opened: Opened, lens: Lens) -> None:
    page = opened({"text": OTHER})
    found = lens.view(TEXT, every=False, layers=False).findings[0]
    assert asked(page, TEXT) == spoken(found.headline)
    assert page.locator(".brand").inner_text() == "regard tiny"
    assert query(page)["text"] == TEXT
    assert query(page)["word"] == str(found.position)
    other = 1 if found.position != 1 else 2
    requests: list[str] = []
    page.on("request", lambda sent: requests.append(sent.url) if "/api/" in sent.url else None)
    page.click(f"[data-written='{other}']")
    page.wait_for_selector(f".on[data-written='{other}']")
    told = lens.view(TEXT, other, every=False, layers=False).findings[0]
    assert settled(page) == spoken(told.headline)
    assert [url.rsplit("/", 1)[1] for url in requests] == ["figure"]
    page.click(".scissors")
    assert settled(page) == spoken(told.reads[told.selected].cut_headline)
    assert query(page)["cut"] == "1"
    assert len(requests) == 1  # a cut asks for nothing


def test_what_goes_deeper_is_asked_for(opened: Opened, lens: Lens) -> None:
    page = opened()
    page.click("button.aside")
    page.wait_for_selector("button.back")
    assert " attends most to " in settled(page)
    page.click("button.back")
    page.click("[data-door=circuit]")
    page.wait_for_selector(".circuit path", state="attached")
    linked = lens.view(TEXT, every=False, layers=False).findings[0]
    assert page.locator(".circuit path").count() == len(linked.circuit) > 0
    assert page.locator(".say").inner_text() == spoken(linked.caption)
    page.click("[data-door=measures]")
    page.wait_for_selector(".measures")
    measures = lens.measures(TEXT)
    numbers = page.locator(".measures tbody tr").first.locator(".number").all_inner_texts()
    exact = [float(method.scores[0]) for method in measures.methods]
    assert [float(one.replace("−", "-")) for one in numbers] == pytest.approx(exact, abs=6e-3)
    page.click("[data-door=heads]")
    page.wait_for_selector(".atlas button")
    assert page.locator(".atlas button").count() == 16


def test_the_steps_of_a_word_that_is_read_are_asked_for(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.view.payload.STEPS_BUDGET", 0)  # as of a larger model
    page = opened({"text": OTHER, "read": 1})
    page.click("button.aside")
    page.wait_for_selector("button.back")
    assert page.locator(".flow li").count() == 6
    assert "cut" not in page.locator(".say").inner_text()
    page.click(".text [data-read='2']")
    page.wait_for_selector(".on[data-read='2']")
    assert page.locator(".flow li").count() == 6


def test_chips(opened: Opened) -> None:
    page = opened()
    labels = page.locator(".chips button").all_inner_texts()
    assert labels == ["it · tired", "it · wide", "bat · ball", "bat · mammal", "dog & bone"]
    with page.expect_request("**/api/figure") as request:
        page.click(".chips button:has-text('bat · ball')")
    assert request.value.post_data_json == {"text": "He hit the ball with the bat.", "word": "bat"}
    page.wait_for_selector(".wrap:not([aria-busy])")
    assert page.input_value(".field") == "He hit the ball with the bat."
    assert page.locator(".chips [aria-pressed=true]").all_inner_texts() == ["bat · ball"]


def test_the_permalink_restores_the_selection(opened: Opened) -> None:
    page = opened()
    page.click("[data-written='1'], .on[data-written='1']")
    page.wait_for_selector(".on[data-written='1']")
    page.click("[data-read='2']")
    page.click("[data-cell='0 1']")
    page.click(".scissors")
    assert query(page) == {
        "text": TEXT, "word": "1", "read": "2", "layer": "0", "head": "1", "cut": "1",
    }  # fmt: skip
    again = opened(query(page))
    again.wait_for_selector(".scissors.cut")
    assert again.url == page.url
    for part in ("h1", "main"):
        assert again.locator(part).inner_text() == page.locator(part).inner_text()


def test_an_address_that_makes_no_sense_shows_what_there_is(opened: Opened) -> None:
    page = opened({"text": TEXT, "word": 0, "read": 99, "layer": "x", "head": -1, "asks": 999})
    page.wait_for_selector(".on[data-written='0']")
    assert "undefined" not in page.locator("#page").inner_text()


def test_back_and_forward(opened: Opened) -> None:
    page = opened()
    first = settled(page)
    second = asked(page, OTHER)
    page.go_back()
    page.wait_for_selector("[data-read='4']")
    assert (settled(page), query(page)["text"]) == (first, TEXT)
    page.go_forward()
    page.wait_for_selector("[data-read='4']", state="detached")
    assert (settled(page), query(page)["text"]) == (second, OTHER)


def test_back_undoes_a_cut(opened: Opened) -> None:
    page = opened()
    whole, before = settled(page), page.url
    page.click(".scissors")
    page.click("[data-cell='0 1']")  # no step of its own
    assert settled(page) != whole
    page.go_back()
    page.wait_for_selector(".scissors:not(.cut)")
    assert (settled(page), page.url) == (whole, before)
    page.go_forward()
    page.wait_for_selector(".scissors.cut")
    page.wait_for_selector("[data-cell='0 1'][aria-pressed=true]")


def delay(page: Any, kind: str) -> None:
    """Delays the next request of this kind."""

    def late(route: Any) -> None:
        page.wait_for_timeout(600)
        route.continue_()

    page.route(f"**/api/{kind}", late, times=1)


def test_a_slow_answer_does_not_replace_a_newer_one(opened: Opened) -> None:
    page = opened()
    delay(page, "figure")
    page.fill(".field", OTHER)
    page.keyboard.press("Enter")
    page.fill(".field", "it was it")
    page.keyboard.press("Enter")
    page.wait_for_selector(".wrap:not([aria-busy])")
    page.wait_for_timeout(900)
    assert page.locator(".line.above").inner_text().split() == ["it", "was", "it"]


def test_slow_weights_do_not_become_those_of_a_newer_sentence(opened: Opened) -> None:
    page = opened()
    delay(page, "attention")
    page.click("[data-door=heads]")
    asked(page, OTHER)
    page.wait_for_selector(".atlas button")
    page.wait_for_timeout(900)
    page.click("button.aside")
    page.wait_for_selector("button.back")
    settled(page)
    assert page.locator(".text").inner_text().split() == OTHER.split()


def test_two_sentences_are_compared(opened: Opened, lens: Lens) -> None:
    page = opened({"text": TEXT, "read": 1})
    page.click("[data-door=compare]")
    assert page.input_value(".comparison [aria-label=Word]") == "it"
    page.fill(".comparison .other", " ")
    page.keyboard.press("Enter")
    page.wait_for_selector(
        '.comparison .failed:text-is("The other sentence is empty; give it at least one word")'
    )
    page.fill(".comparison .other", OTHER)
    page.keyboard.press("Enter")
    page.wait_for_selector(".pair")
    assert (
        page.locator(".compared .lead").inner_text() == lens.compare(TEXT, OTHER, "it").conclusion
    )
    page.fill(".comparison .other", "nothing")
    page.keyboard.press("Enter")
    page.wait_for_selector(".comparison .failed")
    assert "has no word 'it'" in page.locator(".comparison .failed").inner_text()


def test_save_and_copy(opened: Opened, browser: Any, served: str, tmp_path: Path) -> None:
    page = opened(permissions=["clipboard-read", "clipboard-write"])
    page.click("[data-written='2']")  # one of several the
    page.wait_for_selector(".on[data-written='2']")
    headline = settled(page)
    with page.expect_download() as download:
        page.click("text=Save as HTML")
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    assert path.name == "regard.html"
    context = browser.new_context(offline=True)
    saved = context.new_page()
    saved.goto(path.as_uri())
    saved.wait_for_selector(".scissors")
    assert saved.locator("h1").inner_text() == headline
    saved.click(".scissors")
    page.click(".scissors")
    assert saved.locator("h1").inner_text() == settled(page) != headline
    saved.click("[data-written='0']")
    saved.wait_for_selector(".on[data-written='0']")
    context.close()
    page.click("text=Copy link")
    page.wait_for_selector("text=Copied")
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    assert page.url.startswith(served)


def test_markup_is_shown_as_text(opened: Opened) -> None:
    page = opened({"text": NASTY})
    assert page.input_value(".field") == NASTY
    assert "".join(page.locator("[data-read]").all_inner_texts()) == NASTY.replace(" ", "")
    for door in ("circuit", "heads", "matrix", "layers", "compare", "data"):
        page.click(f"[data-door={door}]")
        page.wait_for_selector(f"[data-door={door}][aria-expanded=true]")
        assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2  # the payload and the program


def test_what_the_server_refuses_is_told(opened: Opened) -> None:
    page = opened({"text": TEXT, "word": "<img>"})
    assert page.locator(".told.failed").inner_text().startswith("The model did not write '<img>'")
    page.fill(".field", " ")
    page.keyboard.press("Enter")
    page.wait_for_selector('.told:has-text("text is empty; give it at least one word")')
    assert asked(page, TEXT)
    assert page.locator("img").count() == 0


def test_by_keyboard_alone(opened: Opened) -> None:
    page = opened()
    page.focus("body")
    for _ in range(9):
        if page.evaluate("document.activeElement.className") == "field":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("because it was")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-read='3']", state="detached")
    page.focus("[data-read][tabindex='0']")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("[data-read='1'][aria-checked=true]")
    assert page.evaluate("document.activeElement.dataset.read") == "1"
    page.focus(".scissors")
    page.keyboard.press("Enter")
    page.wait_for_selector(".scissors.cut:focus")


def test_the_focus_stays_where_something_was_pressed(opened: Opened) -> None:
    page = opened()
    for pressed, focused in (
        ("[data-written='1']", ".on[data-written='1']"),
        ("button.aside", "button.back"),
        ("button.back", "button.aside"),
        ("[data-door=layers]", "[data-door=layers]"),
        (".chips button:last-of-type", ".chips button:last-of-type"),
    ):
        page.focus(pressed)
        page.keyboard.press("Enter")
        page.wait_for_selector(f"{focused}:focus")
        page.wait_for_selector(".wrap:not([aria-busy])")
        assert page.locator(f"{focused}:focus").count() == 1


def test_a_phone_is_wide_enough(opened: Opened) -> None:
    page = opened(viewport={"width": 390, "height": 844})
    for door in ("compare", "measures"):
        page.click(f"[data-door={door}]")
        page.wait_for_selector(f"[data-door={door}][aria-expanded=true]")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_texts_of_other_directions(opened: Opened) -> None:
    page = opened({"text": "שלום עולם 猫が 好き"})
    words = page.locator("[data-read]").all_inner_texts()
    assert "".join(words) == "שלוםעולם猫が好き"
    assert page.locator(".line.above").get_attribute("dir") == "rtl"
