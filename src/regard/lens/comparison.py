"""`Comparison`: the static and contextual vectors of one word in two texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from regard.errors import OptionError
from regard.lens.adapters.adapter import ModelAdapter
from regard.lens.explanation import Explanation
from regard.lens.plain_data import rounded
from regard.text.words import Words
from regard.view import View

if TYPE_CHECKING:
    from regard.lens.lens import Lens

NEAREST = 5
SAME = 0.9999
"""The cosine from which on two vectors count as equal."""
SENTENCES = 400
"""The number of built-in sentences searched for neighbours."""


@dataclass(frozen=True)
class Neighbour:
    """A word in a text, and the cosine of its vector."""

    word: str
    text: str
    cosine: float


@dataclass(frozen=True, eq=False)
class Side:
    """The word in one of the texts."""

    explanation: Explanation
    neighbours: tuple[Neighbour, ...]
    becomes: str | None
    """Its translation in this text; None if the model does not translate."""

    @property
    def text(self) -> str:
        return self.explanation.words.text

    def pulls(self, method: str = "knockout", n: int = 3) -> list[tuple[str, float]]:
        """The n words with the highest scores for it."""
        return self.explanation.top(method, n)


@dataclass(frozen=True, eq=False)
class Comparison:
    """One word in two texts."""

    word: str
    sides: tuple[Side, Side]
    static: float
    """The cosine of its static vectors, without context or position."""
    cosine: Float[Tensor, " layers"]
    """The cosine of its vectors before the first block and after each."""

    @property
    def conclusion(self) -> str:
        """The findings in one or two sentences."""
        same = (
            f"The static vector of {self.word} is the same in both"
            if self.static > SAME
            else f"Written differently, {self.word} has static vectors of cosine {self.static:.2f}"
        )
        told = (
            f"{same}; after the last layer the cosine of the two is {float(self.cosine[-1]):.2f}."
        )
        one, other = (side.becomes for side in self.sides)
        if one and other and one != other:
            told += f" It becomes {one} in the one and {other} in the other."
        return told

    def view(self) -> View:
        """The comparison as a view."""
        from regard.lens.views import compared_of

        return View(compared=compared_of(self), title=self.word)

    def _repr_html_(self) -> str:
        return self.view()._repr_html_()

    def __repr__(self) -> str:
        return f"Comparison({self.word!r}: cosine {self.static:.2f} → {float(self.cosine[-1]):.2f})"

    def to_data(self) -> dict[str, Any]:
        """Everything as plain lists and numbers."""
        sides = [
            {
                "text": side.text,
                "becomes": side.becomes,
                "neighbours": [asdict(one) for one in side.neighbours],
                "pulled_by": {method: side.pulls(method) for method in ("attention", "knockout")},
            }
            for side in self.sides
        ]
        found: dict[str, Any] = rounded({**vars(self), "sides": sides})
        return found

    def __str__(self) -> str:
        lines = [f"{self.word}: one static vector (cosine {self.static:.2f}), then"]
        for layer, cosine in enumerate(self.cosine):
            where = "before the first layer" if layer == 0 else f"after layer {layer - 1}"
            bar = "█" * max(0, round(20 * float(cosine)))
            lines.append(f"  {where:22}  {float(cosine):5.2f}  {bar}")
        for side in self.sides:
            lines += ["", side.text]
            for method in ("attention", "knockout"):
                pulls = ", ".join(f"{word} {value:.2f}" for word, value in side.pulls(method))
                lines.append(f"  pulled by ({method}): {pulls or 'nothing else'}")
            for one in side.neighbours:
                lines.append(f"  {one.cosine:.2f}  {one.word} in: {one.text}")
            if side.becomes is not None:
                lines.append(f"  becomes: {side.becomes or '(nothing)'}")
        lines += ["", self.conclusion]
        return "\n".join(lines)


def compare(
    lens: Lens,
    adapter: ModelAdapter,
    word: str,
    texts: tuple[str, str],
    among: Sequence[str] | None,
) -> Comparison:
    """The comparison; see `Lens.compare`."""
    embedded = lens.embed_all(texts)
    for each in embedded:
        if not each.words.is_word[each.words.find(word)]:
            raise OptionError(f"compare: {word!r} is a special token, not a word")
    vectors = [each[word] for each in embedded]  # (layers, width)
    cosine = F.cosine_similarity(vectors[0], vectors[1], dim=-1)
    statics = []
    for each, text in zip(embedded, texts, strict=True):
        table = adapter.table()[adapter.read(text).ids]
        statics.append(each.words.averaged(table, spelled=True)[each.words.find(word)])
    if among is None:
        from regard.challenge import generate

        among = [pair.source for pair in generate("senses", "train", SENTENCES)]
    near = _neighbours(lens, [each[-1] for each in vectors], among)
    sides = [
        Side(lens.explain(text, word), tuple(found), _becomes(adapter, each.words, word))
        for text, found, each in zip(texts, near, embedded, strict=True)
    ]
    return Comparison(
        word,
        (sides[0], sides[1]),
        float(F.cosine_similarity(statics[0], statics[1], dim=-1)),
        cosine,
    )


def _neighbours(
    lens: Lens, vectors: Sequence[Tensor], among: Sequence[str]
) -> list[list[Neighbour]]:
    """The nearest words of these texts to each vector, each word once."""
    found: list[dict[str, Neighbour]] = [{} for _ in vectors]
    wanted = torch.stack(list(vectors)).unsqueeze(1)
    for text, embedded in zip(among, lens.embed_all(among), strict=True):
        names, real = embedded.words.names, embedded.words.is_word
        near = F.cosine_similarity(wanted, embedded.vectors[-1], dim=-1)
        for best, row in zip(found, near.tolist(), strict=True):
            for name, cosine, there in zip(names, row, real, strict=True):
                if there and (name not in best or best[name].cosine < cosine):
                    best[name] = Neighbour(name, text, cosine)
    return [sorted(best.values(), key=lambda one: -one.cosine)[:NEAREST] for best in found]


def _becomes(adapter: ModelAdapter, words: Words, word: str) -> str | None:
    """The target words that are aligned with this word."""
    translator = getattr(adapter, "translator", None)
    if translator is None:
        return None
    alignment = translator.translate([words.text])[0].alignment
    place = sum(words.is_word[: words.find(word)])
    return " ".join(alignment.target_words[t] for t, s in alignment.pairs if s == place)
