"""``regard compare``: one word in two sentences, and where its vectors part."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from regard.cli.options import Json, Model
from regard.models import POCKET


def compare(
    word: Annotated[str, typer.Argument(help="The word; bat#2 is the second bat.")],
    one: Annotated[str, typer.Argument(help="A text that has it.")],
    other: Annotated[str, typer.Argument(help="Another.")],
    model: Model = POCKET,
    json_: Json = False,
) -> None:
    """One word in two texts: its vectors layer by layer, their neighbours, and what pulled them."""
    from regard.lens import Lens

    found = Lens.open(model).compare(one, other, word)
    print(json.dumps(found.to_data(), ensure_ascii=False) if json_ else found)
