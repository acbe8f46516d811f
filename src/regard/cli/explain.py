"""``regard explain``: what a word of a text attends to, and whether it matters."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import ROWS_ONLY, Json, Model, Out, Ray, Workers, check_outputs, refuse
from regard.cli.output import note, print_json, progress_bar
from regard.errors import FileError, OptionError, WordError
from regard.models import POCKET

if TYPE_CHECKING:
    import torch

    from regard.lens import Explanation, Lens

BAR = 32
"""Characters of the longest bar."""
LONG, SHOWN = 100, 20
"""Words above which a text counts as long, and the default of --top for a long text."""


def explain(
    text: Annotated[str | None, typer.Argument(help="The text.")] = None,
    word: Annotated[
        str | None,
        typer.Option(help="The attending word, of the text or the output; it#2 is the second it."),
    ] = None,
    model: Model = POCKET,
    method: Annotated[
        str | None, typer.Option(help="Only this method: attention, norm, rollout or knockout.")
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Only this layer, from 0.")] = None,
    head: Annotated[int | None, typer.Option(help="Only this head, from 0.")] = None,
    top: Annotated[
        int | None, typer.Option(help="Number of words to show. [all of a short text]")
    ] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Treat every subword as a word.")
    ] = False,
    file: Annotated[Path | None, typer.Option(help="Read the text from a file.")] = None,
    jsonl: Annotated[
        Path | None,
        typer.Option(help="Many texts: JSON lines with text and word, or Parquet. Prints JSON."),
    ] = None,
    out: Out = None,
    workers: Workers = None,
    ray: Ray = None,
    html: Annotated[Path | None, typer.Option(help="Write a self-contained page.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the figure.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write the figure.")] = None,
    json_: Json = False,
) -> None:
    """What a word attends to, by four measures; without --word, a summary of the text."""
    given = sum(one is not None for one in (text, file, jsonl))
    if given > 1:
        raise OptionError("explain: give only one of a text, --file and --jsonl")
    if not given:
        raise OptionError("explain: give a text, or --file FILE, or --jsonl FILE")
    if top is not None and top < 1:
        raise OptionError(f"explain: --top {top}, expected 1 or more")
    chosen = {"--method": method, "--layer": layer, "--head": head, "--top": top}
    pictures = {"--html": html, "--svg": svg, "--png": png}
    if json_:
        refuse("explain", chosen, "cannot be used with --json, which prints every number")
    if jsonl is not None:
        reason = "cannot be used with --jsonl, which prints every number"
        refuse("explain", {**chosen, **pictures}, reason)
    check_outputs("explain", html=html, svg=svg, png=png)
    from regard.cli.volume import answer_all
    from regard.lens import Lens
    from regard.lens.corpus import Job
    from regard.lens.explanation import METHODS
    from regard.text import read_lines

    if method is not None and method not in METHODS:
        raise OptionError(
            f"explain: --method {method} is unknown, expected one of {', '.join(METHODS)}"
        )
    if jsonl is not None and out is not None:
        words_only = {"--tokens": tokens or None, "--json": json_ or None}
        refuse("explain", words_only, "cannot be used with --out, which writes words as Parquet")
        answer_all(Job("explain", str(jsonl), str(out), model, word), workers, ray)
        return
    refuse("explain", {"--out": out, "--workers": workers, "--ray": ray}, ROWS_ONLY)
    if jsonl is not None:
        _many(Lens.open(model), jsonl, word, tokens)
        return
    if file is not None:
        text = "\n".join(read_lines(file))
    lens = Lens.open(model)
    if word is None:
        _summary(lens, text or "", tokens, top, json_, [html, svg, png, method, layer, head])
        return
    with progress_bar("cutting links") as progress:
        found = lens.explain(text or "", word, tokens=tokens, progress=progress)
    if top is None and len(found.names) > LONG:
        top = SHOWN
    if json_:
        print(found.to_json())
    elif method is not None or layer is not None or head is not None:
        scores = found.scores(method or "attention", layer, head)
        print(_where(method or "attention", layer, head))
        print(_bars(found, scores, top))
    else:
        print(found.table(top))
        print(f"\n{_bars(found, found.scores('knockout'), top, 'knockout')}")
    _pictures(found, html, svg, png)


def _summary(
    lens: Lens, text: str, tokens: bool, top: int | None, json_: bool, needs: list[object]
) -> None:
    if any(one is not None for one in needs):
        raise OptionError(
            "explain: pictures, pages and --method, --layer or --head show one word; name it with "
            "--word"
        )
    found = lens.summary(text, tokens=tokens)
    if json_:
        print_json(found.to_data())
    else:
        print(found if top is None else found.table(top))
        print("\nregard explain … --word WORD shows what a word attends to")


def _many(lens: Lens, path: Path, word: str | None, tokens: bool) -> None:
    """Print one line of JSON for each line of the file."""
    items = list(_items(path, word))
    if not items:
        raise FileError(f"{path}: has no rows")
    with progress_bar("explaining", hidden=sys.stdout.isatty()) as progress:
        for done, (number, said, which) in enumerate(items):
            progress(done, len(items))
            try:
                print(lens.explain(said, which, tokens=tokens).to_json(), flush=True)
            except (OptionError, WordError) as error:
                raise FileError(f"{path}: line {number}: {error}") from None


def _items(path: Path, word: str | None) -> Iterator[tuple[int, str, str | int]]:
    from regard.text import read_lines

    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
            said = item.get("text", item.get("source"))
            which = item.get("word", word)
        except (ValueError, AttributeError):
            raise FileError(
                f"{path}: line {number} is not a JSON object with text and word"
            ) from None
        for name, value, kinds in (("text", said, str), ("word", which, str | int)):
            if value is None:
                raise FileError(f"{path}: line {number} has no {name}")
            if not isinstance(value, kinds):
                raise FileError(f"{path}: line {number}: {name} is {type(value).__name__}")
        yield number, said, which


def _where(method: str, layer: int | None, head: int | None) -> str:
    places = {"layer": layer, "head": head}
    numbers = (f"{name} {number}" for name, number in places.items() if number is not None)
    return ", ".join((method, *numbers))


def _bars(found: Explanation, values: torch.Tensor, top: int | None, title: str = "") -> str:
    """A bar for each name, or for the top words; none where nothing was cut."""
    from regard.text.words import visible

    numbers = values.tolist()
    heights = values.nan_to_num(0.0).tolist()
    shown = list(range(len(numbers)))
    if top is not None:
        words = [i for i in shown if found.words.is_word[i]]
        shown = sorted(sorted(words, key=lambda i: -heights[i])[:top])
    called = found.words.called if top is not None else lambda i: visible(found.names[i])
    names = {i: called(i) for i in shown}
    width = max(map(len, names.values()))
    most = max((heights[i] for i in shown), default=0.0) or 1.0
    lines = [title] if title else []
    for i in shown:
        bar = "█" * max(0, round(BAR * heights[i] / most))
        mark = "→" if i == found.word and found.writes is None else " "
        number = "·" if math.isnan(numbers[i]) else f"{numbers[i]:.3f}"
        lines.append(f"{mark} {names[i]:{width}}  {number:>7}  {bar}".rstrip())
    return "\n".join(lines)


def _pictures(found: Explanation, html: Path | None, svg: Path | None, png: Path | None) -> None:
    for path, which in ((html, None), (svg, "explain"), (png, "explain")):
        if path is not None:
            found.view().save(path, which)
            note(f"wrote {path}")
