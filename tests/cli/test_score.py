"""``regard score``: figures with signatures, and the one line with which it fails."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import pytest

from regard.translate.scoring import bleu, chrf
from tests.cli.result import Run

SAID = ["The cat sat on the mat.", "Ein Hund schläft hier jetzt."]
RIGHT = ["The cat sat on a mat.", "Ein Hund schläft jetzt hier."]

ITEMS = """\
{"source": "The cat sleeps.", "targets": ["Die Katze schläft.", "Der Katze Hunde."]}

{"source": "The dog is old.", "targets": ["Der Hunde Katze.", "Der Hund ist alt."]}
"""
"""Of the second, the first target is wrong."""


@pytest.fixture
def run(program: Run, tmp_path: Path) -> Run:
    """``regard score …``, with the two files beside it; standard input is empty if not given."""
    for name, texts in (("said.de", SAID), ("right.de", RIGHT)):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return partial(program, "score", stdin=b"")


FILES = ("--hypothesis=said.de", "--reference=right.de")


def test_both_scores_with_their_signatures(run: Run) -> None:
    found = run(*FILES)
    assert (found.status, found.err) == (0, "")
    rows = found.out.splitlines()
    assert rows[0].startswith(f"BLEU = {bleu(SAID, RIGHT).score:.2f} ")
    assert rows[1].strip() == bleu(SAID, RIGHT).signature
    assert rows[2] == f"chrF2 = {chrf(SAID, RIGHT).score:.2f}"
    assert rows[3].strip() == chrf(SAID, RIGHT).signature
    assert len(rows) == 4


def test_hypotheses_from_standard_input(run: Run, tmp_path: Path) -> None:
    piped = run("--reference=right.de", stdin=(tmp_path / "said.de").read_bytes())
    assert piped == run(*FILES)


def test_json_and_options(run: Run) -> None:
    first, second = json.loads(run(*FILES, "--json", "--tokenize=none", "--lowercase").out)
    wanted = bleu(SAID, RIGHT, tokenize="none", lowercase=True)
    assert (first["name"], first["score"]) == ("BLEU", wanted.score)
    assert first["signature"] == wanted.signature
    assert (second["name"], "case:lc" in second["signature"]) == ("chrF2", True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (FILES[:1], "score: give --reference FILE, or --contrastive FILE"),
        ([*FILES, "--model=runs/en-de"], "score: --model needs --contrastive"),
        ([*FILES, "--context=1"], "score: --context needs --contrastive"),
        (["--contrastive=items", "--lowercase"], "score: --lowercase cannot be used with --contra"),
        (["--contrastive=items", "--reference=right.de"], "score: --reference cannot be used with"),
        (["--contrastive=items", "--context=-1"], "Invalid value for '--context'"),
        (["--contrastive=items", "--context=1"], "items, line 1: context missing; leave out"),
        (["--contrastive=items", "--model=gone"], "gone"),
        (["--contrastive=gone"], "gone: cannot be read: No such file"),
        (["--contrastive=blank"], "blank: the file is empty"),
        (["--contrastive=three"], "three, line 1: not JSON: Expecting value"),
        (["--contrastive=latin"], "latin, line 1: not JSON"),
        (["--contrastive=-"], "standard input: the file is empty"),
        (["--hypothesis=gone", "--reference=right.de"], "gone: cannot be read: No such file"),
        ([*FILES, "--tokenize=moses"], "bleu: tokenize='moses', expected one of 13a, none"),
        (["--hypothesis=said.de", "--reference=three"], "said.de has 2 lines but three has 3; li"),
        (["--reference=three"], "standard input has 0 lines but three has 3; line n"),
        (["--hypothesis=empty", "--reference=empty"], "empty: the file is empty"),
        (["--hypothesis=said.de", "--reference=blank"], "blank: the file is empty"),
        (["--hypothesis=latin", "--reference=right.de"], "latin, line 2: byte 0xe4 is not UTF-8"),
        (["--hypothesis=said.de", "--reference=latin"], "latin, line 2: byte 0xe4 is not UTF-8"),
    ],
)
def test_bad_input_is_one_line(options: list[str], message: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "three").write_text("a\nb\nc\n", encoding="utf-8")
    (tmp_path / "items").write_text(ITEMS, encoding="utf-8")
    (tmp_path / "empty").touch()
    (tmp_path / "blank").write_text("\n \n", encoding="utf-8")
    (tmp_path / "latin").write_text("The\nschläft\n", encoding="latin-1")
    found = run(*options)
    assert found.status > 0
    assert found.err.startswith("regard: ")
    assert message in found.err
    assert found.err.count("\n") == 1


def test_lines_that_are_cut_into_words_are_noticed(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cut.de").write_text("Ein Hund schläft .\n" * 200, encoding="utf-8")
    files = ("--hypothesis=cut.de", "--reference=cut.de")
    found = run(*files)
    assert found.out.startswith("BLEU = 100.00")
    assert found.err.startswith("regard: most lines of cut.de end in ' .', as if they were tokenis")
    assert found.err.count("\n") == 1
    assert run(*files, "--tokenize=none").err == ""
    assert not caplog.records


def test_without_sacrebleu(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    found = run(*FILES)
    assert found == (1, "", "regard: bleu: sacrebleu is not installed; pip install 'regard[transl"
                     "ate]'\n")  # fmt: skip


def test_nothing_is_waited_for_if_there_is_no_reference(run: Run) -> None:
    found = run("--reference=gone", stdin=b"a\n")
    assert found.err == "regard: gone: cannot be read: No such file or directory\n"
    assert sys.stdin.buffer.tell() == 0


def test_contrastive(run: Run, tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text(ITEMS, encoding="utf-8")
    found = run("--contrastive=items.jsonl")
    assert (found.status, found.err) == (0, "")
    assert found.out.splitlines() == [
        "          accuracy      n  95 % interval",
        "all        50.0 %       2  9.5–90.5 %",
        "guessing   50.0 %",
    ]
    assert run("--contrastive=-", stdin=ITEMS.encode()) == found


def test_contrastive_json_with_context(run: Run, tmp_path: Path) -> None:
    items = [json.loads(line) | {"context": "A house."} for line in ITEMS.split("\n") if line]
    text = "\n".join(map(json.dumps, items))
    (tmp_path / "items.jsonl").write_text(text, encoding="utf-8")
    found = json.loads(run("--contrastive=items.jsonl", "--context=1", "--json").out)
    assert found.pop("seconds") > 0
    half = {"accuracy": 0.5, "n": 2, "correct": 1}
    assert {key: found[key] for key in half} == half
    assert (found["model"], found["context"]) == ("pocket-en-de", 1)
    assert (found["chance"], found["targets"]) == (0.5, 4)
    assert found["words"]["die"]["n"] == 1
