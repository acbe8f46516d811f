"""``regard explain``: what a word of a text looks at, and whether it matters."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress, track

from regard.cli.options import Json, Model, Out, Ray, Workers, check_endings, refuse_alone
from regard.errors import FileError, OptionError, WordError
from regard.models import POCKET

if TYPE_CHECKING:
    import torch

    from regard.lens import Explanation, Lens

BAR = 32
"""Characters of the longest bar."""
LONG, SHOWN = 100, 20
"""Of texts with more words than the first, only this many are shown unless asked for more."""


def explain(
    text: Annotated[str | None, typer.Argument(help="The text to look into.")] = None,
    word: Annotated[
        str | None,
        typer.Option(help="Which word looks, of the text or written; it#2 is the second it."),
    ] = None,
    model: Model = POCKET,
    method: Annotated[
        str | None, typer.Option(help="Only this one: attention, norm, rollout or knockout.")
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Only this layer, from 0.")] = None,
    head: Annotated[int | None, typer.Option(help="Only this head, from 0.")] = None,
    top: Annotated[
        int | None, typer.Option(help="Show only so many words; all of a short text.")
    ] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Take every subword for a word of its own.")
    ] = False,
    file: Annotated[Path | None, typer.Option(help="Read a (long) text from a file.")] = None,
    jsonl: Annotated[
        Path | None,
        typer.Option(help="Many: JSON lines with text and word, or Parquet. Writes JSON lines."),
    ] = None,
    out: Out = None,
    workers: Workers = None,
    ray: Ray = None,
    html: Annotated[Path | None, typer.Option(help="Write a page that needs nothing else.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write a picture.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write a picture.")] = None,
    json_: Json = False,
) -> None:
    """What a word looks at, four ways; without --word, a summary of the whole text."""
    if sum(one is not None for one in (text, file, jsonl)) != 1:
        raise OptionError("explain: give a text, or --file FILE, or --jsonl FILE")
    if top is not None and top < 1:
        raise OptionError(f"explain: --top {top}, expected 1 or more")
    chosen = {"--method": method, "--layer": layer, "--head": head, "--top": top}
    pictures = {"--html": html, "--svg": svg, "--png": png}
    _refuse("--json", chosen if json_ else {})
    _refuse("--jsonl", {**chosen, **pictures} if jsonl is not None else {})
    check_endings("explain", html=html, svg=svg, png=png)
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
        answer_all(Job("explain", str(jsonl), str(out), model, word), workers, ray)
        return
    refuse_alone("explain", out=out, workers=workers, ray=ray)
    if jsonl is not None:
        _many(Lens.open(model), jsonl, word, tokens)
        return
    if file is not None:
        text = "\n".join(read_lines(file))
    lens = Lens.open(model)
    if word is None:
        _summary(lens, text or "", tokens, top, json_, [html, svg, png, method, layer, head])
        return
    with _waiting() as progress:
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


@contextmanager
def _waiting() -> Iterator[Callable[[int, int], None]]:
    """A progress line at a terminal, removed at the end."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("cutting links", total=None, visible=False)
        yield lambda done, of: bar.update(task, completed=done, total=of, visible=True)


def _refuse(option: str, others: Mapping[str, object]) -> None:
    """An error for options that would not be heard beside another."""
    for name, value in others.items():
        if value is not None:
            raise OptionError(f"explain: {name} does not go with {option}, which has every number")


def _summary(
    lens: Lens, text: str, tokens: bool, top: int | None, json_: bool, needs: list[object]
) -> None:
    if any(one is not None for one in needs):
        raise OptionError("explain: --word is missing: which word of the text looks?")
    found = lens.summary(text, tokens=tokens)
    if json_:
        print(json.dumps(found.to_data(), ensure_ascii=False))
    else:
        print(found if top is None else found.table(top))
        print("\nregard explain … --word WORD tells what one of the words looks at")


def _many(lens: Lens, path: Path, word: str | None, tokens: bool) -> None:
    """One JSON line for each line of the file; progress while the output goes elsewhere."""
    items = list(_items(path, word))
    console = Console(stderr=True)
    for number, said, which in track(
        items, "explaining", console=console, disable=not console.is_terminal
    ):
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
    parts = [
        method,
        "" if layer is None else f"layer {layer}",
        "" if head is None else f"head {head}",
    ]
    return ", ".join(part for part in parts if part)


def _bars(found: Explanation, values: torch.Tensor, top: int | None, title: str = "") -> str:
    """A bar for each name, or for the highest words; none where nothing was cut."""
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
            print(f"regard: wrote {path}", file=sys.stderr)
