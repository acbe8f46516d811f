"""The program as a whole."""

from __future__ import annotations

import sys
from importlib import metadata

import pytest

from regard.cli import main


def test_the_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["regard", "--version"])
    main()
    assert capsys.readouterr() == (f"regard {metadata.version('regard')}\n", "")
