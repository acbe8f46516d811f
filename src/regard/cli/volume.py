"""Answers to a question for every row of a file."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from regard.cli.output import note
from regard.errors import RegardError, counted
from regard.lens.corpus import Job, finished, run, start
from regard.lens.corpus_workers import Chunk, Done
from regard.translate.locking import locked
from regard.translate.threads import available_cores


def answer_all(job: Job, workers: int | None, ray: str | None) -> None:
    """Run a job, with a progress bar on a terminal and a summary at the end.

    Raises if every row failed.
    """
    chunks, (before, failed) = start(job), finished(job)
    if chunks:
        with locked(Path(job.out), job.question):
            rows, wrong = _progress(job, chunks, workers, ray)
        said = f"{counted(rows - wrong, 'row')} answered into {job.out}"
        said += f" ({before:,} were already there)" if before else ""
        failed += wrong
    else:
        rows, said = 0, f"{job.out} is already complete ({counted(before, 'row')})"
    if failed:
        said += f"; {failed:,} failed, see the column error"
    if failed == before + rows:
        raise RegardError(said)
    note(said)


def _progress(job: Job, chunks: list[Chunk], workers: int | None, ray: str | None) -> Done:
    """Run the chunks with a progress bar; returns the number of rows, and of failed ones."""
    rows = failed = 0
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(job.question, total=sum(chunk.rows for chunk in chunks))
        for done, wrong in run(job, chunks, available_cores() if workers is None else workers, ray):
            rows, failed = rows + done, failed + wrong
            bar.advance(task, done)
    return rows, failed
