"""``regard score``: how close translations are to references."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.incoming import STDIN, incoming
from regard.errors import FileError
from regard.translate.scoring import bleu, chrf


def score(
    reference: Annotated[Path, typer.Option(help="The right translations, one a line.")],
    hypothesis: Annotated[
        Path | None, typer.Option(help="The translations; standard input if not given.")
    ] = None,
    tokenize: Annotated[
        str, typer.Option(help="How BLEU cuts words: 13a, none, intl, char, zh, …")
    ] = "13a",
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Case does not count.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """BLEU and chrF of translations, by sacreBLEU, with its signatures."""
    right = [line for chunk in incoming(reference) for line in chunk]
    if not any(map(str.strip, right)):
        raise FileError(f"{reference}: the file is empty")
    said = [line for chunk in incoming(hypothesis) for line in chunk]
    name = STDIN if hypothesis is None else str(hypothesis)
    if len(said) != len(right):
        raise FileError(
            f"{name} has {len(said):,} lines but {reference} has {len(right):,}; line n of the one "
            "must be the translation that line n of the other is compared with"
        )
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)  # its own words on this are for Python
    if tokenize != "none" and 2 * sum(line.endswith(" .") for line in said) > len(said):
        print(
            f"regard: most lines of {name} end in ' .', as if they were cut into words already; "
            "compare them as they are with --tokenize none, or join them first",
            file=sys.stderr,
        )
    scores = [
        bleu(said, right, tokenize=tokenize, lowercase=lowercase),
        chrf(said, right, lowercase=lowercase),
    ]
    if json_:
        print(json.dumps([dataclasses.asdict(one) for one in scores]))
    else:
        for one in scores:
            print(one)
