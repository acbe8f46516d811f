"""`Why`: the links that made a model write a word, and what it writes without them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.lens.capture import Cut
from regard.lens.link_steps import LinkSteps, RowSteps
from regard.lens.plain_data import frame, rounded
from regard.view import View
from regard.view.figure import wording

if TYPE_CHECKING:
    import pandas

PLACES = {"encoder": "encoder", "decoder": "decoder", "cross": "cross-attention"}
CLEAR = 0.02
"""The loss of probability from which on a word counts as mattering."""
NEARLY = 0.95
"""Words with at least this share of the largest weight count as looked at about as much."""
SHOWN = 8
"""The number of links in the printed table."""


@dataclass(frozen=True)
class LinkEffect:
    """A link from one word to another in one head, and what cutting it does to the metric."""

    place: str
    """``"encoder"``, ``"decoder"``, or ``"cross"`` for attention from decoder to encoder."""
    layer: int
    head: int
    query: str
    """The word that attends; of a decoder, the word being written."""
    key: str
    """The word attended to."""
    attention: float
    effect: float
    """The estimated change of the metric when the link is cut."""
    cut: float | None
    """The measured change."""
    module: str
    query_positions: tuple[int, ...]
    key_positions: tuple[int, ...]

    def as_cut(self) -> Cut:
        """The link as `regard.cut` takes it."""
        kind = "cross" if self.place == "cross" else "self"
        return Cut(self.query_positions, self.key_positions, self.module, self.head, kind=kind)

    def __str__(self) -> str:
        return (
            f"{self.query} → {self.key}, {PLACES[self.place]} layer {self.layer} head {self.head}"
        )


@dataclass(frozen=True)
class WordEffect:
    """An input word: the attention it receives, and the loss when its links are cut."""

    word: str
    looked: float
    """The strongest attention of any head from the step's row."""
    layer: int
    head: int
    """The head of that attention."""
    probability: float
    """Of the word that was written, when all links from its row to this one are cut."""
    matters: float
    """The loss of probability."""
    writes: str
    """The most probable choice then."""
    text: str | None
    """What is written then, if that changes."""
    special: bool
    """Whether this is a special token, not a word."""
    probabilities: tuple[float, ...]
    """Of each of `Why.alternatives`, when the links are cut."""
    measured: bool
    """Whether its links were cut; in a long text only those with the largest estimates are."""


@dataclass(frozen=True)
class Flip:
    """The smallest set of links found whose joint cut changes the written word."""

    links: tuple[LinkEffect, ...]
    word: str
    """The word that is written then."""
    text: str
    probability: float


@dataclass(frozen=True, eq=False)
class Why:
    """Why a model wrote a word and not another; see `Lens.why`."""

    text: str
    written: str
    """The whole output."""
    word: str
    instead: str
    position: int | None
    """The number of the word in `output_words`; None if there is only one choice."""
    output_words: tuple[str, ...]
    """The words of the output; empty if there is only one choice."""
    alignment: tuple[tuple[int, int], ...]
    """For each word of the output, the input word that it attends to most: (output, input)."""
    metric: float
    """log p(word) − log p(instead)."""
    probability: float
    """Of the word; the cosine to itself, 1, for a model that writes nothing."""
    choices: tuple[tuple[str, float], ...]
    """The most probable choices at this step."""
    alternatives: tuple[tuple[str, float], ...]
    """The word, the alternative, and others that are written when a link is cut, with their
    probabilities, the largest first; the beginning of a word ends in ``…``."""
    links: tuple[LinkEffect, ...]
    """Links that were cut, the strongest first."""
    control: tuple[LinkEffect, ...]
    """Other links, cut at random as a control."""
    words: tuple[WordEffect, ...]
    flip: Flip | None
    agreement: float
    """Spearman's correlation of estimated effect and measured change over all links cut."""
    estimated: int
    """Links whose effect was estimated."""
    place: str
    attention: Float[Tensor, "layers heads words"]
    """From the step's row to each input word, at `place`."""
    effects: Float[Tensor, "layers heads words"]
    """The estimated effect of cutting each of these links."""
    steps: LinkSteps
    """The six steps of the link to the word with the most attention."""
    row: RowSteps
    """The six steps of the links to the input words, in every layer and head of `place`."""
    model: str = ""
    """The name of the model."""
    note: str = ""
    """A caveat about the question or the text, if there is one."""
    texts: bool = True
    """Whether `flip`, and the texts of `words`, were computed."""

    @property
    def looked_at(self) -> WordEffect:
        """The word with the most attention; see `most_looked_at`."""
        return self.words[self._looked_at]

    @property
    def _looked_at(self) -> int:
        real = [not one.special for one in self.words]
        return most_looked_at(self.attention, self.effects, real)

    @property
    def matters_most(self) -> WordEffect:
        """The word whose links cost most when cut, special tokens aside."""
        return max(self._real, key=lambda one: one.matters)

    @property
    def _real(self) -> list[WordEffect]:
        return [one for one in self.words if not one.special] or list(self.words)

    @property
    def heads(self) -> list[tuple[int, int, str, float, float]]:
        """(layer, head, input word, attention, estimated effect) of the step, strongest first."""
        order = self.effects.abs().flatten().argsort(descending=True)
        rows = torch.stack(torch.unravel_index(order, self.effects.shape), 1).tolist()
        return [
            (
                layer,
                head,
                self.words[word].word,
                float(self.attention[layer, head, word]),
                float(self.effects[layer, head, word]),
            )
            for layer, head, word in rows
        ]

    @property
    def conclusion(self) -> str:
        """The findings in one paragraph; mentioned words are in *asterisks*."""
        told = [self._looking(), *self._mattering(), self._flipping()]
        return " ".join(part for part in told if part)

    def _looking(self) -> str:
        most = self.looked_at
        if not self.choices:
            return f"*{self.word}* attends most to *{most.word}* ({most.looked:.2f}{_at(most)})."
        return (
            f"When it writes *{self.word}* ({percent(self.probability)}), it looks most at "
            f"*{most.word}* ({most.looked:.2f}{_at(most)})."
        )

    def _mattering(self) -> list[str]:
        most, looked = self.matters_most, self.looked_at
        if not self.choices:
            return [
                f"Cutting its links to *{most.word}* moves its vector most (cosine "
                f"{most.probability:.2f})."
            ]
        if most.matters < CLEAR:
            return [self._indifferent()]
        told = f"Without its links to *{most.word}*, *{self.word}* falls to "
        told += percent(most.probability)
        if most.writes and most.text is not None:
            told += f" and it writes *{most.writes.strip()}* instead"
        found = [f"{told}."]
        if looked.word != most.word:
            return [*found, f"Cutting its links to *{looked.word}* {self._cost(looked)}."]
        least = NEARLY * looked.looked
        also = [one for one in self._real if one.looked >= least and one.word != most.word]
        other = min(also, key=lambda one: abs(one.matters), default=None)
        if other is not None and abs(other.matters) < CLEAR:
            found.append(
                f"It looks at *{other.word}* about as much ({other.looked:.2f}{_at(other)}), but "
                f"cutting that {self._cost(other)}."
            )
        return found

    def _indifferent(self) -> str:
        """The finding that no word matters, or that only against some the word was written."""
        against = min(self._real, key=lambda one: one.matters)
        if against.matters > -CLEAR:
            return f"Cutting the links to any single word leaves *{self.word}* about as likely."
        return (
            f"Cutting the links to a single word never costs *{self.word}* much; without those to "
            f"*{against.word}*, it rises to {percent(against.probability)}."
        )

    def _cost(self, one: WordEffect) -> str:
        lost = round(100 * one.matters)
        if lost < 0:
            return f"raises *{self.word}* to {percent(one.probability)}"
        return f"costs {lost} point{'s' * (lost > 1)}" if lost else "costs nothing"

    def _flipping(self) -> str:
        if self.flip is None:
            if not self.choices or not self.links or not self.texts:
                return ""
            return (
                f"No set of the {len(self.links)} strongest links was found that changes the word."
            )
        links = "; ".join(map(_marked, self.flip.links[:3]))
        more = len(self.flip.links) - 3
        rest = f"; and {more} more" if more > 0 else ""
        one = len(self.flip.links) == 1
        which, them = ("This link decides", "it") if one else ("These links decide", "them")
        return (
            f"{which}: {links}{rest}. Without {them}, the model writes *{self.flip.word.strip()}*."
        )

    def to_data(self) -> dict[str, Any]:
        """Everything as plain lists and numbers."""
        data = {**vars(self), "steps": self.steps.to_data(), "conclusion": self.conclusion}
        data["heads"] = {"attention": data.pop("attention"), "effect": data.pop("effects")}
        data["flip"] = None if self.flip is None else asdict(self.flip)
        data["looked_at"] = self._looked_at
        del data["row"], data["texts"]
        for name in ("links", "control", "words"):
            data[name] = [asdict(one) for one in data[name]]
        for name in ("choices", "alternatives"):
            data[name] = [{"word": word, "probability": p} for word, p in data[name]]
        found: dict[str, Any] = rounded(data)
        return found

    def to_json(self) -> str:
        """Everything as JSON, on one line."""
        return json.dumps(self.to_data(), ensure_ascii=False)

    def view(self, *others: Why) -> View:
        """The finding as a view: a figure, and a page in which links can be cut.

        `others` are findings about other words of the same output, to select in the page.
        `Lens.view` makes a page that also has the attention of all layers.
        """
        return View(findings=[one.figure_data() for one in (self, *others)])

    def figure_data(self) -> dict[str, Any]:
        """The data of a figure: everything, and the numbers of the six steps."""
        return {**self.to_data(), "row": rounded(vars(self.row))}

    def _repr_html_(self) -> str:
        return self.view()._repr_html_()

    def to_frame(self) -> pandas.DataFrame:
        """One row for each link that was cut, the control included. Needs pandas."""
        links = [(one, False) for one in self.links] + [(one, True) for one in self.control]
        names = [*(field.name for field in fields(LinkEffect)), "control"]
        return frame([{**asdict(one), "control": control} for one, control in links], names)

    def __repr__(self) -> str:
        against = f" instead of {self.instead!r}" if self.choices else ""
        return (
            f"Why({self.word!r}{against}: metric {self.metric:.2f}, {len(self.links)} links cut "
            f"of {self.estimated:,} estimated, agreement {self.agreement:.2f})"
        )

    def __str__(self) -> str:
        """The conclusion, and the strongest links as a table."""
        if not self.links:
            return "\n\n".join(filter(None, (self.conclusion, self.note)))
        lines = [self.conclusion, ""]
        rows = [("link", "weight", "effect", "cut")]
        rows += [
            (str(one), f"{one.attention:.2f}", f"{one.effect:+.2f}", f"{one.cut:+.2f}")
            for one in self.links[:SHOWN]
        ]
        width = max(len(row[0]) for row in rows)
        lines += [f"{row[0]:{width}}" + "".join(f"{x:>8}" for x in row[1:]) for row in rows]
        if self.note:
            lines += ["", self.note]
        return "\n".join(lines)


def most_looked_at(
    attention: Float[Tensor, "layers heads words"],
    effects: Float[Tensor, "layers heads words"],
    real: Sequence[bool],
) -> int:
    """The number of the word with the most attention, special tokens (not `real`) aside.

    Of several with nearly as much, the one at the end of the link with the largest estimated
    effect: a softmax that is saturated gives several words a weight of 1, each in another head.
    """
    words = [i for i, is_real in enumerate(real) if is_real] or list(range(len(real)))
    looked: list[float] = attention.flatten(0, 1).amax(0).tolist()
    strongest: list[float] = effects.flatten(0, 1).amin(0).tolist()
    least = NEARLY * max(looked[i] for i in words)
    return min((i for i in words if looked[i] >= least), key=lambda i: (strongest[i], -looked[i]))


def _marked(link: LinkEffect) -> str:
    where = f"{PLACES[link.place]} layer {link.layer} head {link.head}"
    return f"*{link.query}* → *{link.key}* ({where})"


def _at(one: WordEffect) -> str:
    return f", layer {one.layer} head {one.head}"


def percent(share: float) -> str:
    """A probability as the figure writes it, with a plain space: 92 %, 0.4 %."""
    return wording.percent(share, " ")
