"""The figure as text for a terminal: where it looked, whether that matters, and how."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich.console import Console, Group
from rich.text import Text

from regard.view.figure.finding import Finding
from regard.view.figure.wording import MARKS, PAGE, Span, percent, plain
from regard.view.svg import Number

WIDTH = 80
"""Columns of a text that is not printed to a terminal."""
BAR = 30
"""Columns of the longest bar."""
LEAST, MOST = 0.02, 6
"""Minimum loss of probability for a word to have a line of its own, and maximum lines."""
LOOK, CUT, DIM, STRONG = "bold cyan", "bold orange3", "dim", "bold"


def text(found: Finding) -> str:
    """The whole figure without colours."""
    page = io.StringIO()
    Console(file=page, width=WIDTH, color_system=None, highlight=False).print(whole(found))
    return "\n".join(line.rstrip() for line in page.getvalue().rstrip().split("\n"))


def whole(found: Finding) -> Group:
    """The three questions and their answers."""
    return Group(
        Text.assemble((f"Why “{found.word}”?", STRONG), (f"  {found.model}\n", DIM)),
        *_where(found),
        Text.assemble(("\nDoes it matter?", STRONG), (f"  {found.labels['hidden']}\n", DIM)),
        *_matters(found),
        Text(""),
        *_how(found),
        Text(f"\n{quoted(found.caption)}", DIM),
        *([Text(found.note, DIM)] if found.note else []),
    )


def quoted(told: Sequence[Span]) -> str:
    """A sentence whose mentioned words stand in quotation marks."""
    return "".join(f"“{part}”" if role else part for part, role in told).replace("\xa0", " ")


def _where(found: Finding) -> Iterator[Text]:
    """The text above, what was written below, and a line from the word to what it looked at."""
    read = found.reads[found.selected]
    names = [one.word for one in found.reads if not one.special]
    before = sum(not one.special for one in found.reads[: found.selected])
    source, at = _line(names, {before: LOOK})
    yield source
    if found.kind != "translation":
        yield Text(f"  “{found.word}” looks at {plain(read.word)}: {read.looked:.2f}", LOOK)
        return
    written, to = _line(found.output, {found.position: f"reverse {LOOK}"})
    if max(len(source), len(written)) > WIDTH:
        yield Text(f"  {plain(read.word)} ← {found.word}: {read.looked:.2f}", LOOK)
    else:
        yield Text(_stroke(at[before], to[found.position], f"{read.looked:.2f}"), LOOK)
    yield written


def _line(words: Sequence[str], marked: dict[int, str]) -> tuple[Text, list[int]]:
    """Words in a line, some of them set apart; and the column of the middle of each."""
    line, middles = Text(" "), []
    for i, word in enumerate(words):
        bare = plain(word)
        line.append("" if set(word) <= set(MARKS) else " ")
        middles.append(len(line) + len(bare) // 2)
        line.append(bare, marked.get(i)).append(word[len(bare) :])
    return line, middles


def _stroke(a: int, b: int, label: str) -> str:
    """A line from a column above to one below, with a label in the middle."""
    left, right = min(a, b), max(a, b)
    inner = f" {label} ".center(max(0, right - left - 1), "─")
    if right - left - 1 < len(label) + 2:
        return " " * left + f"│ {label}"
    return " " * left + ("╰" if a < b else "╭") + inner + ("╮" if a < b else "╯")


def _matters(found: Finding) -> Iterator[Text]:
    """A bar for each word that matters, a line for the rest, the output without the strongest."""
    real = [one for one in found.reads if not one.special] or found.reads
    looked = found.reads[found.selected]
    clear = [one for one in real if one.matters >= LEAST or one is looked]
    best = sorted(clear, key=lambda one: -one.matters)[:MOST]
    shown = [one for one in real if one in best]
    names = ["all links", *(f"✂ {plain(one.word)}" for one in shown)]
    width = max(map(len, names))
    yield _bar(names[0], width, 1.0 if found.kind == "vector" else found.probability, LOOK)
    for name, one in zip(names[1:], shown, strict=True):
        note = f"  → writes “{one.writes}”" if one.flips else ""
        yield _bar(name, width, one.probability, CUT if one.flips else LOOK, note)
    if others := [one for one in real if one.measured and one not in best]:
        least = percent(min(one.probability for one in others), " ")
        yield Text(f"  … {len(others)} others: {least} or more", DIM)
    most = max(real, key=lambda one: one.matters)
    if most.flips and found.kind == "translation":
        yield Text("")
        at = most.places.index(found.position)
        yield _line(most.output, {at: f"reverse {CUT}"})[0]


def _bar(name: str, width: int, share: Number, style: str, note: str = "") -> Text:
    full = share * BAR
    half = "▌" if full % 1 >= 0.5 or 0 < full < 0.5 else ""
    bar = "█" * int(full) + half
    told = percent(share, " ")
    return Text.assemble(f"  {name:{width}}  {told:>6}  ", (bar, style), (note, style))


def _how(found: Finding) -> Iterator[Text]:
    """The six steps of the strongest link in one line."""
    read, row = found.reads[found.selected], found.row
    if found.selected not in row["words"]:
        return
    at = row["words"].index(found.selected)
    product, scaled, weight = (
        row[name][read.layer][read.head][at] for name in ("product", "scaled", "weight")
    )
    place = "cross-attention, " if found.place == "cross" else ""
    link = f"{found.word} → {plain(read.word)}, {place}layer {read.layer} head {read.head}"
    yield Text.assemble(("How?", STRONG), (f"  {link}: the six steps", DIM))
    if row["subwords"] > 1:
        words = {"count": str(row["subwords"]), "mean": f"{read.looked:.2f}"}
        yield Text(f"  {PAGE['last subword'].format(**words)}", DIM)
    yield Text("")
    yield Text.assemble(
        "  q · k ", (f"{product:.2f}", STRONG), f"   {row['scaling'][read.layer]} ",
        (f"{scaled:.2f}" if scaled is not None else "−∞", STRONG), "   softmax ",
        (f"{weight:.3f}", STRONG), "   × v   Σ   → ", (found.word, LOOK),
    )  # fmt: skip
