"""Options and checks that several commands share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from regard.errors import FileError, OptionError

Model = Annotated[str, typer.Option(help="A bundled model, a folder, or hub:org/name.")]
Json = Annotated[bool, typer.Option("--json", help="Print every number as JSON.")]
Out = Annotated[
    Path | None, typer.Option(help="With --jsonl: a folder for the answers, as Parquet.")
]
Workers = Annotated[
    int | None, typer.Option(help="Processes, or Ray workers, of one thread. [one per core]")
]
Ray = Annotated[str | None, typer.Option(help="Run on a Ray cluster: its address, auto, or local.")]
ROWS_ONLY = "needs both --jsonl FILE and --out FOLDER"
"""The reason to refuse options for many rows."""


def check_outputs(command: str, **paths: Path | None) -> None:
    """Raise if a file to write has another suffix than its option, or is in no folder."""
    for option, path in paths.items():
        if path is None:
            continue
        ending = {"latex": ".tex"}.get(option, f".{option}")
        if path.suffix.lower() != ending:
            raise OptionError(
                f"{command}: --{option} {path}, expected a file that ends in {ending}"
            )
        if not path.parent.is_dir():
            raise FileError(f"{command}: cannot write {path}: No such file or directory")


def refuse(command: str, options: Mapping[str, object], reason: str) -> None:
    """Raise if one of these options is given."""
    for name, value in options.items():
        if value is not None:
            raise OptionError(f"{command}: {name} {reason}")
