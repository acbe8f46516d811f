"""``regard compare``: one word in two sentences, layer by layer."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.options import Json, Model
from regard.cli.output import print_json
from regard.models import POCKET


def compare(
    word: Annotated[str, typer.Argument(help="The word; bat#2 is the second bat.")],
    one: Annotated[str, typer.Argument(help="A text with this word.")],
    other: Annotated[str, typer.Argument(help="Another text with this word.")],
    model: Model = POCKET,
    json_: Json = False,
) -> None:
    """One word in two texts: its vectors layer by layer, their neighbours, and what pulled them."""
    from regard.lens import Lens

    found = Lens.open(model).compare(one, other, word)
    if json_:
        print_json(found.to_data())
    else:
        print(found)
