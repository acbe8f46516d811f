"""The sinks of a run's events: the progress bar, the log and TensorBoard."""

from __future__ import annotations

import io
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from regard.errors import FileError
from regard.translate import events
from regard.translate.events import JsonLines, TensorBoard, Terminal, read_log

FIGURES: dict[str, Any] = {
    "step": 100_234,
    "epoch": 7,
    "loss": 2.3456,
    "tokens_per_second": 12_345.6,
    "left": 12 * 3600 + 120.0,
}
VALID = {"step": 100_000, "loss": 1.9, "perplexity": 6.7, "bleu": 38.12, "seconds": 3.0}


class Screen:
    """A terminal so wide, and what is on it."""

    def __init__(self, width: int) -> None:
        self.file = io.StringIO()
        self.console = Console(file=self.file, force_terminal=True, width=width)

    @property
    def last(self) -> str:
        """The line that was drawn last."""
        lines = re.split(r"[\r\n]", self.file.getvalue())
        return [text for line in lines if (text := Text.from_ansi(line).plain)][-1]


def test_all_figures_have_room_in_80_columns(tmp_path: Path) -> None:
    screen = Screen(80)
    told = Terminal(screen.console)
    told.start(0, 123_456, {})
    told.valid(VALID)
    told.show(FIGURES)
    count, line = screen.last.split(" ", 1)
    assert count == "100,234/123,456"
    assert line.endswith(" loss 2.346  BLEU 38.1  12,346 tokens/s  12 h 02 min left")
    assert len(screen.last) <= 80
    assert "━━━" in line
    told.close()


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (60, "loss 2.346  BLEU 38.1  50 s left"),
        (50, "loss 2.346  50 s left"),
        (32, "50 s left"),
    ],
)
def test_the_count_and_the_time_are_left_out_last(tmp_path: Path, width: int, shown: str) -> None:
    screen = Screen(width)
    told = Terminal(screen.console)
    told.start(0, 123_456, {})
    told.valid(VALID)
    told.show({**FIGURES, "left": 49.7})
    assert screen.last.startswith("100,234/123,456 ━")
    assert screen.last.endswith(f" {shown}")
    assert len(screen.last) <= width
    told.close()


def test_the_line_moves_with_time_not_with_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(events.time, "monotonic", lambda: now)
    told = Terminal(Screen(80).console)
    assert not told.is_due
    told.start(0, 123_456, {})
    assert told.is_due
    told.show(FIGURES)
    assert not told.is_due
    now += events.SHOW_EVERY
    assert told.is_due
    told.close()
    assert not Terminal(Console(file=io.StringIO())).is_due


def test_at_the_end_no_time_is_left(tmp_path: Path) -> None:
    screen = Screen(80)
    told = Terminal(screen.console)
    told.start(0, 200, {})
    told.finish({**FIGURES, "step": 200, "left": 0.0})
    assert screen.last.startswith("200/200 ━")
    assert screen.last.endswith(" took 0 s")
    before = screen.file.getvalue()
    told.show(FIGURES)
    assert screen.file.getvalue() == before

    plain = io.StringIO()
    Terminal(Console(file=plain)).train({**FIGURES, "step": 200, "left": 0.0})
    assert plain.getvalue() == "update 200  epoch 7  loss 2.346  12,346 tokens/s\n"


def test_the_last_bleu_is_shown_when_a_run_is_resumed(tmp_path: Path) -> None:
    log = JsonLines(tmp_path)
    log.valid(VALID)
    log.valid({**VALID, "step": 200_000, "bleu": 50.0})
    screen = Screen(80)
    told = Terminal(screen.console)
    last = log.rewind(100_000, told.say)
    assert last["seconds"] == 3.0
    told.start(100_000, 123_456, last)
    assert screen.last.endswith("BLEU 38.1")
    told.show(FIGURES)
    assert "BLEU 38.1" in screen.last
    told.close()
    assert [line["step"] for line in read_log(tmp_path / "log.jsonl")] == [100_000]


def test_damaged_lines_of_the_log_are_left_out_and_reported(tmp_path: Path) -> None:
    good = json.dumps({"kind": "train", "step": 1})
    log = tmp_path / "log.jsonl"
    log.write_bytes(f"{good}\n".encode() + b'{"kind": "\xff"}\n5\n{}\n' + good.encode() + b'\n{"ki')
    said: list[str] = []
    assert JsonLines(tmp_path).rewind(9, said.append) == {}
    assert said == [f"{log}: 3 of its lines cannot be read: left out"]
    assert log.read_text() == f"{good}\n{good}\n"
    with pytest.raises(FileError, match=r"cannot be read: Is a directory"):
        read_log(tmp_path)


def test_an_average_is_logged_once(tmp_path: Path) -> None:
    log = JsonLines(tmp_path)
    for _ in range(2):
        log.valid({**VALID, "averaged": 3})
    assert len(read_log(log.path)) == 1


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").symlink_to("/dev/full")
    with pytest.raises(
        FileError, match=r"train: cannot write \S*log\.jsonl: the disk is full; make"
    ):
        JsonLines(tmp_path).train(FIGURES)


def test_a_run_goes_on_without_a_place_for_tensorboard(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("in the way")
    said: list[str] = []
    board = TensorBoard(tmp_path, said.append)
    board.start(0, 10, {})
    board.train(FIGURES)
    board.close()
    assert said[0].startswith("Continuing without TensorBoard, whose files cannot be written: File")
    assert len(said) == 1


def test_tensorboard_hides_what_a_killed_run_told_beyond_its_checkpoint(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    runs = ((0, {70: 9.0}), (0, {50: 5.0, 100: 4.0, 150: 3.0}), (100, {150: 2.0}))
    for begins, losses in runs:
        told = TensorBoard(tmp_path, print)
        told.start(begins, 200, {})
        for step, loss in losses.items():
            told.train({**FIGURES, "step": step, "loss": loss})
        told.close()
        time.sleep(1.1)  # files are named by the second
    board = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    found = {one.step: one.value for one in board.Scalars("train/loss")}
    assert found == {50: 5.0, 100: 4.0, 150: 2.0}
    assert len(board.Scalars("train/loss")) == 3
