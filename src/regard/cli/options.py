"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.errors import OptionError

Model = Annotated[str, typer.Option(help="A bundled model, a folder, or hub:org/name.")]
Json = Annotated[bool, typer.Option("--json", help="Print every number as JSON.")]
Out = Annotated[
    Path | None, typer.Option(help="With --jsonl: a folder for the answers, as Parquet.")
]
Workers = Annotated[
    int | None, typer.Option(help="Processes, or Ray workers, of one thread. [one per core]")
]
Ray = Annotated[str | None, typer.Option(help="Run on a Ray cluster: its address, auto, or local.")]


def check_endings(command: str, **paths: Path | None) -> None:
    """Raise if a file does not end in the name of its option."""
    for ending, path in paths.items():
        if path is not None and path.suffix.lower() != f".{ending}":
            raise OptionError(
                f"{command}: --{ending} {path}, expected a file that ends in .{ending}"
            )


def refuse_alone(command: str, **options: object) -> None:
    """Raise if one of the options for many rows is given without them."""
    for name, value in options.items():
        if value is not None:
            raise OptionError(f"{command}: --{name} needs both --jsonl FILE and --out FOLDER")
