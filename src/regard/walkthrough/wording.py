"""The six steps as an `Account`: titles, formulas and tables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
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
    preface = "" if s.projected else BASIC
    steps: list[Step] = []
    for head in range(s.count):
        own = _six(s, i, head)
        if s.count > 1:
            own = [dataclasses.replace(step, part=f"Head {head}") for step in own]
        steps += own
    if s.count > 1 or s.combine is not None:
        steps.append(_joined(s, i))
    return Account(title, preface, tuple(steps))


def _six(s: Steps, i: int, head: int) -> list[Step]:
    """The six steps of one head for word i."""
    q, weights, masked, scores, scaled = (
        (x[head] if s.count > 1 else x)[i] for x in (s.q, s.weights, s.masked, s.scores, s.scaled)
    )
    k, v = ((s.repeat_kv(x)[head] if s.count > 1 else x) for x in (s.k, s.v))
    word = s.words[i]
    names = [f"{name} ←" if not s.cross and j == i else name for j, name in enumerate(s.keys)]
    marked = None if s.cross else i

    def table(columns: tuple[str, ...], *cells: list[Any]) -> Table:
        shares = columns.index("weight") if "weight" in columns else None
        return Table(columns, tuple(zip(names, *cells, strict=True)), marked, shares)

    keys, values = [_row(x) for x in k], [_row(x) for x in v]
    return [
        _step_1(s, i, q, table, keys, values),
        _step_2(s, word, q, scores, table, keys),
        _step_3(s, q, scores, scaled, masked, table),
        _step_4(masked, weights, table),
        Step(
            "Values times weights",
            "each value times its weight; small weights contribute little",
            table(
                ("word", "weight", "value", "weight × value"),
                weights.tolist(),
                values,
                [_row(x) for x in weights.unsqueeze(-1) * v],
            ),
        ),
        Step(
            "Sum",
            f"z({word}) = Σ weight × value",
            Table(("word", "z"), ((word, _row(s.heads[head][i] if s.count > 1 else s.heads[i])),)),
            note="This is passed on to the next layer."
            if s.count == 1 and s.combine is None
            else "",
        ),
    ]


def _step_1(
    s: Steps, i: int, q: Tensor, table: Callable[..., Table], keys: list[Any], values: list[Any]
) -> Step:
    if not s.projected and s.count == 1:
        return Step(
            "Query, keys and values", "q = k = v = x", table(("word", "x = q = k = v"), values)
        )
    of_q, of_k, of_v = s.made
    formula = f"q({s.words[i]}) = {of_q} = {vector(_row(q))}; k = {of_k} and v = {of_v}"
    if not s.projected:
        formula = f"the vectors split into heads; q({s.words[i]}) = {vector(_row(q))}"
    note = f"x({s.words[i]}) = {vector(_row(s.x[i]))}"
    return Step("Query, keys and values", formula, table(("word", "k", "v"), keys, values), note)


def _step_2(
    s: Steps, word: str, q: Tensor, scores: Tensor, table: Callable[..., Table], keys: list[Any]
) -> Step:
    results = scores.tolist()
    if s.factor is None:
        name = type(s.seen.score).__name__.lower()
        formula = f"q({word}) compared with k(each word): {name}"
        return Step("Scores", formula, table(("word", "score"), results))
    formula = f"q({word}) · k(each word)"
    if len(q) > 4:
        return Step("Scores", formula, table(("word", "k", "q·k"), keys, results))
    sums = [
        " + ".join(f"{brief(a)}×{_factor(b)}" for a, b in zip(_row(q), key, strict=True))
        for key in keys
    ]
    return Step("Scores", formula, table(("word", "q·k", "="), sums, results))


def _step_3(
    s: Steps,
    q: Tensor,
    scores: Tensor,
    scaled: Tensor,
    masked: Tensor,
    table: Callable[..., Table],
) -> Step:
    factor = s.factor
    if isinstance(s.seen.score, ScaledDot):
        formula = f"divided by √d_k = √{len(q)} = {math.sqrt(len(q)):.4f}"
    elif factor is not None and factor != 1:
        formula = f"times {number(factor)}"
    else:
        formula = "none, the score is used as it is"
    columns: tuple[str, ...] = ("word", "score", "scaled")
    cells = [scores.tolist(), scaled.tolist()]
    hidden = masked == -torch.inf
    if not torch.equal(masked, scaled):
        columns += ("bias and mask",)
        bias = (masked - scaled).tolist()
        cells.append(
            ["masked: -∞" if no else number(b) for no, b in zip(hidden, bias, strict=True)]
        )
    note = ""
    if bool(hidden.any()):
        note = f"{int(hidden.sum())} of {len(hidden)} words are masked."
    return Step("Scaling", formula, table(columns, *cells), note)


def _step_4(masked: Tensor, weights: Tensor, table: Callable[..., Table]) -> Step:
    highest = masked.max()
    if highest == -torch.inf:
        return Step(
            "Softmax",
            "there is nothing to attend to, so every weight is 0",
            table(("word", "weight"), weights.tolist()),
        )
    powers = torch.exp(masked)
    total = powers.sum()
    columns = ("word", "scaled", "e^scaled", "weight")
    cells = [masked.tolist(), powers.tolist(), weights.tolist()]
    formula = f"e^scaled over their sum, {number(total.item())}"
    if not 1e-3 <= total.item() < math.inf:
        powers = torch.exp(masked - highest)
        columns = ("word", "scaled", "e^(scaled − largest)", "weight")
        cells[1] = powers.tolist()
        formula = (
            f"e^(scaled − largest) over their sum, {number(powers.sum().item())}; "
            "subtracting the largest changes nothing and keeps the numbers small"
        )
    note = f"They are positive and sum to {weights.sum().item():.4f}."
    return Step("Softmax", formula, table(columns, *cells), note)


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
