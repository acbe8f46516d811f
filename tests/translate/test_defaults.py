"""Options that are chosen from the corpus, and `Translator.train`, `save`, `to` and call."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regard.errors import FileError, OptionError
from regard.translate import Translator, defaults
from regard.translate.defaults import Options
from regard.translate.run_directory import CONFIG, read_config
from regard.translate.stopping import stop_signal

PAIRS = [(f"{a} {b} {c}", f"{c} {b} {a}") for a in "uvwx" for b in "klmn" for c in "pqrst"]
QUICK = {"width": 32, "heads": 2, "encoder_depth": 1, "decoder_depth": 1, "feed_forward": 64}


@pytest.fixture
def corpus(tmp_path: Path) -> Any:
    def write(pairs: int) -> Path:
        path = tmp_path / f"{pairs}.tsv"
        path.write_text("A sentence of some length.\tEin Satz von einiger Länge.\n" * pairs)
        return path

    return write


@pytest.mark.parametrize(
    ("pairs", "preset", "vocabulary", "batch", "epochs", "warmup", "rate"),
    [
        (500, 128, 1_500, 1024, 126, 50, 0.004),
        (5_000, 128, 3_500, 2048, 71, 135, 0.004),
        (50_000, 256, 8_000, 4096, 40, 380, 0.0028),
        (500_000, 256, 16_000, 4096, 22, 2000, 0.0014),
    ],
)
def test_options_suit_the_corpus(
    corpus: Any, tmp_path: Path, pairs: int, preset: int, vocabulary: int, batch: int,
    epochs: int, warmup: int, rate: float,
) -> None:  # fmt: skip
    said: list[str] = []
    options = Options.of({"source": str(corpus(pairs))})
    config = options.config(tmp_path / "run", said.append)
    assert (config.model.width, config.model.vocabulary) == (preset, vocabulary)
    assert config.training.batch_tokens == batch
    assert (config.training.epochs, config.training.warmup) == (epochs, warmup)
    assert config.training.learning_rate == rate
    (line,) = said
    assert line.startswith(
        f"Chosen for {pairs:,} pairs: preset {'tiny' if preset == 128 else 'sm'}"
    )
    assert f"vocabulary {vocabulary:,}, batches of {batch:,} tokens, {epochs} epochs" in line
    assert f"a warm-up of {warmup:,} updates (at most a tenth of the run)" in line
    (row,) = (
        row.split()
        for row in defaults.__doc__.splitlines()
        if row.strip().startswith(f"{pairs:,} ")
    )
    name = "tiny" if preset == 128 else "small"
    assert row == [f"{pairs:,}", name, f"{vocabulary:,}", f"{batch:,}", str(epochs), str(rate)]


def test_nothing_is_announced_for_an_empty_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").touch()
    said: list[str] = []
    Options.of({"source": str(tmp_path / "a.tsv")}).config(tmp_path / "run", said.append)
    assert said == []


def test_a_short_run_is_announced_in_the_singular(corpus: Any, tmp_path: Path) -> None:
    said: list[str] = []
    options = Options.of({"source": str(corpus(500)), "max_steps": 5})
    options.config(tmp_path / "run", said.append)
    assert "a warm-up of 1 update (at" in said[0]
    assert "validation every 1 update;" in said[0]


def test_what_is_given_is_not_chosen_and_the_warmup_follows(corpus: Any, tmp_path: Path) -> None:
    said: list[str] = []
    given = {"source": str(corpus(500)), "max_steps": 50, "vocabulary": 90, "dropout": 0.2}
    options = Options.of(given, "small")
    config = options.config(tmp_path / "run", said.append)
    assert (config.training.warmup, config.model.width) == (5, 256)
    assert (config.model.vocabulary, config.model.dropout) == (90, 0.2)
    assert "preset" not in said[0]
    assert "vocabulary" not in said[0]
    assert not options.fits_vocabulary


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Translator, Path]:
    """A translator of a text that has far fewer subwords than its size suggests."""
    out = tmp_path_factory.mktemp("trained") / "run"
    given = {**QUICK, "max_steps": 6, "select_by": "loss", "checkpoint_every": 3}
    return Translator.train(PAIRS, out=out, quiet=True, **given), out


def test_a_run_is_resumed_without_saying_its_options_again(
    trained: tuple[Translator, Path],
) -> None:
    _, out = trained
    before = read_config(out / CONFIG)
    Translator.train(PAIRS, out=out, quiet=True, max_steps=8)
    after = read_config(out / CONFIG)
    assert before.differences(after) == ["training.max_steps: 6, not 8"]
    with pytest.raises(OptionError, match=r"another configuration \(training\.seed: 1, not 2\)"):
        Translator.train(PAIRS, out=out, quiet=True, seed=2)
    with pytest.raises(OptionError, match="holds a run on other pairs"):
        Translator.train(PAIRS[1:], out=out, quiet=True)


def test_a_translator_is_called_saved_and_moved(
    trained: tuple[Translator, Path], tmp_path: Path
) -> None:
    translator, _ = trained
    one = translator("u k p", beam=1)
    assert isinstance(one, str)
    assert translator(["u k p"], beam=1) == [one]
    translator.to("cpu").save(tmp_path / "copy")
    assert Translator.load(tmp_path / "copy")("u k p", beam=1) == one
    with pytest.raises(OptionError, match=r"Translator\.to: device='nowhere' cannot be used"):
        translator.to("nowhere")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {}, r"train: out is missing, expected Translator\.train\(pairs, out=folder\)"),
        ((), {"out": "x"}, "train: pairs is missing"),
        ((["a text"],), {"out": "x"}, r"pairs\[0\] is 'a text', expected two texts"),
        (("a b",), {"out": "x"}, "pairs is str, expected .*source=…, target=…"),
        ((PAIRS,), {"out": "x", "source": "y"}, "pairs and source files given"),
        ((PAIRS,), {"out": "x", "warmpu": 3}, "warmpu is unknown; did you mean warmup"),
    ],
)
@pytest.mark.usefixtures("as_users_run")
def test_train_that_is_misused(
    arguments: tuple[Any, ...], options: Any, message: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=message):
        Translator.train(*arguments, **options)


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(FileError, match="is not empty and holds no run"):
        Translator.train(PAIRS, out=tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["letter.txt"]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl+C raises, also where the tests were started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_first_signal_is_noted_and_the_second_acts(interruptible: None) -> None:
    with stop_signal() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        stop.leave()


def test_sigterm_saves_the_update_and_the_run_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS * 3))
    shape = [f"--{name.replace('_', '-')}={value}" for name, value in QUICK.items()]
    command = [
        *(sys.executable, "-m", "regard", "train", "--source=pairs.tsv", "--select-by=loss"),
        *("--average=1", "--checkpoint-every=10000", "--valid-every=10000", "--warmup=20", *shape),
    ]

    def start(out: str, *more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*command, f"--out={out}", *more], cwd=tmp_path, stderr=-1)

    running = start("stopped", "--max-steps=100000")
    log = tmp_path / "stopped" / "log.jsonl"
    until = time.monotonic() + 60
    while not log.exists() and time.monotonic() < until:
        time.sleep(0.05)
    running.terminate()
    said = running.communicate(timeout=60)[1].decode()
    assert running.returncode == 128 + signal.SIGTERM, said
    assert "and the same command resumes there" in said.replace("\n", " ")
    (saved,) = (tmp_path / "stopped" / "checkpoints").iterdir()
    step = int(saved.name.removeprefix("step-"))
    assert step >= 50
    for out in ("stopped", "whole"):
        again = start(out, f"--max-steps={step + 5}")
        said = again.communicate(timeout=60)[1].decode()
        assert again.returncode == 0, said
        resumed = f"checkpoint of update {step:,}" in said.replace("\n", " ")
        assert resumed == (out == "stopped")
    weights = [(tmp_path / out / "model.safetensors").read_bytes() for out in ("stopped", "whole")]
    assert weights[0] == weights[1]
