"""``regard why``: which links made the model write that word."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from regard.cli.options import ROWS_ONLY, Json, Model, Out, Ray, Workers, check_outputs, refuse
from regard.cli.output import print_json
from regard.errors import OptionError
from regard.models import POCKET


def why(
    text: Annotated[str | None, typer.Argument(help="The input text.")] = None,
    word: Annotated[
        str | None,
        typer.Option(help="A word of the output, or the input word behind it; es#2: the second."),
    ] = None,
    instead: Annotated[
        str | None, typer.Option(help="The alternative to compare it with. [the runner-up]")
    ] = None,
    model: Model = POCKET,
    links: Annotated[
        int | None, typer.Option(help="Number of strongest links to cut. [32]")
    ] = None,
    jsonl: Annotated[
        Path | None,
        typer.Option(help="Many: JSON lines with text, word, instead; or Parquet."),
    ] = None,
    out: Out = None,
    workers: Workers = None,
    ray: Ray = None,
    html: Annotated[Path | None, typer.Option(help="Write an interactive page.")] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="In the page, every output word can be selected.")
    ] = False,
    svg: Annotated[Path | None, typer.Option(help="Write the figure.")] = None,
    json_: Json = False,
) -> None:
    """Where the model looked, whether it matters, and how it was computed.

    regard why "The animal didn't cross the street because it was too tired." --word es
    """
    check_outputs("why", html=html, svg=svg)
    if text is None and jsonl is None:
        raise OptionError("why: give a text, or --jsonl FILE with --out FOLDER")
    if text is not None and jsonl is not None:
        raise OptionError("why: give only one of a text and --jsonl")
    if jsonl is not None:
        if out is None:
            raise OptionError("why: --jsonl needs --out FOLDER, for the answers")
        refuse("why", {"--instead": instead}, "cannot be used with --jsonl; give it in the rows")
        single = {"--html": html, "--all": all_ or None, "--svg": svg, "--json": json_ or None}
        refuse("why", single, "cannot be used with --jsonl, whose answers go to --out")
    elif all_ and html is None:
        raise OptionError("why: --all needs --html FILE")
    if links is not None and links < 0:
        raise OptionError(f"why: --links {links}, expected 0 or more")
    from regard.lens import Lens

    if jsonl is not None and out is not None:
        from regard.cli.volume import answer_all
        from regard.lens.corpus import Job

        answer_all(Job("why", str(jsonl), str(out), model, word, links), workers, ray)
        return
    refuse("why", {"--out": out, "--workers": workers, "--ray": ray}, ROWS_ONLY)
    lens = Lens.open(model)
    analysis = lens.analyse(text or "")
    found = lens.why(analysis, word, instead=instead, most=32 if links is None else links)
    if json_:
        print_json(found.to_data())
    else:
        Console(highlight=False).print(found.view())
    if svg is not None:
        found.view().save(svg)
    if html is not None:
        lens.view(analysis, word, answer=found, every=all_).save(html)
