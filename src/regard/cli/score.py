"""``regard score``: how close translations are to references, and contrastive test sets."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from regard.cli.incoming import STDIN, incoming
from regard.errors import FileError, OptionError
from regard.models import POCKET


def score(
    reference: Annotated[
        Path | None, typer.Option(help="The right translations, one a line.")
    ] = None,
    hypothesis: Annotated[
        Path | None, typer.Option(help="The translations; standard input if not given.")
    ] = None,
    tokenize: Annotated[
        str | None, typer.Option(help="How BLEU cuts words: 13a, none, intl, char, zh, … [13a]")
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Case does not count.")] = False,
    contrastive: Annotated[
        Path | None,
        typer.Option(help="JSON lines with source and targets, the first right; - for stdin."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help=f"For --contrastive: a run's folder, or a bundled model. [{POCKET}]"),
    ] = None,
    context: Annotated[
        int | None, typer.Option(min=0, help="For --contrastive: sentences of context. [0]")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """BLEU and chrF of translations, by sacreBLEU, with its signatures.

    With --contrastive, the accuracy of a model on a contrastive test set: how often it gives the
    right translation a higher probability than every wrong one.
    """
    if contrastive is not None:
        of_texts = {"--reference": reference, "--hypothesis": hypothesis, "--tokenize": tokenize}
        _refuse({**of_texts, "--lowercase": lowercase or None}, "does not go with")
        _contrastive(contrastive, model or POCKET, context or 0, json_)
        return
    _refuse({"--model": model, "--context": context}, "needs")
    if reference is None:
        raise OptionError("score: give --reference FILE, or --contrastive FILE")
    _closeness(reference, hypothesis, tokenize or "13a", lowercase, json_)


def _refuse(options: dict[str, object], relation: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise OptionError(f"score: {name} {relation} --contrastive")


def _contrastive(path: Path, model: str, context: int, json_: bool) -> None:
    from regard.memory import keep_freed_memory
    from regard.translate.contrastive import evaluate, read_items
    from regard.translate.translator import Translator

    piped = str(path) == "-"
    name = STDIN if piped else str(path)
    lines = (line for chunk in incoming(None if piped else path) for line in chunk)
    items = read_items(lines, name, context)
    keep_freed_memory()
    translator = Translator.load(model)
    console = Console(stderr=True)
    started = time.perf_counter()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("scoring", total=len(items))
        found = evaluate(translator, items, lambda done: bar.update(task, completed=done))
    if json_:
        about = {"file": name, "model": model, "context": context}
        seconds = round(time.perf_counter() - started, 3)
        print(json.dumps({**about, **found.to_data(), "seconds": seconds}, ensure_ascii=False))
    else:
        print(found)


def _closeness(
    reference: Path, hypothesis: Path | None, tokenize: str, lowercase: bool, json_: bool
) -> None:
    """Print BLEU and chrF."""
    from regard.translate.scoring import bleu, chrf

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
