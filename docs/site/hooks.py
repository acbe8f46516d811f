"""What `make site` adds to the pages: files of the repository outside docs/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
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
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files outside docs/ lead to their page of the site, or become plain names."""
    for target, source in ELSEWHERE.items():
        markdown = re.sub(rf"\]\((?:\.\./)+{re.escape(source)}", f"]({target}", markdown)
    return re.sub(r"\[([^\]]+)\]\(((?:\.\./)+(?:examples|benchmarks|src|tests)/[^)]+)\)", r"`\1`", markdown)
