"""What a training run tells while it runs: to the terminal, to a log of JSON lines, to TensorBoard.

{"kind": "train", "step": 400, "epoch": 3, "loss": 4.21, "tokens_per_second": 9800, …}
{"kind": "valid", "step": 400, "loss": 3.9, "perplexity": 31.2, "bleu": 12.4, …}
"""

from __future__ import annotations

import contextlib
import json
import time
import warnings
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from regard.errors import FileError
from regard.files import why, write_text

Figures = dict[str, Any]
LOG = "log.jsonl"
SHOW_EVERY = 0.5
"""Seconds between two pictures of the moving line."""
BAR = 4
"""Columns of the terminal that are left for the bar."""


class Progress:
    """Tells one run's figures. On a terminal a moving line, elsewhere a plain line now and then."""

    def __init__(self, folder: Path, console: Console | None = None, *, quiet: bool = False):
        self.folder = folder
        self.console = console or Console(stderr=True)
        self.quiet = quiet
        self.bleu: float | None = None
        """The last."""
        self.validation_seconds = 0.0
        """How long the last validation took."""
        self._bar: Bar | None = None
        self._board: Any = None
        self._began = self._shown = 0.0

    @property
    def has_log(self) -> bool:
        """Whether a run has told something in this folder before."""
        return (self.folder / LOG).exists()

    @property
    def is_due(self) -> bool:
        """Whether there is a moving line that should move again."""
        return self._bar is not None and time.monotonic() - self._shown >= SHOW_EVERY

    def say(self, text: str) -> None:
        """Plain words to whoever sits there."""
        if not self.quiet:
            wrap = not self.console.is_terminal
            self.console.print(text, highlight=False, markup=False, soft_wrap=wrap)

    def start(self, step: int, last: int) -> None:
        """Begin at an update; what a log has after it comes from a run that was stopped."""
        for line in self._rewind(step):
            if line["kind"] == "valid" and "averaged" not in line:
                self._remember(line)
        self._open_board(step)
        self._began = time.monotonic()
        if self.console.is_terminal and not self.console.is_dumb_terminal and not self.quiet:
            self._bar = Bar(
                TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
                BarColumn(bar_width=None),
                TextColumn("{task.description}", markup=False),
                console=self.console,
                auto_refresh=False,
                expand=True,
            )
            self._bar.add_task(self._bleu_words(), total=last, completed=step)
            self._bar.start()

    def show(self, figures: Figures, now: str | None = None) -> None:
        """Move the line on a terminal; `now` stands instead of the time that is left."""
        if self._bar is None:
            return
        (task,) = self._bar.tasks
        count = f"{figures['step']:,}/{task.total:,.0f}"
        parts = {
            "loss": f"loss {figures['loss']:.3f}",
            "bleu": self._bleu_words(),
            "speed": f"{figures['tokens_per_second']:,.0f} tokens/s",
            "time": now or f"{_short_words(figures['left'])} left",
        }
        text = _fitting(parts, self.console.width - len(count) - BAR - 2)
        self._bar.update(task.id, completed=figures["step"], description=text)
        self._bar.refresh()
        self._shown = time.monotonic()

    def train(self, figures: Figures) -> None:
        """Figures of the updates since the last call."""
        self._write({"kind": "train", **figures})
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
        """Figures of a validation."""
        line = {"kind": "valid", **figures}
        text = f"validation at update {figures['step']:,}: loss {figures['loss']:.3f}, "
        if figures.get("averaged"):
            text = f"the average of {figures['averaged']} updates: loss {figures['loss']:.3f}, "
        if not figures.get("averaged") or not self._has(line):
            self._write(line)
        self._remember(figures)
        text += f"perplexity {figures['perplexity']:.1f}"
        if figures.get("bleu") is not None:
            text += f", BLEU {figures['bleu']:.2f} (greedy)"
        self.say(text + (", the best so far" if figures.get("best") else ""))

    def finish(self, figures: Figures) -> None:
        """Figures of the last update, after which the line stands still."""
        self.show(figures, f"took {_short_words(time.monotonic() - self._began)}")
        self._stop()

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._stop()
        if self._board is not None:
            with contextlib.suppress(OSError):
                self._board.close()

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _remember(self, figures: Figures) -> None:
        self.bleu = figures.get("bleu", self.bleu)
        self.validation_seconds = figures.get("seconds", self.validation_seconds)

    def _bleu_words(self) -> str:
        return "" if self.bleu is None else f"BLEU {self.bleu:.1f}"

    def _write(self, figures: Figures) -> None:
        path = self.folder / LOG
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(figures) + "\n")
        except OSError as error:
            raise FileError(f"train: cannot write {path}: {why(error)}") from None
        if self._board is not None:
            numbers = {k: v for k, v in figures.items() if isinstance(v, int | float)}
            step = numbers.pop("step")
            try:
                for name, value in numbers.items():
                    self._board.add_scalar(f"{figures['kind']}/{name}", value, step)
            except OSError as error:
                self._leave_board(error)

    def _open_board(self, step: int) -> None:
        """Begin to tell TensorBoard as well, if that is installed, behind an update."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        try:
            place = self.folder / "tensorboard"
            # What it knows of this update and later ones is hidden.
            again = step + 1 if place.exists() else None
            self._board = SummaryWriter(place, purge_step=again)
        except OSError as error:
            self._leave_board(error)

    def _leave_board(self, error: OSError) -> None:
        self._board = None
        self.say(f"Going on without TensorBoard, whose files cannot be written: {why(error)}")

    def _has(self, line: Figures) -> bool:
        """Whether the log has such a line, as it has when a finished run is started again."""
        keys = ("kind", "step", "averaged")
        log = read_log(self.folder / LOG)
        return any(all(line[key] == one.get(key) for key in keys) for one in log)

    def _rewind(self, step: int) -> list[Figures]:
        """The lines of the log up to this update; the others are removed."""
        path = self.folder / LOG
        if not path.exists():
            return []
        log = read_log(path)
        lost = path.read_bytes().count(b"\n") - len(log)
        if lost > 0:  # and not only the last, which a crash may have cut off
            self.say(f"{path}: {lost:,} of its lines cannot be read: left out")
        kept = [line for line in log if line["step"] <= step]
        text = "".join(json.dumps(line) + "\n" for line in kept)
        write_text(path, {path.suffix: lambda: text}, "train")
        return kept


def read_log(path: Path) -> list[Figures]:
    """The lines of a log; those that are damaged, or cut off by a crash, are left out."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from None
    found = []
    for line in content.split(b"\n"):
        try:
            figures = json.loads(line.decode())
        except (ValueError, RecursionError):  # also bytes that are not UTF-8
            continue
        if isinstance(figures, dict) and isinstance(figures.get("step"), int) and "kind" in figures:
            found.append(figures)
    return found


def _fitting(parts: dict[str, str], width: int) -> str:
    """The parts side by side; the less important are left out if there is no room for all."""
    for name in ("", "speed", "bleu", "loss"):
        parts.pop(name, None)
        text = "  ".join(filter(None, parts.values()))
        if len(text) <= width:
            break
    return text


def _short_words(seconds: float) -> str:
    """Hours and minutes, or seconds, in little room."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return clock_words(seconds).removeprefix("about ")


def clock_words(seconds: float) -> str:
    """Hours and minutes, as people say them."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute"
    if minutes < 60:
        return f"about {minutes} min"
    return f"about {minutes // 60} h {minutes % 60:02d} min"
