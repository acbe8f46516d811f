"""Checkpoints: whole or not there, and the damaged ones told from the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard.errors import FileError
from regard.translate.checkpoint import Checkpoint, Checkpoints


def made(step: int) -> Checkpoint:
    weights = {"w": torch.full((3, 5), float(step)), "b": torch.arange(4.0) * step}
    return Checkpoint(step, weights, {"w|exp_avg": torch.ones(3, 5)}, {"epoch": step, "best": 0.5})


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    """Those of updates 10 and 20."""
    found = Checkpoints(tmp_path / "checkpoints")
    for step in (10, 20):
        found.write(made(step))
    return found


def test_what_is_read_is_what_was_written(checkpoints: Checkpoints) -> None:
    found = checkpoints.read(20)
    assert found.step == 20
    assert found.state["epoch"] == 20
    assert torch.equal(found.model["w"], made(20).model["w"])
    assert torch.equal(found.optimizer["w|exp_avg"], torch.ones(3, 5))
    assert checkpoints.steps() == [10, 20]


def _flip(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _cut(folder: Path) -> None:
    path = folder / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:-3])


def _of_another(folder: Path) -> None:
    path = folder / "state.json"
    path.write_text(path.read_text().replace('"step": 20', '"step": 30'))


def _field_missing(folder: Path) -> None:
    path = folder / "state.json"
    path.write_text(path.read_text().replace('"epoch": 20,', ""))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a bit turned": (_flip, "model.safetensors: damaged: its checksum does not match"),
    "cut off": (_cut, "optimizer.safetensors: damaged: its checksum does not match"),
    "a file missing": (lambda f: (f / "model.safetensors").unlink(), "cannot be read: No such"),
    "no state": (lambda f: (f / "state.json").unlink(), "state.json: cannot be read: No such"),
    "no JSON": (lambda f: (f / "state.json").write_text("{"), "state.json: damaged: "),
    "of another update": (_of_another, "state.json: damaged: it belongs to update 30"),
    "a field missing": (_field_missing, "state.json: damaged: its checksum does not match"),
    "other JSON": (lambda f: (f / "state.json").write_text("[1]"), "state.json: damaged: "),
    "no step": (lambda f: (f / "state.json").write_text("{}"), "state.json: damaged: 'step'"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_told_and_the_one_before_is_used(
    checkpoints: Checkpoints, tmp_path: Path, damage: str
) -> None:
    harm, words = DAMAGE[damage]
    harm(tmp_path / "checkpoints" / "step-00000020")
    with pytest.raises(FileError, match=words):
        checkpoints.read(20)
    told: list[str] = []
    found = checkpoints.newest(told.append)
    assert found is not None
    assert found.step == 10
    assert len(told) == 1
    assert told[0].endswith("using the checkpoint before it")


def test_checkpoints_of_which_none_can_be_read_are_an_error(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    for step in (10, 20):
        _cut(tmp_path / "checkpoints" / f"step-{step:08d}")
    told: list[str] = []
    with pytest.raises(FileError, match=r"step-00000020.*damaged.*; no checkpoint in .* can be re"):
        checkpoints.newest(told.append)
    assert told == []
    assert checkpoints.steps() == [10, 20]


def test_what_was_half_written_is_removed(checkpoints: Checkpoints, tmp_path: Path) -> None:
    beside = tmp_path / "checkpoints" / ".writing-30"
    beside.mkdir()
    (beside / "model.safetensors").write_bytes(b"half")
    found = checkpoints.newest(lambda _: None)
    assert found is not None
    assert found.step == 20
    assert not beside.exists()


def test_nothing_there_is_nothing(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").newest(lambda _: None) is None
    (tmp_path / "killed" / ".writing-10").mkdir(parents=True)
    assert Checkpoints(tmp_path / "killed").newest(lambda _: None) is None


def test_only_those_wanted_are_kept(checkpoints: Checkpoints) -> None:
    checkpoints.keep({20, 30})
    assert checkpoints.steps() == [20]


def test_the_average_is_the_mean(checkpoints: Checkpoints) -> None:
    assert torch.equal(checkpoints.average([10, 20])["w"], torch.full((3, 5), 15.0))


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file is in the way")
    with pytest.raises(FileError, match=r"cannot be written: .*; no checkpoint was written before"):
        Checkpoints(tmp_path / "checkpoints").write(made(10))
