"""The program is tested as users run it."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _as_users_run(as_users_run: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, and without the checks that the test run adds."""
    monkeypatch.chdir(tmp_path)
