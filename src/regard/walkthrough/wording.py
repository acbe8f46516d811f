"""The six steps as an `Account`: titles, formulas and tables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.attention.scores import ScaledDot
from regard.walkthrough.account import Account, Step, Table, brief, number, vector

if TYPE_CHECKING:
    from regard.walkthrough import Steps

BASIC = "No weights: the vectors themselves are compared and summed."


def account(s: Steps, i: int) -> Account:
    """The six steps of word i; with several heads, of each head and their combination."""
    word = s.words[i]
    title = f"{word}, word {i + 1} of {len(s.words)}: {' '.join(s.words)}"
    steps: list[Step] = []
    for head in range(s.count):
        part = f"Head {head}" if s.count > 1 else ""
        steps += [dataclasses.replace(step, part=part) for step in _Head(s, i, head).steps()]
    if s.count > 1 or s.combine is not None:
        steps.append(_joined(s, i))
    return Account(title, "" if s.projected else BASIC, tuple(steps))


class _Head:
    """The numbers of one head for word i."""

    def __init__(self, s: Steps, i: int, head: int) -> None:
        def own(x: Tensor) -> Tensor:
            return x[head] if s.count > 1 else x

        self.s, self.i, self.word = s, i, s.words[i]
        self.q, self.scores, self.scaled = (own(x)[i] for x in (s.q, s.scores, s.scaled))
        self.masked, self.weights, self.z = (own(x)[i] for x in (s.masked, s.weights, s.heads))
        self.v = own(s.repeat_kv(s.v))
        self.keys = [_row(x) for x in own(s.repeat_kv(s.k))]
        self.values = [_row(x) for x in self.v]

    def steps(self) -> list[Step]:
        """The six steps."""
        products = [_row(x) for x in self.weights.unsqueeze(-1) * self.v]
        last = self.s.count == 1 and self.s.combine is None
        return [
            self._projections(),
            self._comparison(),
            self._scaling(),
            self._softmax(),
            Step(
                "Values times weights",
                "each value times its weight; small weights contribute little",
                self._table(
                    ("word", "weight", "value", "weight × value"),
                    self.weights.tolist(),
                    self.values,
                    products,
                ),
            ),
            Step(
                "Sum",
                f"z({self.word}) = Σ weight × value",
                Table(("word", "z"), ((self.word, _row(self.z)),)),
                note="This is passed on to the next layer." if last else "",
            ),
        ]

    def _table(self, columns: tuple[str, ...], *cells: list[Any]) -> Table:
        """A row for each word that is attended to; the word itself is marked."""
        marked = None if self.s.cross else self.i
        names = [f"{name} ←" if j == marked else name for j, name in enumerate(self.s.keys)]
        shares = columns.index("weight") if "weight" in columns else None
        return Table(columns, tuple(zip(names, *cells, strict=True)), marked, shares)

    def _projections(self) -> Step:
        s, title = self.s, "Query, keys and values"
        if not s.projected and s.count == 1:
            table = self._table(("word", "x = q = k = v"), self.values)
            return Step(title, "q = k = v = x", table)
        q = f"q({self.word}) = "
        formula = f"the vectors split into heads; {q}{vector(_row(self.q))}"
        if s.projected:
            of_q, of_k, of_v = s.made
            formula = f"{q}{of_q} = {vector(_row(self.q))}; k = {of_k} and v = {of_v}"
        note = f"x({self.word}) = {vector(_row(s.x[self.i]))}"
        return Step(title, formula, self._table(("word", "k", "v"), self.keys, self.values), note)

    def _comparison(self) -> Step:
        results = self.scores.tolist()
        formula = f"q({self.word}) · k(each word)"
        if self.s.factor is None:
            name = type(self.s.seen.score).__name__.lower()
            formula = f"q({self.word}) compared with k(each word): {name}"
            table = self._table(("word", "score"), results)
        elif len(self.q) > 4:
            table = self._table(("word", "k", "q·k"), self.keys, results)
        else:
            sums = [
                " + ".join(f"{brief(a)}×{_factor(b)}" for a, b in zip(_row(self.q), k, strict=True))
                for k in self.keys
            ]
            table = self._table(("word", "q·k", "="), sums, results)
        return Step("Scores", formula, table)

    def _scaling(self) -> Step:
        factor, width = self.s.factor, len(self.q)
        formula = "none, the score is used as it is"
        if isinstance(self.s.seen.score, ScaledDot):
            formula = f"divided by √d_k = √{width} = {math.sqrt(width):.4f}"
        elif factor is not None and factor != 1:
            formula = f"times {number(factor)}"
        columns: tuple[str, ...] = ("word", "score", "scaled")
        cells = [self.scores.tolist(), self.scaled.tolist()]
        hidden = self.masked == -torch.inf
        if not torch.equal(self.masked, self.scaled):
            columns += ("bias and mask",)
            bias = (self.masked - self.scaled).tolist()
            cells.append(
                ["masked: -∞" if no else number(b) for no, b in zip(hidden, bias, strict=True)]
            )
        masked = int(hidden.sum())
        note = f"{masked} of {len(hidden)} words are masked." if masked else ""
        return Step("Scaling", formula, self._table(columns, *cells), note)

    def _softmax(self) -> Step:
        highest, weights = self.masked.max(), self.weights.tolist()
        if highest == -torch.inf:
            formula = "there is nothing to attend to, so every weight is 0"
            return Step("Softmax", formula, self._table(("word", "weight"), weights))
        power, reason = "e^scaled", ""
        powers = torch.exp(self.masked)
        if not 1e-3 <= powers.sum().item() < math.inf:
            power = "e^(scaled − largest)"
            reason = "; subtracting the largest changes nothing and keeps the numbers small"
            powers = torch.exp(self.masked - highest)
        formula = f"{power} over their sum, {number(powers.sum().item())}{reason}"
        columns = ("word", "scaled", power, "weight")
        table = self._table(columns, self.masked.tolist(), powers.tolist(), weights)
        note = f"They are positive and sum to {self.weights.sum().item():.4f}."
        return Step("Softmax", formula, table, note)


def _joined(s: Steps, i: int) -> Step:
    parts: list[tuple[Any, ...]] = []
    if s.count > 1:
        parts = [(f"head {head}", _row(s.heads[head][i])) for head in range(s.count)]
        parts.append(("side by side", _row(s.heads[:, i].flatten())))
    formula = "the heads side by side"
    if s.combine is not None:
        formula = f"{formula}, times W_O" if s.count > 1 else "z W_O"
        parts.append(("times W_O", _row(s.output[i])))
    return Step("Combination", formula, Table(("", "z"), tuple(parts)), part="All heads")


def matrices(s: Steps) -> Account:
    """The whole calculation in matrix form."""
    preface = "" if s.projected else BASIC
    factor = s.factor
    of_q, of_k, of_v = (how[0].upper() + how[1:] for how in s.made)
    sums = "every row sums to 1"
    if bool((s.weights.sum(-1) == 0).any()):
        sums = "every row sums to 1, or is 0 where there is nothing to attend to"
    output = "weights times V"
    if s.count > 1:
        output += ", the heads side by side"
    if s.combine is not None:
        output += ", times W_O"
    scaling = ""
    if isinstance(s.seen.score, ScaledDot):
        scaling = f"Q Kᵀ / √{s.q.shape[-1]}"
    elif factor is not None and factor != 1:
        scaling = f"{number(factor)} Q Kᵀ"
    hides = not torch.equal(s.masked, s.scaled)
    changed = ["scaled"] * bool(scaling) + ["masked"] * hides
    plan = [
        ("Queries", f"Q = {of_q}", s.q, s.words, None),
        ("Keys", f"K = {of_k}", s.k, s.keys, None),
        ("Values", f"V = {of_v}", s.v, s.keys, None),
        ("Scores", "Q Kᵀ" if factor is not None else "compared", s.scores, s.words, s.keys),
        (" and ".join(changed).capitalize(), scaling or "scores", s.masked, s.words, s.keys),
        ("Weights", f"softmax of each row; {sums}", s.weights, s.words, s.keys),
        ("Output", output, s.output, s.words, None),
    ]
    steps = []
    for title, formula, matrix, rows, columns in plan:
        if not title:  # neither scaled nor masked
            continue
        grouped = matrix.dim() > 2
        for head, one in enumerate(matrix if grouped else [matrix]):
            steps.append(
                Step(
                    f"{title}, head {head}" if grouped else title,
                    f"{formula} ({one.shape[0]} × {one.shape[1]})",
                    _as_table(one, rows, columns),
                )
            )
    return Account(f"{s.kind} in matrix form: {' '.join(s.words)}", preface, tuple(steps))


def _as_table(matrix: Tensor, rows: Sequence[str], columns: Sequence[str] | None) -> Table:
    if columns is None or len(columns) > 12:
        return Table(("", ""), tuple((n, _row(x)) for n, x in zip(rows, matrix, strict=True)))
    cells = tuple((n, *x.tolist()) for n, x in zip(rows, matrix, strict=True))
    return Table(("", *columns), cells)


def _factor(value: float) -> str:
    text = brief(value)
    return f"({text})" if text.startswith("-") else text


def _row(x: Tensor) -> tuple[float, ...]:
    return tuple(x.tolist())
