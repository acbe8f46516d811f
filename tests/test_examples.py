"""Every example runs and says what it should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


SAYS = {
    "classify.py": ("accuracy on dev 100.0%",),
    "look.py": ("bit for bit: True", "token 4,000 looks most at token 1,234"),
    "write.py": ("that lay in the house that Jack built.",),
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_says_what_it_should(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, path], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for words in SAYS[path.name]:
        assert words in done.stdout


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
