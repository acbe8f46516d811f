"""``regard embed``: a vector for every text of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Model, Ray, Workers
from regard.models import POCKET


def embed(
    source: Annotated[Path, typer.Argument(help="JSON lines or Parquet with a column text.")],
    out: Annotated[Path, typer.Option(help="A folder for the vectors, as Parquet.")],
    model: Model = POCKET,
    workers: Workers = None,
    ray: Ray = None,
) -> None:
    """The vector of every text: the mean of its words' vectors in the last layer."""
    from regard.cli.volume import answer_all
    from regard.lens.corpus import Job

    answer_all(Job("embed", str(source), str(out), model), workers, ray)
