"""An account of a calculation, step by step, as text, in a terminal, as HTML and as LaTeX.

An account is a title and steps; a step is a title, a formula and a table of numbers, vectors and
words. `wording` writes accounts; this module renders them.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.files import write_text

if TYPE_CHECKING:
    from rich.console import RenderableType

Cell = str | float | tuple[float, ...]
"""A word, a number or a vector."""

ROUNDING = 1e-15
"""Smaller numbers are rounding errors, printed as 0."""
SHOWN = 6
"""Maximum numbers of a vector that are printed."""


@dataclass(frozen=True)
class Table:
    """Rows of cells under headings; one row may be marked."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    marked: int | None = None
    shares: int | None = None
    """The column of numbers between 0 and 1 that HTML also draws as bars."""


@dataclass(frozen=True)
class Step:
    """One step: title, formula and numbers."""

    title: str
    formula: str
    table: Table
    note: str = ""
    part: str = ""
    """Steps of each part, such as a head, are numbered from 1."""


@dataclass(frozen=True)
class Account:
    """Steps under a title, for any renderer.

    >>> table = Table(("word", "score"), (("cat", 0.5),))
    >>> print(Account("cat", "", (Step("Scores", "q·k", table),)))
    cat
    <BLANKLINE>
    1. Scores: q·k
       word   score
       cat   0.5000
    """

    title: str
    preface: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        parts = [self.title, *([self.preface] if self.preface else [])]
        for number, step in self._numbered():
            if step.part and number == 1:
                parts.append(step.part)
            lines = [f"{number}. {step.title}: {step.formula}"]
            lines += [f"   {line}" for line in _columns(step.table)]
            lines += [f"   {step.note}"] if step.note else []
            parts.append("\n".join(lines))
        return "\n\n".join(parts)

    def __rich__(self) -> RenderableType:
        """The account for a terminal, with tables."""
        from rich import box
        from rich.console import Group
        from rich.table import Table as Grid
        from rich.text import Text

        parts: list[RenderableType] = [Text(self.title, "bold")]
        if self.preface:
            parts.append(Text(self.preface, "italic"))
        for number, step in self._numbered():
            if step.part and number == 1:
                parts.append(Text(f"\n{step.part}", "bold underline"))
            parts.append(Text.assemble("\n", (f"{number}. {step.title}  ", "bold"), step.formula))
            grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
            for i, column in enumerate(step.table.columns):
                grid.add_column(Text(column), justify="left" if i == 0 else "right")
            for i, row in enumerate(step.table.rows):
                style = "bold" if i == step.table.marked else None
                grid.add_row(*(Text(_plain(cell)) for cell in row), style=style)
            parts.append(grid)
            if step.note:
                parts.append(Text(step.note, "italic"))
        return Group(*parts)

    def html(self) -> str:
        """The account as an HTML fragment."""
        parts = [f"<h2>{html.escape(self.title)}</h2>"]
        if self.preface:
            parts.append(f"<p>{html.escape(self.preface)}</p>")
        for number, step in self._numbered():
            if step.part and number == 1:
                parts.append(f'<h3 class="part">{html.escape(step.part)}</h3>')
            head = f"<h3><b>{number}</b> {html.escape(step.title)}</h3>"
            parts.append(f'{head}<p class="formula">{html.escape(step.formula)}</p>')
            parts.append(_html_table(step.table))
            if step.note:
                parts.append(f"<p>{html.escape(step.note)}</p>")
        return f'<section class="regard-account">{"".join(parts)}</section>'

    def _repr_html_(self) -> str:
        return f"<style>{STYLE}</style>{self.html()}"

    def page(self) -> str:
        """The account as a self-contained HTML page."""
        return page(self.title, [self])

    def latex(self) -> str:
        """The account as LaTeX; needs the packages amsmath and booktabs."""
        items = []
        for number, step in self._numbered():
            if step.part and number == 1:
                items.append(f"  \\item[] \\emph{{{_tex(step.part)}}}\\setcounter{{enumi}}{{0}}")
            note = f"\n  \\par {_tex(step.note)}" if step.note else ""
            items.append(
                f"  \\item \\textbf{{{_tex(step.title)}}}: {_tex(step.formula)}\n"
                f"{_tex_table(step.table)}{note}"
            )
        preface = f"{_tex(self.preface)}\n" if self.preface else ""
        return (
            f"\\paragraph{{{_tex(self.title)}}}\n{preface}"
            "\\begin{enumerate}\n" + "\n".join(items) + "\n\\end{enumerate}\n"
        )

    def _numbered(self) -> Iterator[tuple[int, Step]]:
        number, part = 0, None
        for step in self.steps:
            number = number + 1 if step.part == part else 1
            part = step.part
            yield number, step

    def save(self, path: str | Path) -> None:
        """Write the account to a file: .html, .tex or .txt."""
        save(path, self.title, [self])


def save(path: str | Path, title: str, accounts: Sequence[Account]) -> None:
    """Write accounts to one file, in the format of its suffix."""
    forms = {
        ".html": lambda: page(title, accounts),
        ".tex": lambda: "\n".join(account.latex() for account in accounts),
        ".txt": lambda: "\n\n\n".join(map(str, accounts)) + "\n",
    }
    write_text(path, forms, "save")


def page(title: str, accounts: Sequence[Account]) -> str:
    """A self-contained HTML page of accounts."""
    body = "".join(account.html() for account in accounts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{PAGE_STYLE}{STYLE}</style></head>"
        f"<body>{body}</body></html>\n"
    )


PAGE_STYLE = (
    "body{margin:3rem auto;max-width:60rem;padding:0 1.2rem;background:#fcfcfa;color:#222;}"
    "@media(prefers-color-scheme:dark){body{background:#17181a;color:#ddd}}"
)
STYLE = (
    ".regard-account{font:16px/1.5 system-ui,sans-serif;margin-bottom:3rem}"
    ".regard-account h2{font-weight:600;font-size:1.4rem;margin:0 0 .4rem}"
    ".regard-account h3{font-weight:600;font-size:1.05rem;margin:1.8rem 0 0}"
    ".regard-account h3.part{font-size:1.2rem;margin-top:2.4rem}"
    ".regard-account h3 b{color:#0072b2;margin-right:.4rem}"
    ".regard-account .formula{font-family:ui-serif,Georgia,serif;font-style:italic;"
    "margin:.1rem 0 .5rem}"
    ".regard-account .wide{overflow-x:auto}"
    ".regard-account table{border-collapse:collapse;font-variant-numeric:tabular-nums;"
    "font-size:.92rem}"
    ".regard-account th{font-weight:500;text-align:right;padding:.15rem .8rem;"
    "border-bottom:1px solid #8886}"
    ".regard-account td{text-align:right;padding:.15rem .8rem;white-space:nowrap;background:none}"
    ".regard-account td:first-child,.regard-account th:first-child{text-align:left;padding-left:0}"
    ".regard-account tr.marked td{font-weight:600;background:#0072b214}"
    ".regard-account td small{opacity:.6}"
)


def number(value: float) -> str:
    """A number as accounts print it.

    >>> number(0.25), number(-math.inf), number(0.00001), number(12345.678)
    ('0.2500', '-∞', '1.00e-05', '1.23e+04')
    """
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if abs(value) > ROUNDING and not 1e-4 <= abs(value) < 1e4:
        return f"{value:.2e}"
    return f"{value:z.4f}"


def brief(value: float) -> str:
    """A number inside a vector or a sum, without trailing zeros.

    >>> brief(0.25), brief(2.0), brief(-0.0)
    ('0.25', '2', '0')
    """
    text = number(value)
    if "." in text and "e" not in text:
        text = text.rstrip("0").rstrip(".")
    return text


def vector(values: Sequence[float]) -> str:
    """A vector as accounts print it, truncated if long.

    >>> vector((1.0, -0.25)), vector([0.5] * 64)
    ('[1 -0.25]', '[0.5 0.5 0.5 0.5 0.5 0.5 … 64 numbers]')
    """
    shown = " ".join(brief(value) for value in values[:SHOWN])
    return f"[{shown}]" if len(values) <= SHOWN else f"[{shown} … {len(values)} numbers]"


def _plain(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    return vector(cell) if isinstance(cell, tuple) else number(cell)


def _columns(table: Table) -> list[str]:
    """The lines of a table: first column left-aligned, others right-aligned."""
    from rich.cells import cell_len

    rows = [table.columns, *(tuple(_plain(cell) for cell in row) for row in table.rows)]
    widths = [max(cell_len(row[i]) for row in rows) for i in range(len(table.columns))]
    lines = []
    for row in rows[0 if any(table.columns) else 1 :]:
        pads = [width - cell_len(cell) for cell, width in zip(row, widths, strict=True)]
        first = row[0] + " " * pads[0]
        rest = [" " * pad + cell for cell, pad in zip(row[1:], pads[1:], strict=True)]
        lines.append("  ".join([first, *rest]).rstrip())
    return lines


def _html_table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
    rows = []
    for i, row in enumerate(table.rows):
        cells = "".join(
            f"<td{_bar(cell) if j == table.shares else ''}>{html.escape(_plain(cell))}</td>"
            for j, cell in enumerate(row)
        )
        rows.append(f"<tr{' class=marked' if i == table.marked else ''}>{cells}</tr>")
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _bar(cell: Cell) -> str:
    """The style of a cell with a bar, whose length is the number."""
    percent = f"{100 * cell:.1f}%" if isinstance(cell, float) else "0%"
    colours = f"#0072b240 {percent},transparent {percent}"
    return f' style="min-width:6rem;background:linear-gradient(90deg,{colours})"'


_TEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "√": r"$\surd$",
        "·": r"$\cdot$",
        "×": r"$\times$",
        "÷": r"$\div$",
        "Σ": r"$\Sigma$",
        "∞": r"$\infty$",
        "…": r"\dots{}",
        "→": r"$\to$",
        "←": r"$\leftarrow$",
        "ᵀ": r"$^{\mathsf{T}}$",
        "−": r"$-$",
    }
)


def _tex(text: str) -> str:
    return text.translate(_TEX)


def _tex_table(table: Table) -> str:
    align = "l" + "r" * (len(table.columns) - 1)
    head = _tex_row(table.columns)
    body = "\n    ".join(_tex_row(row, i == table.marked) for i, row in enumerate(table.rows))
    return (
        f"  \\par\\begin{{tabular}}{{{align}}}\n    \\toprule\n    {head}\n    \\midrule\n"
        f"    {body}\n    \\bottomrule\n  \\end{{tabular}}"
    )


def _tex_row(cells: Sequence[Cell], marked: bool = False) -> str:
    texts = [_tex(_plain(cell)) for cell in cells]
    row = " & ".join(f"\\textbf{{{text}}}" if marked else text for text in texts)
    # LaTeX would take a leading [ or * for an option of the previous \\\\ or rule.
    return ("{}" if row[:1] in ("[", "*") else "") + row + " \\\\"
