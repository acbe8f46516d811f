"""``regard judge``: how far explanation methods can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Json, Model, check_outputs
from regard.cli.output import note, progress_bar
from regard.models import POCKET


def judge(
    data: Annotated[
        str, typer.Option(help="reference, senses, or a file of JSON lines with text.")
    ] = "reference",
    methods: Annotated[str | None, typer.Option(help="Methods, separated by commas. [all]")] = None,
    model: Model = POCKET,
    most: Annotated[int, typer.Option(min=1, help="Maximum number of items.")] = 100,
    json_: Json = False,
    svg: Annotated[Path | None, typer.Option(help="Write the curves as a figure.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write JSON to this file; the same command resumes.")
    ] = None,
) -> None:
    """Explanation methods side by side, scored by the measured effect of cutting links.

    cuts, hidden: rank correlation with the loss when the links from the step to a word are cut, and
    when the word is hidden everywhere. deletion, insertion: the area of the curves when words are
    hidden or shown, highest score first. evidence: reciprocal rank of the word that decides.
    """
    check_outputs("judge", svg=svg)
    from regard.lens.judgement import judge as judged

    names = None if methods is None else [one.strip() for one in methods.split(",") if one.strip()]
    with progress_bar("judging") as progress:
        found = judged(data, model=model, methods=names, most=most, out=out, progress=progress)
    print(found.to_json() if json_ else found)
    if svg is not None:
        found.picture().save(svg)
    for path in (out, svg):
        if path is not None:
            note(f"wrote {path}")
