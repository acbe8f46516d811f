"""``regard why``: which links made the model write that word."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from regard.cli.volume import Ray, Workers, answer_all, refuse_alone
from regard.errors import OptionError
from regard.lens import Lens, Why, WordEffect
from regard.lens.corpus import Job
from regard.lens.why import percent
from regard.text.words import word_spans
from regard.translate.model_files import POCKET

BAR = 30
"""Columns of the longest bar."""
LEAST, MOST = 0.02, 6
"""Loss of probability from which on a word has a line of its own; lines at most."""
LOOK, CUT, DIM, STRONG = "bold cyan", "bold orange3", "dim", "bold"


def why(
    text: Annotated[str | None, typer.Argument(help="What the model reads.")] = None,
    word: Annotated[
        str | None,
        typer.Option(help="A word that it wrote, or the one it was written for; es#2: the second."),
    ] = None,
    instead: Annotated[str | None, typer.Option(help="The word it is compared with.")] = None,
    model: Annotated[
        str, typer.Option(help="A bundled model, a folder, or hub:org/name.")
    ] = POCKET,
    links: Annotated[
        int | None, typer.Option(help="Cut so many of the strongest links. [32]")
    ] = None,
    jsonl: Annotated[
        Path | None, typer.Option(help="Many: JSON lines with text, word, instead; or Parquet.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="With --jsonl: a folder for the answers, as Parquet.")
    ] = None,
    workers: Workers = None,
    ray: Ray = None,
    html: Annotated[Path | None, typer.Option(help="Write a page to click through.")] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="In the page, every written word can be selected.")
    ] = False,
    svg: Annotated[Path | None, typer.Option(help="Write the figure.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print every number as JSON.")] = False,
) -> None:
    """Where it looked, whether that matters, and how it was computed.

    regard why "The animal didn't cross the street because it was too tired." --word es
    """
    for path, ending in ((html, ".html"), (svg, ".svg")):
        if path is not None and path.suffix.lower() != ending:
            raise OptionError(f"why: --{ending[1:]} {path}, expected a file that ends in {ending}")
    if (text is None) == (jsonl is None):
        raise OptionError("why: give a text, or --jsonl FILE with --out FOLDER")
    if jsonl is not None and out is not None:
        answer_all(Job("why", str(jsonl), str(out), model, word, links), workers, ray)
        return
    refuse_alone("why", jsonl=jsonl, out=out, workers=workers, ray=ray)
    lens, text = Lens.open(model), text or ""
    found = lens.why(text, word, instead=instead, most=32 if links is None else links)
    if json_:
        print(json.dumps(found.to_data(), ensure_ascii=False))
    else:
        show(found, Path(model).name)
    if svg is not None:
        found.view().save(svg)
    if html is not None:
        lens.view(text, word, instead=instead, every=all_).save(html)


def show(why: Why, model: str, console: Console | None = None) -> None:
    """The three questions and their answers, as text of at most 80 columns."""
    console = Console(highlight=False) if console is None else console
    console.print(f"[{STRONG}]Why “{why.word}”?[/]  [{DIM}]{model}[/]\n")
    for line in _where(why):
        console.print(line)
    if why.choices:
        asked = f"one word hidden at a time; how likely “{why.word}” is then"
    else:
        asked = f"one word hidden at a time; the cosine of “{why.word}” to what it was"
    console.print(f"\n[{STRONG}]Does it matter?[/]  [{DIM}]{asked}[/]\n")
    for line in _matters(why):
        console.print(line)
    console.print()
    for line in _how(why):
        console.print(line)
    console.print(Text(f"\n{_plain(why.conclusion)}", style=DIM))
    if why.note:
        console.print(Text(why.note, style=DIM))


def _where(why: Why) -> Iterable[Text]:
    """The text above, what was written below, and a line from the word to what it looked at."""
    looked = why.looked_at
    source, at = _marked(why.text, looked.word, LOOK)
    yield Text("  ") + source
    if why.position is None or at is None or not why.choices:
        yield Text(f"  “{why.word}” looks at {looked.word}: {looked.looked:.2f}", LOOK)
        return
    written, to = _marked(why.written, why.word, f"reverse {LOOK}")
    if to is None or max(len(why.text), len(why.written)) > 76:
        yield Text(f"  {looked.word} ← {why.word}: {looked.looked:.2f}", LOOK)
    else:
        yield Text(f"  {_line(at, to, f'{looked.looked:.2f}')}", LOOK)
    yield Text("  ") + written


def _marked(text: str, unit: str, style: str) -> tuple[Text, int | None]:
    """The text with one of its words set apart, and where the middle of that word stands."""
    name, _, number = unit.partition("#")
    spans = word_spans(text)
    starts = [a for a, _ in spans if text.startswith(name, a)]
    shown = Text(text)
    if not starts:
        return shown, None
    start = starts[min(int(number or 1), len(starts)) - 1]
    end = next(b for a, b in spans if a == start)
    shown.stylize(style, start, end)
    return shown, (start + end) // 2


def _line(a: int, b: int, label: str) -> str:
    """A line from a column above to one below, with a label in the middle."""
    left, right = min(a, b), max(a, b)
    inner = f" {label} ".center(max(0, right - left - 1), "─")
    if right - left - 1 < len(label) + 2:
        return " " * left + f"│ {label}"
    return " " * left + ("╰" if a < b else "╭") + inner + ("╮" if a < b else "╯")


def _matters(why: Why) -> Iterable[Text]:
    """A bar for each word that matters, and one for the rest."""
    real = [one for one in why.words if not one.special]
    looked = why.looked_at
    shown = [one for one in real if one.matters >= LEAST or one is looked]
    shown = sorted(shown, key=lambda one: -one.matters)[:MOST]
    shown = [one for one in real if one in shown]
    width = max(len(name) for name in ["all links", *(f"✂ {one.word}" for one in shown)])
    yield _bar("all links", width, why.probability, LOOK, "")
    for one in shown:
        changed = one.text is not None or (bool(one.writes) and one.writes.strip() != why.word)
        note = f"  → writes “{one.writes.strip()}”" if changed else ""
        style = CUT if changed else LOOK
        yield _bar(f"✂ {one.word}", width, one.probability, style, note)
    others = [one for one in real if one not in shown]
    if others:
        least = percent(min(one.probability for one in others))
        yield Text(f"  … {len(others)} others: {least} or more", DIM)
    yield from _instead(why, why.matters_most)


def _instead(why: Why, most: WordEffect) -> Iterable[Text]:
    """What is written without the word that matters most."""
    if most.text is None or why.position is None:
        return
    yield Text("")
    yield Text("  ") + _marked(most.text, most.writes.strip(), f"reverse {CUT}")[0]


def _bar(name: str, width: int, share: float, style: str, note: str) -> Text:
    line = Text(f"  {name:{width}}  {percent(share):>6}  ")
    full = share * BAR
    line.append("█" * int(full) + ("▌" if full % 1 >= 0.5 or 0 < full < 0.5 else ""), style)
    line.append(note, style)
    return line


def _how(why: Why) -> Iterable[Text]:
    """The six steps of the strongest link in one line."""
    steps = why.steps
    place = "" if steps.place != "cross" else "cross-attention, "
    yield Text.from_markup(
        f"[{STRONG}]How?[/]  [{DIM}]{steps.query} → {steps.key}, {place}layer {steps.layer} "
        f"head {steps.head}: the six steps[/]\n"
    )
    yield Text.assemble(
        "  q · k ", (f"{steps.product:.2f}", STRONG), f"   ÷ √{len(steps.q)} ",
        (f"{steps.scaled:.2f}", STRONG), "   softmax ", (f"{steps.weight:.3f}", STRONG),
        "   × v   Σ   → ", (why.word, LOOK),
    )  # fmt: skip


def _plain(text: str) -> str:
    """Words that are mentioned in quotation marks instead of asterisks."""
    parts = text.split("*")
    return "".join(part if i % 2 == 0 else f"“{part}”" for i, part in enumerate(parts))
