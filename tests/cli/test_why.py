"""``regard why``."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from regard.cli import main

TEXT = "The animal didn't cross the street because it was too tired."


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    """The status, the output and the errors of the program."""
    monkeypatch.setattr(sys, "argv", ["regard", "why", *arguments])
    status = 0
    try:
        main()
    except SystemExit as error:
        status = int(error.code or 0)
    return status, *capsys.readouterr()


def test_the_three_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(monkeypatch, capsys, TEXT)
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


def test_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(monkeypatch, capsys, TEXT, "--word=it", "--links=2", "--json")
    data = json.loads(out)
    assert status == 0
    assert (data["word"], data["instead"], len(data["links"])) == ("es", "sie", 2)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((TEXT, "--word=sies"), "did you mean 'es'"),
        ((TEXT, "--word=es", "--instead=es"), "is the word itself"),
        (("",), "the text is empty"),
        ((TEXT, "--links=-1"), "most=-1, expected 0 or more"),
        ((TEXT, "--model=nowhere"), "no such folder"),
    ],
)
def test_bad_input_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    error: str,
) -> None:
    status, out, err = run(monkeypatch, capsys, *arguments)
    assert status == 1
    assert out == ""
    assert error in err
    assert err.count("\n") == 1


def test_the_figure_and_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page, picture = tmp_path / "it.html", tmp_path / "it.svg"
    asked = (TEXT, "--word", "es", "--links", "2", "--html", str(page), "--svg", str(picture))
    status, out, _ = run(monkeypatch, capsys, *asked)
    assert status == 0
    assert "Does it matter?" in out
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert picture.read_text(encoding="utf-8").startswith("<svg ")
    status, _, told = run(monkeypatch, capsys, TEXT, "--html", str(picture))
    assert status != 0
    assert "expected a file that ends in .html" in told
