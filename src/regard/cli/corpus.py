"""``regard corpus``: the built-in English–German sentences, as lines of text or JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Annotated

import typer

from regard.challenge import KINDS, SPLITS, Pair, generate, size
from regard.cli.output import note
from regard.errors import OptionError
from regard.files import write_text


def corpus(
    kind: Annotated[
        str, typer.Option(help="reference, senses, both, or cues: more senses, for training.")
    ] = "reference",
    split: Annotated[str, typer.Option(help="train or test.")] = "train",
    n: Annotated[int, typer.Option("-n", help="Total number of pairs.")] = 1000,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Output file: .tsv or .txt; .jsonl with --json.")
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Print JSON lines, with every field of a pair.")
    ] = False,
) -> None:
    """English and German sentences, separated by a tab, with an ambiguous word each."""
    pairs = _pairs(kind, split, n, seed)
    lines = map(_json if json_ else _tsv, pairs)
    if out is None:
        for line in lines:
            print(line)
        return
    endings = (".jsonl",) if json_ else (".tsv", ".txt")
    write_text(
        out, dict.fromkeys(endings, lambda: "".join(f"{line}\n" for line in lines)), "corpus"
    )
    note(f"wrote {out}")


def _pairs(kind: str, split: str, n: int, seed: int) -> Iterator[Pair]:
    """The pairs of a kind; of both kinds in turn."""
    for option, value, known in (("--kind", kind, (*KINDS, "both")), ("--split", split, SPLITS)):
        if value not in known:
            raise OptionError(
                f"corpus: {option} {value} is unknown, expected {', '.join(known[:-1])} "
                f"or {known[-1]}"
            )
    shares = {"reference": n - n // 2, "senses": n // 2} if kind == "both" else {kind: n}
    for one, share in shares.items():
        if not 0 <= share <= size(one, split):
            raise OptionError(
                f"corpus: -n {n} asks for {share} pairs of kind {one}, expected 0 to "
                f"{size(one, split)}, which is all there are in {split}"
            )
    turns = zip_longest(*(generate(one, split, share, seed) for one, share in shares.items()))
    return (pair for pair in chain.from_iterable(turns) if pair is not None)


def _tsv(pair: Pair) -> str:
    return f"{pair.source}\t{pair.target}"


def _json(pair: Pair) -> str:
    return json.dumps(dataclasses.asdict(pair), ensure_ascii=False)
