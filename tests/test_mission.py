"""docs/mission.md: every statement of the guides leads to a heading or a command that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from regard.cli.program import VERBS

DOCS = Path(__file__).parent.parent / "docs"
TEXT = (DOCS / "mission.md").read_text(encoding="utf-8")
ROWS = [row for row in re.findall(r"^\|.*\|$", TEXT, re.MULTILINE) if "---" not in row]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings]
    return {re.sub(r"\s", "-", heading) for heading in plain}


@pytest.mark.parametrize("row", ROWS)
def test_a_statement_leads_somewhere(row: str) -> None:
    target = row.strip("|").split("|")[1]
    if target.strip() == "shown in":
        return
    links = re.findall(r"\]\(([^)#]+)(?:#([^)]+))?\)", target)
    commands = re.findall(r"`regard (\w+)`", target)
    assert links or commands, row
    for page, anchor in links:
        assert (DOCS / page).exists(), row
        if anchor:
            assert anchor in anchors(DOCS / page), row
    assert set(commands) <= set(VERBS), row


def test_every_guide_has_its_table() -> None:
    assert re.findall(r"^## (\w):", TEXT, re.MULTILINE) == list("ABCDE")
    assert len(ROWS) > 40
