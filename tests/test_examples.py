"""Every example runs and says what it should."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

SAYS = {
    "classify.py": (r"accuracy on dev 100\.0%", "dull: class 0", r"\nwithout 'dull' \d+%"),
    "images.py --epochs 1 --picture look.svg": (r"attention over patches +\d", "regression +9"),
    "look.py": ("bit for bit: True", "token 4,000 looks most at token 1,234"),
    "reinforcement.py --updates 2": (r"what it sees now +mean return -\d", r"\d% of its attention"),
    "recommend.py --epochs 1": (r"item-kNN +HR@10 0\.\d", r"attention +HR@10", "suggested: "),
    "search.py": (r"static\n  0\.\d", r"contextual\n  0\.\d+  .* the doctor examined"),
    "sentence_vectors.py": (r"static, averaged +linear \d", r"contextual, averaged +linear (9|1)"),
    "speech.py --epochs 1 --speaker voice-1": (r"mean +attention +\d", "answer settled after"),
    "summarise.py --sentences 2": (r"\d\.\d\d  .*bats sleep",),
    "write.py": (r"that lay in the house that Jack built\.",),
}
"""Command lines, and patterns of what each prints."""


def run(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs an example in this process, on one thread."""
    script, *options = line.split()
    monkeypatch.setattr(sys, "argv", [script, *options])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")
    finally:
        torch.set_num_threads(threads)


def test_every_example_is_run() -> None:
    assert {line.split()[0] for line in SAYS} == {path.name for path in EXAMPLES}


@pytest.mark.parametrize("line", SAYS)
def test_example_says_what_it_should(
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    run(line, monkeypatch)
    printed = capsys.readouterr().out
    for pattern in SAYS[line]:
        assert re.search(pattern, printed), printed


def test_the_notebook_shows_what_its_cells_end_on() -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    import nbformat

    book = nbformat.read(ROOT / "examples" / "why.ipynb", as_version=4)
    nbclient.NotebookClient(book, timeout=240, kernel_name="python3").execute()
    shown = [
        output.data
        for cell in book.cells
        for output in cell.get("outputs", ())
        if output.output_type == "execute_result"
    ]
    assert all("text/html" in data for data in shown)
    assert sum("<iframe" in data["text/html"] for data in shown) == 2
