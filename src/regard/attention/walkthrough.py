"""Self-attention in six steps, every number of it.

1. queries, keys and values; 2. scores; 3. scaling (and bias, and mask); 4. softmax; 5. values
times weights; 6. their sum. The numbers are those of a `Look`: the steps are what `attend`
computes, taken apart, and not a second calculation.
"""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import _telling as telling
from regard.attention import account
from regard.attention.account import Account
from regard.attention.masks import Mask
from regard.attention.operation import look
from regard.attention.positions import Bias, Learned, Rotary, Sinusoidal
from regard.attention.record import Look
from regard.attention.scores import Cosine, Gaussian, Scaled, ScaledDot, Score, as_score
from regard.errors import OptionError, ShapeError, WordError, shape

Numbers = Any
"""A tensor, a numpy array or nested lists of numbers."""

NAMES = ("words", "x", "q", "k", "v", "scores", "scaled", "weights", "weighted", "output")
"""What `Steps.data` holds, in the order in which it comes about."""


class Steps:
    """Every intermediate of one self-attention, by its name.

    With several heads there is a head axis h in front; with one there is none.

    | name | shape | what |
    |---|---|---|
    | `x` | (n, d_in) | what came in, positions added |
    | `q`, `k`, `v` | (h, n, d) | step 1: queries, keys and values |
    | `scores` | (h, q, k) | step 2: each query compared with each key |
    | `scaled` | (h, q, k) | step 3: divided by √d_k |
    | `masked` | (h, q, k) | bias added, -inf where the mask forbids: what enters the softmax |
    | `weights` | (h, q, k) | step 4: softmax along each row |
    | `weighted` | (h, q, k, e) | step 5: each value times its weight |
    | `heads` | (h, q, e) | step 6: their sum, per head |
    | `output` | (q, …) | the heads side by side, times w_o if there is one |
    """

    def __init__(
        self,
        x: Float[Tensor, "q d_in"],
        seen: Look,
        words: Sequence[str] | None = None,
        *,
        context: Sequence[str] | None = None,
        made: Sequence[str] = ("x W_Q", "x W_K", "x W_V"),
        combine: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """Take apart `seen`, a look at one sequence: ``(n, d)``, or ``(1, h, n, d)`` for h heads.

        `words` are those that ask; `context` those that are looked at, where they are others.
        """
        self.seen = seen
        self.x = x.detach()
        self.made = tuple(made)
        self.combine = combine
        q, k = seen.q.shape[-2], seen.k.shape[-2]
        self.words = _named(words, q, "x", "words")
        self.keys = self.words
        self.cross = context is not None or q != k
        if context is not None or q != k:
            self.keys = _named(context, k, "c", "context words")

    @property
    def q(self) -> Float[Tensor, "*h q d"]:
        return self._per_head(self.seen.q)

    @property
    def k(self) -> Float[Tensor, "*g k d"]:
        return self._per_head(self.seen.k)

    @property
    def v(self) -> Float[Tensor, "*g k e"]:
        return self._per_head(self.seen.v)

    @cached_property
    def scores(self) -> Float[Tensor, "*h q k"]:
        return self._per_head(self.seen.compared()).detach()

    @cached_property
    def scaled(self) -> Float[Tensor, "*h q k"]:
        return self._per_head(self.seen.compared(scaled=True)).detach()

    @cached_property
    def masked(self) -> Float[Tensor, "*h q k"]:
        return self._per_head(self.seen.scores()).detach()

    @cached_property
    def weights(self) -> Float[Tensor, "*h q k"]:
        return self._per_head(self.seen.weights()).detach()

    @cached_property
    def weighted(self) -> Float[Tensor, "*h q k e"]:
        return self.weights.unsqueeze(-1) * self.spread(self.v).unsqueeze(-3)

    @property
    def heads(self) -> Float[Tensor, "*h q e"]:
        """What each head gives: `attend`'s result, bit for bit."""
        return self._per_head(self.seen.output.detach())

    @cached_property
    def output(self) -> Float[Tensor, "q width"]:
        joined = self.heads
        if self.count > 1:
            joined = joined.transpose(0, 1).flatten(1)
        return joined if self.combine is None else self.combine(joined).detach()

    @property
    def count(self) -> int:
        """How many heads there are."""
        return self.seen.q.shape[-3] if self.seen.q.dim() > 2 else 1

    @property
    def factor(self) -> float | None:
        """What scores are multiplied by in step 3; None if the score has no such step."""
        score = self.seen.score
        if isinstance(score, Scaled):
            return score.factor
        return 1 / math.sqrt(self.q.shape[-1]) if isinstance(score, ScaledDot) else None

    def of(self, word: str | int, occurrence: int = 1) -> Account:
        """The six steps for one word: give the word, and which of its occurrences is meant."""
        return telling.account(self, find(self.words, word, occurrence))

    def matrices(self) -> Account:
        """The whole calculation in matrix form."""
        return telling.matrices(self)

    def data(self) -> dict[str, Any]:
        """All intermediates as nested lists, by the names in `NAMES`."""
        values = {name: getattr(self, name) for name in NAMES}
        return {
            name: list(value) if name == "words" else value.tolist()
            for name, value in values.items()
        }

    def save(self, path: str | Path) -> None:
        """Write the matrices and then the steps of every word to an .html, .tex or .txt file."""
        account.save(path, self.title, self._accounts())

    def html(self) -> str:
        """The matrices and then the steps of every word, as a page that needs nothing else."""
        return account.page(self.title, self._accounts())

    def latex(self) -> str:
        """The matrices and then the steps of every word, for a lecture."""
        return "\n".join(one.latex() for one in self._accounts())

    def __str__(self) -> str:
        return str(self.matrices())

    def __rich__(self) -> Any:
        return self.matrices().__rich__()

    def _repr_html_(self) -> str:
        return self.matrices()._repr_html_()

    def __repr__(self) -> str:
        return f"Steps({len(self.words)} words, {self.count} heads)"

    def _accounts(self) -> list[Account]:
        each = [telling.account(self, i) for i in range(len(self.words))]
        return [self.matrices(), *each]

    @property
    def title(self) -> str:
        """What the steps are of."""
        kind = "Cross-attention" if self.cross else "Self-attention"
        return f"{kind} in six steps: {' '.join(self.words)}"

    @property
    def projected(self) -> bool:
        """Whether queries, keys or values are more than the vectors themselves."""
        return self.made != ("x", "x", "x")

    def _per_head(self, x: Tensor) -> Tensor:
        """A result of the look without its batch axis, and without its head axis if it is one."""
        if x.dim() > 2 and self.seen.q.dim() > 2:
            x = x[0]
            return x[0] if self.count == 1 else x
        return x

    def spread(self, x: Tensor) -> Tensor:
        """Keys or values with one head per query head."""
        return x.repeat_interleave(self.count // x.shape[0], 0) if x.dim() > 2 else x


def steps(
    x: Numbers,
    w_q: Numbers | None = None,
    w_k: Numbers | None = None,
    w_v: Numbers | None = None,
    *,
    words: Sequence[str] | None = None,
    heads: int = 1,
    w_o: Numbers | None = None,
    mask: Mask | Tensor | None = None,
    score: str | Score | None = None,
    position: Any = None,
) -> Steps:
    """Self-attention over x ``(n, d_in)``, with every intermediate kept by its name.

    Args:
        x: one vector per word; a tensor, a numpy array or lists.
        w_q, w_k, w_v: weights ``(d_in, d_out)``, used as ``x @ w``. Without any of them the
            vectors themselves are compared and summed: the basic form.
        words: one per row of x, to be called by.
        heads: into how many heads the columns of q, k and v are split.
        w_o: ``(d, d_out)``, combines the heads.
        mask: who may look at whom, such as ``window(before=1, after=1)``.
        score: how a query is compared with a key; ``"dot"`` without weights, else
            ``"scaled_dot"``.
        position: `Sinusoidal` or `Learned` (added to x), `Rotary` (turns q and k), `ALiBi` or
            `RelativeBias` (added to the scores).

    >>> s = steps([[1.0, 0.0], [1.0, 1.0]], words=["the", "cat"])
    >>> s.weights
    tensor([[0.5000, 0.5000],
            [0.2689, 0.7311]])
    >>> print(s.of("cat").steps[1].table.rows)
    (('the', '1×1 + 1×0', 1.0), ('cat ←', '1×1 + 1×1', 2.0))
    """
    if x is None:
        raise ShapeError("steps: x is None, expected one vector per word")
    matrices = {"x": x, "w_q": w_q, "w_k": w_k, "w_v": w_v, "w_o": w_o}
    given = {name: _matrix(name, m) for name, m in matrices.items() if m is not None}
    dtype = torch.float32
    for matrix in given.values():
        dtype = torch.promote_types(dtype, matrix.dtype)
    given = {name: matrix.to(dtype) for name, matrix in given.items()}
    x = given["x"]
    _check_words(words)
    if words is not None and len(words) != len(x):
        raise ShapeError(
            f"steps: {len(words)} words but x has {len(x)} rows (x {shape(x)}); "
            "give one word per row"
        )
    bias = position if isinstance(position, Bias) else None
    if position is not None and bias is None and not isinstance(position, Rotary):
        if not isinstance(position, Sinusoidal | Learned):
            raise OptionError(
                f"steps: position is {position!r}, expected Sinusoidal(width), Learned(length, "
                "width), Rotary(width), ALiBi(heads) or RelativeBias(heads)"
            )
        x = position(x)
    projected = [_times(x, given, name) for name in ("w_q", "w_k", "w_v")]
    basic = not any(name in given for name in ("w_q", "w_k", "w_v"))
    q, k, v = _split(projected, heads)
    if isinstance(position, Rotary):
        q, k = position(q), position(k)
    how = as_score(score or ("dot" if basic else "scaled_dot"), "steps")
    if q.shape[-1] != k.shape[-1] and isinstance(how, Scaled | ScaledDot | Cosine | Gaussian):
        raise ShapeError(
            f"steps: w_q has d_out={q.shape[-1]} but w_k has d_out={k.shape[-1]}; queries are "
            "compared with keys, so give both one width"
        )
    seen = look(q, k, v, mask=mask, bias=bias, score=how)
    if not bool(seen.output.isfinite().all()):
        raise OptionError(
            f"steps: the numbers are too large to multiply in {dtype}; "
            "give float64, or smaller ones"
        )
    w_o = given.get("w_o")
    joined = heads * seen.output.shape[-1]
    if w_o is not None and w_o.shape[0] != joined:
        raise ShapeError(
            f"steps: the heads side by side have d={joined} but w_o has d_in={w_o.shape[0]} "
            f"(w_o {shape(w_o)}); weights are (d_in,d_out), used as x @ w"
        )
    combine = None if w_o is None else (lambda z: z @ w_o)
    made = [f"x {name.upper()}" if name in given else "x" for name in ("w_q", "w_k", "w_v")]
    if isinstance(position, Rotary):
        made[:2] = [f"{how}, turned by its position" for how in made[:2]]
    return Steps(x, seen, words, made=made, combine=combine)


def find(words: Sequence[str], word: str | int, occurrence: int = 1) -> int:
    """Where a word stands; a number is taken as it is."""
    if not isinstance(word, str):
        word = operator.index(word)
        if not -len(words) <= word < len(words):
            raise WordError(f"word {word} asked for, but there are {len(words)}, numbered from 0")
        return word % len(words)
    places = [i for i, other in enumerate(words) if other == word]
    places = places or [i for i, other in enumerate(words) if other.lower() == word.lower()]
    if not places:
        near = difflib.get_close_matches(word, words, n=1, cutoff=0.4)
        some = ", ".join(words[:12]) + (", …" if len(words) > 12 else "")
        meant = f"; did you mean {near[0]!r}?" if near else f"; there are {some}"
        raise WordError(f"{word!r} is not in the sentence{meant}")
    if not 1 <= occurrence <= len(places):
        often = "once" if len(places) == 1 else f"{len(places)} times"
        raise WordError(
            f"{word!r} stands in the sentence {often}; occurrence {occurrence} asked for"
        )
    return places[occurrence - 1]


def _named(words: Sequence[str] | None, n: int, letter: str, what: str) -> tuple[str, ...]:
    if words is None:
        return tuple(f"{letter}{i}" for i in range(1, n + 1))
    if len(words) != n:
        raise ShapeError(f"steps: {len(words)} {what} for {n} vectors; give one per vector")
    return tuple(words)


def _matrix(name: str, values: Numbers) -> Float[Tensor, "rows columns"]:
    """A matrix of finite numbers, or an error that says what it is instead."""
    try:
        if isinstance(values, list | tuple) and values and isinstance(values[0], Tensor):
            values = torch.stack(list(values))
        elif isinstance(values, list | tuple) and values and isinstance(values[0], np.ndarray):
            values = np.stack(values)
        matrix = values if isinstance(values, Tensor) else torch.tensor(_copied(values))
    except (ValueError, TypeError, RuntimeError, OverflowError):
        raise ShapeError(f"steps: {name} {_unlike_a_matrix(values)}") from None
    if matrix.is_complex():
        raise OptionError(f"steps: {name} has complex numbers; give its real part or its size")
    if matrix.dim() != 2 or matrix.numel() == 0:
        raise ShapeError(
            f"steps: {name} has shape {shape(matrix)}, expected rows and columns; "
            + ("one vector per word" if name == "x" else "weights are (d_in,d_out)")
        )
    if not matrix.is_floating_point():
        matrix = matrix.to(torch.get_default_dtype())
    bad = (~matrix.isfinite()).nonzero()
    if len(bad):
        row, column = bad[0].tolist()
        raise OptionError(
            f"steps: {name} has {matrix[row, column].item()} at row {row}, column {column} "
            "(numbered from 0); expected finite numbers"
        )
    return matrix


def _copied(values: Numbers) -> Numbers:
    """An array that is no view of what its owner may change or turn round."""
    return values.copy() if isinstance(values, np.ndarray) else values


def _check_words(words: Sequence[str] | None) -> None:
    if isinstance(words, str):
        raise OptionError(
            f"steps: words is one text, {words!r}; give a list, such as words.split()"
        )
    for word in words or ():
        if not isinstance(word, str):
            raise OptionError(f"steps: words has {word!r}, expected texts; use str(word)")


def _unlike_a_matrix(values: Numbers) -> str:
    """What keeps nested lists from being a matrix."""
    try:
        rows = [list(row) for row in values]
    except TypeError:
        return "is not a list of rows of numbers"
    for i, row in enumerate(rows):
        if len(row) != len(rows[0]):
            return (
                f"is ragged: row {i} has {len(row)} numbers and row 0 has {len(rows[0])}; "
                "give rows of one length"
            )
        for j, value in enumerate(row):
            if isinstance(value, int) and abs(value) > 2**63:
                return f"has an integer of {len(str(value))} digits; expected finite numbers"
            if not isinstance(value, int | float):
                return f"has {value!r} at row {i}, column {j} (numbered from 0); expected numbers"
    return "is not a list of rows of numbers"


def _times(x: Tensor, given: dict[str, Tensor], name: str) -> Tensor:
    """x @ w, or x where there is no such weight."""
    if name not in given:
        return x
    w = given[name]
    if x.shape[1] != w.shape[0]:
        turned = "; its transpose would fit" if x.shape[1] == w.shape[1] else ""
        raise ShapeError(
            f"steps: x has d_in={x.shape[1]} but {name} has d_in={w.shape[0]} (x {shape(x)}, "
            f"{name} {shape(w)}); weights are (d_in,d_out), used as x @ w{turned}"
        )
    return x @ w


def _split(projected: list[Tensor], heads: int) -> list[Tensor]:
    """Columns to heads: ``(n, h · d)`` to ``(1, h, n, d)``; ``(n, d)`` for one head."""
    if heads < 1:
        raise OptionError(f"steps: heads={heads}, expected 1 or more")
    if heads == 1:
        return projected
    q, k, v = projected
    if q.shape[1] % heads:
        raise ShapeError(
            f"steps: queries of width {q.shape[1]} do not split into heads={heads}; "
            f"choose heads that divide {q.shape[1]}"
        )
    head_width = q.shape[1] // heads
    kv_heads = k.shape[1] // head_width
    if k.shape[1] % head_width or v.shape[1] % max(kv_heads, 1) or heads % max(kv_heads, 1):
        raise ShapeError(
            f"steps: keys of width {k.shape[1]} and values of width {v.shape[1]} do not split "
            f"beside heads={heads} of width {head_width}; give w_k and w_v as many columns as w_q"
        )
    counts = (heads, kv_heads, kv_heads)
    return [
        y.unflatten(1, (h, -1)).transpose(0, 1).unsqueeze(0)  # type: ignore[no-untyped-call]
        for y, h in zip(projected, counts, strict=True)
    ]
