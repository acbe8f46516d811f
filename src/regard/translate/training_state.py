"""The state of a run: model, optimizer and counters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace

import torch
from torch import nn

from regard import native
from regard.nn import Transformer
from regard.translate.checkpoint import ADAM, Checkpoint, Tensors
from regard.translate.config import RunConfig
from regard.translate.model_files import load_model
from regard.translate.run_directory import set_trainable


@dataclass
class Counters:
    """The progress of a run."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    """The next batch of the epoch."""
    seconds: float = 0.0
    """Spent on updates."""
    best: float = -math.inf
    """The best BLEU, or negative loss."""
    best_step: int = 0
    stale: int = 0
    """Validations since the best."""
    validated: list[int] = field(default_factory=list)
    """Updates with a validation."""

    def validation(self, score: float) -> bool:
        """Record a validation; returns whether its score is the best so far."""
        self.validated.append(self.step)
        better = score > self.best
        self.stale = 0 if better else self.stale + 1
        if better:
            self.best, self.best_step = score, self.step
        return better


class TrainingState:
    """A model in training, its optimizer and the counters of the run."""

    def __init__(self, config: RunConfig, vocabulary: int, *, starts: bool) -> None:
        """A new model, or that of `init_from` if the run `starts` with one."""
        training = config.training
        torch.manual_seed(training.seed)
        self.model = Transformer(replace(config.model, vocabulary=vocabulary))
        if training.init_from and starts:
            self.model.load_state_dict(load_model(training.init_from).state_dict())
        set_trainable(self.model, training.trainable)
        self.optimizer = torch.optim.AdamW(
            [weight for _, weight in self.trainable()],
            betas=(0.9, 0.98),
            eps=1e-9,
            weight_decay=training.weight_decay,
            fused=True,
        )
        self.counters = Counters()

    def trainable(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The trainable parameters, by name."""
        return ((name, one) for name, one in self.model.named_parameters() if one.requires_grad)

    def checkpoint(self) -> Checkpoint:
        """A checkpoint from which the run can resume."""
        optimizer: Tensors = {}
        for name, parameter in self.trainable():
            for key, value in self.optimizer.state[parameter].items():
                optimizer[f"{name}|{key}"] = value
        kept = {**asdict(self.counters), "native": native.loaded()}
        return Checkpoint(self.counters.step, self._weights(), optimizer, kept)

    def restore(self, found: Checkpoint) -> None:
        """Load a checkpoint of this model."""
        self.fill(found.model)
        for name, parameter in self.trainable():
            self.optimizer.state[parameter] = {
                key: found.optimizer[f"{name}|{key}"] for key in ADAM
            }
        known = {one.name for one in fields(Counters)} & found.state.keys()
        self.counters = Counters(**{name: found.state[name] for name in known})

    def fill(self, weights: Tensors) -> None:
        """Copy these weights into the model."""
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(weights[name])

    def misfit(self, found: Checkpoint) -> str | None:
        """Why a checkpoint does not fit this model; None if it does."""
        return found.misfit(self._weights(), [name for name, _ in self.trainable()])

    def _weights(self) -> Tensors:
        return {name: weight.detach() for name, weight in self.model.named_parameters()}
