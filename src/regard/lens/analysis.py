"""`Analysis`: what all questions about a text share, computed once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import cast

import torch
from torch import Tensor

from regard.attention.record import Look
from regard.errors import OptionError
from regard.lens.adapters import (
    ModelAdapter,
    Reading,
    StackAdapter,
    TranslatorAdapter,
    writes_for,
)
from regard.lens.adapters.past import Past
from regard.lens.capture import watch
from regard.lens.measures import HeadMixers
from regard.lens.predictions import Prediction, Translated
from regard.lens.predictions.stack import (
    ClassPrediction,
    VectorPrediction,
    choose_masked,
    choose_next,
)
from regard.lens.predictions.translation import choose


class Analysis:
    """A text as a model reads it: its vectors and attention, what is written, and the decoder's.

    Each is computed when it is first used, and kept.
    """

    def __init__(self, adapter: ModelAdapter, reading: Reading, target: str | None = None) -> None:
        self.adapter, self.reading = adapter, reading
        if target is not None and adapter.kind != "translator":
            raise OptionError(
                f"lens: target={target!r}, but {type(adapter.model).__name__} does not translate"
            )
        if target is not None and not target.strip():
            raise OptionError("lens: the target is empty; give it at least one word")
        self._target = target

    @cached_property
    def _read(self) -> tuple[list[Tensor], dict[str, Look], dict[str, Tensor]]:
        model = self.adapter.model
        with torch.no_grad(), watch(model) as seen, HeadMixers(model) as mixers:
            vectors = self.adapter.layers([self.reading])
        looks = seen.layers()
        return vectors, looks, mixers.outputs(looks)

    @property
    def vectors(self) -> list[Tensor]:
        """The vectors before the first block and after each, ``(1, n, width)``."""
        return self._read[0]

    @cached_property
    def memory(self) -> Tensor:
        """The vectors after the last block, ``(1, n, width)``: what a decoder attends to."""
        return self.vectors[-1]

    @property
    def looks(self) -> dict[str, Look]:
        """The attention with which the text is read, layer by layer."""
        return self._read[1]

    @property
    def outputs(self) -> dict[str, Tensor]:
        """For each layer, the matrix that mixes its heads, ``(h, e, width)``."""
        return self._read[2]

    @cached_property
    def past(self) -> Past | None:
        """The key-value cache of a causal model: links of a word change nothing before it."""
        return self.adapter.past(self.reading)

    @cached_property
    def written(self) -> list[int] | None:
        """The tokens that the model writes: a translation, or the next token; None if nothing."""
        if not writes_for(self.adapter, self.reading):
            return None
        if self._target is not None:
            return cast(TranslatorAdapter, self.adapter).encode_target(self._target)
        with torch.no_grad():
            return self.adapter.generate(self.reading, self.memory)[0]

    @cached_property
    def translated(self) -> Translated:
        """The translation, with names for the rows and columns of its decoder."""
        self.check_length("lens")
        adapter = cast(TranslatorAdapter, self.adapter)
        return Translated(adapter, self.reading, self.memory, self.written or [])

    def check_length(self, caller: str) -> None:
        """Raise if the text is too long for the model to write something for it."""
        if not writes_for(self.adapter, self.reading):
            raise OptionError(
                f"{caller}: the text has {len(self.reading.ids):,} tokens with its end, but the "
                f"model learned from at most {self.adapter.longest:,}; give it a sentence at a time"
            )

    def writes(self, word: str | int) -> bool:
        """Whether the model is a translator and writes this word."""
        if self.adapter.kind != "translator" or not writes_for(self.adapter, self.reading):
            return False
        return isinstance(word, str) and self.translated.written.has(word)

    def steps_for(self, tokens: Sequence[int]) -> list[int]:
        """The steps that write the translation of a word, given by its tokens."""
        return self.translated.steps_for(self.reading.words.places[tokens[0]])

    def prediction(
        self, word: str | int | None, instead: str | None, *, every_place: bool = True
    ) -> Prediction:
        """The prediction of a word, compared with an alternative.

        `every_place`: whether links of the whole model are asked about, or only those from the
        word's row.
        """
        adapter = self.adapter
        if adapter.kind == "translator":
            self.translated.decoded(every_place)  # the choice of a word reads any pass
            return choose(self.translated, word, instead, every_place)
        found = self._of_stack(cast(StackAdapter, adapter), word, instead)
        found.every_place = every_place
        return found

    def _of_stack(
        self, adapter: StackAdapter, word: str | int | None, instead: str | None
    ) -> Prediction:
        reading = self.reading
        if adapter.kind == "masked":
            return choose_masked(adapter, reading, word, instead)
        if adapter.kind == "encoder":
            if word is None or instead is not None:
                raise OptionError(
                    f"why: {type(adapter.model).__name__} has no output head, so it writes "
                    "nothing; name a word of the text, without instead, to see what its vector "
                    "depends on"
                )
            return VectorPrediction(adapter, reading, reading.words.find(word))
        if isinstance(word, int):
            raise OptionError(f"why: word={word!r}, expected a word as text")
        if adapter.kind == "causal":
            return choose_next(adapter, reading, word, instead)
        return ClassPrediction(adapter, reading, word, instead)
