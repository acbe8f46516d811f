"""Export to CTranslate2 (https://github.com/OpenNMT/CTranslate2), for serving at volume.

Positions are exported as a table, since CTranslate2 orders its sinusoids differently.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Learned, Sinusoidal
from regard.errors import FileError, OptionError, RegardError
from regard.files import replacing_folder, why
from regard.nn import Embedding, MultiHeadAttention, Transformer
from regard.nn.blocks import Block, FeedForward
from regard.text import Tokenizer
from regard.translate.search import longest
from regard.translate.translator import Translator

QUANTIZATIONS = ("float32", "int8", "int8_float32", "int16", "float16", "bfloat16")
"""CTranslate2's types of weights."""

ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH", "swiglu": "SWISH"}
"""CTranslate2's names of activations."""
POSITIONS = 4096
"""Rows of the exported table of sinusoids, which regard computes for any length."""

README = """# A translation model for CTranslate2

Exported from regard. `tokenizer.json` cuts text into subwords and is read by the `tokenizers`
library; CTranslate2 takes and gives these subwords, and adds the end of the source by itself:

```python
import re

import ctranslate2
import tokenizers

translator = ctranslate2.Translator("{name}", compute_type="{compute}")
tokenizer = tokenizers.Tokenizer.from_file("{name}/tokenizer.json")
tokenizer.encode_special_tokens = True


def subwords(text):
    return tokenizer.encode(text, add_special_tokens=False).tokens


def cut(text):
    whole = len(subwords(text)) <= {taken}
    pieces = [text] if whole else re.split(r"(?<=[.!?])\\s+", text)
    return [piece for piece in pieces if piece.strip()]


def spelled(tokens):
    ids = [tokenizer.token_to_id(token) for token in tokens]
    return {spelled}


texts = ["A cat sleeps."]
pieces = [(number, piece) for number, text in enumerate(texts) for piece in cut(text)]
results = translator.translate_batch(
    [subwords(piece) for _, piece in pieces],
    beam_size=5,
    max_input_length={taken} + 1,  # and its end
    min_decoding_length=0,
    max_decoding_length={written},
    return_end_token=True,
)
translations = [[] for _ in texts]
for (number, piece), result in zip(pieces, results):
    most = 2 * min(len(subwords(piece)), {taken}) + {more}  # for one that does not end by itself
    translations[number].append(spelled(result.hypotheses[0][:most]))
for parts in translations:
    print(" ".join(parts))
```

The model learned from texts of up to {taken} subwords. A longer one is translated sentence by
sentence, here as in `regard translate`; of a single sentence that is longer still, CTranslate2
leaves out what is beyond, where regard would cut it at a comma or a space.

`return_end_token` makes CTranslate2 count the end in a translation's length, and
`min_decoding_length=0` lets it say the end at once, both as in regard.
"""
SPELLED = "tokenizer.decode([i for i in ids if i > 3], skip_special_tokens=False)"
"""Code for the text of the ids, without the four special tokens."""


def export_ctranslate2(
    translator: Translator, folder: str | Path, *, quantization: str = "float32"
) -> None:
    """Write a model in CTranslate2's format to a new folder, with tokenizer and README.

    Greedy translations in float32 are the same as regard's.
    """
    specs = _specs()
    folder = Path(folder)
    if quantization not in QUANTIZATIONS:
        raise OptionError(
            f"export: quantization={quantization!r}, expected one of {', '.join(QUANTIZATIONS)}"
        )
    _check(translator.model)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileError(f"export: {folder} already exists; give a new folder")
    spec = _spec(specs, translator.model, translator.tokenizer)
    spec.validate()
    spec.optimize(quantization)
    try:
        with replacing_folder(folder) as beside:
            spec.save(str(beside))
            translator.tokenizer.save(beside / "tokenizer.json")
            text = _readme(translator, folder.name, quantization)
            (beside / "README.md").write_text(text, encoding="utf-8")
    except OSError as error:
        raise FileError(f"export: cannot write {folder}: {why(error)}") from None


def _readme(translator: Translator, name: str, quantization: str) -> str:
    config = translator.model.config
    room = {"learned": config.max_length, "sinusoidal": POSITIONS}.get(config.position)
    taken, written = translator.longest, longest(translator.longest)
    if room is not None:  # one position is for the end token
        taken, written = min(taken, room - 1), min(written, room)
    return README.format(
        name=name,
        compute="float32" if quantization == "float32" else "default",
        taken=taken,
        written=written,
        more=longest(0),
        spelled=SPELLED if translator.tokenizer.kind == "bytes" else f'" ".join({SPELLED}.split())',
    )


def _specs() -> Any:
    try:
        from ctranslate2 import specs
    except ImportError:
        raise RegardError(
            "export: ctranslate2 is not installed; pip install 'regard[export]'"
        ) from None
    return specs


def _check(model: Transformer) -> None:
    config = model.config
    if config.position == "alibi":
        raise OptionError(
            "export: CTranslate2 has no encoder with position='alibi'; train with sinusoidal, "
            "learned or rotary positions"
        )
    if config.ends_with_norm and config.norm_place == "after":
        raise OptionError(
            "export: CTranslate2 has no final norm (final_norm=True) where norms come after each "
            "sublayer"
        )
    if min(config.encoder_depth, config.decoder_depth) == 0:
        raise OptionError(
            f"export: CTranslate2 has no encoder or decoder without blocks (encoder_depth="
            f"{config.encoder_depth}, decoder_depth={config.decoder_depth})"
        )


def _spec(specs: Any, model: Transformer, tokenizer: Tokenizer) -> Any:
    """CTranslate2's description of the model, filled with its weights."""
    config = model.config
    heads = config.kv_heads if config.kv_heads != config.heads else None
    options = {
        "no_final_norm": not config.ends_with_norm,
        "pre_norm": config.norm_place == "before",
        "activation": getattr(specs.common_spec.Activation, ACTIVATIONS[config.activation]),
        "ffn_glu": config.activation == "swiglu",
        "rms_norm": config.norm == "rmsnorm",
        "num_heads_kv": heads,
        "rotary_dim": 0 if config.position == "rotary" else None,
        "rotary_interleave": False,
    }
    encoder = specs.transformer_spec.TransformerEncoderSpec(
        config.encoder_depth, config.heads, **options
    )
    decoder = specs.transformer_spec.TransformerDecoderSpec(
        config.decoder_depth, config.heads, **options
    )
    spec = specs.TransformerSpec(encoder, decoder)
    _fill_stack(encoder, encoder.embeddings[0], model.source, model.encoder)
    _fill_stack(decoder, decoder.embeddings, model.target, model.decoder)
    decoder.projection.weight = _numbers(model.output)
    if model.output_bias is not None:
        decoder.projection.bias = _numbers(model.output_bias)
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = _epsilon(model)
    spec.register_source_vocabulary(list(tokenizer.vocabulary))
    spec.register_target_vocabulary(list(tokenizer.vocabulary))
    return spec


def _fill_stack(spec: Any, embeddings: Any, embedding: Embedding, stack: Any) -> None:
    """Fill an encoder or decoder and its embeddings."""
    embeddings.weight = _numbers(embedding.table)
    position = embedding.position
    if isinstance(position, Sinusoidal):
        spec.position_encodings.encodings = _numbers(position.table(POSITIONS))
    elif isinstance(position, Learned):
        spec.position_encodings.encodings = _numbers(position.table)
    for layer, block in zip(spec.layer, stack.blocks, strict=True):
        _fill_block(layer, block)
    if not isinstance(stack.norm, nn.Identity):
        _fill_norm(spec.layer_norm, stack.norm)


def _fill_block(spec: Any, block: Block) -> None:
    own = block.attention
    _fill_linear(
        spec.self_attention.linear[0], (own.w_q, own.w_k, own.w_v), (own.b_q, own.b_k, own.b_v)
    )
    _fill_linear(spec.self_attention.linear[1], (own.w_o,), (own.b_o,))
    _fill_norm(spec.self_attention.layer_norm, block.attention_norm)
    if block.cross is not None:
        _fill_cross(spec.attention, block.cross)
        _fill_norm(spec.attention.layer_norm, block.cross_norm)
    _fill_feed_forward(spec.ffn, block.feed_forward)
    _fill_norm(spec.ffn.layer_norm, block.feed_forward_norm)


def _fill_cross(spec: Any, layer: MultiHeadAttention) -> None:
    _fill_linear(spec.linear[0], (layer.w_q,), (layer.b_q,))
    _fill_linear(spec.linear[1], (layer.w_k, layer.w_v), (layer.b_k, layer.b_v))
    _fill_linear(spec.linear[2], (layer.w_o,), (layer.b_o,))


def _fill_feed_forward(spec: Any, layer: FeedForward) -> None:
    if layer.w_gate is not None:  # CTranslate2's first layer is the activated one
        _fill_linear(spec.linear_0, (layer.w_gate,), ())
        _fill_linear(spec.linear_0_noact, (layer.w_in,), ())
    else:
        _fill_linear(spec.linear_0, (layer.w_in,), (layer.b_in,))
    _fill_linear(spec.linear_1, (layer.w_out,), (layer.b_out,))


def _fill_linear(spec: Any, weights: Iterable[Tensor], biases: Iterable[Tensor | None]) -> None:
    """Fill a layer with concatenated projections, as ``(d_out, d_in)``."""
    spec.weight = _numbers(torch.cat([weight.T for weight in weights]))
    given = [bias for bias in biases if bias is not None]
    if given:
        spec.bias = _numbers(torch.cat(given))


def _fill_norm(spec: Any, norm: nn.Module | None) -> None:
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    spec.gamma = _numbers(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _numbers(norm.bias)


def _numbers(weight: Tensor) -> Any:
    """A copy of the weight, which CTranslate2 scales in place when it quantizes."""
    return weight.detach().to("cpu", torch.float32, copy=True).contiguous().numpy()


def _epsilon(model: Transformer) -> float:
    norm = next(
        module for module in model.modules() if isinstance(module, nn.LayerNorm | nn.RMSNorm)
    )
    assert norm.eps is not None
    return norm.eps
