"""Every example runs and says what it should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


SAYS = {
    "classify.py": ("accuracy on dev 100.0%",),
    "look.py": ("bit for bit: True", "token 4,000 looks most at token 1,234"),
    "write.py": ("that lay in the house that Jack built.",),
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_says_what_it_should(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, path], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for words in SAYS[path.name]:
        assert words in done.stdout
