"""Runs the pages: ``python docs/run.py [page …]`` writes their outputs and pictures anew.

A page is Markdown. Its ``python`` blocks run in order, in one namespace, in the folder of the page.
What a block prints stands in the ``text`` block right behind it; the test suite runs every page in
a copy of this folder and compares. Behind ``text measured`` stands what differs from run to run,
such as times: it is written anew, and not compared.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from pathlib import Path

DOCS = Path(__file__).parent
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n?^```text(?P<measured> measured)?\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


def pages(folder: Path = DOCS) -> list[Path]:
    """All pages, in order."""
    return sorted(folder.rglob("*.md"))


def run(page: Path) -> str:
    """The text of a page as it is when its outputs are true."""
    namespace: dict[str, object] = {"__name__": "__page__"}
    text = page.read_text(encoding="utf-8")

    def executed(match: re.Match[str]) -> str:
        line = text[: match.start("code")].count("\n")
        code = compile("\n" * line + match["code"], str(page), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        output = "\n".join(part.rstrip() for part in printed.getvalue().rstrip().split("\n"))
        block = f"```python\n{match['code']}```\n"
        if not output:
            return block
        return f"{block}\n```text{match['measured'] or ''}\n{output}\n```\n"

    before = Path.cwd()
    os.chdir(page.parent)
    try:
        return BLOCK.sub(executed, text)
    finally:
        os.chdir(before)


def without_measured(text: str) -> str:
    """The text of a page less what differs from run to run."""
    return re.sub(r"^```text measured\n.*?^```\n", "", text, flags=re.MULTILINE | re.DOTALL)


if __name__ == "__main__":
    for name in sys.argv[1:] or map(str, pages()):
        path = Path(name).resolve()
        path.write_text(run(path), encoding="utf-8")
        print(path.relative_to(DOCS))
