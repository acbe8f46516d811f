"""``regard corpus``: what it prints, what it writes, and the one line with which it fails."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from regard.challenge import Pair, generate, size
from regard.cli.corpus import corpus
from regard.errors import FileError, OptionError, RegardError

Run = Callable[..., list[str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """``regard corpus …``: the lines that it prints."""
    app = typer.Typer()
    app.command()(corpus)

    def run(*arguments: str) -> list[str]:
        app(arguments, standalone_mode=False)
        return capsys.readouterr().out.splitlines()

    return run


def tsv(pairs: list[Pair]) -> list[str]:
    return [f"{pair.source}\t{pair.target}" for pair in pairs]


def test_lines_with_a_tab(run: Run) -> None:
    lines = run("--kind", "senses", "--split", "test", "-n", "30", "--seed", "5")
    assert lines == tsv(list(generate("senses", "test", 30, 5)))
    assert all(line.count("\t") == 1 for line in lines)
    assert run("-n", "7") == tsv(list(generate("reference", "train", 7)))
    assert len(run()) == 1000
    assert run("-n", "0") == []


def test_both_kinds_by_turns(run: Run) -> None:
    lines = run("--kind", "both", "--split", "test", "-n", "7")
    references = tsv(list(generate("reference", "test", 4)))
    senses = tsv(list(generate("senses", "test", 3)))
    assert lines[::2] == references
    assert lines[1::2] == senses


def test_json_has_all_that_a_pair_knows(run: Run) -> None:
    objects = [json.loads(line) for line in run("--kind", "both", "-n", "10", "--json")]
    pairs = [Pair(**{**one, **_tuples(one)}) for one in objects]
    assert pairs[::2] == list(generate("reference", "train", 5))
    assert pairs[1::2] == list(generate("senses", "train", 5))
    assert list(objects[0]) == [field.name for field in dataclasses.fields(Pair)]
    assert "ü" in "".join(run("-n", "50", "--json")), "letters, not escapes"


def _tuples(one: dict[str, object]) -> dict[str, object]:
    return {name: tuple(value) for name, value in one.items() if isinstance(value, list)}


def test_a_file(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-n", "5", "--out", "a.tsv") == []
    assert Path("a.tsv").read_text(encoding="utf-8").splitlines() == run("-n", "5")
    run("-n", "5", "--out", "a.jsonl", "--json")
    assert Path("a.jsonl").read_text(encoding="utf-8").splitlines() == run("-n", "5", "--json")
    corpus(n=2, out=Path("b.txt"))
    assert capsys.readouterr() == ("", "regard: wrote b.txt\n")
    assert sorted(path.name for path in Path().iterdir()) == ["a.jsonl", "a.tsv", "b.txt"]


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        (
            ["--kind", "verbs"],
            OptionError,
            "corpus: --kind verbs is unknown, expected reference, senses, cues or both",
        ),
        (
            ["--split", "valid"],
            OptionError,
            "corpus: --split valid is unknown, expected train or test",
        ),
        (
            ["-n", "-3"],
            OptionError,
            "corpus: -n -3 asks for -3 pairs of kind reference, expected 0",
        ),
        (["--out", "a.csv"], OptionError, "corpus: a.csv ends in '.csv', expected .tsv or .txt"),
        (["--out", "a.tsv", "--json"], OptionError, "a.tsv ends in '.tsv', expected .jsonl"),
        (["--out", "none/a.tsv"], FileError, "corpus: cannot write none/a.tsv: No such file"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else None,
)
def test_one_line_says_what_is_wrong(
    run: Run, arguments: list[str], kind: type[RegardError], says: str
) -> None:
    with pytest.raises(kind) as caught:
        run("-n", "3", *arguments)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(Path().iterdir()) == []


def test_more_than_there_are(run: Run) -> None:
    count = size("senses", "test")
    with pytest.raises(OptionError) as caught:
        run("--kind", "both", "--split", "test", "-n", str(2 * count + 2))
    assert str(caught.value) == (
        f"corpus: -n {2 * count + 2} asks for {count + 1} pairs of kind senses, expected 0 to "
        f"{count}, which is all there are in test"
    )
