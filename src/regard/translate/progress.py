"""What a training run tells while it runs: to the terminal, to a log of JSON lines, to TensorBoard.

{"kind": "train", "step": 400, "epoch": 3, "loss": 4.21, "tokens_per_second": 9800, …}
{"kind": "valid", "step": 400, "loss": 3.9, "perplexity": 31.2, "bleu": 12.4, …}
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from regard.errors import FileError
from regard.files import write_text

Figures = dict[str, Any]
LOG = "log.jsonl"


class Progress:
    """Tells one run's figures. On a terminal a moving line, elsewhere a plain line now and then."""

    def __init__(self, folder: Path, console: Console | None = None, *, quiet: bool = False):
        self.folder = folder
        self.console = console or Console(stderr=True)
        self.quiet = quiet
        self.bleu: float | None = None
        self._bar: Bar | None = None
        self._board: Any = None

    @property
    def has_log(self) -> bool:
        """Whether a run has told something in this folder before."""
        return (self.folder / LOG).exists()

    def say(self, text: str) -> None:
        """Plain words to whoever sits there."""
        if not self.quiet:
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def start(self, step: int, last: int) -> None:
        """Begin at an update; what a log has after it comes from a run that was stopped."""
        self._rewind(step)
        self._board = _tensorboard(self.folder)
        if self.console.is_terminal and not self.quiet:
            self._bar = Bar(
                TextColumn("update"),
                MofNCompleteColumn(),
                BarColumn(),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
                console=self.console,
            )
            self._bar.add_task("", total=last, completed=step)
            self._bar.start()

    def train(self, figures: Figures) -> None:
        """Figures of the updates since the last call."""
        self._write({"kind": "train", **figures})
        text = (
            f"epoch {figures['epoch']}  loss {figures['loss']:.3f}  "
            f"{figures['tokens_per_second']:,.0f} tokens/s  {clock_words(figures['left'])} left"
        )
        if self.bleu is not None:
            text += f"  BLEU {self.bleu:.1f}"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=figures["step"], description=text)
        else:
            self.say(f"update {figures['step']:,}  {text}")

    def valid(self, figures: Figures) -> None:
        """Figures of a validation."""
        self._write({"kind": "valid", **figures})
        text = f"validation at update {figures['step']:,}: loss {figures['loss']:.3f}, "
        if figures.get("averaged"):
            text = f"the average of {figures['averaged']} updates: loss {figures['loss']:.3f}, "
        text += f"perplexity {figures['perplexity']:.1f}"
        if figures.get("bleu") is not None:
            self.bleu = figures["bleu"]
            text += f", BLEU {self.bleu:.2f} (greedy)"
        self.say(text + (", the best so far" if figures.get("best") else ""))

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()
        if self._board is not None:
            self._board.close()

    def _write(self, figures: Figures) -> None:
        try:
            with (self.folder / LOG).open("a", encoding="utf-8") as file:
                file.write(json.dumps(figures) + "\n")
        except OSError as error:
            raise FileError(f"train: the log cannot be written: {error.strerror}") from None
        if self._board is not None:
            for name, value in figures.items():
                if isinstance(value, int | float) and name != "step":
                    self._board.add_scalar(f"{figures['kind']}/{name}", value, figures["step"])

    def _rewind(self, step: int) -> None:
        path = self.folder / LOG
        if path.exists():
            kept = [line for line in read_log(path) if line["step"] <= step]
            text = "".join(json.dumps(line) + "\n" for line in kept)
            write_text(path, {path.suffix: lambda: text}, "train")


def read_log(path: Path) -> list[Figures]:
    """The lines of a log; a last one that was cut off by a crash is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def _tensorboard(folder: Path) -> Any:
    """A writer for TensorBoard, if that is installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(folder / "tensorboard")


def clock_words(seconds: float) -> str:
    """Hours and minutes, as people say them."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute"
    if minutes < 60:
        return f"about {minutes} min"
    return f"about {minutes // 60} h {minutes % 60:02d} min"
