"""Runs that are started again, and what a folder must not hold for that; BLEU beside the loss."""

from __future__ import annotations

import io
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from regard.errors import FileError, RegardError
from regard.translate import RunConfig, train
from regard.translate.events import Terminal
from regard.translate.locking import locked


def told(config: RunConfig, out: Path) -> str:
    """What a run says."""
    file = io.StringIO()
    train(config, out, [Terminal(Console(file=file))])
    return file.getvalue()


def longer(config: RunConfig, **changes: object) -> RunConfig:
    return replace(config, training=replace(config.training, **changes))


def judged(config: RunConfig, **changes: object) -> RunConfig:
    return replace(config, validation=replace(config.validation, **changes))


def logged(out: Path, kind: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (out / "log.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == kind]


@pytest.fixture
def short(config: RunConfig) -> RunConfig:
    """Four updates, validated after each second."""
    return judged(longer(config, max_steps=4), valid_every=2, average=2)


def test_bleu_is_measured_where_the_loss_judges(short: RunConfig, tmp_path: Path) -> None:
    said = told(longer(short, learning_rate=1e-6), tmp_path / "run")
    assert "(greedy)" in said
    valid = logged(tmp_path / "run", "valid")
    assert len(valid) == 3
    assert all(line["bleu"] >= 0 for line in valid)
    assert [line["best"] for line in valid[:2]] == [True, valid[1]["loss"] < valid[0]["loss"]]


def test_without_sacrebleu_the_loss_alone_judges(
    short: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    said = told(short, tmp_path / "run")
    assert said.count("Continuing without BLEU: bleu: sacrebleu is not installed; pip install") == 1
    assert not any("bleu" in line for line in logged(tmp_path / "run", "valid"))


@pytest.mark.parametrize(
    ("module", "tokenize", "words"),
    [
        (
            "sacrebleu",
            "13a",
            r"train: --select-by bleu: bleu: sacrebleu is not .*; or give --select-by loss",
        ),
        (
            "MeCab",
            "ja-mecab",
            r"train: --select-by bleu: bleu: tokenize='ja-mecab' needs more than",
        ),
    ],
)
def test_that_bleu_cannot_judge_is_found_before_the_run_begins(
    short: RunConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    tokenize: str,
    words: str,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(RegardError, match=words):
        told(judged(short, select_by="bleu", bleu_tokenize=tokenize), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_finished_run_writes_no_more_log(short: RunConfig, tmp_path: Path) -> None:
    out = tmp_path / "run"
    told(short, out)
    log = (out / "log.jsonl").read_bytes()
    assert len(logged(out, "train")) == 2  # one with each validation
    said = told(short, out)
    assert "This run is finished: it has made 4 updates." in said
    assert "the average of 2 updates: loss" in said
    assert (out / "log.jsonl").read_bytes() == log
    assert sorted(path.name for path in out.iterdir() if path.name[0] == ".") == []


def test_a_run_that_goes_on_knows_the_last_bleu(short: RunConfig, tmp_path: Path) -> None:
    out = tmp_path / "run"
    told(short, out)
    before = logged(out, "valid")[1]
    assert "averaged" not in before
    said = told(longer(short, max_steps=6), out)
    line = said.split("Resuming from the checkpoint of update 4.")[1].split("update 6  ")[1]
    assert line.splitlines()[0].endswith(f"  BLEU {before['bleu']:.1f}")


def test_a_folder_that_is_trained_in_is_left_alone(short: RunConfig, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with locked(out):
        with pytest.raises(FileError, match=r"a run is active in \S*run: process \d+ on"):
            told(short, out)
        assert [path.name for path in out.iterdir()] == [".lock"]
    told(longer(short, max_steps=1), out)


def test_a_checkpoint_of_another_model_is_refused(short: RunConfig, tmp_path: Path) -> None:
    out, other = tmp_path / "run", tmp_path / "other"
    told(short, out)
    told(replace(short, model=replace(short.model, width=16)), other)
    shutil.rmtree(out / "checkpoints")
    shutil.copytree(other / "checkpoints", out / "checkpoints")
    words = (
        r"step-00000004: belongs to another model: output has shape \(40,16\), expected \(40,32\)"
    )
    with pytest.raises(FileError, match=words):
        told(longer(short, max_steps=6), out)


def test_an_older_checkpoint_of_another_model_is_done_without(
    short: RunConfig, tmp_path: Path
) -> None:
    out, other = tmp_path / "run", tmp_path / "other"
    told(short, out)
    told(replace(short, model=replace(short.model, encoder_depth=2)), other)
    shutil.rmtree(out / "checkpoints" / "step-00000002")
    shutil.copytree(other / "checkpoints" / "step-00000002", out / "checkpoints" / "step-00000002")
    said = told(short, out)
    assert "encoder.blocks.1.attention.b_k is no part of this one; continuing without it" in said


def test_fine_tuning_goes_on_without_the_other_model(short: RunConfig, tmp_path: Path) -> None:
    first = tmp_path / "first"
    told(replace(short, model=replace(short.model, feed_forward=48)), first)
    tuning = longer(short, init_from=first, trainable="encoder", max_steps=4)
    told(tuning, tmp_path / "whole")
    told(longer(tuning, stop_at=2), tmp_path / "parts")
    first.rename(tmp_path / "gone")
    told(tuning, tmp_path / "parts")
    mine, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("parts", "whole"))
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    with pytest.raises(FileError, match="first: no such folder"):
        told(tuning, tmp_path / "new")


def test_that_there_is_no_checkpoint_yet_is_said(short: RunConfig, tmp_path: Path) -> None:
    wild = longer(short, learning_rate=1e30, warmup=0, clip=0.0)
    with pytest.raises(RegardError, match="with another --out; no checkpoint was written before"):
        told(wild, tmp_path / "run")


def test_damaged_checkpoints_do_not_pass_for_the_newest(short: RunConfig, tmp_path: Path) -> None:
    often, out = judged(short, checkpoint_every=1), tmp_path / "run"
    train(longer(often, stop_at=2), out)
    checkpoints = out / "checkpoints"
    for step in (9, 10):
        shutil.copytree(checkpoints / "step-00000002", checkpoints / f"step-{step:08d}")
        with (checkpoints / f"step-{step:08d}" / "model.safetensors").open("ab") as file:
            file.write(b"x")
    said = told(often, out)
    assert "using the checkpoint before it" in said
    assert "Resuming from the checkpoint of update 2." in said
    assert [path.name[-1] for path in sorted(checkpoints.iterdir())][-2:] == ["3", "4"]
