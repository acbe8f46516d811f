"""The page of a finding in a real Chromium: its numbers are the lens's, and links are cut."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jaxtyping
import pytest

from regard.lens import Lens, Why
from regard.view import View
from regard.view.figure.wording import percent

TIRED = "The animal didn't cross the street because it was too tired."
HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "a\u2028b",
    "\u202eevil",
    "كتاب",
    "🦊🦊",
    "中文",
)
Opened = Callable[..., Any]


@pytest.fixture(scope="module")
def found() -> tuple[Why, View]:
    """The finding about *es*, and a page with all layers on which *Das* can be selected, too."""
    checked = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)  # as users run it: four times as fast
    lens = Lens.open("pocket-en-de")
    analysis = lens.analyse(TIRED)
    why, other = (lens.why(analysis, word, most=6, control=2) for word in ("es", 0))
    view = lens.view(analysis, "es", every=False)
    jaxtyping.config.update("jaxtyping_disable", checked)
    findings = [why.figure_data(), other.figure_data()]
    return why, View(view.texts, view.layers, findings=findings, measures=view.measures)


@pytest.fixture(scope="module")
def why(found: tuple[Why, View]) -> Why:
    return found[0]


@pytest.fixture(scope="module")
def page(opened: Opened, found: tuple[Why, View]) -> Any:
    document = found[1].html()
    assert len(document.encode()) < 1_000_000
    return opened(document)


@pytest.fixture(autouse=True)
def restored(page: Any, why: Why) -> None:
    """Each test begins with the link that is looked at most, uncut."""
    page.evaluate("document.querySelector('.back')?.click()")
    page.evaluate(f"document.querySelector('button[data-written=\"{why.position}\"]')?.click()")
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
    layers, heads, _ = why.attention.shape
    assert len(cells) == layers * heads
    for place, weight in cells:
        layer, head = map(int, place.split())
        assert weight == pytest.approx(float(why.attention[layer, head, 1]), abs=1e-4)
    steps = page.locator(".flow strong").all_inner_texts()
    told = (why.steps.product, why.steps.scaled, why.steps.weight)
    assert [float(one) for one in steps] == pytest.approx(told, abs=6e-3)
    assert f"{why.steps.scaling}, nothing masked" in page.locator(".flow").inner_text()
    link = next(one for one in why.links if (one.place, one.key) == ("cross", "animal"))
    page.click(f"[data-cell='{link.layer} {link.head}']")
    product = page.locator(".flow strong").first.inner_text()
    wanted = float(why.row.product[link.layer, link.head, 1])
    assert float(product) == pytest.approx(wanted, abs=6e-3)
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


@pytest.mark.parametrize("padding", [0, 40])
def test_a_cut_may_change_the_number_of_words(opened: Opened, why: Why, padding: int) -> None:
    """In the figure, and in the running text of a long input."""
    data = json.loads(json.dumps(why.figure_data()))
    animal = why.words.index(why.looked_at)
    after = "Das Tier überquerte die Straße nicht, weil dieses sehr alte Tier müde war."
    data["words"][animal].update(text=after, writes="dieses")
    data["words"] += padding * data["words"][-1:]
    page = opened(View(findings=[data]).html())
    for element in ("span.word", "button.word"):
        assert page.locator(f"{element}[data-written]").count() > 0
    page.click(".scissors")
    words = page.eval_on_selector_all(
        "[data-written]", "all => all.map(one => one.firstChild.textContent)"
    )
    assert "".join(words) == after.replace(" ", "")
    struck = page.locator(".word.flip s").all_inner_texts()
    assert struck == ["es"]
    flips = page.locator(".word.flip").evaluate_all("a => a.map(b => b.firstChild.textContent)")
    assert flips == ["dieses", "sehr", "alte", "Tier"]
    if not padding:
        assert page.locator(".ribbon.cut").count() == 1
    page.click(".scissors")
    assert page.locator("[data-written]").count() == len(why.output_words)


def test_columns_cut_and_words_select(page: Any, why: Why) -> None:
    page.click("[data-column='7']")
    now, before = percent(why.words[7].probability), percent(why.probability)
    assert headline(page) == f"Without it it still writes es, at {now} instead of {before}."
    assert page.locator(".word.gone").inner_text() == "it"
    page.click("[data-read='5']")
    street = why.words[5]
    most = f"{street.looked:.2f}"
    assert headline(page) == f"When it writes es, it looks at street with at most {most}."
    cell = page.locator("[data-cell][aria-pressed=true]").get_attribute("data-cell")
    assert cell == f"{street.layer} {street.head}"


def test_another_written_word_is_selected(page: Any, why: Why, found: tuple[Why, View]) -> None:
    told = next(one for one in found[1].findings if one.position == 0)
    page.click("[data-written='0']")
    assert headline(page) == "".join(text for text, _ in told.headline)
    assert headline(page).startswith("When it writes Das, it looks ")
    assert page.locator(".word.on").inner_text() == "Das"
    assert told.row["subwords"] == 2  # the sign of a capital, and the word
    mean = f"{told.reads[told.selected].looked:.2f}"
    heading = page.locator(".how h2").inner_text()
    assert heading.endswith(f"; last of 2 subwords; the word's mean is {mean}")
    page.click(".scissors")
    cut = told.reads[told.selected].cut_headline
    assert headline(page) == "".join(text for text, _ in cut)
    page.click(f"[data-written='{why.position}']")
    assert page.locator(".word.on").inner_text() == "es"


def test_what_a_word_attends_to_while_it_is_read(page: Any, found: tuple[Why, View]) -> None:
    page.click("[data-read='7']")
    assert page.locator("button.aside").inner_text() == "what it attends to while it is read"
    page.click("button.aside")
    assert headline(page).startswith("it attends most to ")
    assert page.locator(".text .on").inner_text() == "it"
    assert page.locator(".scissors").count() == 0
    text = found[1].texts["text"]
    it = next(unit for unit in text.units() if unit.label == "it")
    weights = [
        layer.look.weights(queries=list(it.tokens))[0].mean(-2)
        for layer in found[1].layers
        if layer.queries == layer.keys == "text"
    ]
    key = text.units()[int(page.locator(".text .hit").get_attribute("data-read"))]
    cells = page.eval_on_selector_all("[data-cell]", "all => all.map(one => ({...one.dataset}))")
    assert len(cells) == sum(len(layer) for layer in weights)
    for cell in cells:
        layer, head = map(int, cell["cell"].split())
        exact = float(weights[layer][head, list(key.tokens)].sum())
        assert float(cell["weight"]) == pytest.approx(exact, abs=2e-5)
    page.click("button.back")
    assert headline(page) == "When it writes es, it looks back at animal."


def test_going_deeper_begins_with_what_is_selected(page: Any, found: tuple[Why, View]) -> None:
    page.click("[data-cell='2 1']")
    page.click("[data-door=matrix]")
    page.wait_for_selector(".live .value")
    assert page.locator(".live").inner_text().startswith("cross 2, head 1: es → animal ")
    page.click("[data-door=measures]")
    page.wait_for_selector(".measures")
    [measures] = found[1].measures
    names = [method.name for method in measures.methods]
    shown = page.locator(".measures thead th").all_inner_texts()
    assert [one.split("\n")[0] for one in shown] == names
    numbers = page.locator(".measures tbody tr").nth(1).locator(".number").all_inner_texts()
    overflow = "one => one.scrollWidth - one.clientWidth"
    assert page.locator(".panel .scroll").evaluate(overflow) <= 0
    exact = [float(method.scores[1]) for method in measures.methods]
    assert [float(one.replace("−", "-")) for one in numbers] == pytest.approx(exact, abs=6e-3)
    page.click("[data-door=circuit]")
    page.wait_for_selector(".circuit path")
    strongest = found[1].findings[0].circuit
    assert page.locator(".circuit path").count() == len(strongest) > 3
    lines = page.eval_on_selector_all(
        ".circuit path", "all => all.map(one => one.attributes.d.value)"
    )
    pairs = {(one["place"], one["key"], one["query"]) for one in strongest}
    assert len(set(lines)) == len(strongest) > len(pairs)  # side by side
    page.click("[data-door=circuit]")
    assert page.locator(".panel").is_hidden()


def test_the_words_of_the_strongest_links_do_not_overlap(opened: Opened, why: Why) -> None:
    data = json.loads(json.dumps(why.figure_data()))
    data["words"] = [{**data["words"][0], "word": f"deciding{i}"} for i in range(43)]
    heads = data["heads"]["attention"]
    data["heads"] = {key: [[[0.0] * 43 for _ in one] for one in heads] for key in data["heads"]}
    links = [{**data["links"][0], "key": f"deciding{i}"} for i in range(20, 24)]
    page = opened(
        View(findings=[{**data, "links": links}]).html(), viewport={"width": 768, "height": 900}
    )
    page.click("[data-door=circuit]")
    boxes = page.eval_on_selector_all(
        ".circuit text.used[y='160']",
        "all => all.map(t => t.getBoundingClientRect()).map(r => [r.left, r.right])",
    )
    assert len(boxes) == 4
    assert all(one[1] < next_one[0] for one, next_one in pairwise(boxes))


def test_axe_finds_nothing_serious(page: Any, audit: Callable[..., list[str]]) -> None:
    found = audit(page, "finding")
    page.click("[data-door=circuit]")
    page.wait_for_selector(".circuit")
    found += audit(page, "circuit", ".deeper")
    page.click("[data-door=circuit]")
    page.click(".scissors")
    found += audit(page, "cut", "main")
    page.click(".scissors")
    page.click("button.aside")
    found += audit(page, "attention", "main")
    assert found == []


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
            "button",
            "all => all.map(b => b.getBoundingClientRect()).map(r => [r.width, r.height])",
        )
        assert min(min(size) for size in sizes) >= 24
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width
    page.set_viewport_size({"width": 1300, "height": 900})


@pytest.mark.parametrize("width", [1300, 768, 390, 320])
def test_the_selected_column_is_in_sight_and_its_name_readable(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    for i in (1, 10):
        page.click(f"[data-read='{i}']")
        strip, own = (page.locator(one).bounding_box() for one in (".strip", ".column.own"))
        assert strip["x"] <= own["x"]
        assert own["x"] + own["width"] <= strip["x"] + strip["width"] + 1
        wider = "all => all.filter(one => one.scrollWidth > one.clientWidth).length"
        assert page.eval_on_selector_all(".column .name", wider) == 0
    page.set_viewport_size({"width": 1300, "height": 900})


def test_a_word_that_is_struck_out_stays_in_one_piece(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.click(".scissors")
    lines = page.locator(".word.flip s").evaluate("one => one.getClientRects().length")
    height = page.locator(".word.flip s").bounding_box()["height"]
    assert (lines, height <= 30) == (1, True)
    page.set_viewport_size({"width": 1300, "height": 900})


def test_hostile_text_is_text(opened: Opened, why: Why) -> None:
    data = json.loads(json.dumps(why.figure_data()))
    for one, word in zip(data["words"], HOSTILE, strict=False):
        one["word"] = word
    data["text"] = data["note"] = " ".join(HOSTILE)
    data["output_words"] = [*HOSTILE, "x" * 400, *data["output_words"][7:]]
    view = View(findings=[data])
    shown = opened(view.html(), viewport={"width": 390, "height": 844})
    assert shown.locator("[data-read='0']").inner_text() == HOSTILE[0]
    assert "\u202e" not in shown.locator("[data-read='2']").inner_text()
    for door in ("circuit", "layers", "data"):
        shown.click(f"[data-door={door}]")
        assert shown.locator("img").count() == 0
        assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    shown = shown.context.new_page()
    shown.set_content(view.svg())
    assert shown.locator("img").count() == 0
    assert not re.search("[\u2028\u202e]", view.svg())
