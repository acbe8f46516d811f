"""Answers to a question for every row of a file."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from regard.cli.output import note
from regard.errors import RegardError, counted
from regard.lens.corpus import Job, finished, run, start
from regard.translate.threads import available_cores


def answer_all(job: Job, workers: int | None, ray: str | None) -> None:
    """Run a job, with a progress bar on a terminal and a summary at the end.

    Raises if every row failed.
    """
    chunks, before = start(job), finished(job)
    if not chunks:
        note(f"{job.out} is already complete ({counted(before, 'row')})")
        return
    total, rows, failed = sum(chunk.rows for chunk in chunks), 0, 0
    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(job.question, total=total)
        count = available_cores() if workers is None else workers
        for done, wrong in run(job, chunks, count, ray):
            rows, failed = rows + done, failed + wrong
            bar.advance(task, done)
    said = f"{counted(rows - failed, 'row')} answered into {job.out}"
    if before:
        said += f" ({before:,} were already there)"
    if failed:
        said += f"; {failed:,} failed, see the column error"
    if failed == before + rows:
        raise RegardError(said)
    note(said)
