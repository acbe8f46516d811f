"""``regard judge``: a table, JSON, a picture, and the one line with which it fails."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.cli.result import Run

ITEM = {
    "text": "The animal didn't cross the street because it was too tired.",
    "word": "es",
    "instead": "sie",
    "evidence": "animal",
}


@pytest.fixture
def run(program: Run, tmp_path: Path) -> Run:
    """``regard judge …``, with one item in ``items.jsonl``."""
    (tmp_path / "items.jsonl").write_text(json.dumps(ITEM) + "\n", encoding="utf-8")
    return partial(program, "judge")


def test_table_picture_and_json(run: Run, tmp_path: Path) -> None:
    options = ["--data=items.jsonl", "--methods=knockout, attention", "--out=found.json"]
    status, out, err = run(*options, "--svg=curves.svg")
    assert (status, err) == (0, "regard: wrote found.json\nregard: wrote curves.svg\n")
    assert "knockout" in out
    assert "1 item of items.jsonl, pocket-en-de" in out
    assert (tmp_path / "curves.svg").read_text(encoding="utf-8").startswith("<svg")
    status, printed, _ = run(*options, "--json")  # nothing is computed again
    assert status == 0
    assert json.loads(printed) == json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods=knokout"], "methods: 'knokout' is unknown; did you mean 'knockout'?"),
        (["--methods=,"], "methods: none given"),
        (["--data=gone.jsonl"], "'gone.jsonl' is neither reference or senses nor a file"),
        (["--data=empty.jsonl"], "empty.jsonl: the file is empty"),
        (["--data=bad.jsonl"], "bad.jsonl, line 1: not JSON"),
        (["--svg=curves.gif"], "--svg curves.gif, expected a file that ends in .svg"),
        (["--svg=none/curves.svg"], "judge: cannot write none/curves.svg: No such file"),
        (["--most=0"], "Invalid value for '--most'"),
        (["--model=gone"], "gone"),
        (["--data=items.jsonl", "--methods=attention", "--out=gone/x.json"], "cannot write gone/"),
        (["--data=items.jsonl", "--model=gone", "--out=."], "judge: cannot write .: Is a direc"),
    ],
)
def test_bad_input_is_one_line(run: Run, tmp_path: Path, options: list[str], message: str) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "bad.jsonl").write_text("nonsense\n", encoding="utf-8")
    status, out, err = run(*options)
    assert status > 0
    assert out == ""
    assert err.startswith("regard: ")
    assert message in err
    assert err.count("\n") == 1
