"""The events of a training run, and the sinks that receive them: terminal, JSON lines, TensorBoard.

{"kind": "train", "step": 400, "epoch": 3, "loss": 4.21, "tokens_per_second": 9800, …}
{"kind": "valid", "step": 400, "loss": 3.9, "perplexity": 31.2, "bleu": 12.4, …}
"""

from __future__ import annotations

import contextlib
import json
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from regard.errors import FileError
from regard.files import read_regular, why, write_text

Figures = dict[str, Any]
LOG, BOARD = "log.jsonl", "tensorboard"
SHOW_EVERY = 0.5
"""Seconds between two refreshes of the progress bar."""
BAR = 4
"""Minimum columns of the bar."""


class Sink:
    """Receives the events of a run; a subclass overrides the methods it needs."""

    @property
    def is_due(self) -> bool:
        """Whether `show` should be called after this update."""
        return False

    def say(self, text: str) -> None:
        """A message for the user."""

    def start(self, step: int, last: int, validation: Figures) -> None:
        """The loop starts after update `step`; `validation` has the figures of the latest one."""

    def show(self, figures: Figures, doing: str | None = None) -> None:
        """Figures to display; `doing` replaces the remaining time."""

    def train(self, figures: Figures) -> None:
        """Figures of the updates since the last call."""

    def valid(self, figures: Figures) -> None:
        """Figures of a validation."""

    def finish(self, figures: Figures) -> None:
        """Figures of the last update."""

    def close(self) -> None:
        """The run has ended, or failed."""


def _to_each(name: str) -> Callable[..., None]:
    """A method that calls the method of this name of every sink."""

    def call(self: Events, *arguments: Any) -> None:
        for sink in self.sinks:
            getattr(sink, name)(*arguments)

    return call


class Events(Sink):
    """Passes every event on to several sinks."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.sinks = tuple(sinks)

    @property
    def is_due(self) -> bool:
        return any(sink.is_due for sink in self.sinks)

    say, start, show, train = map(_to_each, ("say", "start", "show", "train"))
    valid, finish, close = map(_to_each, ("valid", "finish", "close"))


class Terminal(Sink):
    """A progress bar on a terminal; elsewhere a plain line now and then."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._bleu: float | None = None
        self._bar: Progress | None = None
        self._began = self._shown = 0.0

    @property
    def is_due(self) -> bool:
        return self._bar is not None and time.monotonic() - self._shown >= SHOW_EVERY

    def say(self, text: str) -> None:
        wrap = not self.console.is_terminal
        self.console.print(text, highlight=False, markup=False, soft_wrap=wrap)

    def start(self, step: int, last: int, validation: Figures) -> None:
        self._bleu = validation.get("bleu")
        self._began = time.monotonic()
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            self._bar = Progress(
                TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
                BarColumn(bar_width=None),
                TextColumn("{task.description}", markup=False),
                console=self.console,
                auto_refresh=False,
                expand=True,
            )
            self._bar.add_task(self._bleu_words(), total=last, completed=step)
            self._bar.start()

    def show(self, figures: Figures, doing: str | None = None) -> None:
        if self._bar is None:
            return
        (task,) = self._bar.tasks
        count = f"{figures['step']:,}/{task.total:,.0f}"
        parts = {
            "loss": f"loss {figures['loss']:.3f}",
            "bleu": self._bleu_words(),
            "speed": f"{figures['tokens_per_second']:,.0f} tokens/s",
            "time": doing or f"{_short_words(figures['left'])} left",
        }
        text = _fitting(parts, self.console.width - len(count) - BAR - 2)
        self._bar.update(task.id, completed=figures["step"], description=text)
        self._bar.refresh()
        self._shown = time.monotonic()

    def train(self, figures: Figures) -> None:
        if self._bar is None:
            parts = [
                f"update {figures['step']:,}",
                f"epoch {figures['epoch']}",
                f"loss {figures['loss']:.3f}",
                f"{figures['tokens_per_second']:,.0f} tokens/s",
                f"{clock_words(figures['left'])} left" if figures["left"] else "",
                self._bleu_words(),
            ]
            self.say("  ".join(filter(None, parts)))

    def valid(self, figures: Figures) -> None:
        self._bleu = figures.get("bleu", self._bleu)
        text = f"validation at update {figures['step']:,}: loss {figures['loss']:.3f}, "
        if figures.get("averaged"):
            text = f"the average of {figures['averaged']} updates: loss {figures['loss']:.3f}, "
        text += f"perplexity {figures['perplexity']:.1f}"
        if figures.get("bleu") is not None:
            text += f", BLEU {figures['bleu']:.2f} (greedy)"
        self.say(text + (", the best so far" if figures.get("best") else ""))

    def finish(self, figures: Figures) -> None:
        self.show(figures, f"took {_short_words(time.monotonic() - self._began)}")
        self.close()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _bleu_words(self) -> str:
        return "" if self._bleu is None else f"BLEU {self._bleu:.1f}"


class JsonLines(Sink):
    """Writes figures to the log of a run, one JSON object a line."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOG

    def rewind(self, step: int, say: Callable[[str], None]) -> Figures:
        """Remove what the log has after an update, from a run that was stopped.

        Returns the figures of the latest validation that is left.
        """
        if not self.path.exists():
            return {}
        log = read_log(self.path)
        lost = self.path.read_bytes().count(b"\n") - len(log)
        if lost > 0:  # more than a last line cut off by a crash
            say(f"{self.path}: {lost:,} of its lines cannot be read: left out")
        kept = [line for line in log if line["step"] <= step]
        text = "".join(json.dumps(line) + "\n" for line in kept)
        write_text(self.path, {self.path.suffix: lambda: text}, "train")
        validations = [one for one in kept if one["kind"] == "valid" and "averaged" not in one]
        return validations[-1] if validations else {}

    def train(self, figures: Figures) -> None:
        self._write({"kind": "train", **figures})

    def valid(self, figures: Figures) -> None:
        line = {"kind": "valid", **figures}
        if not figures.get("averaged") or not self._has(line):
            self._write(line)

    def _write(self, line: Figures) -> None:
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise FileError(f"train: cannot write {self.path}: {why(error)}") from None

    def _has(self, line: Figures) -> bool:
        """Whether the log has such a line already, from an earlier start of a finished run."""
        keys = ("kind", "step", "averaged")
        log = read_log(self.path) if self.path.exists() else []
        return any(all(line[key] == one.get(key) for key in keys) for one in log)


class TensorBoard(Sink):
    """Writes figures for TensorBoard, if that is installed."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.folder = folder / BOARD
        self._tell = say
        self._writer: Any = None

    def start(self, step: int, last: int, validation: Figures) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        # Later updates that TensorBoard already has are hidden.
        again = step + 1 if self.folder.exists() else None
        with self._errors():
            self._writer = SummaryWriter(self.folder, purge_step=again)

    def train(self, figures: Figures) -> None:
        self._write("train", figures)

    def valid(self, figures: Figures) -> None:
        self._write("valid", figures)

    def close(self) -> None:
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()

    def _write(self, kind: str, figures: Figures) -> None:
        if self._writer is None:
            return
        with self._errors():
            for name, value in figures.items():
                if name != "step" and isinstance(value, int | float):
                    self._writer.add_scalar(f"{kind}/{name}", value, figures["step"])

    @contextlib.contextmanager
    def _errors(self) -> Any:
        """Context in which an unwritable file ends this sink, not the run."""
        try:
            yield
        except OSError as error:
            self._writer = None
            self._tell(
                f"Continuing without TensorBoard, whose files cannot be written: {why(error)}"
            )


def read_log(path: Path) -> list[Figures]:
    """The valid lines of a log."""
    found = []
    for line in read_regular(path).split(b"\n"):
        try:
            figures = json.loads(line.decode())
        except (ValueError, RecursionError):  # also bytes that are not UTF-8
            continue
        if isinstance(figures, dict) and isinstance(figures.get("step"), int) and "kind" in figures:
            found.append(figures)
    return found


def _fitting(parts: dict[str, str], width: int) -> str:
    """The parts in one line, without the less important ones if it is too long."""
    for name in ("", "speed", "bleu", "loss"):
        parts.pop(name, None)
        text = "  ".join(filter(None, parts.values()))
        if len(text) <= width:
            break
    return text


def _short_words(seconds: float) -> str:
    """A short duration: hours and minutes, or seconds."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return clock_words(seconds).removeprefix("about ")


def clock_words(seconds: float) -> str:
    """A duration in hours and minutes, as a phrase."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute"
    if minutes < 60:
        return f"about {minutes} min"
    return f"about {minutes // 60} h {minutes % 60:02d} min"
