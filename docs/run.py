"""Runs the pages: ``python docs/run.py [page …]`` writes their outputs and pictures anew.

A page is Markdown. Its ``python`` blocks run in order, in one namespace, in the folder of the page.
What a block prints stands in the ``text`` block right behind it; the test suite runs every page in
a copy of this folder and compares. Behind ``text measured`` stands what differs from run to run,
such as times: it is written anew, and not compared.

A page that trains for a while says how the tests shorten it, before the block in question:
``<!-- in tests: steps = 1200 → steps = 20 -->``. What it prints then stands behind ``text measured``,
and "measured" is part of the names of its pictures.
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
SHORTENED = re.compile(r"^<!-- in tests: (.+?) → (.+?) -->$", re.MULTILINE)


def pages(folder: Path = DOCS) -> list[Path]:
    """All pages, in order."""
    return sorted(folder.rglob("*.md"))


def run(page: Path, *, short: bool = False) -> str:
    """The text of a page as it is when its outputs are true; `short` shortens its trainings."""
    namespace: dict[str, object] = {"__name__": "__page__"}
    text = page.read_text(encoding="utf-8")
    changes = SHORTENED.findall(text) if short else []

    def executed(match: re.Match[str]) -> str:
        line = text[: match.start("code")].count("\n")
        source = match["code"]
        for long, brief in changes:
            source = source.replace(long, brief)
        code = compile("\n" * line + source, str(page), "exec")
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
