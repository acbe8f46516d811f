"""``regard explain`` and ``regard compare``: what they print, write, and fail with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import typer

from regard.cli.compare import compare
from regard.cli.explain import explain
from regard.errors import FileError, OptionError, RegardError, WordError
from regard.lens import Lens
from regard.nn import Transformer, TransformerConfig
from regard.text import Tokenizer
from regard.translate.model_files import TOKENIZER, save_model

TEXT = "The animal didn't cross the street because it was too tired."
Run = Callable[..., str]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model that nobody trained."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    tokenizer = Tokenizer.train([TEXT, "The bat hit the ball."] * 2, size=36)
    config = TransformerConfig.preset(
        "tiny", vocabulary=tokenizer.size, encoder_depth=2, decoder_depth=1
    )
    save_model(folder, Transformer(config), longest=60)
    tokenizer.save(folder / TOKENIZER)
    return folder


@pytest.fixture
def run(model: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """``regard explain …`` or ``regard compare …`` with that model: what it prints."""
    app = typer.Typer()
    app.command()(explain)
    app.command()(compare)

    def run(*arguments: str) -> str:
        app([*arguments, f"--model={model}"], standalone_mode=False)
        return capsys.readouterr().out

    return run


def test_a_table_and_a_picture(run: Run, model: Path) -> None:
    found = run("explain", TEXT, "--word=it")
    told = Lens.open(model).explain(TEXT, "it")
    assert found.startswith(told.table())
    assert "█" in found
    assert told.conclusion in found


def test_top(run: Run) -> None:
    rows = run("explain", TEXT, "--word=it", "--top=3").split("\n\n")[0].splitlines()
    assert len(rows) == 4


def test_one_head_by_one_method(run: Run, model: Path) -> None:
    found = run("explain", TEXT, "--word=it", "--method=norm", "--layer=1", "--head=2")
    lines = found.splitlines()
    assert lines[0] == "norm, layer 1, head 2"
    e = Lens.open(model).explain(TEXT, "it")
    animal = next(line for line in lines if "animal" in line)
    assert float(animal.split()[1]) == pytest.approx(
        float(e.norm[1, 2, e.words.find("animal")]), abs=6e-4
    )
    assert any(line.startswith("→ it") for line in lines)
    words = run("explain", TEXT, "--word=it", "--method=norm", "--top=12").splitlines()[1:]
    assert len(words) == 12
    assert not any("</s>" in line for line in words)  # special tokens come last, and so not at all


def test_json(run: Run) -> None:
    data = json.loads(run("explain", TEXT, "--word=it", "--json"))
    assert data["word"] == "it"
    assert set(data["scores"]) == {"attention", "norm", "rollout", "knockout", "probability"}
    tokens = json.loads(run("explain", TEXT, "--word=The", "--json", "--tokens"))
    assert len(tokens["words"]) >= len(data["words"])


def test_a_summary_without_a_word(run: Run, tmp_path: Path) -> None:
    found = run("explain", TEXT)
    assert "sharpest heads" in found
    assert "looked at most" in found
    (tmp_path / "long.txt").write_text(f"{TEXT}\n" * 40, encoding="utf-8")
    data = json.loads(run("explain", "--file=long.txt", "--json"))
    assert len(data["words"]) == 40 * 12 + 1
    assert data["special"] == [False] * (40 * 12) + [True]
    assert len(data["entropy"]) == 2
    told = run("explain", "--file=long.txt", "--top=3").splitlines()
    assert told[0] == f"{40 * 12} words in 2 layers"
    assert told.index("looked at most") == len(told) - 7
    assert all("#" in line for line in told[-6:-3])  # which of the forty


def test_a_word_of_a_long_text(run: Run, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text(f"{TEXT}\n" * 9, encoding="utf-8")
    data = json.loads(run("explain", "--file=long.txt", "--word=it#7", "--json"))
    assert data["position"] == 6 * 12 + 7
    assert sum(value is not None for value in data["scores"]["knockout"]) == 64
    assert "said" not in data  # longer than what the model translates at once
    table, _, bars = run("explain", "--file=long.txt", "--word=it#7").partition("\nknockout\n")
    assert table.index("\n\n") == len("\n".join(table.splitlines()[:21]))  # and a line of names
    assert len(bars.splitlines()) == 20
    whole = run("explain", "--file=long.txt", "--word=it#7", "--method=knockout", "--top=100")
    assert sum(line.split()[-1] == "·" for line in whole.splitlines()) == 100 - 64  # not cut


def test_whoever_waits_at_a_terminal_sees_how_far_it_is(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    explain(TEXT, "it", str(model))
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # so that rich takes it for a terminal
    monkeypatch.setenv("TERM", "xterm")
    explain(TEXT, "it", str(model))
    assert "cutting links" in capsys.readouterr().err


def test_many_texts(run: Run, tmp_path: Path) -> None:
    items = [{"text": TEXT, "word": "it"}, {"text": "The bat hit the ball.", "word": "bat"}]
    lines = "".join(json.dumps(item) + "\n" for item in items)
    (tmp_path / "many.jsonl").write_text(lines, encoding="utf-8")
    found = [json.loads(line) for line in run("explain", "--jsonl=many.jsonl").splitlines()]
    assert [one["word"] for one in found] == ["it", "bat"]
    one = json.loads(run("explain", TEXT, "--word=it", "--json"))
    assert found[0] == one


def test_many_texts_go_to_a_file_even_from_a_terminal(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.jsonl").write_text(json.dumps({"text": TEXT, "word": "it"}), encoding="utf-8")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    explain(jsonl=tmp_path / "one.jsonl", model=str(model))
    out, err = capsys.readouterr()
    assert json.loads(out)["word"] == "it"
    assert "explaining" in err


def test_a_page_and_a_picture(run: Run, tmp_path: Path) -> None:
    run("explain", TEXT, "--word=it", "--html=it.html", "--svg=it.svg")
    assert "<!doctype html>" in (tmp_path / "it.html").read_text(encoding="utf-8").lower()
    assert (tmp_path / "it.svg").read_text(encoding="utf-8").startswith("<svg")


def test_compare(run: Run) -> None:
    other = "The bat was too tired."
    found = run("compare", "bat", "The bat hit the ball.", other)
    assert found.startswith("bat: one static vector (cosine 1.00)")
    data = json.loads(run("compare", "bat", "The bat hit the ball.", other, "--json"))
    assert data["static"] == 1.0
    assert len(data["cosine"]) == 3
    assert data["sides"][1]["text"] == other


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (["explain"], OptionError, "give a text, or --file FILE, or --jsonl FILE"),
        (["explain", TEXT, "--file=a"], OptionError, "give only one of a text, --file and --jso"),
        *(
            (["explain", "--jsonl=a.jsonl", "--out=o", one], OptionError, f"{one} cannot be used")
            for one in ("--tokens", "--json")
        ),
        (["explain", "", "--word=it"], OptionError, "the text is empty"),
        (["explain", TEXT, "--word=dog"], WordError, "the text has no word 'dog'"),
        (["explain", "the dog saw the cat", "--word=the"], WordError, "say which: the#1 or the#2"),
        (
            ["explain", TEXT, "--word=it", "--method=vibes"],
            OptionError,
            "--method vibes is unknown",
        ),
        (["explain", TEXT, "--word=it", "--layer=9"], OptionError, "layer 9, but there are 2"),
        (["explain", TEXT, "--word=it", "--top=0"], OptionError, "--top 0, expected 1 or more"),
        (["explain", TEXT, "--html=x.html"], OptionError, "name it with --word"),
        (["explain", "--file=none.txt"], FileError, "none.txt"),
        (
            ["explain", TEXT, "--word=it", "--json", "--top=3"],
            OptionError,
            "--top cannot be used wit",
        ),
        (
            ["explain", "--jsonl=a.jsonl", "--html=x.html"],
            OptionError,
            "--html cannot be used with",
        ),
        (["explain", TEXT, "--word=it", "--svg=x.png"], OptionError, "that ends in .svg"),
        (["explain", "--jsonl=other.jsonl"], FileError, "other.jsonl: line 1: the text has no wor"),
        (["explain", "--jsonl=bad.jsonl"], FileError, "line 1 is not a JSON object"),
        (["explain", "--jsonl=empty.jsonl"], FileError, "empty.jsonl: has no rows"),
        (["explain", "--jsonl=wordless.jsonl"], FileError, "line 1 has no word"),
        (["explain", "--jsonl=float.jsonl"], FileError, "line 1: word is float"),
        (["compare", "bat", TEXT, TEXT], WordError, "the text has no word 'bat'"),
        (["compare", "</s>", TEXT, TEXT], OptionError, "'</s>' is a special token, not a word"),
    ],
)
def test_what_goes_wrong(
    run: Run, tmp_path: Path, arguments: list[str], kind: type[RegardError], message: str
) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "bad.jsonl").write_text("it\n", encoding="utf-8")
    (tmp_path / "other.jsonl").write_text('{"text": "a b", "word": "c"}\n', encoding="utf-8")
    (tmp_path / "float.jsonl").write_text('{"text": "a b", "word": 1.5}\n', encoding="utf-8")
    (tmp_path / "wordless.jsonl").write_text('{"text": "a b"}\n', encoding="utf-8")
    with pytest.raises(kind, match=message):
        run(*arguments)
