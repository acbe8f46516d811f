"""Checkpoints: folders that are written atomically.

    checkpoints/step-00001200/
        model.safetensors       the weights
        optimizer.safetensors   Adam's moments
        state.json              position in the data, best score, and a digest of each file

A checkpoint is written to a temporary folder and renamed, so every ``step-`` folder is complete. If
a digest does not match, the checkpoint before it is used; if none can be read, the run stops.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from regard.errors import FileError, shape
from regard.files import why

Tensors = dict[str, Tensor]
ADAM = ("step", "exp_avg", "exp_avg_sq")
"""The optimizer's state of each weight, stored as ``weight|step`` and so on."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything that a run needs to resume."""

    step: int
    model: Tensors
    optimizer: Tensors
    state: dict[str, Any]

    def misfit(self, weights: Tensors, trainable: Iterable[str]) -> str | None:
        """Why this checkpoint does not fit a model with these weights; None if it does."""
        for name in sorted(weights.keys() ^ self.model.keys()):
            return f"{name} is {'missing' if name in weights else 'no part of this one'}"
        for name, weight in weights.items():
            if self.model[name].shape != weight.shape:
                return f"{name} has shape {shape(self.model[name])}, expected {shape(weight)}"
        for wanted in (f"{name}|{key}" for name in trainable for key in ADAM):
            if wanted not in self.optimizer:
                return f"{wanted} is missing"
        return None


class Checkpoints:
    """The checkpoints of a run, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steps(self) -> list[int]:
        """The updates that have a checkpoint, ascending."""
        found = (path.name.removeprefix("step-") for path in self.folder.glob("step-*"))
        return sorted(int(name) for name in found if name.isdigit())

    def write(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; on an error the others stay intact."""
        beside = self.folder / f".writing-{checkpoint.step}"
        try:
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir(parents=True)
            digests = {}
            for name in ("model", "optimizer"):
                path = beside / f"{name}.safetensors"
                safetensors.torch.save_file(getattr(checkpoint, name), path)
                digests[path.name] = _digest(path)
                _flush(path)
            state = {"step": checkpoint.step, **checkpoint.state, "files": digests}
            state["digest"] = _digest_of(state)
            path = beside / "state.json"
            path.write_text(json.dumps(state, indent=1), encoding="utf-8")
            _flush(path)
            shutil.rmtree(self.path(checkpoint.step), ignore_errors=True)
            beside.rename(self.path(checkpoint.step))
            _flush(self.folder)
        except (OSError, safetensors.SafetensorError) as error:
            shutil.rmtree(beside, ignore_errors=True)
            raise FileError(
                f"train: checkpoint {self.path(checkpoint.step)} cannot be written: "
                f"{why(error)}; {self.left(checkpoint.step)}"
            ) from None

    def left(self, step: int) -> str:
        """A clause on what a run that fails at this update can resume from."""
        there = [one for one in self.steps() if one < step]
        if not there:
            return "no checkpoint was written before"
        return f"the checkpoint of update {there[-1]:,} is intact"

    def read(self, step: int) -> Checkpoint:
        """The checkpoint of this update; raises a `FileError` if it is damaged."""
        folder = self.path(step)
        path = folder / "state.json"
        try:
            state = dict(json.loads(path.read_text(encoding="utf-8")))
            if state["step"] != step:
                raise FileError(f"{path}: damaged: it belongs to update {state['step']}")
            if state.pop("digest", None) not in (None, _digest_of(state)):
                raise FileError(f"{path}: damaged: its checksum does not match")
            digests, tensors = state["files"], {}
            for name in ("model", "optimizer"):
                path = folder / f"{name}.safetensors"
                if _digest(path) != digests[path.name]:
                    raise FileError(f"{path}: damaged: its checksum does not match")
                tensors[name] = safetensors.torch.load_file(path)
            return Checkpoint(step, tensors["model"], tensors["optimizer"], state)
        except FileError:
            raise
        except OSError as error:
            raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
            raise FileError(f"{path}: damaged: {error}") from None

    def newest(self, say: Callable[[str], None]) -> Checkpoint | None:
        """The newest valid checkpoint; reports damaged ones, and raises if there are no others."""
        for leftover in self.folder.glob(".writing-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        damaged: list[FileError] = []
        for step in reversed(self.steps()):
            try:
                found = self.read(step)
            except FileError as error:
                damaged.append(error)
                continue
            for problem in damaged:
                say(f"{problem}; using the checkpoint before it")
            return found
        if damaged:
            raise FileError(
                f"{damaged[0]}; no checkpoint in {self.folder} can be read: restore one, or give "
                "another --out"
            )
        return None

    def keep(self, wanted: set[int]) -> None:
        """Remove all other checkpoints."""
        for step in set(self.steps()) - wanted:
            shutil.rmtree(self.path(step), ignore_errors=True)

    def average(self, steps: list[int]) -> Tensors:
        """The mean of the weights of these checkpoints, computed in float64."""
        total: Tensors = {}
        for step in steps:
            for name, weight in self.read(step).model.items():
                wide = weight.double()
                total[name] = total[name] + wide if name in total else wide
        return {name: (weight / len(steps)).float() for name, weight in total.items()}

    def path(self, step: int) -> Path:
        """The folder of the checkpoint of this update."""
        return self.folder / f"step-{step:08d}"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]


def _digest_of(state: dict[str, Any]) -> str:
    written = json.dumps(state, sort_keys=True).encode()
    return hashlib.blake2b(written).hexdigest()[:32]


def _flush(path: Path) -> None:
    """fsync a file or folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
