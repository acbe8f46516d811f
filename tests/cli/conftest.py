"""The program is tested as users run it."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from regard.cli import main
from tests.cli.result import Result, Run

pytest.register_assert_rewrite("tests.cli.step_cases")


@pytest.fixture(autouse=True)
def _as_users_run(as_users_run: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, and without the checks that the test run adds."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``regard …`` in this process. Reading standard input fails unless `stdin` is given."""

    def run(*arguments: str, stdin: bytes | None = None) -> Result:
        monkeypatch.setattr(sys, "argv", ["regard", *arguments])
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = 0
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        return Result(status, *capsys.readouterr())

    return run
