"""A view in a notebook: executed for real, and what it stores shown in a real browser."""

from __future__ import annotations

import json
from typing import Any

import pytest

from regard.view import View, html
from regard.view.widget import answered, bundle

CELL = """
import torch, regard
from regard.view import Layer, Text, View
x = torch.eye(3)
seen = regard.look(x, x, x, score="dot")
def made(title):
    text = Text.of(["the", "cat", "sat"])
    return View({"text": text}, [Layer("layer 1", "self", "text", "text", seen)], title=title)
"""
SHOWN = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def notebook() -> Any:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    import nbformat

    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(text) for text in (CELL, "made('One')", "made('Two')")]
    return nbclient.NotebookClient(book, timeout=240, kernel_name="python3").execute()


def states(book: Any) -> list[dict[str, Any]]:
    """What the notebook stores of the widgets that its cells show."""
    stored = book.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    models = [cell.outputs[0].data[SHOWN]["model_id"] for cell in book.cells[1:]]
    return [stored[model]["state"] for model in models]


def test_cells_show_a_widget_and_its_text(notebook: Any) -> None:
    for cell in notebook.cells[1:]:
        assert [output.output_type for output in cell.outputs] == ["execute_result"]
        assert "layer 1, head 0 (self attention, words)" in cell.outputs[0].data["text/plain"]
    one, two = states(notebook)
    assert [json.loads(state["payload"])["title"] for state in (one, two)] == ["One", "Two"]
    assert one["_esm"] == html.module()
    assert one["live"] == ["steps"]


PAGE = """<!doctype html><meta charset="utf-8"><div id="one"></div><div id="two"></div>
<script type="module">
  const states = %s;
  for (const name of ["one", "two"]) {
    const url = URL.createObjectURL(new Blob([states[name]._esm], { type: "text/javascript" }));
    const { default: widget } = await import(url);
    const model = { get: (key) => states[name][key], on: () => {}, off: () => {}, send: () => {} };
    widget.render({ model, el: document.getElementById(name) });
  }
</script>"""


def test_two_widgets_of_one_notebook_do_not_disturb_each_other(notebook: Any, browser: Any) -> None:
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.set_default_timeout(20_000)
    given = dict(zip(("one", "two"), states(notebook), strict=True))
    page.set_content(PAGE % json.dumps(given).replace("<", "\\u003c"))
    one, two = page.locator("#one"), page.locator("#two")
    one.locator(".list.from .item").first.wait_for()
    one.locator('.list.from .item:has-text("cat")').click()
    assert one.locator(".live b").inner_text() == "cat"
    values = one.locator(".list.to .value").all_inner_texts()
    assert [float(value) for value in values] == pytest.approx([0.212, 0.576, 0.212], abs=6e-4)
    assert two.locator(".list.from .strong").count() == 0
    two.locator('[role=tab][data-view="matrix"]').click()
    assert one.locator('[role=tab][aria-selected="true"]').inner_text() == "Head"
    assert [one.locator("h1").inner_text(), two.locator("h1").inner_text()] == ["One", "Two"]
    context.close()


def test_questions_are_answered_or_refused_in_words(view: View) -> None:
    asked = {
        "id": "a-1",
        "kind": "steps",
        "arguments": {"layer": 0, "head": 1, "query": 2, "key": 3},
    }
    reply = answered(view, asked)
    assert reply["id"] == "a-1"
    exact = float(view.layers[0].look.weights([2], [1])[0, 0, 0, 3])
    assert reply["reply"]["weight"] == pytest.approx(exact, abs=1e-6)
    refused = answered(view, {"id": "b", "kind": "cut"})
    assert refused["id"] == "b"
    assert refused["error"].startswith("answer: kind expected steps, got 'cut'; give View answers")
    assert "error" in answered(view, "what?")
    assert "error" in answered(view, {"id": 3, "kind": "steps", "arguments": [1]})

    def broken(given: dict[str, Any]) -> dict[str, Any]:
        raise ZeroDivisionError("by zero")

    live = View(view.texts, view.layers, answers={"cut": broken})
    assert answered(live, {"id": "c", "kind": "cut"})["error"] == "ZeroDivisionError: by zero"


def test_without_anywidget_a_notebook_shows_the_text(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "anywidget", None)
    shown = bundle(view)
    assert shown["text/plain"].startswith("why it?")
    assert "pip install 'regard[notebook]'" in shown["text/plain"]
