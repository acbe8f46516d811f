"""Every page of the docs runs, prints what it says it prints, and draws the pictures it shows."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("run", ROOT / "docs" / "run.py")
assert spec is not None
assert spec.loader is not None
docs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(docs)

PAGES = [page.relative_to(ROOT) for page in docs.pages()]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_page_is_true(page: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for picture in folder.rglob("*.svg"):
        picture.unlink()
    written = (ROOT / page).read_text(encoding="utf-8")
    now = docs.run(tmp_path / page)
    assert docs.without_measured(now) == docs.without_measured(written)
    for name in re.findall(r"!\[[^\]]*\]\(([^)]+\.svg)\)", written):
        drawn = (tmp_path / page).parent / name
        committed = (ROOT / page).parent / name
        assert drawn.exists(), f"{page} shows {name} but does not draw it"
        if "measured" not in name:
            assert drawn.read_text() == committed.read_text(), f"{name} is out of date: make docs"


@pytest.mark.parametrize("page", [*PAGES, Path("README.md")], ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


def test_readme_runs(tmp_path: Path) -> None:
    copy = tmp_path / "README.md"
    shutil.copy(ROOT / "README.md", copy)
    assert docs.run(copy) == copy.read_text(encoding="utf-8")


def test_a_false_page_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n", encoding="utf-8")
    assert "2" in docs.run(page)
    assert docs.run(page) != page.read_text(encoding="utf-8")
