"""Adapters of transformers' models."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.errors import OptionError, RegardError
from regard.lens.adapters.adapter import (
    BEAM,
    ModelAdapter,
    Reading,
    StackAdapter,
    TranslatorAdapter,
)
from regard.lens.adapters.past import Past
from regard.lens.adapters.tokenization import ForeignTokenizer
from regard.text import padded
from regard.text.words import Words, spelled


def transformers_adapter(model: Any, tokenizer: Any) -> ModelAdapter:
    """The adapter of a model of transformers."""
    translates = model.config.is_encoder_decoder and _has_language_head(model)
    return (TransformersTranslator if translates else TransformersStack)(model, tokenizer)


class _TransformersModel(ModelAdapter):
    """What all models of transformers have in common."""

    model: Any

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, ForeignTokenizer(tokenizer)
        self.unknown_id = self.tokenizer.unknown_id
        self._reader = model.get_encoder() if model.config.is_encoder_decoder else model
        takes = inspect.signature(self._reader.forward).parameters
        main = getattr(self._reader, "main_input_name", "input_ids")
        if main != "input_ids" and "input_ids" not in takes:
            raise OptionError(
                f"Lens: {type(model).__name__} reads {main}, not text; regard.watch and regard.cut "
                "take any model"
            )
        self._masks = "attention_mask" in takes or "input_ids" not in takes  # passed on as it is
        self._keeps_logits = "logits_to_keep" in takes
        self.limit = _limit(self._reader, tokenizer)
        self.embeddings = [one for one in model.modules() if isinstance(one, nn.Embedding)]

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device  # type: ignore[no-any-return]

    @property
    def vocabulary(self) -> int | None:
        try:
            table = getattr(self.model.get_input_embeddings(), "weight", None)
        except NotImplementedError:
            return None
        return None if table is None else len(table)

    def table(self) -> Tensor:
        found: Tensor = self.model.get_input_embeddings().weight.detach()
        return found

    def read(self, text: str) -> Reading:
        return self.tokenizer.read(text)

    def spell_choice(self, token: int) -> str:
        return self.tokenizer.decode_or_name([token])

    def layers(self, readings: Sequence[Reading], past: Past | None = None) -> list[Tensor]:
        ids, lengths = padded([one.ids for one in readings])
        if not self._masks and len(set(lengths.tolist())) > 1:
            alone = [self.layers([one]) for one in readings]
            rows = [[vectors[0] for vectors in layer] for layer in zip(*alone, strict=True)]
            return [pad_sequence(layer, batch_first=True) for layer in rows]
        inputs = {"input_ids": ids, "attention_mask": _there(ids, lengths)}
        found = self._run({name: x.to(self.device) for name, x in inputs.items()}, past)
        return list(found.hidden_states)

    def _run(self, inputs: dict[str, Any], past: Past | None) -> Any:
        """The output for these inputs, with a vector for every token in each layer."""
        name, size = type(self.model).__name__, inputs["input_ids"].shape[1]
        try:
            found = self._reader(**inputs, output_hidden_states=True)
        except RegardError:
            raise
        except Exception as error:  # a model may raise anything on input it cannot take
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
                f"layer (but {given}), so the vectors of a word are not known"
            )
        return found


class TransformersStack(_TransformersModel, StackAdapter):
    """A model with a single stack, or the encoder of one that writes nothing."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        super().__init__(model, tokenizer)
        self.writes = _has_language_head(model)
        self.kind = "causal" if self.writes else _kind(type(model).__name__)
        self.mask_token = str(getattr(tokenizer, "mask_token", None) or "[MASK]")
        mask = getattr(tokenizer, "mask_token_id", None)
        self.mask_id = -1 if mask is None else int(mask)

    @property
    def labels(self) -> list[str]:
        names = getattr(self.model.config, "id2label", None) or {}
        return [str(names[i]) for i in sorted(names)]

    @property
    def special_ids(self) -> set[int]:
        return self.tokenizer.special_ids

    def past(self, reading: Reading) -> Past | None:
        if self.kind != "causal" or not self._keeps_logits:
            return None
        return Past.of(self.model, torch.tensor([reading.ids], device=self.device))

    def predict(self, ids: Tensor, position: int | None = None, past: Past | None = None) -> Tensor:
        inputs: dict[str, Any] = {"input_ids": ids}
        if self._masks:
            inputs["attention_mask"] = torch.ones_like(ids)
        if self.kind == "causal":
            inputs["use_cache"] = False
        if past is not None and position is not None:
            inputs |= past.inputs(ids)
            position -= past.length
        if self._keeps_logits and position is not None:
            inputs["logits_to_keep"] = torch.tensor([position], device=ids.device)
            position = 0  # of the one that is kept
        found: Tensor = self.model(**inputs).logits
        return found if position is None else found[:, position]

    def next_logits(self, last: Tensor) -> Tensor:
        found: Tensor = self.model.get_output_embeddings()(last[:, -1])
        return found

    def detokenize(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode_or_name(tokens)

    def token_names(self, ids: Sequence[int]) -> list[str]:
        return self.tokenizer.names(ids)

    def _run(self, inputs: dict[str, Any], past: Past | None) -> Any:
        if self.writes:
            inputs["use_cache"] = False
        if self._keeps_logits:
            inputs["logits_to_keep"] = 1
        if past is not None:
            inputs |= past.inputs(inputs["input_ids"])
        found = super()._run(inputs, past)
        if self.writes:
            # Some models have more between the last vectors and the logits than one matrix.
            expected, last = found.logits[:1, -1], found.hidden_states[-1][:1]
            width = getattr(self.model.get_output_embeddings(), "in_features", last.shape[-1])
            self.writes = width == last.shape[-1] and torch.allclose(
                self.next_logits(last).to(expected), expected, rtol=1e-2, atol=1e-3
            )
        return found


class TransformersTranslator(_TransformersModel, TranslatorAdapter):
    """A model with an encoder, a decoder and a language-model head."""

    def encode(self, reading: Reading, rows: int = 1) -> Tensor:
        ids = torch.tensor([reading.ids], device=self.device).expand(rows, -1)
        found: Tensor = self._reader(
            input_ids=ids, attention_mask=torch.ones_like(ids)
        ).last_hidden_state
        return found

    def step_logits(self, memory: Tensor, prefix: Tensor, first: int = 0) -> Tensor:
        found: Tensor = self.model(
            **_encoded(memory), decoder_input_ids=prefix, use_cache=False
        ).logits[:, first:]
        return found

    def generate(self, reading: Reading, last: Tensor) -> list[list[int]]:
        written = self.model.generate(
            input_ids=torch.tensor([reading.ids] * len(last), device=last.device),
            **_encoded(last),
            num_beams=BEAM,
            do_sample=False,
            decoder_start_token_id=self.start,
            max_new_tokens=self.longest_output(len(reading.ids)),
        )
        ends = {self.model.config.pad_token_id, self.end}
        return [[int(i) for i in row[1:] if int(i) not in ends] for row in written]

    def teacher_force(self, readings: Sequence[Reading], written: Sequence[Sequence[int]]) -> None:
        ids, lengths = padded([one.ids for one in readings])
        target, _ = padded([[self.start, *one] for one in written])
        self.model(
            input_ids=ids.to(self.device),
            attention_mask=_there(ids, lengths).to(self.device),
            decoder_input_ids=target.to(self.device),
            use_cache=False,
        )

    def is_encoder(self, module: str) -> bool:
        own = {id(one) for one in self._reader.modules()}
        return id(self.model.get_submodule(module.partition(":")[0])) in own

    def longest_output(self, length: int) -> int:
        positions = _positions(self.model.get_decoder(), "decoder")
        return min(2 * length + 10, positions - 1) if positions else 2 * length + 10

    def encode_target(self, text: str) -> list[int]:
        return self.tokenizer.encode_target(text)

    def detokenize(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens)

    def target_words(self, tokens: Sequence[int]) -> Words:
        text = self.detokenize(tokens)
        spans = ((0, 0), *spelled(self.detokenize, list(tokens), text))
        names = tuple(self.tokenizer.names([self.start, *tokens]))
        return Words(text, names, spans, (True, *self.tokenizer.special(tokens)))

    @property
    def start(self) -> int:
        """The token that a translation begins with, as `generate` finds it."""
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
    def end(self) -> int:
        end = self.model.generation_config.eos_token_id
        end = end[0] if isinstance(end, list) else end
        return -1 if end is None else int(end)

    @property
    def end_name(self) -> str:
        return "" if self.end < 0 else self.tokenizer.names([self.end])[0]


def _has_language_head(model: Any) -> bool:
    return bool(model.can_generate()) and model.get_output_embeddings() is not None


def _kind(name: str) -> str:
    """The kind of a model that generates nothing, by the name of its class."""
    if name.endswith("ForSequenceClassification"):
        return "classifier"
    return "masked" if name.endswith("ForMaskedLM") else "encoder"


def _there(ids: Tensor, lengths: Tensor) -> Tensor:
    """The attention mask of padded rows."""
    return (torch.arange(ids.shape[1]) < lengths[:, None]).long()


def _limit(reader: Any, tokenizer: Any) -> int | None:
    """The number of tokens that the reading part of a model can take, if limited."""
    positions = _positions(reader, "encoder")
    config = getattr(reader, "config", None)  # some encoders have none
    if positions is not None or hasattr(config, "relative_attention_num_buckets"):
        return positions
    longest = getattr(tokenizer, "model_max_length", None)
    return longest if isinstance(longest, int) and 0 < longest < 10**9 else None


def _positions(part: Any, called: str) -> int | None:
    """The number of positions that a part of a model has, by its configuration."""
    for name in ("max_position_embeddings", f"max_{called}_position_embeddings"):
        positions: int | None = getattr(getattr(part, "config", None), name, None)
        if positions is not None:
            break
    if positions is None or positions < 1:  # -1 is "no limit"
        return None
    for name, module in part.named_modules():
        padding: int | None = getattr(module, "padding_idx", None)
        if "position" in name and padding is not None:
            return positions - padding - 1  # positions are counted from behind that of padding
    return positions


def _encoded(last: Tensor) -> dict[str, Any]:
    """The encoder's output as the decoder takes it."""
    from transformers.modeling_outputs import BaseModelOutput

    encoded: Any = BaseModelOutput(last_hidden_state=last)  # type: ignore[arg-type]
    encoded.router_logits = None  # which a decoder of experts asks for
    return {
        "encoder_outputs": encoded,
        "attention_mask": last.new_ones(last.shape[:2], dtype=torch.long),
    }
