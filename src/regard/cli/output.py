"""Printing of JSON, notes and progress bars."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def print_json(data: Any) -> None:
    """Print data as one line of JSON."""
    print(json.dumps(data, ensure_ascii=False), flush=True)


def note(text: str) -> None:
    """Print a line for the user on standard error."""
    print(f"regard: {text}", file=sys.stderr)


@contextmanager
def progress_bar(description: str, *, hidden: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Context: ``progress(done, of)`` draws a bar on a terminal, which is removed at the end."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    # With redirection, what is printed meanwhile would go to the terminal even if stdout is a file.
    disabled = hidden or not console.is_terminal
    with Progress(console=console, transient=True, redirect_stdout=False, disable=disabled) as bar:
        task = bar.add_task(description, total=None, visible=False)
        yield lambda done, of: bar.update(task, completed=done, total=of, visible=True)
