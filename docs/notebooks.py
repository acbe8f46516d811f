"""Pages as notebooks: ``python docs/notebooks.py FOLDER [page …]`` writes one for each page with code.

A notebook has the text and the code of the page, and the text files that the page links to, so it
runs wherever regard is installed. The pictures that its code saves are shown by a cell of their own.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

DOCS = Path(__file__).parent
PIECE = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n?^```text(?: measured)?\n.*?^```\n)?"
    r"|^!\[[^\]]*\]\((?P<picture>[^)]+\.svg)\)\n",
    re.MULTILINE | re.DOTALL,
)


def notebook(page: Path) -> Any:
    """The page as a notebook without outputs."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"</?details[^>]*>|<summary>Solutions</summary>|<!-- .*? -->\n", "", text)
    pictures = sorted({str(Path(name).parent) for name in re.findall(r"\]\(([^)]+\.svg)\)", text)})
    cells = [new_markdown_cell("")]
    if pictures:
        made = "\n".join(f'Path("{folder}").mkdir(parents=True, exist_ok=True)' for folder in pictures)
        shows = "from pathlib import Path\n\nfrom IPython.display import SVG, display\n\n"
        cells.append(new_code_cell(f"{shows}{made}    # pictures go here"))
    for name in dict.fromkeys(re.findall(r"\]\(([^)/]+\.txt)\)", text)):
        content = page.with_name(name).read_text(encoding="utf-8")
        cells.append(new_code_cell(f"%%writefile {name}\n{content.strip()}"))
    end = 0
    for match in PIECE.finditer(text):
        cells.append(new_markdown_cell(text[end : match.start()].strip()))
        code = match["code"] or f'display(SVG("{match["picture"]}"))'
        cells.append(new_code_cell(code.strip()))
        end = match.end()
    cells.append(new_markdown_cell(text[end:].strip()))
    cells = [cell for cell in cells if cell.source]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"  # the same notebook every time
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return new_notebook(cells=cells, metadata=kernel)


def has_code(page: Path) -> bool:
    """Whether a page has code to run."""
    return "\n```python\n" in page.read_text(encoding="utf-8")


if __name__ == "__main__":
    folder, *names = sys.argv[1:] or ["build/notebooks"]
    for page in [Path(name).resolve() for name in names] or sorted(DOCS.rglob("*.md")):
        if has_code(page):
            target = Path(folder) / page.relative_to(DOCS).with_suffix(".ipynb")
            target.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(notebook(page), target)
            print(target)
