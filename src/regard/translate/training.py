"""Training: from a configuration to a folder with a model that translates.

    runs/en-de/
        config.json         what was asked for
        .lock               while a process trains here, see `locking`
        tokenizer.json      the subwords
        data/               sentences as numbers
        checkpoints/        see `checkpoint`
        log.jsonl           see `progress`
        model.json, model.safetensors   the result: what `Translator.load` opens

Everything random is drawn from the seed and the number of the update, so a run that was stopped
and goes on is the same run, bit for bit.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from regard import native
from regard.errors import FileError, RegardError, counted
from regard.memory import keep_freed_memory
from regard.nn import Loss, Transformer
from regard.text import Batch, Batches
from regard.translate.checkpoint import ADAM, Checkpoint, Checkpoints, Tensors
from regard.translate.config import RunConfig, TrainingConfig
from regard.translate.defaults import Options
from regard.translate.locking import locked
from regard.translate.measuring import can_have_bleu, loss_of, measure
from regard.translate.model_files import load_model, save_model
from regard.translate.precision import bfloat16_pays, products_in
from regard.translate.preparing import Prepared, open_prepared
from regard.translate.progress import Progress, clock_words
from regard.translate.run_directory import check_place, set_trainable, settle, settled
from regard.translate.stopping import Stop, stop_signal
from regard.translate.workers import Workers

TELL_EVERY = 50
"""Updates between two lines of the log; each validation has one as well."""


def train(config: RunConfig | Options, out: str | Path, progress: Progress | None = None) -> Path:
    """The folder with the trained model; resumes a run that is already there.

    Ctrl-C and SIGTERM write a checkpoint of the update that is under way, and stop.
    """
    keep_freed_memory()
    folder = Path(out)
    progress = progress or Progress(folder)
    with Workers.joined() as workers, contextlib.closing(progress):
        progress.quiet = progress.quiet or not workers.first
        with contextlib.ExitStack() as held:
            with_bleu = False
            if workers.first:
                check_place(folder)
                asked = _resolved(config, folder, progress.say)
                found = settled(asked, folder)
                with_bleu = can_have_bleu(found.validation, progress.say)
                held.enter_context(locked(folder))
                fit = isinstance(config, Options) and config.fits_vocabulary
                settle(asked, found, folder, progress.say, fit)
            workers.wait()
            found = settled(_resolved(config, folder, lambda _: None), folder)
            stop = held.enter_context(stop_signal())
            _Run(found, folder, workers, progress, with_bleu, stop).go()
    return folder


def _resolved(config: RunConfig | Options, folder: Path, say: Callable[[str], None]) -> RunConfig:
    return config.config(folder, say) if isinstance(config, Options) else config


class _Loss(nn.Module):
    """The model's loss as a forward pass, which is what DistributedDataParallel wraps."""

    def __init__(self, model: Transformer, training: TrainingConfig) -> None:
        super().__init__()
        self.model, self.how = model, training

    def forward(self, batch: Batch) -> Loss:
        with products_in(self.how.precision):
            return loss_of(self.model, batch, self.how.smoothing)


@dataclass
class _State:
    """Where a run stands: what a checkpoint has beside weights."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    """The next batch of the epoch."""
    seconds: float = 0.0
    """Spent on updates."""
    best: float = -math.inf
    """The best BLEU, or the least loss with its sign turned."""
    best_step: int = 0
    stale: int = 0
    """Validations since then."""
    validated: list[int] = field(default_factory=list)
    """Updates that were validated."""


class _Run:
    """One run: the loop, and what it does now and then."""

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        workers: Workers,
        progress: Progress,
        with_bleu: bool,
        stop: Stop,
    ) -> None:
        self.config, self.folder, self.workers, self.progress = config, folder, workers, progress
        self.stop = stop
        self.with_bleu = with_bleu
        self.prepared: Prepared = open_prepared(folder)
        self.batches = Batches(
            self.prepared.train,
            config.training.batch_tokens,
            config.training.seed,
            list(config.data.mix.values()) or None,
        )
        self.checkpoints = Checkpoints(folder / "checkpoints")
        found = self._newest()
        torch.manual_seed(config.training.seed)
        self.model = self._new_model(begins=found is None)
        set_trainable(self.model, config.training.trainable)
        self.optimizer = torch.optim.AdamW(
            [weight for _, weight in self._learning()],
            betas=(0.9, 0.98),
            eps=1e-9,
            weight_decay=config.training.weight_decay,
            fused=True,
        )
        self.state = _State()
        if found is not None:
            self._restore(found)
        elif self.progress.has_log:
            self.progress.say("No checkpoint of this run is left: beginning anew.")
        self.began = replace(self.state)
        self.clock = _Clock()
        self.clock_before = _Clock()
        task = _Loss(self.model, config.training)
        self.task: nn.Module = task
        if workers.count > 1:
            self.task = DistributedDataParallel(task)

    def go(self) -> None:
        """Train until the end, and leave the model in the folder."""
        last = self._last()
        end = min(last, self.config.training.stop_at or last)
        if self.state.step < end and not self._stale():
            if self.state.step:
                self.progress.say(f"Going on from the checkpoint of update {self.state.step:,}.")
            self._introduce(end)
            if self.workers.first:
                self.progress.start(self.state.step, end)
            self._loop(last, end)
            self.progress.finish(self._figures(self.clock_before, end))
        else:
            self.progress.say(f"This run is finished: it has made {self.state.step:,} updates.")
        if self._stale():
            self.progress.say(
                f"No better in {counted(self.state.stale, 'validation')}: stopped after update "
                f"{self.state.step:,}; the best was {self.state.best_step:,}."
            )
        if self.workers.first:
            self._finish()
        self.workers.wait()

    def _loop(self, last: int, end: int) -> None:
        """Updates up to the `end`, of a schedule that reaches to the `last`."""
        every = self.config.validation
        while self.state.step < end and not self._stale():
            for group in self._rest_of_epoch():
                self._update(group, last)
                step = self.state.step
                validates = step % every.valid_every == 0 or step == end
                if step % TELL_EVERY == 0 or validates:
                    self._tell(end)
                elif self.progress.is_due:
                    self.progress.show(self._figures(self.clock_before + self.clock, end))
                if validates:
                    self._validate(end)
                elif step % every.checkpoint_every == 0:
                    self._save()
                if step == end or self._stale():
                    return
                if self.workers.together((float(self.stop.requested),))[0]:
                    self._interrupt(saved=validates or step % every.checkpoint_every == 0)
            self.state.epoch += 1
            self.state.batch = 0

    def _interrupt(self, saved: bool) -> None:
        """Write a checkpoint, and leave as the signal demands."""
        if not saved:
            self._save()
        self.workers.wait()
        self.progress.say(
            f"Stopped; the checkpoint of update {self.state.step:,} is written, and the same "
            "command resumes there."
        )
        self.stop.leave()

    def _rest_of_epoch(self) -> Iterator[list[Batch]]:
        """The batches that are left, as many at a time as go into one update."""
        rest = self.batches.epoch(self.state.epoch, self.state.batch)
        while group := list(islice(rest, self.config.training.accumulate)):
            yield group

    def _update(self, group: list[Batch], last: int) -> None:
        """One step down the gradient of the loss per token, all workers and batches together."""
        training, started = self.config.training, time.perf_counter()
        step = self.state.step + 1
        torch.manual_seed(_seed(training.seed, step, self.workers.rank))
        tokens = sum(batch.tokens for batch in group)
        self._gradient(group, tokens, self.clock)
        length = nn.utils.clip_grad_norm_(self.model.parameters(), training.clip or math.inf)
        if not torch.isfinite(length):
            raise RegardError(
                f"train: the gradient of update {step:,} is not a number; lower --learning-rate or "
                f"raise --warmup, with another --out; {self.checkpoints.left(step)}"
            )
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = training.rate(step, last, self.model.config.width)
        self.optimizer.step()
        self.state.step, self.state.batch = step, self.state.batch + len(group)
        spent = time.perf_counter() - started
        self.state.seconds += spent
        self.clock.seconds += spent
        self.clock.tokens += tokens

    def _gradient(self, group: list[Batch], tokens: int, clock: _Clock) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        for i, batch in enumerate(group):
            # Workers average their gradients: each must weigh its own part by their number.
            part, weight = batch, 1.0
            if 1 < self.workers.count <= len(batch.source):
                part = batch.part(self.workers.rank, self.workers.count)
                weight = float(self.workers.count)
            together: Any = contextlib.nullcontext()
            if isinstance(self.task, DistributedDataParallel) and i < len(group) - 1:
                together = self.task.no_sync()
            with together:
                loss: Loss = self.task(part)
                (loss.total * (weight / tokens)).backward()  # type: ignore[no-untyped-call]
            clock.likelihood += loss.likelihood.item()
            clock.loss += loss.total.item()
            clock.part_tokens += part.tokens

    def _tell(self, end: int) -> None:
        clock = self.clock
        sums = self.workers.together((float(clock.part_tokens), clock.loss, clock.likelihood))
        clock.part_tokens, clock.loss, clock.likelihood = int(sums[0]), sums[1], sums[2]
        if self.workers.first:
            self.progress.train(self._figures(self.clock, end))
            self.progress.show(self._figures(self.clock_before + self.clock, end))
        self.clock_before, self.clock = self.clock, _Clock()

    def _figures(self, clock: _Clock, end: int) -> dict[str, Any]:
        return {
            "step": self.state.step,
            "epoch": self.state.epoch + 1,
            "loss": clock.loss / clock.part_tokens,
            "likelihood": clock.likelihood / clock.part_tokens,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "tokens_per_second": clock.tokens / clock.seconds,
            "seconds": self.state.seconds,
            "left": self._left(end),
        }

    def _left(self, end: int) -> float:
        """Seconds until the end, by the updates since the start and the last validation."""
        state, every = self.state, self.config.validation.valid_every
        each = (state.seconds - self.began.seconds) / (state.step - self.began.step)
        validations = -(-end // every) - state.step // every
        return (end - state.step) * each + validations * self.progress.validation_seconds

    def _validate(self, end: int) -> None:
        """Measure the model on the validation part, and keep a checkpoint of it."""
        judged = 0.0
        if self.workers.first:
            self.progress.show(self._figures(self.clock_before, end), "validating")
            figures = self._measure()
            judged = figures.pop("judged")
        judged = self.workers.agree(judged)
        state = self.state
        state.validated.append(state.step)
        better = judged > state.best
        state.stale = 0 if better else state.stale + 1
        if better:
            state.best, state.best_step = judged, state.step
        if self.workers.first:  # before it is saved: what is beyond a checkpoint is said again
            self.progress.valid({"step": state.step, **figures, "best": better})
        self._save()

    def _measure(self) -> dict[str, Any]:
        validation, tokens = self.config.validation, self.config.training.batch_tokens
        return measure(self.model, self.prepared, validation, tokens, self.with_bleu)

    def _save(self) -> None:
        """Write a checkpoint, and remove those that nobody will ask for."""
        if not self.workers.first:
            return
        state, keep = self.state, max(1, self.config.validation.average)
        optimizer: Tensors = {}
        for name, parameter in self._learning():
            for key, value in self.optimizer.state[parameter].items():
                optimizer[f"{name}|{key}"] = value
        kept = {**asdict(state), "native": native.loaded()}
        self.checkpoints.write(Checkpoint(state.step, self._weights(), optimizer, kept))
        # Any beyond it were damaged, or the run would have gone on from there.
        recent = [step for step in self.checkpoints.steps() if step <= state.step][-2:]
        self.checkpoints.keep({*recent, *state.validated[-keep:], state.best_step})

    def _newest(self) -> Checkpoint | None:
        """The checkpoint to go on from, which the first worker chooses for all."""
        found = self.checkpoints.newest(self.progress.say) if self.workers.first else None
        step = int(self.workers.agree(-1.0 if found is None else float(found.step)))
        return self.checkpoints.read(step) if found is None and step >= 0 else found

    def _restore(self, found: Checkpoint) -> None:
        """Go on from a checkpoint."""
        if misfit := self._misfit(found):
            raise FileError(
                f"{self.checkpoints.path(found.step)}: of another model: {misfit}; put the "
                "checkpoints of this run back, or give another --out"
            )
        _fill(self.model, found.model)
        for name, parameter in self._learning():
            self.optimizer.state[parameter] = {
                key: found.optimizer[f"{name}|{key}"] for key in ADAM
            }
        known = {one.name for one in fields(_State)}
        self.state = _State(**{name: found.state[name] for name in known & found.state.keys()})
        if found.state.get("native", native.loaded()) != native.loaded():
            self.progress.say(
                "Native code was used before and cannot be had now, or the other way round: "
                "the model will be as good, but not the same bit for bit."
            )

    def _misfit(self, found: Checkpoint) -> str | None:
        """Why a checkpoint is not of this model, or None."""
        return found.misfit(self._weights(), [name for name, _ in self._learning()])

    def _finish(self) -> None:
        """Leave the better of the averaged and the best single model in the folder."""
        state, average = self.state, self.config.validation.average
        steps = [s for s in state.validated[-average:] if self._readable(s)]
        best = state.best_step if self._readable(state.best_step) else None
        if average > 1 and len(steps) > 1:
            _fill(self.model, self.checkpoints.average(steps))
            figures = self._measure()
            judged = figures.pop("judged")
            self.progress.valid({"step": state.step, "averaged": len(steps), **figures})
            if best and judged < state.best:
                self.progress.say(f"The average is no better than update {best:,}.")
                _fill(self.model, self.checkpoints.read(best).model)
        elif best and best != state.step:
            _fill(self.model, self.checkpoints.read(best).model)
        save_model(self.folder, self.model, longest=self.config.data.longest)
        self.progress.say(f"The model is in {self.folder}.")

    def _readable(self, step: int) -> bool:
        """Whether there is a checkpoint of this update; says so if it is damaged."""
        if step not in self.checkpoints.steps():
            return False
        try:
            found = self.checkpoints.read(step)
        except FileError as error:
            self.progress.say(f"{error}; doing without it")
            return False
        if misfit := self._misfit(found):
            path = self.checkpoints.path(step)
            self.progress.say(f"{path}: of another model: {misfit}; doing without it")
        return not misfit

    def _introduce(self, last: int) -> None:
        """Say in plain words what will happen, and how long it will take."""
        count = self.batches.count(self.state.epoch)
        parameters = sum(weight.numel() for weight in self.model.parameters())
        learning = sum(weight.numel() for _, weight in self._learning())
        some = f" ({learning:,} of which learn)" * (learning < parameters)
        pairs, tokens = len(self.prepared.train), int(self.prepared.train.target_lengths.sum())
        each = self._try_some() * count
        left = (last - self.state.step) * self.config.training.accumulate / count
        whole = f"; all {math.ceil(left)} {clock_words(each * left)}" if left > 1 else ""
        self.progress.say(
            f"A model of {parameters:,} parameters{some}, {counted(pairs, 'sentence pair')}, "
            f"{counted(tokens + pairs, 'target subword')}.\n"
            f"An epoch is {counted(count, 'batch', 'batches')} "
            f"({self.batches.padding:.1%} padding) and will take {clock_words(each)}{whole}, on "
            f"{counted(self.workers.count, 'worker')} of "
            f"{counted(torch.get_num_threads(), 'thread')}."
        )
        if self.config.training.precision == "bfloat16" and not bfloat16_pays():
            self.progress.say(
                "This processor multiplies no faster in bfloat16: with another --out, --precision "
                "float32 is quicker."
            )

    def _try_some(self) -> float:
        """Seconds for one batch, by trying a few; they leave no trace."""
        spent = []
        for batch in islice(self.batches.epoch(self.state.epoch, self.state.batch), 3):
            started = time.perf_counter()
            self._gradient([batch], batch.tokens, _Clock())
            spent.append(time.perf_counter() - started)
        self.optimizer.zero_grad(set_to_none=True)
        return min(spent, default=0.0)

    def _last(self) -> int:
        """The number of the last update."""
        training = self.config.training
        each = math.ceil(self.batches.count(0) / training.accumulate)
        return min(training.epochs * each, training.max_steps or training.epochs * each)

    def _stale(self) -> bool:
        return 0 < self.config.validation.patience <= self.state.stale

    def _learning(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The weights that learn, by their names."""
        return ((name, one) for name, one in self.model.named_parameters() if one.requires_grad)

    def _weights(self) -> Tensors:
        return {name: weight.detach() for name, weight in self.model.named_parameters()}

    def _new_model(self, begins: bool) -> Transformer:
        """A model of this shape; when a run begins, with the weights of `init_from`."""
        training = self.config.training
        model = Transformer(replace(self.config.model, vocabulary=self.prepared.tokenizer.size))
        if training.init_from and begins:
            model.load_state_dict(load_model(training.init_from).state_dict())
        return model


@dataclass
class _Clock:
    """Sums since the last line of the log."""

    seconds: float = 0.0
    tokens: int = 0
    part_tokens: int = 0
    """Those of this worker, as loss and likelihood are; of all, once it has been told."""
    loss: float = 0.0
    likelihood: float = 0.0

    def __add__(self, other: _Clock) -> _Clock:
        sums = {
            one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)
        }
        return _Clock(**sums)


def _fill(model: Transformer, weights: Tensors) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def _seed(seed: int, step: int, rank: int) -> int:
    """A seed for the random numbers of one update on one worker."""
    text = f"{seed} {step} {rank}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big")
