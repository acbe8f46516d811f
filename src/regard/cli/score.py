"""``regard score``: BLEU and chrF of translations, and accuracy on contrastive test sets."""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.input_lines import STDIN, lines
from regard.cli.options import refuse
from regard.cli.output import note, print_json, progress_bar
from regard.errors import FileError, OptionError, counted
from regard.models import POCKET


def score(
    reference: Annotated[
        Path | None, typer.Option(help="Reference translations, one per line.")
    ] = None,
    hypothesis: Annotated[
        Path | None, typer.Option(help="Translations to score; standard input if not given.")
    ] = None,
    tokenize: Annotated[
        str | None, typer.Option(help="Tokenizer of BLEU: 13a, none, intl, char, zh, … [13a]")
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    contrastive: Annotated[
        Path | None,
        typer.Option(help="JSON lines with source and targets, correct one first; - for stdin."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help=f"For --contrastive: a run's folder, or a bundled model. [{POCKET}]"),
    ] = None,
    context: Annotated[
        int | None, typer.Option(min=0, help="For --contrastive: sentences of context. [0]")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """BLEU and chrF of translations, by sacreBLEU, with its signatures.

    With --contrastive, the accuracy of a model on a contrastive test set: how often it gives the
    right translation a higher probability than every wrong one.
    """
    if contrastive is not None:
        of_texts = {
            "--reference": reference,
            "--hypothesis": hypothesis,
            "--tokenize": tokenize,
            "--lowercase": lowercase or None,
        }
        refuse("score", of_texts, "cannot be used with --contrastive")
        _contrastive(contrastive, model or POCKET, context or 0, json_)
        return
    refuse("score", {"--model": model, "--context": context}, "needs --contrastive")
    if reference is None:
        raise OptionError("score: give --reference FILE, or --contrastive FILE")
    _closeness(reference, hypothesis, tokenize or "13a", lowercase, json_)


def _contrastive(path: Path, model: str, context: int, json_: bool) -> None:
    from regard.memory import keep_freed_memory
    from regard.translate.contrastive import evaluate, read_items
    from regard.translate.translator import Translator

    piped = str(path) == "-"
    name = STDIN if piped else str(path)
    items = read_items(lines(None if piped else path), name, context)
    keep_freed_memory()
    translator = Translator.load(model)
    started = time.perf_counter()
    with progress_bar("scoring") as progress:
        progress(0, len(items))
        found = evaluate(translator, items, lambda done: progress(done, len(items)))
    if json_:
        about = {"file": name, "model": model, "context": context}
        seconds = round(time.perf_counter() - started, 3)
        print_json({**about, **found.to_data(), "seconds": seconds})
    else:
        print(found)


def _closeness(
    reference: Path, hypothesis: Path | None, tokenize: str, lowercase: bool, json_: bool
) -> None:
    """Print BLEU and chrF."""
    from regard.translate.scoring import bleu, chrf

    right = list(lines(reference))
    if not any(map(str.strip, right)):
        raise FileError(f"{reference}: the file is empty")
    said = list(lines(hypothesis))
    name = STDIN if hypothesis is None else str(hypothesis)
    if len(said) != len(right):
        raise FileError(
            f"{name} has {counted(len(said), 'line')} but {reference} has {len(right):,}; line n "
            "of each must translate the same sentence"
        )
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)  # its warnings name Python options
    if tokenize != "none" and 2 * sum(line.endswith(" .") for line in said) > len(said):
        note(
            f"most lines of {name} end in ' .', as if they were tokenised already; "
            "score them as they are with --tokenize none, or detokenise them first"
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
