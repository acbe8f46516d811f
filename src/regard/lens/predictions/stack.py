"""Predictions of models with a single stack: language models, classifiers, encoders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from regard.errors import OptionError
from regard.lens.adapters import ModelAdapter, Reading, StackAdapter
from regard.lens.adapters.past import Past
from regard.lens.capture import Cut, cut
from regard.lens.predictions.prediction import TOKENS, Axis, Prediction, in_rows
from regard.text.words import Words

PROBES = 16
"""The number of random directions from which the movement of a vector is estimated; in a long text,
as many as fit into a batch, and at least 2."""


class StackPrediction(Prediction):
    """A prediction at one row of a single stack."""

    def __init__(self, adapter: ModelAdapter, ids: Sequence[int], words: Words) -> None:
        self.adapter, self.ids, self.words = cast(StackAdapter, adapter), list(ids), words
        self.model, self.embeddings = adapter.model, adapter.embeddings
        self.length = len(self.ids)
        self.place = "decoder" if adapter.kind == "causal" else "encoder"
        self.written_text = ""

    def rows(self, count: int) -> Tensor:
        """The tokens of the text, as so many equal rows."""
        return torch.tensor([self.ids], device=self.adapter.device).expand(count, -1)

    @cached_property
    def _axes(self) -> tuple[Axis, Axis]:
        keys = Axis.of(self.words, self.length)
        return keys, keys

    def axes(self, place: str) -> tuple[Axis, Axis]:
        return self._axes

    def spell(self, token: int) -> str:
        return self.adapter.spell_choice(token)


class TokenPrediction(StackPrediction):
    """The token that a language model predicts at one position: the next, or a masked one."""

    def __init__(
        self,
        adapter: StackAdapter,
        ids: Sequence[int],
        words: Words,
        row: int,
        token: int | None = None,
        instead: int | None = None,
        names: tuple[str | None, str | None] = (None, None),
    ) -> None:
        super().__init__(adapter, ids, words)
        self.row = row
        with torch.no_grad():
            self.token = int(self.logits()[0].argmax()) if token is None else token
        self.word = (names[0] or self.spell(self.token)).strip()
        self.instead = self.default_instead() if instead is None else instead
        self.word_instead = (names[1] or self.spell(self.instead)).strip()
        self.written_text = self.word

    @property
    def queries(self) -> tuple[int, ...]:
        return (self.row,)

    def logits(self, rows: int = 1) -> Float[Tensor, "rows choices"]:
        return self.adapter.predict(self.rows(rows), self.row)

    @cached_property
    def _past(self) -> Past | None:
        return self.adapter.past(Reading(self.ids, self.words))

    def cut_logits(self, cuts: Sequence[Sequence[Cut]]) -> Float[Tensor, "n choices"]:
        """Cuts in the predicting row alone are batched separately: they can use its cache."""
        alone = [i for i, links in enumerate(cuts) if all(x.query == (self.row,) for x in links)]
        if not alone or len(alone) == len(cuts):
            return super().cut_logits(cuts)
        others = [i for i in range(len(cuts)) if i not in alone]
        of_others = super().cut_logits([cuts[i] for i in others])
        found = torch.cat([super().cut_logits([cuts[i] for i in alone]), of_others])
        return found[torch.tensor([*alone, *others]).argsort()]

    def logits_without(self, cuts: Sequence[Sequence[Cut]]) -> Float[Tensor, "rows choices"]:
        """The logits, computed from the first token on whose links are cut."""
        first = min((one.first for links in cuts for one in links), default=0)
        if not first or self._past is None:
            return super().logits_without(cuts)
        past = self._past.before(first)
        with cut(self.model, [one.behind(first) for one in in_rows(cuts)]):
            return self.adapter.predict(self.rows(len(cuts)), self.row, past)

    @cached_property
    def _axes(self) -> tuple[Axis, Axis]:
        """The row of the prediction is named after the word that it predicts."""
        keys = Axis.of(self.words, self.length)
        names, positions = [], []
        for name, at in zip(keys.names, keys.positions, strict=True):
            rest = tuple(p for p in at if p != self.row)
            if rest:
                names.append(name)
                positions.append(rest)
        return Axis((*names, self.word), (*positions, (self.row,))), keys


class ClassPrediction(StackPrediction):
    """The class that a classifier predicts."""

    def __init__(
        self, adapter: StackAdapter, reading: Reading, label: str | None, instead: str | None
    ) -> None:
        super().__init__(adapter, reading.ids, reading.words)
        with torch.no_grad():
            first = int(self.logits()[0].argmax())
        self.token = first if label is None else _label(adapter.labels, label)
        self.instead = (
            self.default_instead() if instead is None else _label(adapter.labels, instead)
        )
        if self.token == self.instead:
            raise OptionError(f"why: instead={instead!r} is the class itself, expected another")
        self.word, self.word_instead = self.spell(self.token), self.spell(self.instead)
        self.written_text = self.word

    @cached_property
    def queries(self) -> tuple[int, ...]:
        """The rows that the class depends on: those where the last output has a gradient."""
        last = self.seen.calls(list(self.seen)[-1])[-1].output_gradient
        if last is None:
            return tuple(range(self.length))
        rows = last.abs().amax((0, 1, 3)).nonzero().flatten().tolist()
        return tuple(rows)

    def queries_except(self, positions: Sequence[int]) -> tuple[int, ...]:
        return tuple(i for i in range(self.length) if i not in positions) or (0,)

    def logits(self, rows: int = 1) -> Float[Tensor, "rows choices"]:
        return self.adapter.predict(self.rows(rows))

    def spell(self, token: int) -> str:
        return self.adapter.labels[token]


class VectorPrediction(StackPrediction):
    """The vector of a word, in an encoder without output head or that of a translator.

    The metric is the cosine to what the vector v was. Its first derivative is 0 there, so the
    movement δ of the vector is estimated along random unit vectors u that are orthogonal to it:
    E[(u · δ)²] = |δ|² / (d − 1), and 1 − cosine ≈ |δ|² / 2|v|².
    """

    token = instead = 0

    def __init__(self, adapter: ModelAdapter, reading: Reading, unit: int) -> None:
        super().__init__(adapter, reading.ids, reading.words)
        self._reading = reading
        self._positions = tuple(reading.words.tokens_of(unit))
        self.probes = max(2, min(PROBES, TOKENS // len(reading.ids)))
        self.position = unit
        self.word = self.word_instead = reading.words.called(unit)
        self.note = "The model writes nothing: the metric is the cosine of the word's vector."
        with torch.no_grad():
            self._vector = self.logits()[0]

    @property
    def queries(self) -> tuple[int, ...]:
        return self._positions

    def logits(self, rows: int = 1) -> Float[Tensor, "rows choices"]:
        last: Tensor = self.adapter.layers([self._reading] * rows)[-1]
        return last[:, list(self._positions)].mean(1)

    def objective(self, logits: Float[Tensor, "probes choices"]) -> Float[Tensor, ""]:
        directions = torch.randn(logits.shape, generator=torch.Generator().manual_seed(0))
        directions = directions.to(logits)
        along = F.normalize(self._vector, dim=-1)
        directions = directions - (directions @ along).unsqueeze(-1) * along
        directions = F.normalize(directions, dim=-1)
        total: Tensor = (directions * logits).sum() / torch.linalg.vector_norm(self._vector)
        return total

    def effects(self, of_probes: Float[Tensor, "probes h q k"]) -> Float[Tensor, "h q k"]:
        return of_probes.square().mean(0) * (1 - len(self._vector)) / 2

    def metric(self, logits: Float[Tensor, "*b choices"]) -> Float[Tensor, "*b"]:
        return F.cosine_similarity(logits, self._vector, dim=-1)

    probability = metric

    def chosen(self, logits: Float[Tensor, "b choices"]) -> list[int]:
        return [0] * len(logits)

    def choices(self) -> list[tuple[str, float]]:
        return []

    def spell(self, token: int) -> str:
        return ""

    def named(self, tokens: Iterable[int]) -> dict[int, str]:
        return dict.fromkeys(tokens, "")


def _label(labels: Sequence[str], wanted: str) -> int:
    names = [label.casefold() for label in labels]
    if wanted.casefold() not in names:
        raise OptionError(
            f"why: the model has no class {wanted!r}; it has {', '.join(map(repr, labels))}"
        )
    return names.index(wanted.casefold())


def choose_next(
    adapter: StackAdapter, reading: Reading, word: str | None, instead: str | None
) -> TokenPrediction:
    """The next token of a causal language model, compared with an alternative.

    Words of several tokens are compared at the first token that differs.
    """
    own, other = (
        None if one is None else _continued(adapter, reading, one) for one in (word, instead)
    )
    ids, words, note = reading.ids, reading.words, ""
    token, against = (None if one is None else one[0] for one in (own, other))
    if own is not None and other is not None:
        common = next((i for i, (a, b) in enumerate(zip(own, other, strict=False)) if a != b), None)
        if common is None:
            raise OptionError(f"why: instead={instead!r} begins like {word!r}; name another word")
        token, against = own[common], other[common]
        if common:
            shared = adapter.detokenize(own[:common])
            ids, words = [*ids, *own[:common]], _longer(adapter, words, own[:common])
            note = f"Both begin with {shared!r}; they are compared at the first token that differs."
        elif len(own) > 1 or len(other) > 1:
            first, second = map(adapter.spell_choice, (token, against))
            note = f"They are compared at the first token that differs, {first!r} and {second!r}."
    found = TokenPrediction(adapter, ids, words, len(ids) - 1, token, against, (word, instead))
    found.note = note
    return found


def _continued(adapter: StackAdapter, reading: Reading, word: str) -> list[int]:
    """The tokens of a word behind a text."""
    text, size = reading.words.text, len(reading.ids)
    spaced = f" {word.lstrip()}"
    for way in (word,) if word[:1].isspace() or text[-1:].isspace() else (spaced, word):
        ids = adapter.read(text + way).ids
        if ids[:size] == reading.ids and len(ids) > size:
            return adapter.in_vocabulary(word, ids[size:])
    ids = [i for i in adapter.read(spaced).ids if i not in adapter.special_ids]
    if not word.strip() or not ids:
        raise OptionError(f"why: {word!r} is not a word that the model could write")
    return adapter.in_vocabulary(word, ids)


def _longer(adapter: StackAdapter, words: Words, tokens: Sequence[int]) -> Words:
    """The words of a text with some tokens behind it."""
    names = adapter.token_names(tokens)
    text, spans = words.text, list(words.spans)
    for token in tokens:
        piece = adapter.detokenize([token])
        spans.append((len(text), len(text) + len(piece)))
        text += piece
    return Words(
        text, (*words.tokens, *names), tuple(spans), (*words.special, *[False] * len(tokens))
    )


def choose_masked(
    adapter: StackAdapter, reading: Reading, word: str | int | None, instead: str | None
) -> TokenPrediction:
    """The token at a mask: one in the text, or in place of a word of it."""
    text, ids, words = reading.words.text, reading.ids, reading.words
    if adapter.mask_id < 0:
        raise OptionError("why: the tokenizer has no mask token, so no word can be masked")
    masks = [i for i, one in enumerate(ids) if one == adapter.mask_id]
    if len(masks) > 1:
        raise OptionError(f"why: the text has {len(masks)} masks, expected one")
    if masks:
        row, span = masks[0], words.spans[masks[0]]
        token = None if word is None else _at(adapter, text, span, str(word), row)
        name = None if word is None else str(word)
    else:
        if word is None:
            raise OptionError(
                f"why: name a word of the text to mask, or write {adapter.mask_token} in it"
            )
        unit = words.find(word)
        places = words.tokens_of(unit)
        row, span, name = places[0], words.span(unit), words.called(unit)
        token = adapter.in_vocabulary(name, ids[row : row + 1])[0]
        ids = [adapter.mask_id if i in places else one for i, one in enumerate(ids)]
    other = None if instead is None else _at(adapter, text, span, instead, row)
    if other is not None and other == token:
        raise OptionError(f"why: instead={instead!r} begins like the word; name another word")
    return TokenPrediction(adapter, ids, words, row, token, other, (name, instead))


def _at(adapter: StackAdapter, text: str, span: tuple[int, int], word: str, row: int) -> int:
    """The first token of a word in a place of the text."""
    ids = adapter.read(text[: span[0]] + word + text[span[1] :]).ids
    if row >= len(ids) or ids[row] in adapter.special_ids:
        raise OptionError(f"why: {word!r} is not a word that the model could write")
    return adapter.in_vocabulary(word, ids[row : row + 1])[0]
