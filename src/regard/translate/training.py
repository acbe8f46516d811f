"""The training loop.

All random numbers depend on the seed and the number of the update, so a run can be interrupted at
any time and resumed, bit for bit.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import islice
from operator import add
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
from regard.translate.checkpoint import Checkpoint
from regard.translate.config import RunConfig, TrainingConfig
from regard.translate.defaults import Options
from regard.translate.events import Events, Sink, TensorBoard, Terminal, clock_words
from regard.translate.measuring import can_have_bleu, loss_of, measure
from regard.translate.model_files import save_model
from regard.translate.precision import Precision
from regard.translate.preparing import open_prepared
from regard.translate.run_directory import RunDirectory
from regard.translate.stopping import Stop, stop_signal
from regard.translate.training_state import TrainingState
from regard.translate.workers import Workers

LOG_EVERY = 50
"""Updates between two lines of the log; each validation also writes one."""


def train(
    config: RunConfig | Options, out: str | Path, sinks: Sequence[Sink] | None = None
) -> Path:
    """Train a model in the folder `out`, which is returned; resumes a run that is there.

    `sinks` receive events besides the log and TensorBoard; a `Terminal` by default. Ctrl-C and
    SIGTERM finish the current update, write a checkpoint and stop.
    """
    keep_freed_memory()
    directory = RunDirectory(Path(out))
    with Workers.joined() as workers, contextlib.ExitStack() as held:
        events, with_bleu = Events([]), False
        if workers.first:
            shown = Events([Terminal()] if sinks is None else sinks)
            board = TensorBoard(directory.folder, shown.say)
            events = Events([directory.log, board, *shown.sinks])
            held.callback(events.close)
            directory.check()
            asked = _resolved(config, directory.folder, events.say)
            found = directory.resolve(asked)
            with_bleu = can_have_bleu(found.validation, events.say)
            held.enter_context(directory.lock())
            fit = isinstance(config, Options) and config.fits_vocabulary
            directory.prepare(asked, found, events.say, fit)
        workers.wait()
        found = directory.resolve(_resolved(config, directory.folder, lambda _: None))
        stop = held.enter_context(stop_signal())
        Trainer(found, directory, workers, events, with_bleu, stop).run()
    return directory.folder


def _resolved(config: RunConfig | Options, folder: Path, say: Callable[[str], None]) -> RunConfig:
    return config.config(folder, say) if isinstance(config, Options) else config


class _Loss(nn.Module):
    """The loss as a module, for DistributedDataParallel to wrap."""

    def __init__(self, model: Transformer, training: TrainingConfig) -> None:
        super().__init__()
        self.model, self.smoothing = model, training.smoothing
        self.word_dropout = training.word_dropout
        self.precision = Precision(training.precision)

    def forward(self, batch: Batch) -> Loss:
        if self.word_dropout:
            batch = batch.with_unknown(self.word_dropout)
        with self.precision.autocast(self.model.output.device):
            return loss_of(self.model, batch, self.smoothing)


class Trainer:
    """The loop of a run: updates, validations, checkpoints, and the final model."""

    def __init__(
        self,
        config: RunConfig,
        directory: RunDirectory,
        workers: Workers,
        events: Sink,
        with_bleu: bool,
        stop: Stop,
    ) -> None:
        self.config, self.directory, self.workers, self.events = config, directory, workers, events
        self.with_bleu, self.stop = with_bleu, stop
        self.prepared = open_prepared(directory.folder)
        self.batches = Batches(
            self.prepared.train,
            config.training.batch_tokens,
            config.training.seed,
            list(config.data.mix.values()) or None,
        )
        found = self._newest()
        self.state = TrainingState(config, self.prepared.tokenizer.size, starts=found is None)
        if found is not None:
            self._restore(found)
        elif directory.log.path.exists():
            events.say("No checkpoint of this run is left: starting again.")
        self.counters = self.state.counters
        self.began = replace(self.counters)
        self.sums, self.sums_before = _Sums(), _Sums()
        self.validation_seconds = 0.0
        task = _Loss(self.state.model, config.training)
        self.task: nn.Module = DistributedDataParallel(task) if workers.count > 1 else task

    def run(self) -> None:
        """Train to the end, and save the model in the directory."""
        counters, last = self.counters, self._last()
        end = min(last, self.config.training.stop_at or last)
        if counters.step < end and not self._stale():
            if counters.step:
                self.events.say(f"Resuming from the checkpoint of update {counters.step:,}.")
            self._introduce(end)
            if self.workers.first:
                validation = self.directory.log.rewind(counters.step, self.events.say)
                self.validation_seconds = validation.get("seconds", 0.0)
                self.events.start(counters.step, end, validation)
            self._loop(last, end)
            self.events.finish(self._figures(self.sums_before, end))
        else:
            self.events.say(f"This run is finished: it has made {counters.step:,} updates.")
        if self._stale():
            self.events.say(
                f"No improvement in {counted(counters.stale, 'validation')}: stopped after update "
                f"{counters.step:,}; the best was {counters.best_step:,}."
            )
        if self.workers.first:
            self._finish()
        self.workers.wait()

    def _loop(self, last: int, end: int) -> None:
        """Make the updates up to `end`, on a schedule whose last update is `last`."""
        every, counters = self.config.validation, self.counters
        while counters.step < end and not self._stale():
            for group in self._rest_of_epoch():
                self._update(group, last)
                step = counters.step
                validates = step % every.valid_every == 0 or step == end
                if step % LOG_EVERY == 0 or validates:
                    self._log(end)
                elif self.events.is_due:
                    self.events.show(self._figures(self.sums_before + self.sums, end))
                if validates:
                    self._validate(end)
                elif step % every.checkpoint_every == 0:
                    self._save()
                if step == end or self._stale():
                    return
                if self.workers.together((float(self.stop.requested),))[0]:
                    self._interrupt(saved=validates or step % every.checkpoint_every == 0)
            counters.epoch += 1
            counters.batch = 0

    def _interrupt(self, saved: bool) -> None:
        """Write a checkpoint, and exit as the signal demands."""
        if not saved:
            self._save()
        self.workers.wait()
        self.events.say(
            f"Stopped; the checkpoint of update {self.counters.step:,} is written, and the same "
            "command resumes there."
        )
        self.stop.leave()

    def _rest_of_epoch(self) -> Iterator[list[Batch]]:
        """The remaining batches of the epoch, in groups of one update."""
        rest = self.batches.epoch(self.counters.epoch, self.counters.batch)
        while group := list(islice(rest, self.config.training.accumulate)):
            yield group

    def _update(self, group: list[Batch], last: int) -> None:
        """One optimizer step on the loss per token, over all workers and batches of the group."""
        training, started = self.config.training, time.perf_counter()
        model, optimizer, step = self.state.model, self.state.optimizer, self.counters.step + 1
        torch.manual_seed(_seed(training.seed, step, self.workers.rank))
        tokens = sum(batch.tokens for batch in group)
        self._gradient(group, tokens, self.sums)
        length = nn.utils.clip_grad_norm_(model.parameters(), training.clip or math.inf)
        if not torch.isfinite(length):
            raise RegardError(
                f"train: the gradient of update {step:,} is not a number; lower --learning-rate or "
                f"raise --warmup, with another --out; {self.directory.checkpoints.left(step)}"
            )
        for parameters in optimizer.param_groups:
            parameters["lr"] = training.rate(step, last, model.config.width)
        optimizer.step()
        self.counters.step, self.counters.batch = step, self.counters.batch + len(group)
        spent = time.perf_counter() - started
        self.counters.seconds += spent
        self.sums.seconds += spent
        self.sums.tokens += tokens

    def _gradient(self, group: list[Batch], tokens: int, sums: _Sums) -> None:
        self.state.optimizer.zero_grad(set_to_none=True)
        for i, batch in enumerate(group):
            # Workers average their gradients, so each scales its own by their number.
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
            sums.likelihood += loss.likelihood.item()
            sums.loss += loss.total.item()
            sums.part_tokens += part.tokens

    def _log(self, end: int) -> None:
        sums = self.sums
        found = self.workers.together((float(sums.part_tokens), sums.loss, sums.likelihood))
        sums.part_tokens, sums.loss, sums.likelihood = int(found[0]), found[1], found[2]
        if self.workers.first:
            self.events.train(self._figures(sums, end))
            self.events.show(self._figures(self.sums_before + sums, end))
        self.sums_before, self.sums = sums, _Sums()

    def _figures(self, sums: _Sums, end: int) -> dict[str, Any]:
        return {
            "step": self.counters.step,
            "epoch": self.counters.epoch + 1,
            "loss": sums.loss / sums.part_tokens,
            "likelihood": sums.likelihood / sums.part_tokens,
            "learning_rate": self.state.optimizer.param_groups[0]["lr"],
            "tokens_per_second": sums.tokens / sums.seconds,
            "seconds": self.counters.seconds,
            "left": self._left(end),
        }

    def _left(self, end: int) -> float:
        """Estimated seconds left, by the speed since the start and the last validation."""
        counters, every = self.counters, self.config.validation.valid_every
        each = (counters.seconds - self.began.seconds) / (counters.step - self.began.step)
        validations = -(-end // every) - counters.step // every
        return (end - counters.step) * each + validations * self.validation_seconds

    def _validate(self, end: int) -> None:
        """Validate the model, and write a checkpoint."""
        score, figures = 0.0, dict[str, Any]()
        if self.workers.first:
            self.events.show(self._figures(self.sums_before, end), "validating")
            score, figures = self._measure()
        better = self.counters.validation(self.workers.agree(score))
        if self.workers.first:  # before saving: events after a checkpoint are logged again
            self.events.valid({"step": self.counters.step, **figures, "best": better})
        self._save()

    def _measure(self) -> tuple[float, dict[str, Any]]:
        validation, tokens = self.config.validation, self.config.training.batch_tokens
        model = self.state.model
        score, figures = measure(model, self.prepared, validation, tokens, self.with_bleu)
        self.validation_seconds = figures["seconds"]
        return score, figures

    def _save(self) -> None:
        """Write a checkpoint, and remove those no longer needed."""
        if self.workers.first:
            keep = max(1, self.config.validation.average)
            wanted = {*self.counters.validated[-keep:], self.counters.best_step}
            self.directory.save(self.state.checkpoint(), wanted)

    def _newest(self) -> Checkpoint | None:
        """The checkpoint to resume from, chosen by the first worker."""
        checkpoints = self.directory.checkpoints
        found = checkpoints.newest(self.events.say) if self.workers.first else None
        step = int(self.workers.agree(-1.0 if found is None else float(found.step)))
        return checkpoints.read(step) if found is None and step >= 0 else found

    def _restore(self, found: Checkpoint) -> None:
        """Resume from a checkpoint."""
        if misfit := self.state.misfit(found):
            raise FileError(
                f"{self.directory.checkpoints.path(found.step)}: belongs to another model: "
                f"{misfit}; restore the checkpoints of this run, or give another --out"
            )
        self.state.restore(found)
        if found.state.get("native", native.loaded()) != native.loaded():
            self.events.say(
                "Native code was available before and is not now, or vice versa: the resumed "
                "model will be as good, but not the same bit for bit."
            )

    def _finish(self) -> None:
        """Save the better of the averaged and the best single model."""
        counters, average = self.counters, self.config.validation.average
        checkpoints, model = self.directory.checkpoints, self.state.model
        steps = [s for s in counters.validated[-average:] if self._readable(s)]
        best = counters.best_step if self._readable(counters.best_step) else None
        if average > 1 and len(steps) > 1:
            self.state.fill(checkpoints.average(steps))
            score, figures = self._measure()
            self.events.valid({"step": counters.step, "averaged": len(steps), **figures})
            if best and score < counters.best:
                self.events.say(f"The average is no better than update {best:,}.")
                self.state.fill(checkpoints.read(best).model)
        elif best and best != counters.step:
            self.state.fill(checkpoints.read(best).model)
        save_model(self.directory.folder, model, longest=self.config.data.longest)
        self.events.say(f"The model is in {self.directory.folder}.")

    def _readable(self, step: int) -> bool:
        """Whether there is a valid checkpoint of this update; reports a damaged one."""
        checkpoints = self.directory.checkpoints
        if step not in checkpoints.steps():
            return False
        try:
            found = checkpoints.read(step)
        except FileError as error:
            self.events.say(f"{error}; continuing without it")
            return False
        if misfit := self.state.misfit(found):
            path = checkpoints.path(step)
            self.events.say(f"{path}: belongs to another model: {misfit}; continuing without it")
        return not misfit

    def _introduce(self, last: int) -> None:
        """Report the size of the model and the data, and the expected time."""
        count = self.batches.count(self.counters.epoch)
        parameters = sum(weight.numel() for weight in self.state.model.parameters())
        trained = sum(weight.numel() for _, weight in self.state.trainable())
        some = f" ({trained:,} of which are trained)" * (trained < parameters)
        pairs, tokens = len(self.prepared.train), int(self.prepared.train.target_lengths.sum())
        each = self._seconds_per_batch() * count
        left = (last - self.counters.step) * self.config.training.accumulate / count
        whole = f"; all {math.ceil(left)} {clock_words(each * left)}" if left > 1 else ""
        self.events.say(
            f"A model of {parameters:,} parameters{some}, {counted(pairs, 'sentence pair')}, "
            f"{counted(tokens + pairs, 'target subword')}.\n"
            f"An epoch is {counted(count, 'batch', 'batches')} "
            f"({self.batches.padding:.1%} padding) and will take {clock_words(each)}{whole}, on "
            f"{counted(self.workers.count, 'worker')} of "
            f"{counted(torch.get_num_threads(), 'thread')}."
        )
        if not Precision(self.config.training.precision).pays():
            self.events.say(
                "This processor gains nothing from bfloat16; with another --out, --precision "
                "float32 is faster."
            )

    def _seconds_per_batch(self) -> float:
        """Seconds for one batch, measured on a few; the state of the run does not change."""
        spent = []
        for batch in islice(self.batches.epoch(self.counters.epoch, self.counters.batch), 3):
            started = time.perf_counter()
            self._gradient([batch], batch.tokens, _Sums())
            spent.append(time.perf_counter() - started)
        self.state.optimizer.zero_grad(set_to_none=True)
        return min(spent, default=0.0)

    def _last(self) -> int:
        """The number of the last update."""
        training = self.config.training
        each = math.ceil(self.batches.count(0) / training.accumulate)
        return min(training.epochs * each, training.max_steps or training.epochs * each)

    def _stale(self) -> bool:
        return 0 < self.config.validation.patience <= self.counters.stale


@dataclass
class _Sums:
    """Sums since the last line of the log."""

    seconds: float = 0.0
    tokens: int = 0
    part_tokens: int = 0
    """Of this worker, like loss and likelihood; of all workers, once logged."""
    loss: float = 0.0
    likelihood: float = 0.0

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(*map(add, astuple(self), astuple(other)))


def _seed(seed: int, step: int, rank: int) -> int:
    """A seed for the random numbers of one update on one worker."""
    text = f"{seed} {step} {rank}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big")
