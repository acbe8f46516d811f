"""``regard steps``: the six steps, for a sentence, for a file or for the worked example."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from regard.cli.options import Json
from regard.errors import FileError, OptionError

if TYPE_CHECKING:
    import torch

    from regard.attention.masks import Mask
    from regard.walkthrough import Steps

WIDTH, HEAD_WIDTH = 4, 3
"""Of the small vectors and weights that are made up where none are given."""


def steps(
    sentence: Annotated[
        str | None, typer.Argument(help="The words to attend to each other.")
    ] = None,
    word: Annotated[str | None, typer.Option(help="Put this word in the spotlight.")] = None,
    occurrence: Annotated[int, typer.Option(help="Which one, if it stands there twice.")] = 1,
    vectors: Annotated[
        Path | None, typer.Option(help="Word vectors as text: word2vec, GloVe or fastText, or .gz.")
    ] = None,
    matrix: Annotated[
        Path | None,
        typer.Option(help="x, and perhaps words, w_q, w_k, w_v, w_o: .json, .npz, or .csv (x)."),
    ] = None,
    example: Annotated[
        str | None, typer.Option(help="A known example instead of a sentence: worked.")
    ] = None,
    heads: Annotated[int, typer.Option(help="Split into so many heads.")] = 1,
    score: Annotated[str | None, typer.Option(help="dot, scaled_dot, cosine or gaussian.")] = None,
    window_: Annotated[
        int | None,
        typer.Option("--window", help="See n - 1 words on either side; 2: the word next to it."),
    ] = None,
    causal_: Annotated[bool, typer.Option("--causal", help="See no later words.")] = False,
    basic: Annotated[
        bool, typer.Option("--basic", help="No weights: compare the vectors themselves.")
    ] = False,
    seed: Annotated[int, typer.Option(help="For vectors and weights that are made up.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Write a page that needs nothing else.")] = None,
    latex: Annotated[Path | None, typer.Option(help="Write LaTeX for a lecture.")] = None,
    json_: Json = False,
) -> None:
    """Self-attention in six steps, with every number: of one --word, or in matrix form."""
    if heads < 1:
        raise OptionError(f"steps: --heads {heads}, expected 1 or more")
    from regard.cli.matrices import read_matrices
    from regard.walkthrough import steps as take_steps
    from regard.walkthrough.worked_example import worked

    mask = _mask(window_, causal_)
    if sum(source is not None for source in (sentence, matrix, example)) != 1:
        raise OptionError("steps: give a sentence, or --matrix FILE, or --example worked")
    if example is not None:
        if example != "worked":
            raise OptionError(f"steps: --example {example} is unknown, expected worked")
        told, origin = worked(), ""
        if mask is not None or heads > 1 or score is not None or basic or vectors:
            raise OptionError("steps: --example worked is as it is; use --matrix for your own")
    elif matrix is not None:
        for option, used in (("--vectors", vectors is not None), ("--basic", basic)):
            if used:
                raise OptionError(f"steps: {option} does not go with --matrix, which has its own")
        given = read_matrices(matrix)
        told = take_steps(**given, heads=heads, mask=mask, score=score)
        origin = f"Numbers from {matrix}."
    else:
        told, origin = _of_sentence(sentence or "", vectors, heads, mask, score, basic, seed)
    _show(told, origin, word, occurrence, html, latex, json_)


def _mask(width: int | None, only_before: bool) -> Mask | None:
    from regard.attention.masks import causal, window

    mask: Mask | None = window(width) if width is not None else None
    if only_before:
        mask = causal if mask is None else causal & mask
    return mask


def _of_sentence(
    sentence: str,
    vectors: Path | None,
    heads: int,
    mask: Mask | None,
    score: str | None,
    basic: bool,
    seed: int,
) -> tuple[Steps, str]:
    """The steps of a sentence, and where its numbers come from."""
    import torch

    from regard.vectors import read_words
    from regard.walkthrough import steps as take_steps

    words = re.findall(r"\w+(?:['’]\w+)*|[^\w\s]", sentence)
    if not words:
        raise OptionError("steps: the sentence has no words")
    if not sentence.isascii() and any("\ud800" <= c <= "\udfff" for c in sentence):
        raise OptionError("steps: the sentence is not UTF-8 text")
    if vectors is not None:
        found = read_words(vectors, words)
        missing = [word for word in words if word not in found]
        if missing:
            raise OptionError(
                f"steps: {', '.join(map(repr, dict.fromkeys(missing)))} "
                f"{'have' if len(set(missing)) > 1 else 'has'} no vector in {vectors}"
            )
        x = torch.stack([torch.from_numpy(found[word]) for word in words])
        told = take_steps(x, words=words, heads=heads, mask=mask, score=score)
        return told, f"Vectors from {vectors}."
    x = torch.stack([_made_up(f"{seed} {word.lower()}", WIDTH * heads) for word in words])
    if basic:
        told = take_steps(x, words=words, heads=heads, mask=mask, score=score)
        return told, f"The vectors are made up (seed {seed})."
    shape = (WIDTH * heads, HEAD_WIDTH * heads)
    w_q, w_k, w_v = (
        _made_up(f"{seed} weights {name}", shape[0] * shape[1]).view(shape) for name in "qkv"
    )
    told = take_steps(x, w_q, w_k, w_v, words=words, heads=heads, mask=mask, score=score)
    return told, f"Vectors and weights are made up (seed {seed}): nothing here was learned."


def _made_up(what: str, size: int) -> torch.Tensor:
    """Numbers with one decimal between -1 and 1: the same for the same word and seed."""
    import torch

    generator = torch.Generator().manual_seed(zlib.crc32(what.encode(errors="surrogateescape")))
    return torch.randint(-10, 11, (size,), generator=generator).double() / 10


def _show(
    told: Steps,
    origin: str,
    word: str | None,
    occurrence: int,
    html: Path | None,
    latex: Path | None,
    as_json: bool,
) -> None:
    chosen = told.matrices() if word is None else told.of(word, occurrence)
    chosen = dataclasses.replace(chosen, preface=" ".join(filter(None, (origin, chosen.preface))))
    for path, ending in ((html, ".html"), (latex, ".tex")):
        if path is not None and path.suffix.lower() != ending:
            raise OptionError(f"steps: {path} does not end in {ending}")
        if path is not None and not path.parent.is_dir():
            raise FileError(f"steps: cannot write {path}: No such file or directory")
    for path in (html, latex):
        if path is not None:
            chosen.save(path)
            print(f"regard: wrote {path}", file=sys.stderr)
    if as_json:
        print(json.dumps(told.to_data(), ensure_ascii=False))
    elif html is None and latex is None:
        console = Console()
        if console.is_terminal:
            console.print(chosen)
        else:
            print(chosen)
