"""A model of regard as a `MarianMTModel` of Hugging Face's transformers, with the same weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

from regard.attention import Sinusoidal
from regard.nn import MultiHeadAttention, Transformer
from regard.nn.blocks import Block
from regard.text import Tokenizer


def to_marian(model: Transformer) -> MarianMTModel:
    """The same model, for `generate`; only for those of the paper's kind, which Marian's are."""
    config = model.config
    wanted = {"norm": "layernorm", "norm_place": "after", "position": "sinusoidal", "tied": True}
    for name, value in wanted.items():
        if getattr(config, name) != value:
            raise ValueError(f"to_marian: {name}={getattr(config, name)!r}, but Marian has {value}")
    if config.activation == "swiglu" or config.kv_heads not in (None, config.heads):
        raise ValueError("to_marian: Marian has neither swiglu nor grouped heads")
    theirs = MarianMTModel(
        MarianConfig(
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
    table = Sinusoidal(config.width).table(config.max_length)
    with torch.no_grad():
        theirs.model.shared.weight.copy_(model.source.table)
        theirs.tie_weights()
        if model.output_bias is not None:
            theirs.final_logits_bias.copy_(model.output_bias[None])
        for stack, own in (
            (theirs.model.encoder, model.encoder),
            (theirs.model.decoder, model.decoder),
        ):
            stack.embed_positions.weight.copy_(table)
            for layer, block in zip(stack.layers, own.blocks, strict=True):
                _fill(layer, block)
    return theirs


def _fill(layer: Any, block: Block) -> None:
    _attention(layer.self_attn, block.attention)
    _norm(layer.self_attn_layer_norm, block.attention_norm)
    if block.cross is not None:
        _attention(layer.encoder_attn, block.cross)
        _norm(layer.encoder_attn_layer_norm, block.cross_norm)
    _linear(layer.fc1, block.feed_forward.w_in, block.feed_forward.b_in)
    _linear(layer.fc2, block.feed_forward.w_out, block.feed_forward.b_out)
    _norm(layer.final_layer_norm, block.feed_forward_norm)


def _attention(theirs: Any, own: MultiHeadAttention) -> None:
    _linear(theirs.q_proj, own.w_q, own.b_q)
    _linear(theirs.k_proj, own.w_k, own.b_k)
    _linear(theirs.v_proj, own.w_v, own.b_v)
    _linear(theirs.out_proj, own.w_o, own.b_o)


def _linear(theirs: Any, weight: Tensor, bias: Tensor | None) -> None:
    theirs.weight.copy_(weight.T)
    theirs.bias.copy_(torch.zeros_like(theirs.bias) if bias is None else bias)


def _norm(theirs: Any, own: Any) -> None:
    theirs.weight.copy_(own.weight)
    theirs.bias.copy_(own.bias)
