"""``regard embed``: a vector for every text of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.volume import Ray, Workers, answer_all
from regard.lens.corpus import Job
from regard.translate.model_files import POCKET


def embed(
    source: Annotated[Path, typer.Argument(help="JSON lines or Parquet with a column text.")],
    out: Annotated[Path, typer.Option(help="A folder for the vectors, as Parquet.")],
    model: Annotated[
        str, typer.Option(help="A bundled model, a folder, or hub:org/name.")
    ] = POCKET,
    workers: Workers = None,
    ray: Ray = None,
) -> None:
    """The vector of every text: the mean of its words' vectors in the last layer."""
    answer_all(Job("embed", str(source), str(out), model), workers, ray)
