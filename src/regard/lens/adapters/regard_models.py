"""Adapters of regard's own models."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.attention import causal, padding
from regard.lens.adapters.adapter import (
    BEAM,
    Reading,
    Resumed,
    StackAdapter,
    TranslatorAdapter,
    or_named,
)
from regard.lens.adapters.past import Past
from regard.lens.capture import Seen
from regard.nn import Classifier, LanguageModel, Transformer
from regard.text import Tokenizer, padded
from regard.text.words import Words
from regard.translate.alignment import written_spans
from regard.translate.search import longest, search
from regard.translate.strategies import Beam
from regard.translate.translator import Translator


class RegardTranslator(TranslatorAdapter):
    """A translator of regard."""

    model: Transformer
    start, end, unknown_id = Tokenizer.start, Tokenizer.end, Tokenizer.unknown

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.model, self.tokenizer = translator.model, translator.tokenizer
        self.longest = translator.longest + 1  # and the end
        config = translator.model.config
        self.limit = config.max_length if config.position == "learned" else None
        self.embeddings = (self.model.source, self.model.target)

    @property
    def end_name(self) -> str:
        return self.tokenizer.tokens([self.end])[0]

    def read(self, text: str) -> Reading:
        return _read(self.tokenizer, text, end=True)

    def layers(self, readings: Sequence[Reading], past: Past | None = None) -> list[Tensor]:
        source, lengths = padded([one.ids for one in readings])
        x = self.model.source(source.to(self.model.output.device))
        return _normalised([x, *self.model.encoder.layers(x, mask=padding(lengths))])

    def encode(self, reading: Reading, rows: int = 1) -> Tensor:
        ids = torch.tensor([reading.ids], device=self.model.output.device)
        return self.model.encode(ids.expand(rows, -1))

    def step_logits(self, memory: Tensor, prefix: Tensor, first: int = 0) -> Tensor:
        return self.model.logits(self.model.decode(prefix, memory)[:, first:])

    def resumed(self, seen: Seen, memory: Tensor, length: int) -> Resumed | None:
        if length == 0:
            return None
        names = [f"decoder.blocks.{i}" for i in range(len(self.model.decoder.blocks))]
        own = [seen[f"{name}.attention"] for name in names]
        cross = [seen[f"{name}.cross"] for name in names]

        def logits(tokens: Tensor, first: int) -> Tensor:
            rows, cache = len(tokens), self.model.cache()
            cache.length = length
            for block, look, read in zip(cache.blocks, own, cross, strict=True):
                past = (look.k[:, :, :length], look.v[:, :, :length])
                block.own.append(*(x.expand(rows, -1, -1, -1) for x in past))
                block.memory.append(*(x.expand(rows, -1, -1, -1) for x in (read.k, read.v)))
            hidden = self.model.decode(tokens, memory.expand(rows, -1, -1), cache=cache)
            return self.model.logits(hidden[:, first:])

        return logits

    def generate(self, reading: Reading, last: Tensor) -> list[list[int]]:
        return self._search([reading] * len(last), last)

    def translate_all(self, readings: Sequence[Reading]) -> list[tuple[list[int], Tensor]]:
        source, lengths = padded([one.ids for one in readings])
        mask = padding(lengths) if int(lengths.min()) < source.shape[1] else None
        memory = self.model.encode(source.to(self.model.output.device), source_mask=mask)
        found = zip(self._search(readings, memory), memory, lengths.tolist(), strict=True)
        return [(tokens, row[None, :length]) for tokens, row, length in found]

    def _search(self, readings: Sequence[Reading], memory: Tensor) -> list[list[int]]:
        """The tokens of the best translation of each text, given the encoder's output."""
        sources, cut_loops = [one.ids[:-1] for one in readings], self.translator.cut_loops
        found = search(self.model, sources, Beam(BEAM), memory=memory, cut_loops=cut_loops)
        return [list(one[0].tokens) for one in found]

    def teacher_force(self, readings: Sequence[Reading], written: Sequence[Sequence[int]]) -> None:
        device = self.model.output.device
        source, lengths = padded([one.ids for one in readings])
        target, _ = padded([[self.start, *one] for one in written])
        self.model(source.to(device), target.to(device), source_mask=padding(lengths))

    def is_encoder(self, module: str) -> bool:
        return module.startswith("encoder.")

    def longest_output(self, length: int) -> int:
        return longest(length)

    def encode_target(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def detokenize(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens)

    def spell_choice(self, token: int) -> str:
        return or_named(self.tokenizer.decode([token]), self.tokenizer.tokens([token]))

    def target_words(self, tokens: Sequence[int]) -> Words:
        text = self.detokenize(tokens)
        spans = ((0, 0), *written_spans(self.tokenizer, tokens, text))
        names = tuple(self.tokenizer.tokens([self.start, *tokens]))
        return Words(text, names, spans, (True, *[False] * len(tokens)))

    def table(self) -> Tensor:
        return self.model.source.table.detach()


class RegardStack(StackAdapter):
    """A classifier or a language model of regard."""

    model: Classifier | LanguageModel
    mask_token, mask_id, unknown_id = "", -1, Tokenizer.unknown
    special_ids = {Tokenizer.pad, Tokenizer.start, Tokenizer.end}  # noqa: RUF012

    def __init__(self, model: Classifier | LanguageModel, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer
        self._embedding = model.source if isinstance(model, Classifier) else model.target
        self.writes = isinstance(model, LanguageModel)
        self.kind = "causal" if self.writes else "classifier"
        self.limit = model.config.max_length if model.config.position == "learned" else None
        self.embeddings = [self._embedding]

    @property
    def device(self) -> torch.device:
        return self.table().device

    @property
    def labels(self) -> list[str]:
        if not isinstance(self.model, Classifier):
            return []
        return [str(i) for i in range(self.model.output.out_features)]

    def read(self, text: str) -> Reading:
        return _read(self.tokenizer, text, start=self.writes)

    def layers(self, readings: Sequence[Reading], past: Past | None = None) -> list[Tensor]:
        ids, lengths = padded([one.ids for one in readings])
        x = self._embedding(ids.to(self.device))
        if isinstance(self.model, Classifier):
            return _normalised([x, *self.model.encoder.layers(x, mask=padding(lengths))])
        found = [x]
        for block in self.model.decoder.blocks:
            found.append(block(found[-1], mask=causal))
        return [*found[:-1], self.model.decoder.norm(found[-1])]

    def predict(self, ids: Tensor, position: int | None = None, past: Past | None = None) -> Tensor:
        found: Tensor = self.model(ids)
        return found if position is None else found[:, position]

    def next_logits(self, last: Tensor) -> Tensor:
        assert isinstance(self.model, LanguageModel)
        return nn.functional.linear(last[:, -1], self.model.output, self.model.output_bias)

    def detokenize(self, tokens: Sequence[int]) -> str:
        return or_named(self.tokenizer.decode(tokens), self.tokenizer.tokens(tokens))

    def spell_choice(self, token: int) -> str:
        return self.detokenize([token])

    def token_names(self, ids: Sequence[int]) -> list[str]:
        return self.tokenizer.tokens(ids)

    def table(self) -> Tensor:
        return self._embedding.table.detach()


def _read(tokenizer: Tokenizer, text: str, *, start: bool = False, end: bool = False) -> Reading:
    before, after = [Tokenizer.start] * start, [Tokenizer.end] * end
    own = tokenizer.encode(text)
    ids = [*before, *own, *after]
    spans = (*[(0, 0)] * start, *tokenizer.spans(text), *[(len(text), len(text))] * end)
    special = (*[True] * start, *[False] * len(own), *[True] * end)
    return Reading(ids, Words(text, tuple(tokenizer.tokens(ids)), spans, special))


def _normalised(layers: list[Tensor]) -> list[Tensor]:
    """The layers' vectors, the last of them after the final norm, as the decoder gets them."""
    return [*layers[:-2], layers[-1]]
