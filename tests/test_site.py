"""The documentation site: every page in its place, no broken link, nothing from the network."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def listed(nav: Any) -> Iterator[str]:
    """The pages of a navigation, in order."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from listed(part)


def test_the_navigation_lists_every_page_once() -> None:
    pages = list(listed(CONFIG["nav"]))
    assert len(pages) == len(set(pages))
    written = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    assert written - set(pages) == set()
    assert set(pages) - written == {"architecture.md", "benchmarks.md", "changelog.md"}


def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="regard[docs] is not installed")
    pytest.importorskip("material", reason="regard[docs] is not installed")
    command = ["mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    built = sorted((tmp_path / "site").rglob("*.html"))
    assert len(built) > len(list(listed(CONFIG["nav"]))) - 1
    for page in built:
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|img|iframe|source)[^>]+src="(https?:)?//', text)
        fetched += re.findall(r'<link[^>]+rel="(?:stylesheet|preconnect)"[^>]+href="https?:', text)
        assert not fetched, page.name
