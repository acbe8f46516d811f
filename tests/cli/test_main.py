"""The program as a whole."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

from regard.cli.program import VERBS
from tests.cli.result import Run


def test_the_version(program: Run) -> None:
    assert program("--version") == (0, f"regard {metadata.version('regard')}\n", "")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["wy"], "No such command 'wy'. Did you mean 'why'? (regard --help)"),
        (["embed"], "Missing argument 'source'. (regard embed --help)"),
        (["vectors", "analogy", "a"], "Missing argument 'b'. (regard vectors analogy --help)"),
        (["corpus", "-m"], "No such option: -m (regard corpus --help)"),
    ],
)
def test_what_is_mistyped_names_the_help(program: Run, arguments: list[str], error: str) -> None:
    assert program(*arguments) == (2, "", f"regard: {error}\n")


def test_help_needs_no_torch() -> None:
    code = (
        "import sys; from regard.cli.program import VERBS, program; program(VERBS); "
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("option", [[], ["-h"], ["--help"]])
def test_help_lists_all_commands(option: list[str]) -> None:
    asked = [sys.executable, "-m", "regard", *option]
    told = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=60).stdout
    assert [verb for verb in VERBS if f"\n  {verb} " not in told] == []
