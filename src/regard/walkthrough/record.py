"""Every intermediate of one self-attention, from a `Look`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from regard.attention import Look
from regard.attention.scores import Scaled, ScaledDot
from regard.errors import ShapeError
from regard.walkthrough import account, wording
from regard.walkthrough.account import Account
from regard.words import find_word

NAMES = ("words", "x", "q", "k", "v", "scores", "scaled", "weights", "weighted", "output")
"""The keys of `Steps.to_data`, in the order of computation."""


class Steps:
    """Every intermediate of one self-attention, by its name.

    With several heads there is a head axis h in front; with one there is none.

    | name | shape | what |
    |---|---|---|
    | `x` | (n, d_in) | the input, positions added |
    | `q`, `k`, `v` | (h, n, d) | step 1: queries, keys and values |
    | `scores` | (h, q, k) | step 2: each query compared with each key |
    | `scaled` | (h, q, k) | step 3: divided by √d_k |
    | `masked` | (h, q, k) | bias added, -inf where masked: the input of the softmax |
    | `weights` | (h, q, k) | step 4: softmax along each row |
    | `weighted` | (h, q, k, e) | step 5: each value times its weight |
    | `heads` | (h, q, e) | step 6: their sum, per head |
    | `output` | (q, …) | the heads concatenated, times w_o if there is one |
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
        """The steps of `seen`, a look at one sequence: ``(n, d)``, or ``(1, h, n, d)`` for h heads.

        `words` are those of the queries; `context` those of the keys, if different.
        """
        self.seen = seen
        self.x = x.detach()
        self.made = tuple(made)
        self.combine = combine
        q, k = seen.q.shape[-2], seen.k.shape[-2]
        self.words = _named(words, q, "x", "words")
        self.cross = context is not None or q != k
        self.keys = _named(context, k, "c", "context words") if self.cross else self.words

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
        return self._per_head(self.seen.compared(scaled=self.factor is None)).detach()

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
        return self.weights.unsqueeze(-1) * self.repeat_kv(self.v).unsqueeze(-3)

    @property
    def heads(self) -> Float[Tensor, "*h q e"]:
        """The output of each head: `attend`'s result, bit for bit."""
        return self._per_head(self.seen.output.detach())

    @cached_property
    def output(self) -> Float[Tensor, "q width"]:
        joined = self.heads
        if self.count > 1:
            joined = joined.transpose(0, 1).flatten(1)
        return joined if self.combine is None else self.combine(joined).detach()

    @property
    def count(self) -> int:
        """The number of heads."""
        return self.seen.q.shape[-3] if self.seen.q.dim() > 2 else 1

    @property
    def factor(self) -> float | None:
        """The scale of step 3; None if the score has none."""
        score = self.seen.score
        if isinstance(score, Scaled):
            return score.factor
        return 1 / math.sqrt(self.q.shape[-1]) if isinstance(score, ScaledDot) else None

    def find(self, word: str | int, occurrence: int = 1) -> int:
        """The position of a word, given as text or number."""
        return find_word(self.words, word, occurrence)

    def of(self, word: str | int, occurrence: int = 1) -> Account:
        """The six steps of one word, given as text and occurrence, or as number."""
        return wording.account(self, self.find(word, occurrence))

    def matrices(self) -> Account:
        """The whole calculation in matrix form."""
        return wording.matrices(self)

    def to_data(self) -> dict[str, Any]:
        """All intermediates as nested lists, by the names in `NAMES`."""
        numbers = {name: getattr(self, name).tolist() for name in NAMES if name != "words"}
        return {"words": list(self.words), **numbers}

    def save(self, path: str | Path) -> None:
        """Write the matrices and then the steps of every word to an .html, .tex or .txt file."""
        account.save(path, self.title, self._accounts())

    def html(self) -> str:
        """The matrices and then the steps of every word, as a self-contained page."""
        return account.page(self.title, self._accounts())

    def latex(self) -> str:
        """The matrices and then the steps of every word, as LaTeX."""
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
        each = [wording.account(self, i) for i in range(len(self.words))]
        return [self.matrices(), *each]

    @property
    def title(self) -> str:
        """The title: the kind of attention and the words."""
        return f"{self.kind} in six steps: {' '.join(self.words)}"

    @property
    def kind(self) -> str:
        """Self-attention or Cross-attention."""
        return "Cross-attention" if self.cross else "Self-attention"

    @property
    def projected(self) -> bool:
        """Whether queries, keys or values are projections."""
        return self.made != ("x", "x", "x")

    def _per_head(self, x: Tensor) -> Tensor:
        """A result of the look without its batch axis, and without its head axis for one head."""
        if x.dim() > 2 and self.seen.q.dim() > 2:
            x = x[0]
            return x[0] if self.count == 1 else x
        return x

    def repeat_kv(self, x: Tensor) -> Tensor:
        """Keys or values with one head per query head."""
        return x.repeat_interleave(self.count // x.shape[0], 0) if x.dim() > 2 else x


def _named(words: Sequence[str] | None, n: int, letter: str, what: str) -> tuple[str, ...]:
    if words is None:
        return tuple(f"{letter}{i}" for i in range(1, n + 1))
    if len(words) != n:
        raise ShapeError(f"steps: {len(words)} {what} for {n} vectors; give one per vector")
    return tuple(words)
