"""How regard's own models are asked."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.attention import causal, padding
from regard.lens.adapters.adapter import (
    BEAM,
    LastStep,
    Reading,
    no_translator,
    of_these,
    or_named,
)
from regard.lens.adapters.past import Past
from regard.lens.capture import Seen
from regard.nn import Classifier, LanguageModel
from regard.text import Tokenizer, padded
from regard.text.words import Words
from regard.translate.alignment import written_spans
from regard.translate.search import longest, search
from regard.translate.strategies import Beam
from regard.translate.translator import Translator


class RegardTranslator:
    """A translator of regard."""

    translates = writes = True
    kind = "translator"

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.model, self.tokenizer = translator.model, translator.tokenizer
        self.longest: int | None = translator.longest + 1  # and the end
        config = translator.model.config
        self.limit = config.max_length if config.position == "learned" else None
        self.vocabulary = len(self.table())
        self.embeddings = (self.model.source, self.model.target)
        self.start, self.end = Tokenizer.start, Tokenizer.end
        self.end_name = self.tokenizer.tokens([self.end])[0]

    def encode(self, reading: Reading, rows: int = 1) -> Tensor:
        ids = torch.tensor([reading.ids], device=self.model.output.device)
        return self.model.encode(ids.expand(rows, -1))

    def step_logits(self, memory: Tensor, prefix: Tensor, first: int = 0) -> Tensor:
        return self.model.logits(self.model.decode(prefix, memory)[:, first:])

    def last_step(self, seen: Seen, memory: Tensor, prefix: Sequence[int]) -> LastStep | None:
        length = len(prefix) - 1
        if length == 0:
            return None
        names = [f"decoder.blocks.{i}" for i in range(len(self.model.decoder.blocks))]
        own = [seen[f"{name}.attention"] for name in names]
        cross = [seen[f"{name}.cross"] for name in names]

        def logits(rows: int) -> Tensor:
            cache = self.model.cache()
            cache.length = length
            for block, look, read in zip(cache.blocks, own, cross, strict=True):
                past = (look.k[:, :, :length], look.v[:, :, :length])
                block.own.append(*(x.expand(rows, -1, -1, -1) for x in past))
                block.memory.append(*(x.expand(rows, -1, -1, -1) for x in (read.k, read.v)))
            last = torch.tensor(prefix[-1:], device=memory.device).expand(rows, 1)
            hidden = self.model.decode(last, memory.expand(rows, -1, -1), cache=cache)
            return self.model.logits(hidden[:, 0])

        return logits

    def encode_target(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def translate_all(self, readings: Sequence[Reading]) -> list[list[int]]:
        found = search(self.model, [one.ids[:-1] for one in readings], Beam(BEAM))
        return [list(one[0].tokens) for one in found]

    def teacher_force_all(
        self, readings: Sequence[Reading], written: Sequence[Sequence[int]]
    ) -> None:
        device = self.model.output.device
        source, lengths = padded([one.ids for one in readings])
        target, _ = padded([[self.start, *one] for one in written])
        self.model(source.to(device), target.to(device), source_mask=padding(lengths))

    def is_encoder(self, module: str) -> bool:
        return module.startswith("encoder.")

    def longest_output(self, memory: Tensor) -> int:
        return longest(memory.shape[1])

    def spell_choice(self, token: int) -> str:
        return or_named(self.tokenizer.decode([token]), self.tokenizer.tokens([token]))

    def target_words(self, tokens: Sequence[int]) -> Words:
        text = self.detokenize(tokens)
        spans = ((0, 0), *written_spans(self.tokenizer, tokens, text))
        names = tuple(self.tokenizer.tokens([self.start, *tokens]))
        return Words(text, names, spans, (True, *[False] * len(tokens)))

    def read(self, text: str) -> Reading:
        return _read(self.tokenizer, text, end=True)

    def past(self, reading: Reading) -> None:
        return None

    def layers(self, readings: Sequence[Reading], past: Past | None = None) -> list[Tensor]:
        source, lengths = padded([one.ids for one in readings])
        x = self.model.source(source.to(self.model.output.device))
        return _ended([x, *self.model.encoder.layers(x, mask=padding(lengths))])

    def generate(self, reading: Reading, last: Tensor) -> list[list[int]]:
        found = search(
            self.model,
            [reading.ids[:-1]] * len(last),
            Beam(BEAM),
            memory=last,
            cut_loops=self.translator.cut_loops,
        )
        return [list(one[0].tokens) for one in found]

    def detokenize(self, said: Sequence[int]) -> str:
        return self.tokenizer.decode(said)

    def log_probability(self, last: Tensor, said: Sequence[int]) -> Tensor:
        target = torch.tensor([[Tokenizer.start, *said]], device=last.device)
        hidden = self.model.decode(target.expand(len(last), -1), last)
        return of_these(self.model.logits(hidden), [*said, Tokenizer.end])

    def table(self) -> Tensor:
        return self.model.source.table.detach()

    def teacher_force(self, reading: Reading, said: Sequence[int]) -> Words:
        device = self.model.output.device
        target = [Tokenizer.start, *said]
        self.model(
            torch.tensor([reading.ids], device=device), torch.tensor([target], device=device)
        )
        return self.target_words(said)


class RegardStack:
    """A classifier or a language model of regard."""

    translates = False
    longest = None
    mask_token, mask_id = "", -1

    def __init__(self, model: Classifier | LanguageModel, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.writes = isinstance(model, LanguageModel)
        self.limit = model.config.max_length if model.config.position == "learned" else None
        self.vocabulary = len(self.table())
        self.kind = "causal" if self.writes else "classifier"
        self.embeddings = [model.source if isinstance(model, Classifier) else model.target]
        self.special_ids = {Tokenizer.pad, Tokenizer.start, Tokenizer.end}

    @property
    def device(self) -> torch.device:
        return self.table().device

    @property
    def labels(self) -> list[str]:
        """The classes of a classifier, by their numbers."""
        if not isinstance(self.model, Classifier):
            return []
        return [str(i) for i in range(self.model.output.out_features)]

    def predict(self, ids: Tensor, position: int | None = None, past: Past | None = None) -> Tensor:
        """The logits of the classes, or of the token after a position."""
        found: Tensor = self.model(ids)
        return found if position is None else found[:, position]

    def spell_choice(self, token: int) -> str:
        return self.detokenize([token])

    def token_names(self, ids: Sequence[int]) -> list[str]:
        return self.tokenizer.tokens(ids)

    def read(self, text: str) -> Reading:
        return _read(self.tokenizer, text, start=self.writes)

    def past(self, reading: Reading) -> None:
        return None

    def layers(self, readings: Sequence[Reading], past: Past | None = None) -> list[Tensor]:
        ids, lengths = padded([one.ids for one in readings])
        ids = ids.to(self.table().device)
        if isinstance(self.model, Classifier):
            x = self.model.source(ids)
            return _ended([x, *self.model.encoder.layers(x, mask=padding(lengths))])
        x = self.model.target(ids)
        found = [x]
        for block in self.model.decoder.blocks:
            found.append(block(found[-1], mask=causal))
        return [*found[:-1], self.model.decoder.norm(found[-1])]

    def generate(self, reading: Reading, last: Tensor) -> list[list[int]]:
        return [[int(i)] for i in self._logits(last).argmax(-1)]

    def detokenize(self, said: Sequence[int]) -> str:
        return or_named(self.tokenizer.decode(said), self.tokenizer.tokens(said))

    def log_probability(self, last: Tensor, said: Sequence[int]) -> Tensor:
        return of_these(self._logits(last).unsqueeze(1), said)

    def table(self) -> Tensor:
        of = self.model.source if isinstance(self.model, Classifier) else self.model.target
        return of.table.detach()

    def teacher_force(self, reading: Reading, said: Sequence[int]) -> Words:
        raise no_translator(self.model)

    def _logits(self, last: Tensor) -> Tensor:
        assert isinstance(self.model, LanguageModel)
        return nn.functional.linear(last[:, -1], self.model.output, self.model.output_bias)


def _read(tokenizer: Tokenizer, text: str, *, start: bool = False, end: bool = False) -> Reading:
    ids, spans = tokenizer.encode(text), tokenizer.spans(text)
    before, after = [Tokenizer.start] * start, [Tokenizer.end] * end
    ids = [*before, *ids, *after]
    spans = [*[(0, 0)] * len(before), *spans, *[(len(text), len(text))] * len(after)]
    special = [True] * len(before) + [False] * (len(ids) - start - end) + [True] * len(after)
    names = tuple(tokenizer.tokens(ids))
    return Reading(ids, Words(text, names, tuple(spans), tuple(special)))


def _ended(layers: list[Tensor]) -> list[Tensor]:
    """The last block's vectors are those after the final norm, as the decoder gets them."""
    return [*layers[:-2], layers[-1]]
