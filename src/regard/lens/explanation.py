"""`Explanation`: what a word attends to, by four methods side by side."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from itertools import takewhile
from operator import eq
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.record import Look
from regard.errors import OptionError
from regard.lens.arguments import numbered, whole
from regard.lens.capture import Seen
from regard.lens.measures import agreement, top_ranked
from regard.lens.plain_data import frame, rounded
from regard.text.words import Words, visible

if TYPE_CHECKING:
    import pandas

    from regard.view import View

SINK = 0.8
"""A first token that rollout gives more than this is reported as an attention sink."""
METHODS = ("attention", "norm", "rollout", "knockout")


@dataclass(frozen=True)
class Effect:
    """What the model writes with a link cut."""

    word: int
    """The number of the word that can no longer be attended to."""
    text: str


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a word attends to: by attention, by norm, by rollout, and by cutting links.

    Arrays are over `names`: the words of the text and its special tokens. Those per head are
    ``(layers, heads, names)``.
    """

    words: Words
    word: int
    """The number of the word that attends; of a written one, its number in `target`."""
    layers: tuple[str, ...]
    """The modules that attend, in order."""
    attention: Float[Tensor, "layers heads names"]
    """The weights."""
    norm: Float[Tensor, "layers heads names"]
    """Weight × length of the value as the head passes it on (Kobayashi et al., 2020)."""
    norm_of_layers: Float[Tensor, "layers names"]
    """The same for all heads of a layer together."""
    rollout: Float[Tensor, " names"]
    """The share of each word after all layers (Abnar and Zuidema, 2020)."""
    knockout: Float[Tensor, " names"]
    """How far the word's vector moves, as a share of its length, when the link is cut in all
    layers and heads. nan: not cut (see `Lens.explain`)."""
    knockout_of_heads: Float[Tensor, "layers heads names"] | None
    """The same, the link being cut in one head only; None if layers share their weights."""
    probability: Float[Tensor, " names"] | None
    """The loss of log-probability of what the model writes when the link is cut; None if it writes
    nothing."""
    said: str | None
    """What the model writes: the translation, or the next token."""
    effects: tuple[Effect, ...]
    """What it writes instead, for the links cut to find out."""
    looks: dict[str, Look]
    heads_estimated: Bool[Tensor, "layers heads names"] | None = None
    """Where `knockout_of_heads` is an estimate from one backward pass: all but the strongest."""
    writes: str | None = None
    """The word that attends, if a translator wrote it: rows are those of its cross-attention, and
    knockout is the loss of log p(word) − log p(instead) without the link."""
    translates: bool = False
    causal: bool = False
    """Whether a word sees only those before it, as in a language model."""
    target: Words | None = None
    """The words of the translation, behind its start token."""
    target_rows: Words | None = None
    """The words of the translation by the step that writes them."""
    written: Seen | None = field(default=None, repr=False)
    """The decoder's attention over the whole translation."""

    @property
    def names(self) -> tuple[str, ...]:
        """The words and special tokens of the text."""
        return self.words.names

    @property
    def query(self) -> str:
        """The word that attends."""
        return visible(self.names[self.word]) if self.writes is None else self.writes

    def scores(self, method: str, layer: int | None = None, head: int | None = None) -> Tensor:
        """The score of each name by a method, over all layers and heads if none is chosen.

        ``attention``: the mean. ``norm``: the mean over layers, of all heads together. ``rollout``
        and ``knockout`` as they are.
        """
        if method not in METHODS:
            raise OptionError(
                f"explain: method {method!r} is unknown, expected one of {', '.join(METHODS)}"
            )
        if layer is None and head is None:
            return {
                "attention": self.attention.mean((0, 1)),
                "norm": self.norm_of_layers.mean(0),
                "rollout": self.rollout,
                "knockout": self.knockout,
            }[method]
        of_heads = self.of_heads(method)
        if of_heads is None:
            reason = "it goes through all layers"
            if method == "knockout":
                reason = "its layers share their weights, so that a link is cut in all of them"
            raise OptionError(
                f"explain: {method} was not computed for single heads, since {reason}"
            )
        depth, heads = of_heads.shape[:2]
        if layer is not None:
            of_heads = of_heads[numbered("explain: layer", layer, depth)].unsqueeze(0)
        if head is not None:
            of_heads = of_heads[:, numbered("explain: head", head, heads)].unsqueeze(1)
        return of_heads.mean((0, 1))

    def of_heads(self, method: str) -> Tensor | None:
        """The scores by layer and head, ``(layers, heads, names)``, where the method has them."""
        return {
            "attention": self.attention,
            "norm": self.norm,
            "knockout": self.knockout_of_heads,
        }.get(method)

    def top(self, method: str = "attention", n: int = 5) -> list[tuple[str, float]]:
        """The n other words that matter most by a method, with their scores."""
        values = self.scores(method)
        ranked = self._ranked(method)[: whole("top: n", n)]
        return [(self.names[i], float(values[i])) for i in ranked]

    @property
    def agreement(self) -> dict[str, float]:
        """Spearman's rank correlation of each of the first three methods with knockout.

        Over the other words that the word can attend to and whose links were cut.
        """
        return self._agreement(self.knockout)

    @property
    def agreement_with_probability(self) -> dict[str, float] | None:
        """The same correlation with `probability`; None if the model writes nothing."""
        return None if self.probability is None else self._agreement(self.probability)

    @property
    def conclusion(self) -> str:
        """The findings in a few sentences."""
        if not self._others:
            return " ".join([f"“{self.query}” can attend to no other word.", *self.notes])
        most, matters = (self._ranked(method)[0] for method in ("attention", "knockout"))
        cost = float(self.knockout[matters])
        changes = (
            f"changes its vector most ({100 * cost:.0f}\N{NO-BREAK SPACE}%)"
            if self.writes is None
            else f"costs most: its log-probability falls by {cost:.1f} relative to its alternative"
        )
        told = [
            f"On average, “{self.query}” attends most to “{self.words.called(most)}”.",
            f"Cutting its link to “{self.words.called(matters)}” {changes}.",
        ]
        return " ".join([*told, *map(self._effect, self.effects), *self.notes])

    @property
    def notes(self) -> list[str]:
        """Caveats about the numbers: words that cannot be attended to, and attention sinks."""
        query, notes = visible(self.names[self.word]), []
        later = [i for i in range(self.word + 1, len(self.names)) if self.words.is_word[i]]
        if self.causal and later:
            listed = ", ".join(visible(self.names[i]) for i in later[:3])
            notes.append(
                f"The model is causal: {query} cannot see what follows it "
                f"({listed}{', …' if len(later) > 3 else ''})."
            )
        share = float(self.rollout[0])
        if self.causal and self.word > 0 and share > SINK:
            notes.append(
                f"Rollout ends at {self.words.called(0)} ({share:.3f}): the first token of a "
                f"causal model is an attention sink, so this says little about {query}."
            )
        return notes

    def _effect(self, effect: Effect) -> str:
        what = "translation" if self.translates else "next word"
        changes = (
            "stays the same"
            if effect.text == self.said
            else f"changes {turned(self.said or '', effect.text)}"
        )
        key = self.words.called(effect.word)
        cut = f"Without its link to “{key}”"
        if self.translates and self.writes is None:  # cut where its translation is written, too
            cut = f"If “{self.query}” and its translation cannot attend to “{key}”"
        return f"{cut}, the {what} {changes}."

    @property
    def _others(self) -> list[int]:
        """The numbers of the other words that this one can attend to."""
        real, seen = self.words.is_word, self.attention.amax((0, 1)) > 0
        own = self.word if self.writes is None else None
        return [i for i in range(len(self.names)) if real[i] and seen[i] and i != own]

    @property
    def _columns(self) -> dict[str, Tensor]:
        """The scores of each name by each method, and the loss of log-probability if there is."""
        columns = {name: self.scores(name) for name in METHODS}
        return columns if self.probability is None else columns | {"probability": self.probability}

    def _ranked(self, method: str) -> list[int]:
        values = self.scores(method).nan_to_num(-torch.inf).tolist()  # nan comes last
        return sorted(self._others, key=lambda i: -values[i])

    def _agreement(self, measured: Tensor) -> dict[str, float]:
        kept = [i for i in self._others if not math.isnan(float(measured[i]))]
        return {name: agreement(self.scores(name)[kept], measured[kept]) for name in METHODS[:3]}

    def to_data(self) -> dict[str, Any]:
        """Everything as plain lists and numbers."""
        heads = {name: self.of_heads(name) for name in METHODS}
        data: dict[str, Any] = {
            "text": self.words.text,
            "word": self.names[self.word] if self.writes is None else self.writes,
            "position": self.word,
            "words": self.names,
            "special": [not real for real in self.words.is_word],
            "layers": self.layers,
            "scores": self._columns,
            "heads": {name: scores for name, scores in heads.items() if scores is not None},
            "agreement": self.agreement,
        }
        if self.heads_estimated is not None:
            data["heads"]["estimated"] = self.heads_estimated.tolist()
        if self.probability is not None:
            data["agreement_with_probability"] = self.agreement_with_probability
            data["said"] = self.said
            data["effects"] = [
                {"without": self.names[one.word], "position": one.word, "said": one.text}
                for one in self.effects
            ]
        found: dict[str, Any] = rounded({**data, "conclusion": self.conclusion})
        return found

    def to_json(self) -> str:
        """Everything as JSON, on one line."""
        return json.dumps(self.to_data(), ensure_ascii=False)

    def to_frame(self) -> pandas.DataFrame:
        """The scores of each name by each method, a row per name. Needs pandas."""
        columns = {
            "word": list(self.names),
            "special": [not real for real in self.words.is_word],
            **{name: values.tolist() for name, values in self._columns.items()},
        }
        return frame(columns)

    def view(self) -> View:
        """The explanation as a view: shown in a notebook, saved as a page or a picture.

        `Lens.view` shows what the model wrote, with links to cut.
        """
        from regard.lens.views import view_of

        return view_of(self)

    def _repr_html_(self) -> str | None:
        try:
            return self.view()._repr_html_()
        except OptionError:  # views show no special tokens
            return None

    def __repr__(self) -> str:
        most = ", ".join(
            f"{method} {name!r}" for method in METHODS for name, _ in self.top(method, 1)
        )
        return f"Explanation({self.query!r}: {most or 'attends to no other word'})"

    def __str__(self) -> str:
        return self.table()

    def table(self, n: int | None = None) -> str:
        """The scores as text: a row for each name, or for the n that any method ranks first."""
        shown = self._shown(n)
        called = self.words.called if n is not None else lambda i: visible(self.names[i])
        names = {i: called(i) for i in shown}
        columns = self._columns
        if "probability" in columns:
            columns["Δ log p"] = -columns.pop("probability")
        width = max((len(name) for name in names.values()), default=0) + 2
        lines = [f"{'':{width}}" + "".join(f"{name:>12}" for name in columns)]
        for i in shown:
            own = i == self.word and self.writes is None
            name = names[i] + (" ←" if own else "")
            cells = "".join(f"{_cell(values[i]):>12}" for values in columns.values())
            lines.append(f"{name:{width}}{cells}")
        lines += ["", "agreement with knockout: " + _pairs(self.agreement)]
        if (with_probability := self.agreement_with_probability) is not None:
            lines.append("agreement with the loss of log p: " + _pairs(with_probability))
        if self.said is not None:
            lines.append(f"{'translation' if self.translates else 'next'}: {visible(self.said)}")
        lines += ["", self.conclusion]
        return "\n".join(lines)

    def _shown(self, n: int | None) -> list[int]:
        if n is None:
            return list(range(len(self.names)))
        ranked = list(reversed(self._columns.values()))
        return top_ranked(ranked, self._others, whole("table: n", n))


def turned(before: str, after: str) -> str:
    """The words in which two texts differ: ``from “es” to “sie”``.

    >>> turned("weil es müde war", "weil sie müde war")
    'from “es” to “sie”'
    """
    one, other = before.split(), after.split()
    start = len(list(takewhile(bool, map(eq, one, other))))
    end = len(list(takewhile(bool, map(eq, one[start:][::-1], other[start:][::-1]))))
    was, becomes = (" ".join(part[start : len(part) - end]) for part in (one, other))
    if not was or not becomes:
        was, becomes = before, after
    return f"from {_quoted(was)} to {_quoted(becomes)}"


def _quoted(text: str) -> str:
    return f"“{text}”" if visible(text) == text else visible(text)


def _cell(value: Tensor) -> str:
    return "·" if math.isnan(float(value)) else f"{float(value):.3f}"


def _pairs(values: dict[str, float]) -> str:
    return ", ".join(
        f"{name} {'–' if math.isnan(value) else format(value, '+.2f')}"
        for name, value in values.items()
    )
