"""A model of regard as one of Hugging Face's transformers, with the same weights.

Marian has its norms after each sublayer, Pegasus before; else they are alike, and like the paper.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import (
    MarianConfig,
    MarianMTModel,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PreTrainedModel,
)

from regard.attention import Sinusoidal
from regard.nn import MultiHeadAttention, Transformer
from regard.nn.blocks import Block
from regard.text import Tokenizer


def to_huggingface(model: Transformer) -> PreTrainedModel:
    """The same model, for `generate`; a ValueError if neither Marian nor Pegasus is its like."""
    config = model.config
    before = config.norm_place == "before"
    wanted = {
        "norm": "layernorm",
        "position": "sinusoidal",
        "tied": True,
        "ends_with_norm": before,
        "kv_heads": None,
        "norm_eps": None,
    }
    for name, value in wanted.items():
        if getattr(config, name) != value:
            raise ValueError(f"{name}={getattr(config, name)!r}, but Marian and Pegasus: {value!r}")
    if config.activation == "swiglu":
        raise ValueError("activation='swiglu', but Marian and Pegasus have no gates")
    kinds: tuple[Any, Any] = (
        (PegasusConfig, PegasusForConditionalGeneration)
        if before
        else (MarianConfig, MarianMTModel)
    )
    theirs: PreTrainedModel = kinds[1](
        kinds[0](
            vocab_size=config.vocabulary,
            d_model=config.width,
            encoder_layers=config.encoder_depth,
            decoder_layers=config.decoder_depth,
            encoder_attention_heads=config.heads,
            decoder_attention_heads=config.heads,
            encoder_ffn_dim=config.feed_forward,
            decoder_ffn_dim=config.feed_forward,
            activation_function=config.activation,
            scale_embedding=True,
            max_position_embeddings=config.max_length,
            pad_token_id=Tokenizer.pad,
            bos_token_id=Tokenizer.start,
            eos_token_id=Tokenizer.end,
            decoder_start_token_id=Tokenizer.start,
            forced_eos_token_id=None,
        )
    ).eval()
    with torch.no_grad():
        _fill(theirs, model)
    return theirs


def _fill(theirs: Any, model: Transformer) -> None:
    # Theirs has sines in the first half and cosines in the second: the table is written over.
    table = Sinusoidal(model.config.width).table(model.config.max_length)
    theirs.model.shared.weight.copy_(model.source.table)
    theirs.tie_weights()
    if model.output_bias is not None:
        theirs.final_logits_bias.copy_(model.output_bias[None])
    own_stacks = (model.encoder, model.decoder)
    for stack, own in zip((theirs.model.encoder, theirs.model.decoder), own_stacks, strict=True):
        stack.embed_positions.weight.copy_(table)
        for layer, block in zip(stack.layers, own.blocks, strict=True):
            _fill_block(layer, block)
        if model.config.ends_with_norm:
            _fill_norm(stack.layer_norm, own.norm)


def _fill_block(layer: Any, block: Block) -> None:
    _fill_attention(layer.self_attn, block.attention)
    _fill_norm(layer.self_attn_layer_norm, block.attention_norm)
    if block.cross is not None:
        _fill_attention(layer.encoder_attn, block.cross)
        _fill_norm(layer.encoder_attn_layer_norm, block.cross_norm)
    _fill_linear(layer.fc1, block.feed_forward.w_in, block.feed_forward.b_in)
    _fill_linear(layer.fc2, block.feed_forward.w_out, block.feed_forward.b_out)
    _fill_norm(layer.final_layer_norm, block.feed_forward_norm)


def _fill_attention(theirs: Any, own: MultiHeadAttention) -> None:
    _fill_linear(theirs.q_proj, own.w_q, own.b_q)
    _fill_linear(theirs.k_proj, own.w_k, own.b_k)
    _fill_linear(theirs.v_proj, own.w_v, own.b_v)
    _fill_linear(theirs.out_proj, own.w_o, own.b_o)


def _fill_linear(theirs: Any, weight: Tensor, bias: Tensor | None) -> None:
    theirs.weight.copy_(weight.T)
    theirs.bias.copy_(torch.zeros_like(theirs.bias) if bias is None else bias)


def _fill_norm(theirs: Any, own: Any) -> None:
    theirs.weight.copy_(own.weight)
    theirs.bias.copy_(own.bias)
