"""``regard translate``: lines in, lines out, and the one line with which it fails."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import signal
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import IO

import pytest
import torch

from regard.text import Tokenizer
from regard.translate import RunConfig, Sampling, Translator
from regard.translate.checkpoint import Checkpoint, Checkpoints
from regard.translate.model_files import save_model
from tests.cli.result import Run

SOURCE = Path(__file__).parents[2] / "src"
LINES = ["one two.", "", "seven.", "ten ten four five."]
SAID = ["eins zwei!", "", "sieben!", "zehn zehn vier fünf!"]


def dictionary() -> ModuleType:
    """The model set by hand that the tests of `Translator` use."""
    path = Path(__file__).parents[1] / "translate" / "dictionary.py"
    spec = importlib.util.spec_from_file_location("dictionary", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder; sentences of more than 12 subwords are long for it."""
    folder = tmp_path_factory.mktemp("model")
    translator: Translator = dictionary().dictionary()
    save_model(folder, translator.model, longest=12)
    translator.tokenizer.save(folder / "tokenizer.json")
    return folder


@pytest.fixture
def run(program: Run) -> Run:
    """``regard translate …``; standard input is empty if not given."""
    return partial(program, "translate", stdin=b"")


def lines(texts: list[str]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def test_from_standard_input_to_standard_output(run: Run, model: Path) -> None:
    found = run(f"--model={model}", stdin=lines(LINES))
    assert found == (0, lines(SAID).decode(), "")


def test_from_file_to_file(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.en").write_bytes("\ufeff".encode() + lines(LINES))
    assert run(f"--model={model}", "in.en", "--output=out.de") == (0, "", "")
    assert (tmp_path / "out.de").read_bytes() == lines(SAID)
    with gzip.open(tmp_path / "in.gz", "wb") as file:
        file.write(lines(LINES).replace(b"\n", b"\r\n"))
    assert run(f"--model={model}", "in.gz").out == lines(SAID).decode()


def test_what_is_there_is_not_lost(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.en").write_bytes(lines(LINES))
    found = run(f"--model={model}", "in.en", "--out=in.en")
    assert found.status == 1
    assert "in.en is the input; write to another file" in found.err
    assert (tmp_path / "in.en").read_bytes() == lines(LINES)
    (tmp_path / "old.de").write_bytes(b"alt\n")
    (tmp_path / "bad.en").write_bytes(b"one.\ntw\xff.\nsix.\n")
    for wrong in (["gone.en"], ["in.en", "--n-best=9"], ["in.en", "--batch=0"], ["bad.en"]):
        assert run(f"--model={model}", *wrong, "--out=old.de").status == 1
        assert (tmp_path / "old.de").read_bytes() == b"alt\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.en", "in.en", "old.de"]


@pytest.mark.skipif(os.name != "posix", reason="needs pipes and symbolic links")
def test_streams_and_links_are_written_to_and_not_replaced(
    run: Run, model: Path, tmp_path: Path
) -> None:
    options, read, write = (f"--model={model}", "two."), *os.pipe()
    assert run(*options, f"--out=/dev/fd/{write}").status == 0
    assert os.read(read, 99) == b"zwei!\n"
    with (tmp_path / "log").open("wb") as log:
        assert run(*options, f"--out=/dev/fd/{log.fileno()}").status == 0
        assert os.fstat(log.fileno()).st_size == len(b"zwei!\n")
    (tmp_path / "link").symlink_to("log")
    assert run(*options, "--json", "--out=link").status == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "log").read_bytes().startswith(b"{")


@pytest.mark.parametrize("text", ["two.", "two!", "two"])
def test_one_word_is_a_text(run: Run, model: Path, text: str) -> None:
    assert run(f"--model={model}", text).out == run(f"--model={model}", stdin=text.encode()).out


@pytest.mark.parametrize("name", ["gone.en", "my letter.en", "gone/letter", "a b.txt"])
def test_a_missing_file_is_no_text(run: Run, model: Path, name: str) -> None:
    message = f"regard: {name}: cannot be read: No such file or directory\n"
    assert run(f"--model={model}", name) == (1, "", message)


def test_a_last_line_without_an_end_and_no_lines_at_all(run: Run, model: Path) -> None:
    assert run(f"--model={model}", stdin=b"one.\ntwo.").out == "eins!\nzwei!\n"
    assert run(f"--model={model}", stdin=b"") == (0, "", "")
    assert run(f"--model={model}", stdin=b"\n").out == "\n"


def test_many_lines_keep_their_order(run: Run, model: Path) -> None:
    import random

    chance = random.Random(1)
    pairs = [dictionary().sentence(chance) for _ in range(300)]
    found = run(f"--model={model}", "--beam=1", stdin=lines([source for source, _ in pairs]))
    assert found.out.splitlines() == [said for _, said in pairs]


def test_n_best_lines_have_number_and_score(run: Run, model: Path) -> None:
    found = run(f"--model={model}", "--beam=4", "--n-best=2", stdin=b"one.\n\nsix two.\n")
    rows = [line.split("\t") for line in found.out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "3", "3"]
    assert [rows[0][2], rows[2][2], rows[3][2]] == ["eins!", "", "sechs zwei!"]
    assert float(rows[0][1]) > float(rows[1][1])


def test_json(run: Run, model: Path) -> None:
    found = run(
        f"--model={model}", "--json", "--n-best=3", "--alignment", stdin="two fünf.\n".encode()
    )
    (line,) = found.out.splitlines()
    data = json.loads(line)
    assert list(data) == ["source", "text", "score", "alternatives", "alignment"]
    assert (data["source"], data["text"]) == ("two fünf.", "zwei fünf!")
    assert "fünf" in line, "letters as they are, not as numbers"
    assert len(data["alternatives"]) == 2
    assert data["score"] > data["alternatives"][0]["score"] > data["alternatives"][1]["score"]
    assert data["alignment"]["source"] == ["two", "fünf", "."]
    assert data["alignment"]["pairs"] == [[0, 0], [1, 1], [2, 2]]
    plain = json.loads(run(f"--model={model}", "--json", stdin=b"\n").out)
    assert plain == {"source": "", "text": "", "score": 0.0}


def test_drawing(run: Run, model: Path) -> None:
    texts = ["one two three."] * 20

    def drawn(*options: str) -> list[str]:
        return run(f"--model={model}", "--sample", *options, stdin=lines(texts)).out.splitlines()

    translator = Translator.load(model)
    wanted = translator.translate(texts, Sampling(temperature=1.2, top_k=9, top_p=0.9, seed=7))
    options = ("--temperature=1.2", "--top-k=9", "--top-p=0.9", "--seed=7")
    assert drawn(*options) == [one.text for one in wanted]
    assert len(set(drawn())) > 1
    assert drawn() == drawn("--seed=0") != drawn("--seed=1")


def test_the_length_penalty_is_passed_on(run: Run, model: Path) -> None:
    scores = [
        json.loads(run(f"--model={model}", "--json", *more, stdin=b"one two.").out)["score"]
        for more in ([], ["--length-penalty=1"], ["--length-penalty=0"])
    ]
    assert scores[0] == scores[1]
    assert scores[2] == pytest.approx(4 * scores[0])


def test_long_lines_are_split_and_that_is_said(run: Run, model: Path) -> None:
    text = "one two three four five six. seven eight nine ten one two."
    found = run(f"--model={model}", stdin=lines(["six.", text]))
    assert found.out.splitlines()[1] == (
        "eins zwei drei vier fünf sechs! sieben acht neun zehn eins zwei!"
    )
    assert found.err == (
        "regard: line 2 is longer than the model's limit of 12 subwords; translated in 2 parts\n"
    )


def test_translations_without_an_end_are_told(run: Run, model: Path, tmp_path: Path) -> None:
    translator = Translator.load(model)
    translator.model.output.data[Tokenizer.end] = 0
    save_model(tmp_path / "endless", translator.model)
    translator.tokenizer.save(tmp_path / "endless" / "tokenizer.json")
    found = run("--model=endless", stdin=b"one.\n")
    assert found.err == "regard: line 1: the model generated no end token; cut off\n"
    assert found.status == 0


def test_a_run_that_has_not_finished_is_told(run: Run, model: Path, tmp_path: Path) -> None:
    translator = Translator.load(model)
    config = RunConfig(model=translator.model.config)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(config.to_json(), encoding="utf-8")
    translator.tokenizer.save(tmp_path / "run" / "tokenizer.json")
    found = run("--model=run", stdin=b"one.\n")
    assert (found.status, found.out) == (1, "")
    assert found.err == (
        "regard: run: its training has not finished, and there is no checkpoint yet; "
        "resume it with `regard train`\n"
    )
    weights = dict(translator.model.named_parameters())
    Checkpoints(tmp_path / "run" / "checkpoints").write(Checkpoint(1200, weights, {}, {}))
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        found = run("--model=run", stdin=b"one.\n")
    assert found == (
        0,
        "eins!\n",
        "regard: run: its training has not finished; using the model of update 1,200\n",
    )


# ── errors ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model=gone"], "gone: no such folder; expected what `regard train` writes"),
        (["--model=M", "--alignment"], "translate: --alignment needs --json"),
        (["--model=M", "--top-k=3"], "translate: --top-k needs --sample"),
        (["--model=M", "--seed=3"], "translate: --seed needs --sample"),
        (["--model=M", "--sample", "--beam=3"], "translate: --beam cannot be used with --sample"),
        (
            ["--model=M", "--sample", "--length-penalty=1"],
            "translate: --length-penalty cannot be used with --sample",
        ),
        (["--model=M", "--beam=0"], "translate: --beam 0, expected 1 to 1,000"),
        (["--model=M", "--n-best=9"], "n_best=9 of a beam of 5; use a beam of 9 or more"),
        (["--model=M", "--beam=100000"], "translate: --beam 100000, expected 1 to 1,000"),
        (["--model=M", "--length-penalty=1e9"], "length_penalty=1000000000.0, expected a finite n"),
        (["--model=M", "--length-penalty=nan"], "length_penalty=nan, expected a finite number fro"),
        (["--model=M", "--sample", "--n-best=100000"], "n_best=100000, expected 1,000 or less"),
        (
            ["--model=M", "--sample", "--temperature=0"],
            "the most probable, use a beam of 1 instead",
        ),
        (["--model=M", "--sample", "--temperature=inf"], "temperature=inf, expected more than 0"),
        (["--model=M", "--batch=0"], "batch=0, expected 1 or more"),
        (["--model=M", ""], "the sentence is empty; give one, or a file, or neither for standard"),
        (["--model=M", "--output=no/out"], "cannot write no/out: No such file or directory"),
        (["--model=M", "--output=."], "translate: cannot write .: Is a directory"),
    ],
)
def test_bad_options_are_one_line(options: list[str], message: str, run: Run, model: Path) -> None:
    found = run(*(option.replace("=M", f"={model}") for option in options), stdin=b"one.\n")
    assert found.status == 1
    assert found.err.startswith("regard: ")
    assert message in found.err
    assert found.err.count("\n") == 1


def test_bytes_that_are_not_utf8(run: Run, model: Path, tmp_path: Path) -> None:
    found = run(f"--model={model}", stdin=b"one.\ntw\xff.\n")
    assert (found.status, found.out) == (1, "eins!\n")  # the lines before it are answered
    assert "standard input, line 2: byte 0xff is not UTF-8 (invalid start byte); conv" in found.err
    (tmp_path / "in.en").write_bytes(b"one.\ntw\xff.\n")
    found = run(f"--model={model}", "in.en")
    assert "in.en, line 2: byte 0xff is not UTF-8" in found.err
    assert found.out == "eins!\n"


def test_lines_without_an_end_are_refused(run: Run, model: Path, tmp_path: Path) -> None:
    message = "line 2: more than 100,000 characters; break it into lines"
    found = run(f"--model={model}", stdin=b"one.\n" + b"x" * 100_001)
    assert (found.status, found.out) == (1, "eins!\n")
    assert f"standard input, {message}" in found.err
    (tmp_path / "in.en").write_bytes(b"one.\n" + b"x" * 100_001)
    assert f"in.en, {message}" in run(f"--model={model}", "in.en").err


def test_long_work_tells_how_far_it_is(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.cli.translate.SILENCE", 0.0)
    found = run(f"--model={model}", "--batch=1", "--threads=1", stdin=b"one two. " * 9 + b"\n")
    assert "regard: after line 0, 1 of 9 sentences\n" in found.err
    assert found.out == " ".join(["eins zwei!"] * 9) + "\n"


def test_empty_translations_are_told(run: Run, model: Path, tmp_path: Path) -> None:
    translator = Translator.load(model)
    with torch.no_grad():
        for weight in translator.model.parameters():
            weight.zero_()
    save_model(tmp_path / "zero", translator.model)
    translator.tokenizer.save(tmp_path / "zero" / "tokenizer.json")
    found = run(f"--model={tmp_path / 'zero'}", stdin=b"one.\n\ntwo.\n")
    assert found.status == 0
    assert "regard: 2 of 2 translations are empty; the model is damaged, or not" in found.err


# ── as a process of its own ───────────────────────────────────────────────────────────────────


def started(model: Path) -> subprocess.Popen[bytes]:
    # As at a terminal: what a shell starts in the background has been told to ignore Ctrl-C.
    heeds = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heeds}; from regard.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "translate", f"--model={model}", "--beam=2"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "LC_ALL": "C"},
    )  # fmt: skip


def ends(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


@pytest.mark.skipif(os.name != "posix", reason="pipes cannot be waited for")
def test_a_line_is_answered_before_the_next_is_asked(model: Path) -> None:
    with started(model) as process:
        given, said = ends(process)
        for line, wanted in [("two.", "zwei!"), ("five.", "fünf!")]:
            given.write(f"{line}\n".encode())
            given.flush()
            assert said.readline().decode() == f"{wanted}\n"
        given.write(b"six")
        rest, errors = process.communicate(timeout=60)
    assert (rest, errors, process.returncode) == (b"sechs\n", b"", 0)


def test_a_reader_that_leaves_early_is_no_error(model: Path) -> None:
    with started(model) as process:
        given, said = ends(process)
        given.write(b"two.\n")
        given.flush()
        assert said.readline() == b"zwei!\n"
        said.close()
        given.write(b"six.\n" * 50)
        given.close()
        process.wait(timeout=60)
        assert process.stderr is not None
        assert process.stderr.read() == b""


@pytest.mark.skipif(os.name != "posix", reason="needs a signal")
def test_stopped_from_the_keyboard_is_no_success(model: Path) -> None:
    with started(model) as process:
        given, said = ends(process)
        given.write(b"two.\n")
        given.flush()
        assert said.readline() == b"zwei!\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (errors, process.returncode) == (b"regard: stopped\n", 130)


@pytest.mark.skipif(os.name != "posix", reason="needs a signal")
@pytest.mark.parametrize("wait", [0.2, 0.5])
def test_stopped_while_it_is_being_imported(wait: float, model: Path) -> None:
    with started(model) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(wait)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (errors, process.returncode) == (b"regard: stopped\n", 130)


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
def test_standard_output_that_is_closed(model: Path) -> None:
    command = f"echo one. | {sys.executable} -m regard translate --model={model} >&-"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    found = subprocess.run(command, shell=True, capture_output=True, env=environment, timeout=60)
    assert (found.stderr, found.returncode) == (b"regard: standard output is closed\n", 1)
