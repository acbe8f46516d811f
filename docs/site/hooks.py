"""What `make site` adds: files of the repository outside docs/, and each page as a notebook."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
from notebooks import has_code, notebook  # noqa: E402

ELSEWHERE = {
    "benchmarks.md": "benchmarks/RESULTS.md",
    "changelog.md": "CHANGELOG.md",
    "architecture.md": "ARCHITECTURE.md",
}
"""Pages of the site that are files of the repository outside docs/."""


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Adds the pages that lie elsewhere."""
    for page, source in ELSEWHERE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text.replace("](../docs/", "](")))
    for page in (ROOT / "docs").rglob("*.md"):
        if has_code(page):
            name = str(page.relative_to(ROOT / "docs").with_suffix(".ipynb"))
            files.append(File.generated(config, name, content=nbformat.writes(notebook(page))))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files outside docs/ lead to their page of the site, or become plain names."""
    for target, source in ELSEWHERE.items():
        markdown = re.sub(rf"\]\((?:\.\./)+{re.escape(source)}", f"]({target}", markdown)
    markdown = markdown.replace("```text measured\n", "```text\n")
    if "\n```python\n" in markdown:
        name = Path(page.file.src_uri).with_suffix(".ipynb").name
        markdown = f"[As a notebook]({name}){{ .notebook }}\n\n{markdown}"
    return re.sub(r"\[([^\]]+)\]\(((?:\.\./)+(?:examples|benchmarks|src|tests)/[^)]+)\)", r"`\1`", markdown)
