"""Runs that have not finished translate with the best of their checkpoints."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import FileError
from regard.nn import TransformerConfig
from regard.translate import (
    RunConfig,
    TrainingConfig,
    Translator,
    ValidationConfig,
    train,
)
from regard.translate.checkpoint import Checkpoints
from regard.translate.events import Sink


class Stopping(Sink):
    """Interrupts a run after its second validation."""

    validated = 0

    def valid(self, figures: dict[str, Any]) -> None:
        self.validated = figures["step"]

    @property
    def is_due(self) -> bool:
        if self.validated == 20:
            raise KeyboardInterrupt
        return super().is_due


@pytest.fixture(scope="module")
def stopped(corpus: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped on its way, with checkpoints of several updates."""
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    config = RunConfig(
        corpus.data(),
        TransformerConfig(vocabulary=40, width=16, encoder_depth=1, decoder_depth=1, heads=2,
                          feed_forward=16),
        TrainingConfig(max_steps=30, batch_tokens=256, warmup=10),
        ValidationConfig(valid_every=10, checkpoint_every=5, select_by="loss", average=2),
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        train(config, folder, [Stopping()])
    assert not (folder / "model.json").exists()
    return folder


def weights(folder: Path, step: int) -> dict[str, torch.Tensor]:
    return Checkpoints(folder / "checkpoints").read(step).model


def test_a_run_that_has_not_finished_translates(stopped: Path) -> None:
    with pytest.warns(UserWarning, match=r"its training has not finished; using .* update 20$"):
        translator = Translator.load(stopped)
    wanted = weights(stopped, 20)
    own = dict(translator.model.named_parameters())
    assert own.keys() == wanted.keys()
    assert translator.model.source.table is translator.model.output
    assert all(torch.equal(own[name], wanted[name]) for name in wanted)
    assert translator.longest == 256
    assert not translator.model.training
    assert len(translator.translate(["one two", "three"])) == 2


def test_the_best_of_the_checkpoints_is_used(stopped: Path, tmp_path: Path) -> None:
    run = shutil.copytree(stopped, tmp_path / "run")
    checkpoints = Checkpoints(run / "checkpoints")
    last = checkpoints.read(20)
    checkpoints.write(replace(last, state={**last.state, "best_step": 10}))
    with pytest.warns(UserWarning, match=r"update 10$"):
        Translator.load(run)
    (run / "checkpoints" / "step-00000010" / "model.safetensors").unlink()
    with pytest.warns(UserWarning, match=r"update 20$"):
        Translator.load(run)
    (run / "checkpoints" / "step-00000020" / "state.json").write_text("{")
    with pytest.warns(UserWarning, match=r"update 15$"):
        Translator.load(run)
    (run / "checkpoints" / ".writing-25").mkdir()
    with pytest.warns(UserWarning, match=r"update 15$"):
        Translator.load(run)
    assert (run / "checkpoints" / ".writing-25").exists(), "it belongs to the run"


def test_a_run_without_a_checkpoint_is_told(stopped: Path, tmp_path: Path) -> None:
    run = shutil.copytree(stopped, tmp_path / "run")
    for path in (run / "checkpoints").rglob("state.json"):
        path.write_text("{")
    with pytest.raises(FileError, match=r"run: its training has not finished, and there is no che"):
        Translator.load(run)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(
        FileError, match=r"there is no checkpoint yet; resume it with `regard train`$"
    ):
        Translator.load(run)
