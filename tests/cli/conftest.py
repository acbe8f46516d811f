"""The program is tested as users run it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jaxtyping
import pytest


@pytest.fixture(autouse=True)
def _as_users_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In an empty folder, and without the checks that the test run adds."""
    monkeypatch.chdir(tmp_path)
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
