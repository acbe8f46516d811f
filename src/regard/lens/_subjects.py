"""What the lens asks of a model, whoever made it: to read texts, and to say something.

A `Subject` hides how a model is called. It reads a batch of texts with the part of the model that
looks at them as a whole (the encoder of a translator, all of a language model) and returns their
vectors layer by layer; everything that it says follows from the last of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import tokenizers
import torch
from torch import Tensor, nn

from regard.attention import causal, padding
from regard.errors import OptionError
from regard.lens.cutting import Cut, cut
from regard.nn import Classifier, LanguageModel, Transformer
from regard.text import Tokenizer, padded
from regard.text.words import Words, spelled
from regard.translate.alignment import attention_to_source, written_spans
from regard.translate.search import Beam, longest, search
from regard.translate.translator import Translator

BEAM = 5
SURE = 0.7
"""What is written for a word looks at it about as much as what looks at it most."""


class Reading:
    """A text as a model reads it: the numbers of its tokens, and its words."""

    def __init__(self, ids: Sequence[int], words: Words) -> None:
        self.ids, self.words = list(ids), words


@runtime_checkable
class Subject(Protocol):
    """A model that can be asked."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def limit(self) -> int | None:
        """How many tokens it can read, if there is a limit."""

    @property
    def longest(self) -> int | None:
        """To how many tokens it can say something, if there is a limit."""

    @property
    def translates(self) -> bool: ...

    @property
    def writes(self) -> bool:
        """Whether it says something: a translation, or the next word."""

    def read(self, text: str) -> Reading: ...

    def layers(self, readings: Sequence[Reading]) -> list[Tensor]:
        """The vectors ``(b, n, width)`` before the first block and after each one in turn."""

    def say(self, reading: Reading, last: Tensor) -> list[list[int]]:
        """What the model says to a text, as numbers of tokens, given the last vectors of it.

        `last` ``(b, n, width)``: b times, each with other links cut, for example.
        """

    def spell(self, said: Sequence[int]) -> str: ...

    def written_for(
        self, reading: Reading, said: Sequence[int], tokens: Sequence[int]
    ) -> list[int]:
        """Which of the numbers that were said stand for these tokens of the text.

        None, if it says nothing of the kind, or nobody knows.
        """

    def say_blindly(
        self, last: Tensor, said: Sequence[int], hidden: Mapping[int, Sequence[int]]
    ) -> list[int]:
        """What is said if some of it is written without looking at some tokens of the text.

        `hidden`: which tokens, by the places of what is `written_for` a word.
        """

    def log_probability(self, last: Tensor, said: Sequence[int]) -> Tensor:
        """``(b,)``: of saying this, given the last vectors of b unpadded rows of one length."""

    def table(self) -> Tensor:
        """The vector of each token before it is anywhere, ``(vocabulary, width)``."""

    def retell(self, reading: Reading, said: Sequence[int]) -> Words:
        """Run the whole model over a text and what was said to it; the words of the latter."""


def subject_of(model: object, tokenizer: object) -> Subject:
    """The subject that fits a model and its tokenizer."""
    if isinstance(model, Translator):
        return _Translating(model)
    if isinstance(model, Transformer) and isinstance(tokenizer, Tokenizer):
        return _Translating(Translator(model, tokenizer))
    if isinstance(model, Classifier | LanguageModel) and isinstance(tokenizer, Tokenizer):
        return _Stack(model, tokenizer)
    if isinstance(model, Transformer | Classifier | LanguageModel):
        raise OptionError(
            f"Lens: tokenizer is {type(tokenizer).__name__}, expected the regard.text.Tokenizer "
            "that the model was trained with"
        )
    if not isinstance(model, nn.Module):
        raise OptionError(f"Lens: model is {type(model).__name__}, expected a PyTorch module")
    if not hasattr(model, "config") or not hasattr(model, "get_input_embeddings"):
        raise OptionError(
            f"Lens: {type(model).__name__} is neither a model of regard nor of transformers, so it "
            "is not known how to give it a text; regard.watch and regard.cut take any model"
        )
    return _HuggingFace(model, tokenizer)


def speaks(subject: Subject, reading: Reading) -> bool:
    """Whether the model says something to this text."""
    within = subject.longest is None or len(reading.ids) <= subject.longest
    return subject.writes and within


class _Translating:
    """A translator of regard."""

    translates = writes = True

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.model, self.tokenizer = translator.model, translator.tokenizer
        self.longest: int | None = translator.longest + 1  # and the end
        config = translator.model.config
        self.limit = config.max_length if config.position == "learned" else None

    def read(self, text: str) -> Reading:
        return _read(self.tokenizer, text, end=True)

    def layers(self, readings: Sequence[Reading]) -> list[Tensor]:
        source, lengths = padded([one.ids for one in readings])
        x = self.model.source(source.to(self.model.output.device))
        return _ended([x, *self.model.encoder.layers(x, mask=padding(lengths))])

    def say(self, reading: Reading, last: Tensor) -> list[list[int]]:
        found = search(self.model, [reading.ids[:-1]] * len(last), Beam(BEAM), memory=last)
        return [list(one[0].tokens) for one in found]

    def spell(self, said: Sequence[int]) -> str:
        return self.tokenizer.decode(said)

    def written_for(
        self, reading: Reading, said: Sequence[int], tokens: Sequence[int]
    ) -> list[int]:
        if not said:
            return []
        layers = range(len(self.model.decoder.blocks))
        source = [reading.ids[:-1]]
        found = [attention_to_source(self.model, source, [said], layer)[0] for layer in layers]
        weights = torch.stack(found).mean(0)
        own = [token for token in tokens if token < weights.shape[1]]
        amounts = weights[:, own].sum(1)
        least = SURE * float(amounts.max())
        return [
            i
            for i, (row, amount) in enumerate(zip(weights, amounts, strict=True))
            if int(row.argmax()) in own and float(amount) >= least
        ]

    def say_blindly(
        self, last: Tensor, said: Sequence[int], hidden: Mapping[int, Sequence[int]]
    ) -> list[int]:
        cuts = {place: Cut(place, tokens, kind="cross") for place, tokens in hidden.items()}
        kept = next((i for i in sorted(cuts) if self._next(last, said[:i], cuts) != said[i]), None)
        if kept is None:
            return list(said)
        told = list(said[:kept])
        while len(told) < longest(last.shape[1]):
            word = self._next(last, told, cuts)
            if word == Tokenizer.end:
                break
            told.append(word)
        return told

    def _next(self, last: Tensor, told: Sequence[int], cuts: Mapping[int, Cut]) -> int:
        """The likeliest word after these."""
        target = torch.tensor([[Tokenizer.start, *told]], device=last.device)
        with cut(self.model, [one for place, one in cuts.items() if place <= len(told)]):
            return int(self.model.logits(self.model.decode(target, last)[:, -1]).argmax())

    def log_probability(self, last: Tensor, said: Sequence[int]) -> Tensor:
        target = torch.tensor([[Tokenizer.start, *said]], device=last.device)
        hidden = self.model.decode(target.expand(len(last), -1), last)
        return _of_these(self.model.logits(hidden), [*said, Tokenizer.end])

    def table(self) -> Tensor:
        return self.model.source.table.detach()

    def retell(self, reading: Reading, said: Sequence[int]) -> Words:
        device = self.model.output.device
        target = [Tokenizer.start, *said]
        self.model(
            torch.tensor([reading.ids], device=device), torch.tensor([target], device=device)
        )
        text = self.spell(said)
        spans = ((0, 0), *written_spans(self.tokenizer, said, text))
        special = (True, *[False] * len(said))
        return Words(text, tuple(self.tokenizer.tokens(target)), spans, special)


class _Stack:
    """A classifier or a language model of regard."""

    translates = False
    longest = None

    def __init__(self, model: Classifier | LanguageModel, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.writes = isinstance(model, LanguageModel)
        self.limit = model.config.max_length if model.config.position == "learned" else None

    def read(self, text: str) -> Reading:
        return _read(self.tokenizer, text, start=self.writes)

    def layers(self, readings: Sequence[Reading]) -> list[Tensor]:
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

    def say(self, reading: Reading, last: Tensor) -> list[list[int]]:
        return [[int(i)] for i in self._logits(last).argmax(-1)]

    def spell(self, said: Sequence[int]) -> str:
        return self.tokenizer.decode(said)

    def written_for(
        self, reading: Reading, said: Sequence[int], tokens: Sequence[int]
    ) -> list[int]:
        return []

    def say_blindly(
        self, last: Tensor, said: Sequence[int], hidden: Mapping[int, Sequence[int]]
    ) -> list[int]:
        return list(said)

    def log_probability(self, last: Tensor, said: Sequence[int]) -> Tensor:
        return _of_these(self._logits(last).unsqueeze(1), said)

    def table(self) -> Tensor:
        of = self.model.source if isinstance(self.model, Classifier) else self.model.target
        return of.table.detach()

    def retell(self, reading: Reading, said: Sequence[int]) -> Words:
        raise _no_translator(self.model)

    def _logits(self, last: Tensor) -> Tensor:
        assert isinstance(self.model, LanguageModel)
        return nn.functional.linear(last[:, -1], self.model.output, self.model.output_bias)


class _HuggingFace:
    """A model of transformers."""

    longest = None

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        config = model.config
        self.writes = model.can_generate() and model.get_output_embeddings() is not None
        self.translates = bool(config.is_encoder_decoder) and self.writes
        self._reader = model.get_encoder() if config.is_encoder_decoder else model
        self._fast = _fast(tokenizer)
        self.limit = _limit(model, tokenizer)

    def read(self, text: str) -> Reading:
        if self._fast is not None:
            found = self._fast.encode(text)
            special = tuple(map(bool, found.special_tokens_mask))
            words = Words(text, tuple(found.tokens), tuple(found.offsets), special)
            return Reading(found.ids, words)
        ids = self.tokenizer(text)["input_ids"]
        special = self._special(ids)
        own = [i for i, apart in zip(ids, special, strict=True) if not apart]
        spans = iter(spelled(self._decode, own, text))
        return Reading(
            ids,
            Words(
                text,
                tuple(self.tokenizer.convert_ids_to_tokens(ids)),
                tuple((0, 0) if apart else next(spans) for apart in special),
                special,
            ),
        )

    def layers(self, readings: Sequence[Reading]) -> list[Tensor]:
        ids, lengths = padded([one.ids for one in readings])
        there = torch.arange(ids.shape[1]) < lengths[:, None]
        device = next(self.model.parameters()).device
        inputs: dict[str, Any] = {
            "input_ids": ids.to(device),
            "attention_mask": there.long().to(device),
        }
        if not self.model.config.is_encoder_decoder and self.writes:
            inputs["use_cache"] = False
        found = self._reader(**inputs, output_hidden_states=True)
        if self.writes and not self.translates:
            # Some have more between the last vectors and the logits than one matrix.
            says = found.logits[:1, -1]
            self.writes = torch.allclose(
                self._next(found.hidden_states[-1][:1]).to(says), says, rtol=1e-2, atol=1e-3
            )
        return list(found.hidden_states)

    def say(self, reading: Reading, last: Tensor) -> list[list[int]]:
        if not self.translates:
            return [[int(i)] for i in self._next(last).argmax(-1)]
        longest = 2 * len(reading.ids) + 10
        positions = getattr(self.model.config, "max_position_embeddings", None)
        written = self.model.generate(
            input_ids=torch.tensor([reading.ids] * len(last), device=last.device),
            **_encoded(last),
            num_beams=BEAM,
            do_sample=False,
            max_new_tokens=min(longest, positions - 1) if positions else longest,
        )
        ends = {self.model.config.pad_token_id, self._end}
        return [[int(i) for i in row[1:] if int(i) not in ends] for row in written]

    def spell(self, said: Sequence[int]) -> str:
        return self._decode(said) if self._fast is None else str(self._fast.decode(list(said)))

    def written_for(
        self, reading: Reading, said: Sequence[int], tokens: Sequence[int]
    ) -> list[int]:
        return []

    def say_blindly(
        self, last: Tensor, said: Sequence[int], hidden: Mapping[int, Sequence[int]]
    ) -> list[int]:
        return list(said)

    def log_probability(self, last: Tensor, said: Sequence[int]) -> Tensor:
        if not self.translates:
            return _of_these(self._next(last).unsqueeze(1), said)
        end = [] if self._end is None else [self._end]
        target = torch.tensor([[self._start, *said, *end][: len(said) + len(end)]])
        logits = self.model(
            **_encoded(last),
            decoder_input_ids=target.to(last.device).expand(len(last), -1),
            use_cache=False,
        ).logits
        return _of_these(logits, [*said, *end])

    def table(self) -> Tensor:
        found: Tensor = self.model.get_input_embeddings().weight.detach()
        return found

    def retell(self, reading: Reading, said: Sequence[int]) -> Words:
        if not self.translates:
            raise _no_translator(self.model)
        device = next(self.model.parameters()).device
        target = [self._start, *said]
        self.model(
            input_ids=torch.tensor([reading.ids], device=device),
            decoder_input_ids=torch.tensor([target], device=device),
            use_cache=False,
        )
        text = self.spell(said)
        spans = ((0, 0), *spelled(self.spell, list(said), text))
        if self._fast is None:
            names = tuple(self.tokenizer.convert_ids_to_tokens(target))
        else:
            names = tuple(str(self._fast.id_to_token(i)) for i in target)
        return Words(text, names, spans, (True, *self._special(said)))

    def _special(self, ids: Sequence[int]) -> tuple[bool, ...]:
        """Which of the numbers stand for no text; an unknown word is a word."""
        if self._fast is not None:
            added = self._fast.get_added_tokens_decoder()
            named = {i for i, token in added.items() if token.special}
        else:
            named = set(self.tokenizer.all_special_ids)
        named -= {getattr(self.tokenizer, "unk_token_id", None)}
        return tuple(i in named for i in ids)

    @property
    def _start(self) -> int:
        config, generation = self.model.config, self.model.generation_config
        start = getattr(config, "decoder_start_token_id", None)
        return int(generation.decoder_start_token_id if start is None else start)

    @property
    def _end(self) -> int | None:
        end = self.model.generation_config.eos_token_id
        first: int | None = end[0] if isinstance(end, list) else end
        return first

    def _decode(self, ids: Sequence[int]) -> str:
        """Numbers to text, by a tokenizer that does not say where its pieces stand."""
        return str(
            self.tokenizer.decode(
                list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )

    def _next(self, last: Tensor) -> Tensor:
        found: Tensor = self.model.get_output_embeddings()(last[:, -1])
        return found


def _limit(model: Any, tokenizer: Any) -> int | None:
    """How many tokens a model of transformers can read, if that is limited."""
    config = model.config
    positions: int | None = getattr(config, "max_position_embeddings", None)
    if positions is None:
        if hasattr(config, "relative_attention_num_buckets"):
            return None
        positions = getattr(tokenizer, "model_max_length", None)
        return positions if isinstance(positions, int) and 0 < positions < 10**9 else None
    for name, module in model.named_modules():
        if "position" in name and isinstance(module, nn.Embedding) and module.padding_idx:
            return positions - module.padding_idx - 1  # counted from behind that of padding
    return positions


def _encoded(last: Tensor) -> dict[str, Any]:
    """What an encoder of transformers has read, as its decoder takes it."""
    from transformers.modeling_outputs import BaseModelOutput

    return {
        "encoder_outputs": BaseModelOutput(last_hidden_state=last),  # type: ignore[arg-type]
        "attention_mask": last.new_ones(last.shape[:2], dtype=torch.long),
    }


def _fast(tokenizer: Any) -> tokenizers.Tokenizer | None:
    """The tokenizer of the `tokenizers` library inside, which cuts nothing off."""
    inner = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if isinstance(inner, tokenizers.Tokenizer):
        copy = tokenizers.Tokenizer.from_str(inner.to_str())
        copy.no_truncation()
        copy.no_padding()
        return copy
    if callable(tokenizer) and hasattr(tokenizer, "convert_ids_to_tokens"):
        return None
    raise OptionError(
        f"Lens: tokenizer is {type(tokenizer).__name__}, expected one of transformers or of the "
        "tokenizers library"
    )


def _read(tokenizer: Tokenizer, text: str, *, start: bool = False, end: bool = False) -> Reading:
    ids, spans = tokenizer.encode(text), tokenizer.spans(text)
    before, after = [Tokenizer.start] * start, [Tokenizer.end] * end
    ids = [*before, *ids, *after]
    spans = [*[(0, 0)] * len(before), *spans, *[(len(text), len(text))] * len(after)]
    special = [True] * len(before) + [False] * (len(ids) - start - end) + [True] * len(after)
    names = tuple(tokenizer.tokens(ids))
    return Reading(ids, Words(text, names, tuple(spans), tuple(special)))


def _no_translator(model: nn.Module) -> OptionError:
    return OptionError(
        f"translate: {type(model).__name__} does not translate; it takes a Transformer of regard, "
        "or a model of transformers with an encoder and a decoder"
    )


def _ended(layers: list[Tensor]) -> list[Tensor]:
    """The last block's vectors are those after the final norm, as the decoder gets them."""
    return [*layers[:-2], layers[-1]]


def _of_these(logits: Tensor, said: Sequence[int]) -> Tensor:
    """The log-probability of a whole sequence, ``(b,)``, from logits ``(b, t, vocabulary)``."""
    chosen = torch.tensor(list(said), device=logits.device).expand(len(logits), -1)
    return logits.float().log_softmax(-1).gather(-1, chosen.unsqueeze(-1)).sum((1, 2))
