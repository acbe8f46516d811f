"""How models of transformers are asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tokenizers
import torch
from torch import Tensor, nn

from regard.errors import OptionError
from regard.lens._subject import BEAM, Reading, Unaligned, no_translator, of_these
from regard.text import padded
from regard.text.words import Words, spelled


class HuggingFace(Unaligned):
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

    def log_probability(self, last: Tensor, said: Sequence[int]) -> Tensor:
        if not self.translates:
            return of_these(self._next(last).unsqueeze(1), said)
        end = [] if self._end is None else [self._end]
        target = torch.tensor([[self._start, *said, *end][: len(said) + len(end)]])
        logits = self.model(
            **_encoded(last),
            decoder_input_ids=target.to(last.device).expand(len(last), -1),
            use_cache=False,
        ).logits
        return of_these(logits, [*said, *end])

    def table(self) -> Tensor:
        found: Tensor = self.model.get_input_embeddings().weight.detach()
        return found

    def retell(self, reading: Reading, said: Sequence[int]) -> Words:
        if not self.translates:
            raise no_translator(self.model)
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
