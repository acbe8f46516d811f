"""``regard steps``: the six steps, for a sentence, for a file or for the worked example."""

from __future__ import annotations

import dataclasses
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from regard.cli.options import Json, check_outputs, refuse
from regard.cli.output import note, print_json
from regard.errors import OptionError

if TYPE_CHECKING:
    import torch

    from regard.attention.masks import Mask
    from regard.walkthrough import Steps

WIDTH, HEAD_WIDTH = 4, 3
"""Dimensions of the random vectors and of a head, where none are given."""


def steps(
    sentence: Annotated[str | None, typer.Argument(help="The sentence.")] = None,
    word: Annotated[str | None, typer.Option(help="Show the steps of this word.")] = None,
    occurrence: Annotated[int, typer.Option(help="Which occurrence of the word.")] = 1,
    vectors: Annotated[
        Path | None, typer.Option(help="Word vectors as text: word2vec, GloVe or fastText, or .gz.")
    ] = None,
    matrix: Annotated[
        Path | None,
        typer.Option(help="x, optionally words, w_q, w_k, w_v, w_o: .json, .npz, or .csv (x)."),
    ] = None,
    example: Annotated[
        str | None, typer.Option(help="A known example instead of a sentence: worked.")
    ] = None,
    heads: Annotated[int, typer.Option(help="Number of heads.")] = 1,
    score: Annotated[str | None, typer.Option(help="dot, scaled_dot, cosine or gaussian.")] = None,
    window_: Annotated[
        int | None,
        typer.Option("--window", help="Attend to n - 1 words on either side; 2: the next one."),
    ] = None,
    causal_: Annotated[bool, typer.Option("--causal", help="Attend to no later words.")] = False,
    basic: Annotated[
        bool, typer.Option("--basic", help="No weights: compare the vectors themselves.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of random vectors and weights.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Write a self-contained page.")] = None,
    latex: Annotated[Path | None, typer.Option(help="Write LaTeX.")] = None,
    json_: Json = False,
) -> None:
    """Self-attention in six steps, with every number: of one --word, or in matrix form."""
    if heads < 1:
        raise OptionError(f"steps: --heads {heads}, expected 1 or more")
    check_outputs("steps", html=html, latex=latex)
    from regard.attention.scores import NAMED
    from regard.cli.matrices import read_matrices
    from regard.walkthrough import steps as take_steps
    from regard.walkthrough.worked_example import worked

    if score is not None and score not in NAMED:
        raise OptionError(f"steps: --score {score} is unknown, expected {', '.join(NAMED)}")
    mask = _mask(window_, causal_)
    if sum(source is not None for source in (sentence, matrix, example)) != 1:
        raise OptionError("steps: give a sentence, or --matrix FILE, or --example worked")
    if example is not None:
        if example != "worked":
            raise OptionError(f"steps: --example {example} is unknown, expected worked")
        result, origin = worked(), ""
        if mask is not None or heads > 1 or score is not None or basic or vectors:
            raise OptionError("steps: --example worked takes no other options; use --matrix")
    elif matrix is not None:
        own = {"--vectors": vectors, "--basic": basic or None}
        refuse("steps", own, "cannot be used with --matrix, which has its own")
        given = read_matrices(matrix)
        result = take_steps(**given, heads=heads, mask=mask, score=score)
        origin = f"Numbers from {matrix}."
    else:
        result, origin = _of_sentence(sentence or "", vectors, heads, mask, score, basic, seed)
    _show(result, origin, word, occurrence, html, latex, json_)


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
    from regard.vectors.words import words_of
    from regard.walkthrough import steps as take_steps

    words = words_of(sentence, "steps")
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
        result = take_steps(x, words=words, heads=heads, mask=mask, score=score)
        return result, f"Vectors from {vectors}."
    x = torch.stack([_random(f"{seed} {word.lower()}", WIDTH * heads) for word in words])
    if basic:
        result = take_steps(x, words=words, heads=heads, mask=mask, score=score)
        return result, f"The vectors are made up (seed {seed})."
    shape = (WIDTH * heads, HEAD_WIDTH * heads)
    w_q, w_k, w_v = (
        _random(f"{seed} weights {name}", shape[0] * shape[1]).view(shape) for name in "qkv"
    )
    result = take_steps(x, w_q, w_k, w_v, words=words, heads=heads, mask=mask, score=score)
    return result, f"Vectors and weights are made up (seed {seed}): nothing here was learned."


def _random(what: str, size: int) -> torch.Tensor:
    """Random numbers with one decimal between -1 and 1, seeded by the text."""
    import torch

    generator = torch.Generator().manual_seed(zlib.crc32(what.encode(errors="surrogateescape")))
    return torch.randint(-10, 11, (size,), generator=generator).double() / 10


def _show(
    result: Steps,
    origin: str,
    word: str | None,
    occurrence: int,
    html: Path | None,
    latex: Path | None,
    as_json: bool,
) -> None:
    chosen = result.matrices() if word is None else result.of(word, occurrence)
    chosen = dataclasses.replace(chosen, preface=" ".join(filter(None, (origin, chosen.preface))))
    for path in (html, latex):
        if path is not None:
            chosen.save(path)
            note(f"wrote {path}")
    if as_json:
        print_json(result.to_data())
    elif html is None and latex is None:
        console = Console()
        if console.is_terminal:
            console.print(chosen)
        else:
            print(chosen)
