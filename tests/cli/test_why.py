"""``regard why``."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest

from tests.cli.result import Run

TEXT = "The animal didn't cross the street because it was too tired."


@pytest.fixture
def run(program: Run) -> Run:
    """``regard why …``."""
    return partial(program, "why")


def test_the_three_answers(run: Run) -> None:
    _, out, _ = run(TEXT)
    lines = out.splitlines()
    assert lines[0] == "Why “es”?  pocket-en-de"
    at = lines.index(f"  {TEXT}")
    line, written = lines[at + 1], lines[at + 2]
    assert line.index("╰") in range(lines[at].index("animal"), lines[at].index("didn't"))
    assert line.index("╮") in range(written.index(" es ") + 1, written.index(" zu"))
    animal = next(one for one in lines if one.startswith("  ✂ animal"))
    assert re.search(r" \d %", animal)  # less than a tenth
    assert "→ writes “sie”" in animal
    assert any(one.endswith("weil sie zu müde war.") for one in lines)
    assert re.search(r"softmax (1\.000|0\.9\d\d)", out)
    assert max(map(len, lines)) <= 80


def test_json(run: Run) -> None:
    status, out, _ = run(TEXT, "--word=it", "--links=2", "--json")
    data = json.loads(out)
    assert status == 0
    assert (data["word"], data["instead"], len(data["links"])) == ("es", "sie", 2)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((TEXT, "--word=sies"), "did you mean 'es'"),
        ((TEXT, "--word=es", "--instead=es"), "is the word itself"),
        (("",), "the text is empty"),
        ((TEXT, "--links=-1"), "why: --links -1, expected 0 or more"),
        ((TEXT, "--model=nowhere"), "no such folder"),
        ((), "give a text, or --jsonl FILE"),
        ((TEXT, "--jsonl=a.jsonl"), "give only one of a text and --jsonl"),
        ((TEXT, "--all"), "--all needs --html FILE"),
        (("--jsonl=a.jsonl",), "--jsonl needs --out FOLDER"),
        ((TEXT, "--html=none/a.html"), "why: cannot write none/a.html: No such file"),
        *(
            (("--jsonl=a.jsonl", "--out=o", option), f"{option.partition('=')[0]} cannot be used")
            for option in ("--instead=es", "--html=a.html", "--svg=a.svg", "--all", "--json")
        ),
    ],
)
def test_bad_input_is_one_line(run: Run, arguments: tuple[str, ...], error: str) -> None:
    status, out, err = run(*arguments)
    assert status == 1
    assert out == ""
    assert error in err
    assert err.count("\n") == 1


def test_the_figure_and_the_page(run: Run, tmp_path: Path) -> None:
    page, picture = tmp_path / "it.html", tmp_path / "it.svg"
    asked = (TEXT, "--word", "es", "--links", "2", "--html", str(page), "--svg", str(picture))
    status, out, _ = run(*asked)
    assert status == 0
    assert "Does it matter?" in out
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert picture.read_text(encoding="utf-8").startswith("<svg ")
    status, _, told = run(TEXT, "--html", str(picture))
    assert status != 0
    assert "expected a file that ends in .html" in told
