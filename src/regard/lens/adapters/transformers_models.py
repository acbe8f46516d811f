"""How models of transformers are asked."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import tokenizers
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.errors import OptionError, RegardError
from regard.lens.adapters.adapter import BEAM, Reading, no_translator, of_these, or_named
from regard.lens.adapters.past import Past
from regard.lens.capture import Seen
from regard.text import padded
from regard.text.words import Words, spelled


class TransformersModel:
    """A model of transformers."""

    longest = None

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        config = model.config
        self.writes = model.can_generate() and model.get_output_embeddings() is not None
        self.translates = bool(config.is_encoder_decoder) and self.writes
        self._reader = model.get_encoder() if config.is_encoder_decoder else model
        takes = inspect.signature(self._reader.forward).parameters
        _takes_text(model, self._reader, takes)
        self._masks = "attention_mask" in takes or "input_ids" not in takes  # passed on as it is
        self._keeps_logits = "logits_to_keep" in takes
        self._fast = _fast(tokenizer)
        self.limit = _limit(self._reader, tokenizer)
        self.kind = _kind(model, self.translates, self.writes)
        self.embeddings = [one for one in model.modules() if isinstance(one, nn.Embedding)]

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device  # type: ignore[no-any-return]

    @property
    def labels(self) -> list[str]:
        """The names of the classes of a classifier."""
        names = getattr(self.model.config, "id2label", None) or {}
        return [str(name) for _, name in sorted(names.items())]

    @property
    def mask_token(self) -> str:
        return str(getattr(self.tokenizer, "mask_token", None) or "[MASK]")

    @property
    def mask_id(self) -> int:
        found: int | None = getattr(self.tokenizer, "mask_token_id", None)
        return -1 if found is None else found

    @property
    def special_ids(self) -> set[int]:
        """The numbers that stand for no text."""
        return self._apart

    def past(self, reading: Reading) -> Past | None:
        if self.kind != "causal" or not self._keeps_logits:
            return None
        return Past.of(self.model, torch.tensor([reading.ids], device=self.device))

    def predict(self, ids: Tensor, position: int | None = None, past: Past | None = None) -> Tensor:
        """The logits of a model with a single stack: of the classes, or at a position."""
        inputs: dict[str, Any] = {"input_ids": ids}
        if self._masks:
            inputs["attention_mask"] = torch.ones_like(ids)
        if self.kind == "causal":
            inputs["use_cache"] = False
        if past is not None and position is not None:
            inputs |= {"input_ids": ids[:, past.length :], **past.inputs(len(ids))}
            position -= past.length
        if self._keeps_logits and position is not None:
            inputs["logits_to_keep"] = torch.tensor([position], device=ids.device)
            position = 0  # of the one that is kept
        found: Tensor = self.model(**inputs).logits
        return found if position is None else found[:, position]

    def encode(self, reading: Reading, rows: int = 1) -> Tensor:
        """What the encoder makes of so many equal rows of a text, ``(rows, n, width)``."""
        ids = torch.tensor([reading.ids], device=self.device).expand(rows, -1)
        found: Tensor = self._reader(
            input_ids=ids, attention_mask=torch.ones_like(ids)
        ).last_hidden_state
        return found

    def last_step(self, seen: Seen, memory: Tensor, prefix: Sequence[int]) -> None:
        return None

    def step_logits(self, memory: Tensor, prefix: Tensor, first: int = 0) -> Tensor:
        """The logits after each token of a translation, ``(rows, t − first, vocabulary)``."""
        found: Tensor = self.model(
            **_encoded(memory), decoder_input_ids=prefix, use_cache=False
        ).logits[:, first:]
        return found

    def translate_all(self, readings: Sequence[Reading]) -> list[list[int]]:
        return [self.generate(one, self.encode(one))[0] for one in readings]

    def teacher_force_all(
        self, readings: Sequence[Reading], written: Sequence[Sequence[int]]
    ) -> None:
        ids, lengths = padded([one.ids for one in readings])
        target, _ = padded([[self.start, *one] for one in written])
        there = torch.arange(ids.shape[1]) < lengths[:, None]
        self.model(
            input_ids=ids.to(self.device),
            attention_mask=there.long().to(self.device),
            decoder_input_ids=target.to(self.device),
            use_cache=False,
        )

    def is_encoder(self, module: str) -> bool:
        own = {id(one) for one in self._reader.modules()}
        return id(self.model.get_submodule(module.partition(":")[0])) in own

    def longest_output(self, memory: Tensor) -> int:
        longest = 2 * memory.shape[1] + 10
        positions = _positions(self.model.get_decoder(), "decoder")
        return min(longest, positions - 1) if positions else longest

    def encode_target(self, text: str) -> list[int]:
        """The tokens of a translation."""
        if not callable(self.tokenizer):
            return [i for i in self.read(text).ids if i not in self._apart]
        found: list[int] = self.tokenizer(text_target=text, add_special_tokens=False)["input_ids"]
        return found

    def spell_choice(self, token: int) -> str:
        text = self._decode([token]) if self._fast is None else str(self._fast.decode([token]))
        return or_named(text, self._names([token]))

    def token_names(self, ids: Sequence[int]) -> list[str]:
        return self._names(ids)

    @property
    def vocabulary(self) -> int | None:
        try:
            table = getattr(self.model.get_input_embeddings(), "weight", None)
        except NotImplementedError:
            return None
        return None if table is None else len(table)

    def read(self, text: str) -> Reading:
        if self._fast is not None:
            found = self._fast.encode(text)
            special = tuple(
                bool(apart) or (i in self._apart and text[slice(*span)].strip() == token)
                for i, token, span, apart in zip(
                    found.ids, found.tokens, found.offsets, found.special_tokens_mask, strict=True
                )
            )
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

    def layers(self, readings: Sequence[Reading], past: Past | None = None) -> list[Tensor]:
        ids, lengths = padded([one.ids for one in readings])
        if not self._masks and len(set(lengths.tolist())) > 1:
            alone = [self.layers([one]) for one in readings]
            rows = [[vectors[0] for vectors in layer] for layer in zip(*alone, strict=True)]
            return [pad_sequence(layer, batch_first=True) for layer in rows]
        there = torch.arange(ids.shape[1]) < lengths[:, None]
        device = next(self.model.parameters()).device
        inputs: dict[str, Any] = {
            "input_ids": ids.to(device),
            "attention_mask": there.long().to(device),
        }
        if not self.model.config.is_encoder_decoder and self.writes:
            inputs["use_cache"] = False
        if self._keeps_logits:
            inputs["logits_to_keep"] = 1
        if past is not None:
            behind = inputs["input_ids"][:, past.length :]
            inputs |= {"input_ids": behind, **past.inputs(len(readings))}
        found = self._run(inputs)
        if self.writes and not self.translates:
            # Some have more between the last vectors and the logits than one matrix.
            says, last = found.logits[:1, -1], found.hidden_states[-1][:1]
            width = getattr(self.model.get_output_embeddings(), "in_features", last.shape[-1])
            self.writes = width == last.shape[-1] and torch.allclose(
                self._next(last).to(says), says, rtol=1e-2, atol=1e-3
            )
        return list(found.hidden_states)

    def _run(self, inputs: dict[str, Any]) -> Any:
        """What the model makes of these, with a vector for every token in each layer."""
        name, size = type(self.model).__name__, inputs["input_ids"].shape[1]
        try:
            found = self._reader(**inputs, output_hidden_states=True)
        except RegardError:
            raise
        except Exception as error:  # a model raises whatever becomes of what it cannot take
            reason = str(error).strip().partition("\n")[0]
            raise OptionError(
                f"lens: {name} cannot read {size:,} tokens of text and nothing else: "
                f"{type(error).__name__}: {reason}"
            ) from error
        lengths = [len(one[0]) for one in getattr(found, "hidden_states", None) or ()]
        if not lengths or set(lengths) != {size}:
            given = ", ".join(map(str, lengths)) or "none"
            raise OptionError(
                f"lens: {name} does not keep a vector for each of the {size:,} tokens in every "
                f"layer (but {given}), so it is not known what its layers say of a word"
            )
        return found

    def generate(self, reading: Reading, last: Tensor) -> list[list[int]]:
        if not self.translates:
            return [[int(i)] for i in self._next(last).argmax(-1)]
        longest = 2 * len(reading.ids) + 10
        positions = _positions(self.model.get_decoder(), "decoder")
        written = self.model.generate(
            input_ids=torch.tensor([reading.ids] * len(last), device=last.device),
            **_encoded(last),
            num_beams=BEAM,
            do_sample=False,
            decoder_start_token_id=self.start,
            max_new_tokens=min(longest, positions - 1) if positions else longest,
        )
        ends = {self.model.config.pad_token_id, self._end}
        return [[int(i) for i in row[1:] if int(i) not in ends] for row in written]

    def detokenize(self, said: Sequence[int]) -> str:
        text = self._decode(said) if self._fast is None else str(self._fast.decode(list(said)))
        return text if self.translates else or_named(text, self._names(said))

    def log_probability(self, last: Tensor, said: Sequence[int]) -> Tensor:
        if not self.translates:
            return of_these(self._next(last).unsqueeze(1), said)
        end = [] if self._end is None else [self._end]
        target = torch.tensor([[self.start, *said, *end][: len(said) + len(end)]])
        logits = self.model(
            **_encoded(last),
            decoder_input_ids=target.to(last.device).expand(len(last), -1),
            use_cache=False,
        ).logits
        return of_these(logits, [*said, *end])

    def table(self) -> Tensor:
        found: Tensor = self.model.get_input_embeddings().weight.detach()
        return found

    def teacher_force(self, reading: Reading, said: Sequence[int]) -> Words:
        if not self.translates:
            raise no_translator(self.model)
        device = next(self.model.parameters()).device
        target = [self.start, *said]
        self.model(
            input_ids=torch.tensor([reading.ids], device=device),
            decoder_input_ids=torch.tensor([target], device=device),
            use_cache=False,
        )
        return self.target_words(said)

    def target_words(self, tokens: Sequence[int]) -> Words:
        """The words of a translation, behind the token by which it begins."""
        text = self.detokenize(tokens)
        spans = ((0, 0), *spelled(self.detokenize, list(tokens), text))
        names = tuple(self._names([self.start, *tokens]))
        return Words(text, names, spans, (True, *self._special(tokens)))

    def _names(self, ids: Sequence[int]) -> list[str]:
        """The tokens of these numbers; a model may know more than its tokenizer names."""
        if self._fast is None:
            names = self.tokenizer.convert_ids_to_tokens(list(ids))
        else:
            names = [self._fast.id_to_token(i) for i in ids]
        return [f"token {i}" if name is None else name for i, name in zip(ids, names, strict=True)]

    def _special(self, ids: Sequence[int]) -> tuple[bool, ...]:
        """Which of the numbers stand for no text."""
        return tuple(i in self._apart for i in ids)

    @cached_property
    def _apart(self) -> set[int]:
        """The numbers that stand for no text; an unknown word is a word."""
        if self._fast is not None:
            added = self._fast.get_added_tokens_decoder()
            named = {i for i, token in added.items() if token.special}
        else:
            named = set(self.tokenizer.all_special_ids)
        return named - {getattr(self.tokenizer, "unk_token_id", None)}

    @property
    def start(self) -> int:
        """The number by which a translation begins, as `generate` finds it."""
        generation = self.model.generation_config
        for start in (
            getattr(self.model.config, "decoder_start_token_id", None),
            generation.decoder_start_token_id,
            generation.bos_token_id,
        ):
            if start is not None:
                return int(start)
        raise OptionError(
            f"lens: {type(self.model).__name__} does not say by which token a translation begins; "
            "set model.generation_config.decoder_start_token_id"
        )

    @property
    def _end(self) -> int | None:
        end = self.model.generation_config.eos_token_id
        first: int | None = end[0] if isinstance(end, list) else end
        return first

    @property
    def end(self) -> int:
        return -1 if self._end is None else self._end

    @property
    def end_name(self) -> str:
        return "" if self._end is None else self._names([self._end])[0]

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


def _kind(model: Any, translates: bool, writes: bool) -> str:
    """What a model computes from a text."""
    if translates:
        return "translator"
    if writes:
        return "causal"
    if type(model).__name__.endswith("ForSequenceClassification"):
        return "classifier"
    return "masked" if type(model).__name__.endswith("ForMaskedLM") else "encoder"


def _takes_text(model: Any, reader: Any, takes: Mapping[str, object]) -> None:
    """An error if what reads is given something else, such as pixels or sound."""
    main = getattr(reader, "main_input_name", "input_ids")
    if main != "input_ids" and "input_ids" not in takes:
        raise OptionError(
            f"Lens: {type(model).__name__} reads {main}, not text; regard.watch and regard.cut "
            "take any model"
        )


def _limit(reader: Any, tokenizer: Any) -> int | None:
    """How many tokens the part of a model that reads can take, if that is limited."""
    positions = _positions(reader, "encoder")
    config = getattr(reader, "config", None)  # some encoders have none
    if positions is not None or hasattr(config, "relative_attention_num_buckets"):
        return positions
    longest = getattr(tokenizer, "model_max_length", None)
    return longest if isinstance(longest, int) and 0 < longest < 10**9 else None


def _positions(part: Any, called: str) -> int | None:
    """How many places a part of a model knows: the numbers of positions in its configuration."""
    for name in ("max_position_embeddings", f"max_{called}_position_embeddings"):
        positions: int | None = getattr(getattr(part, "config", None), name, None)
        if positions is not None:
            break
    if positions is None or positions < 1:  # -1 is "no limit"
        return None
    for name, module in part.named_modules():
        padding: int | None = getattr(module, "padding_idx", None)
        if "position" in name and padding is not None:
            return positions - padding - 1  # they are counted from behind that of padding
    return positions


def _encoded(last: Tensor) -> dict[str, Any]:
    """What an encoder of transformers has read, as its decoder takes it."""
    from transformers.modeling_outputs import BaseModelOutput

    encoded: Any = BaseModelOutput(last_hidden_state=last)  # type: ignore[arg-type]
    encoded.router_logits = None  # which a decoder of experts asks for
    return {
        "encoder_outputs": encoded,
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
