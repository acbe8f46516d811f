"""``regard why``: which links made the model write that word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from regard.cli.options import Json, Model, Out, Ray, Workers, check_endings, refuse_alone
from regard.errors import OptionError
from regard.models import POCKET


def why(
    text: Annotated[str | None, typer.Argument(help="What the model reads.")] = None,
    word: Annotated[
        str | None,
        typer.Option(help="A word that it wrote, or the one it was written for; es#2: the second."),
    ] = None,
    instead: Annotated[str | None, typer.Option(help="The word it is compared with.")] = None,
    model: Model = POCKET,
    links: Annotated[
        int | None, typer.Option(help="Cut so many of the strongest links. [32]")
    ] = None,
    jsonl: Annotated[
        Path | None, typer.Option(help="Many: JSON lines with text, word, instead; or Parquet.")
    ] = None,
    out: Out = None,
    workers: Workers = None,
    ray: Ray = None,
    html: Annotated[Path | None, typer.Option(help="Write a page to click through.")] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="In the page, every written word can be selected.")
    ] = False,
    svg: Annotated[Path | None, typer.Option(help="Write the figure.")] = None,
    json_: Json = False,
) -> None:
    """Where it looked, whether that matters, and how it was computed.

    regard why "The animal didn't cross the street because it was too tired." --word es
    """
    check_endings("why", html=html, svg=svg)
    if (text is None) == (jsonl is None):
        raise OptionError("why: give a text, or --jsonl FILE with --out FOLDER")
    from regard.lens import Lens

    if jsonl is not None and out is not None:
        from regard.cli.volume import answer_all
        from regard.lens.corpus import Job

        answer_all(Job("why", str(jsonl), str(out), model, word, links), workers, ray)
        return
    refuse_alone("why", jsonl=jsonl, out=out, workers=workers, ray=ray)
    lens = Lens.open(model)
    analysis = lens.analyse(text or "")
    found = lens.why(analysis, word, instead=instead, most=32 if links is None else links)
    if json_:
        print(json.dumps(found.to_data(), ensure_ascii=False))
    else:
        Console(highlight=False).print(found.view())
    if svg is not None:
        found.view().save(svg)
    if html is not None:
        lens.view(analysis, word, answer=found, every=all_).save(html)
