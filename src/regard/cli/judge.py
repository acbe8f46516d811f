"""``regard judge``: how far explanation methods can be trusted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from regard.cli.options import Json, Model, check_endings
from regard.models import POCKET


def judge(
    data: Annotated[
        str, typer.Option(help="reference, senses, or a file of JSON lines with text.")
    ] = "reference",
    methods: Annotated[
        str | None, typer.Option(help="Names of methods, with commas between. [all]")
    ] = None,
    model: Model = POCKET,
    most: Annotated[int, typer.Option(min=1, help="Items, at most.")] = 100,
    json_: Json = False,
    svg: Annotated[Path | None, typer.Option(help="Draw the curves to this file.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write JSON to this file; start again to resume.")
    ] = None,
) -> None:
    """Explanation methods side by side, scored by what cutting links really does.

    cuts, hidden: rank correlation with the loss when the links from the step to a word are cut, and
    when the word is hidden everywhere. deletion, insertion: the area of the curves when words are
    hidden or shown, highest score first. evidence: reciprocal rank of the word that decides.
    """
    check_endings("judge", svg=svg)
    from regard.lens.judgement import judge as judged

    names = None if methods is None else [one.strip() for one in methods.split(",") if one.strip()]
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("judging", total=None)
        found = judged(
            data,
            model=model,
            methods=names,
            most=most,
            out=out,
            progress=lambda done, of: bar.update(task, completed=done, total=of),
        )
    print(found.to_json() if json_ else found)
    if svg is not None:
        found.picture().save(svg)
        print(f"regard: wrote {svg}", file=sys.stderr)
