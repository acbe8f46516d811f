"""`Translation`: a translated text with its score, subwords and alignment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from torch import Tensor

from regard.nn import Transformer
from regard.text import Tokenizer, by_length
from regard.text.words import Span
from regard.translate.alignment import Alignment, aligned, attention_to_source, written_spans
from regard.translate.search import Hypothesis

if TYPE_CHECKING:
    from regard.translate.translator import Translator

BATCH = 8192
"""Subwords in a batch: sentences × the longest of them × sequences of each."""


@dataclass(frozen=True)
class Part:
    """A piece of a text that was translated on its own; usually the whole text."""

    start: int
    """Its offset in the source."""
    source: str
    ids: list[int]
    found: Hypothesis
    text: str


@dataclass(frozen=True)
class Translation:
    """A translated text with its score, subwords and alignment."""

    source: str
    text: str
    score: float
    """log p / length ** length_penalty, of all subwords and the end; 0 for an empty text."""
    log_probability: float
    tokens: tuple[str, ...]
    """The subwords of the text."""
    alternatives: tuple[Translation, ...] = ()
    """The others of the n best, by descending score."""
    parts: int = 1
    """Pieces in which the text was translated; more than 1 if it was too long for the model."""
    ended: bool = True
    """False if the translation was cut off without an end token."""
    _parts: tuple[Part, ...] = field(default=(), repr=False, compare=False)
    _translator: Translator | None = field(default=None, repr=False, compare=False)

    @cached_property
    def alignment(self) -> Alignment:
        """The source words that each target word came from, computed lazily."""
        if self._translator is None:
            return aligned(self.source, self.text, [])
        return self._translator.align([self])[0]

    def __str__(self) -> str:
        return self.text


def joined(
    translator: Translator, source: str, parts: Sequence[Sequence[Part]], power: float
) -> Translation:
    """The translation of a text from the n best of each of its parts; `power`: length penalty."""
    if not parts:
        return Translation(source, "", 0.0, 0.0, ())
    ranked = [
        _of_parts(translator, source, tuple(part[rank] for part in parts), power)
        for rank in range(min(map(len, parts)))
    ]
    return replace(ranked[0], alternatives=tuple(ranked[1:]))


def _of_parts(
    translator: Translator, source: str, parts: tuple[Part, ...], power: float
) -> Translation:
    found = [part.found for part in parts]
    log_p = sum(one.log_probability for one in found)
    length = sum(len(one.tokens) + one.ended for one in found)
    return Translation(
        source,
        " ".join(part.text for part in parts),
        found[0].score if len(parts) == 1 else log_p / length**power,
        log_p,
        tuple(translator.tokenizer.tokens(i for one in found for i in one.tokens)),
        parts=len(parts),
        ended=all(one.ended for one in found),
        _parts=parts,
        _translator=translator,
    )


def align_all(
    model: Transformer,
    tokenizer: Tokenizer,
    translations: Sequence[Translation],
    layer: int | None = None,
) -> list[Alignment]:
    """The alignments of translations, many at a time; see `Translator.align`."""
    parts = [part for one in translations for part in one._parts]
    weights: dict[int, Tensor] = {}
    lengths = [max(len(part.ids), len(part.found.tokens)) + 1 for part in parts]
    for chosen in by_length(lengths, BATCH):
        sources = [parts[i].ids for i in chosen]
        targets = [parts[i].found.tokens for i in chosen]
        found = attention_to_source(model, sources, targets, layer)
        weights.update(zip(chosen, found, strict=True))
    of_parts = iter(range(len(parts)))
    return [
        aligned(
            one.source,
            one.text,
            [
                (*_spans(tokenizer, one, number), weights[next(of_parts)])
                for number in range(len(one._parts))
            ],
        )
        for one in translations
    ]


def _spans(
    tokenizer: Tokenizer, translation: Translation, number: int
) -> tuple[list[Span], list[Span]]:
    """The spans of a part's subwords in the whole source and in the whole translation."""
    part = translation._parts[number]
    before = sum(len(one.text) + 1 for one in translation._parts[:number])
    source = [(part.start + a, part.start + b) for a, b in tokenizer.spans(part.source)]
    written = written_spans(tokenizer, part.found.tokens, part.text)
    return source, [(before + a, before + b) for a, b in written]
