"""What a notebook stores of a cell: executed for real, shown without a kernel."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import regard

CELLS = (
    "import torch, regard\nx = torch.eye(3)\nlook = regard.look(x, x, x, score='dot')",
    "look",
    "look.view(['the', 'cat', '<img>'])",
    "regard.Lens.open('pocket-en-de').why('It was tired.', most=2, control=1)",
)


@pytest.fixture(scope="module")
def outputs() -> list[dict[str, str]]:
    """What the last line of each cell but the first is shown as."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    import nbformat

    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(text) for text in CELLS]
    nbclient.NotebookClient(book, timeout=240, kernel_name="python3").execute()
    kinds = [[output.output_type for output in cell.outputs] for cell in book.cells[1:]]
    assert kinds == [["execute_result"]] * 3
    return [dict(cell.outputs[0].data) for cell in book.cells[1:]]


def test_cells_have_a_short_text_and_a_page_with_a_picture_behind(
    outputs: list[dict[str, str]],
) -> None:
    for shown in outputs:
        assert len(shown["text/plain"]) < 1500
    for shown in outputs:
        assert 'sandbox="allow-scripts' in shown["text/html"]
        assert re.search(r'<img alt="[^"]+" src="data:image/', shown["text/html"])
    assert outputs[1]["text/plain"] == "View(1 layers, text; .save('view.html') opens it)"


def test_the_stored_page_runs_in_its_frame(outputs: list[dict[str, str]], browser: Any) -> None:
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.set_content("".join(shown["text/html"] for shown in outputs[1:]))
    one, two = (page.frame_locator("iframe.regard").nth(i) for i in range(2))
    one.locator("[data-read='1']").click()
    assert one.locator("h1").inner_text().startswith("cat attends most to ")
    two.locator(".scissors").click()
    assert two.locator("h1").inner_text().startswith("Without ")
    assert [shown.is_visible() for shown in page.locator("iframe.regard + div").all()] == [
        False
    ] * 2
    context.close()


def test_a_cell_may_end_on_any_object() -> None:
    lens, x = regard.Lens.open("pocket-en-de"), torch.eye(3)
    with regard.watch(lens.model) as seen:
        lens.translate("It was tired.")
    heads, found = lens.heads("It was tired.", "It", "tired"), lens.explain("It was tired.", "It")
    translator = regard.Translator.load("pocket-en-de")
    texts = (lens, translator, seen, heads, regard.causal & regard.window(2))
    for one in texts:
        assert one._repr_html_().startswith("<pre>")
    for one in (found, regard.look(x, x, x)):
        assert 'sandbox="allow-scripts' in one._repr_html_()
    for one in (*texts, found):
        assert len(repr(one)) < 1500


def test_masks_and_calls_too_large_to_show_are_text() -> None:
    assert regard.causal._repr_html_().startswith("<pre>causal\n● · · · · · · ·\n● ● · ")
    assert regard.dense(torch.ones(3, 3, dtype=torch.bool))._repr_html_() is None
    x = torch.randn(33, 4)
    assert regard.look(x, x, x)._repr_html_() is None
