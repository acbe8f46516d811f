"""Small models of transformers with random weights, and what they read."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

transformers = pytest.importorskip("transformers", reason="needs the extra hf")

B, N = 2, 9
Options = dict[str, Any]

SIZES: Options = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "vocab_size": 99, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
GROUPED = SIZES | {"num_key_value_heads": 2, "head_dim": 8}
GPT_OSS = GROUPED | {
    "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}  # fmt: skip
PAIR: Options = {
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 3,
}  # fmt: skip
T5: Options = {
    "vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0,
}  # fmt: skip
PICTURE: Options = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "image_size": 16, "patch_size": 4,
}  # fmt: skip


def build(prefix: str, options: Options, attention: str, head: str = "Model") -> Any:
    """A model with random weights, the same ones each time."""
    config = getattr(transformers, f"{prefix}Config")(**copy.deepcopy(options))
    torch.manual_seed(0)
    model = getattr(transformers, f"{prefix}{head}")
    return model._from_config(config, attn_implementation=attention).eval()


def words(length: int = N) -> Tensor:
    """Random tokens, none of them special."""
    return torch.randint(5, 99, (B, length))


def padded(left: bool = False) -> Tensor:
    """An attention mask that hides three tokens of the second sequence."""
    there = torch.ones(B, N, dtype=torch.long)
    if left:
        there[1, :3] = 0
    else:
        there[1, 6:] = 0
    return there
