"""`Translated`: a translation as its decoder reads it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.lens.adapters import Reading, TranslatorAdapter
from regard.lens.capture import Seen, watch
from regard.lens.predictions.prediction import embeddings_as_leaves
from regard.text.words import Words
from regard.translate.alignment import ALIGNING

SURE = 0.7
"""The steps for a word attend to it at least this share of the largest attention to it."""


class Recorded(NamedTuple):
    """A watched pass over a translation, with the autograd graph."""

    with_encoder: bool
    """Whether the encoder was part of it."""
    seen: Seen
    logits: Float[Tensor, "1 t choices"]
    leaves: list[Tensor]
    """The embedded tokens of the translation, and of the text if that was read as well."""


class Translated:
    """A translation as its decoder reads it, with names for its rows and columns.

    Row i of the decoder reads token i - 1 and writes token i: rows are named after what they write,
    columns after what was read there.
    """

    def __init__(
        self,
        adapter: TranslatorAdapter,
        reading: Reading,
        memory: Float[Tensor, "1 n width"],
        tokens: Sequence[int],
    ) -> None:
        self.adapter, self.reading, self.tokens = adapter, reading, list(tokens)
        self.memory = memory
        """The encoder's output."""
        self.read = adapter.target_words(self.tokens)
        """What stands at each position: the start, then the translation."""
        spans = (*self.read.spans[1:], (len(self.read.text), len(self.read.text)))
        names = (*self.read.tokens[1:], adapter.end_name)
        special = (*self.read.special[1:], True)
        self.written = Words(self.read.text, names, spans, special)
        """What is written at each position: the translation, then the end."""
        self._unused: Recorded | None = None
        """A recorded pass whose graph no backward pass has used."""
        self._recorded: dict[bool, tuple[Seen, Tensor]] = {}
        """The decoder's attention and the logits of recorded passes, with and without encoder."""

    def prefix(self, memory: Float[Tensor, "rows n width"]) -> Int64[Tensor, "rows t"]:
        """What the decoder reads, beside each row of the encoder's output."""
        read = torch.tensor([[self.adapter.start, *self.tokens]], device=memory.device)
        return read.expand(len(memory), -1)

    def decoded(self, with_encoder: bool) -> tuple[Seen, Float[Tensor, "t choices"]]:
        """The decoder's attention and the logits at each step, in a recorded pass."""
        if with_encoder not in self._recorded:
            self._unused = found = self._record(with_encoder)
            own = found.seen.only(x for x in found.seen if not self.adapter.is_encoder(x))
            self._recorded[with_encoder] = own, found.logits[0].detach()
        return self._recorded[with_encoder]

    def recorded(self, with_encoder: bool) -> Recorded:
        """A pass for one backward pass, which frees its graph."""
        first, self._unused = self._unused, None
        if first is not None and first.with_encoder == with_encoder:
            return first
        return self._record(with_encoder)

    def _record(self, with_encoder: bool) -> Recorded:
        adapter, memory = self.adapter, self.memory
        with (
            torch.enable_grad(),
            embeddings_as_leaves(adapter.embeddings) as leaves,
            watch(adapter.model, gradients=True) as seen,
        ):
            if with_encoder:
                memory = adapter.encode(self.reading)
            logits = adapter.step_logits(memory, self.prefix(memory))
        return Recorded(with_encoder, seen, logits, leaves)

    @cached_property
    def _plain(self) -> tuple[Seen, Tensor]:
        with torch.no_grad(), watch(self.adapter.model) as seen:
            logits = self.adapter.step_logits(self.memory, self.prefix(self.memory))
        return seen, logits[0]

    @property
    def seen(self) -> Seen:
        """The attention of the decoder as it reads the whole translation.

        Of a pass without autograd graph, so that its bits do not depend on what was asked before.
        """
        return self._plain[0]

    @property
    def _decoded(self) -> tuple[Seen, Tensor]:
        """The decoder's attention and the logits in any pass."""
        return next(iter(self._recorded.values()), None) or self._plain

    @cached_property
    def confidence(self) -> float:
        """The geometric mean of the probabilities of the written tokens."""
        if not self.tokens:
            return 1.0
        logs = self._decoded[1][: len(self.tokens)].log_softmax(-1)
        chosen = torch.tensor(self.tokens, device=logs.device)
        return float(logs.gather(-1, chosen[:, None]).mean().exp())

    @cached_property
    def _to_source(self) -> Float[Tensor, "layers t units"]:
        """The attention of each step to each source unit, the mean over the heads of each layer.

        Without special tokens, such as the end of the source, and normalised to sum to 1.
        """
        source = self.reading.words
        real = torch.tensor(source.is_word)
        seen = self._decoded[0]
        cross = [name for name in seen if seen.kind(name) == "cross"]
        steps = len(self.tokens)
        found = [source.summed(seen[name].weights()[0].mean(0)[:steps]) for name in cross]
        weights = torch.stack(found).cpu() * real
        return weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)

    def alignment(self) -> tuple[tuple[int, int], ...]:
        """For each written word, the source word that it attends to most.

        By the mean over the heads of the decoder layers that align best.
        """
        if not self.tokens:
            return ()
        weights = self._to_source[-ALIGNING:].mean(0)
        return tuple(
            (unit, int(weights[self.written.tokens_of(unit)].mean(0).argmax()))
            for unit, is_word in enumerate(self.written.is_word)
            if is_word
        )

    def steps_for(self, unit: int) -> list[int]:
        """The steps that write the translation of a source word.

        They attend to it more than to other words, and about as much as any step does. A comma
        before a clause attends to its pronoun as well, so punctuation translates punctuation only.
        """
        if not self.tokens:
            return []
        weights = self._to_source.mean(0)
        if has_letters(self.reading.words.names[unit]):
            spelled = [has_letters(self.written.names[i]) for i in self.written.places]
            weights = weights * torch.tensor(spelled[: len(weights)])[:, None]
        least = SURE * float(weights[:, unit].max())
        return [
            i
            for i, row in enumerate(weights)
            if int(row.argmax()) == unit and float(row[unit]) >= max(least, 1e-9)
        ]


def has_letters(word: str) -> bool:
    """Whether a word has a letter or digit, unlike punctuation."""
    return any(map(str.isalnum, word))
