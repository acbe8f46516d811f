"""Tiny models of transformers, from their own configurations, for coverage.py."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import tokenizers
import torch
import transformers
from torch import Tensor, nn

B, N = 2, 8
SMALL: dict[str, int] = {
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embed_dim": 32, "emb_dim": 32,
    "embedding_size": 32, "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2,
    "encoder_layers": 2, "decoder_layers": 2, "num_decoder_layers": 2, "num_encoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "d_kv": 8, "d_head": 8, "intermediate_size": 48, "n_inner": 48, "d_ff": 48,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "ffn_dim": 48, "dim_ff": 48, "hidden_dim": 48,
    "vocab_size": 99, "max_position_embeddings": 64, "n_positions": 64, "image_size": 16,
    "patch_size": 4, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 24, "projection_dim": 16,
    "q_lora_rank": 16, "kv_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
    "v_head_dim": 8, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "sliding_window": 4, "word_embed_proj_dim": 32, "d_embed": 32, "type_vocab_size": 2,
    "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 99, "num_kv_shared_layers": 1,
    "ffn_hidden_size": 48, "kv_channels": 8, "d_inner": 48, "emb_pdrop": 0, "attention_window": 4,
    "num_mel_bins": 8, "max_source_positions": 8, "max_target_positions": 64, "hidden_channels": 32,
    "bottleneck_size": 8, "local_attention": 4, "max_seq_len": 64, "window_size": 4,
}  # fmt: skip
"""Sizes by the names that configurations use."""
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
STD = 0.15
"""Of the weights: far larger than models are initialised with."""


PARTICULAR: dict[str, dict[str, Any]] = {
    "GPTJConfig": {"rotary_dim": 4},
    "CodeGenConfig": {"rotary_dim": 4},
    "JambaConfig": {"attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False},
    "BambaConfig": {"attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": 8},
    "GraniteMoeHybridConfig": {"layer_types": ["mamba", "attention"]},
    "LiltConfig": {"hidden_size": 48},
    "XmodConfig": {"default_language": "en_XX", "languages": ["en_XX"]},
    "T5GemmaModuleConfig": {"cross_attention_hidden_size": 32},
}
"""What particular configurations need besides."""
EQUAL_HEADS = ("DeepseekV2Config", "DeepseekV3Config", "DeepseekV32Config", "Glm4MoeLiteConfig")
"""Configurations that need as many key heads as query heads."""


def shrink(config: Any, depth: int = 0) -> Any:
    """The configuration with small sizes, in all its parts."""
    for name, value in list(vars(config).items()):
        if isinstance(value, transformers.PretrainedConfig) and depth < 3:
            shrink(value, depth + 1)
        elif name in SMALL and isinstance(value, int) and not isinstance(value, bool):
            if not (name == "sliding_window" and value is None):
                with contextlib.suppress(Exception):
                    setattr(config, name, min(value, SMALL[name]) if value > 0 else value)
        elif name in SPECIAL and value is not None:
            setattr(config, name, SPECIAL[name])
        elif name in ("layer_types", "mlp_layer_types") and isinstance(value, list):
            kinds = list(dict.fromkeys(value))
            setattr(config, name, (kinds * 2)[:2] if len(kinds) < 3 else kinds[:2])
    for name, value in PARTICULAR.get(type(config).__name__, {}).items():
        with contextlib.suppress(Exception):
            setattr(config, name, value)
    if type(config).__name__ in EQUAL_HEADS:
        config.num_key_value_heads = config.num_attention_heads
    if getattr(config, "pad_token_id", 0) is None:
        config.pad_token_id = 0
    return config


def build(kind: type[Any], config_class: type[Any], attention: str | None) -> Any:
    """A tiny model with large random weights, the same ones each time."""
    config = shrink(config_class())
    if "LMHead" in kind.__name__ or "CausalLM" in kind.__name__ or "Decoder" in kind.__name__:
        config.is_decoder = True  # those of BERT's kind see what follows unless told so
    torch.manual_seed(0)
    options = {} if attention is None else {"attn_implementation": attention}
    model = kind._from_config(copy.deepcopy(config), **options).eval()
    draw(model, lambda parameter: 2 * STD * (32 / parameter.shape[-1]) ** 0.5)
    if sum(x.numel() for x in model.parameters()) > 4e7:
        raise ValueError("not small")
    return model


def inputs_for(model: Any) -> Iterator[dict[str, Tensor]]:
    """Plain inputs that a model may take, likeliest first."""
    torch.manual_seed(1)
    ids = torch.randint(5, 90, (B, N))
    main = model.main_input_name
    config = model.config
    size = getattr(config, "image_size", None) or 16
    size = size[0] if isinstance(size, list | tuple) else size
    channels = getattr(config, "num_channels", 3)
    if main == "input_ids":
        mask = torch.ones(B, N, dtype=torch.long)
        yield {"input_ids": ids, "attention_mask": mask}
        yield {"input_ids": ids, "decoder_input_ids": ids.flip(1)}
        yield {"input_ids": ids}
        yield {"input_ids": ids, "pixel_values": torch.randn(B, channels, size, size)}
        yield {"input_ids": ids, "bbox": torch.randint(0, 60, (B, N, 4)).sort(-1).values}
    elif main == "pixel_values":
        yield {"pixel_values": torch.randn(B, channels, size, size)}
        yield {"pixel_values": torch.randn(1, channels, 64, 64)}
        yield {"pixel_values": torch.randn(B, 4, channels, size, size)}
        yield {"pixel_values": torch.randn(B, channels, 64, 64), "input_ids": ids}
    else:
        mels = getattr(config, "num_mel_bins", 8)
        yield {main: torch.randn(B, 800)}
        yield {main: torch.randn(B, mels, 16), "decoder_input_ids": ids}
        yield {main: torch.randn(B, 16, mels)}
        yield {main: torch.randn(B, 16, mels), "decoder_input_ids": ids}
        yield {main: torch.randn(B, 16_000), "decoder_input_ids": ids}


def draw(model: nn.Module, std: Callable[[Tensor], float]) -> None:
    """Draw all weights anew, with these standard deviations; vectors stay as they are."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point() and parameter.dim() > 1:
                parameter.normal_(std=std(parameter))


def architectures(auto: Any) -> list[tuple[type[Any], type[Any]]]:
    """Every configuration that an auto class knows, and its models; some are listed, not there."""
    found = []
    for config in auto._model_mapping:
        with contextlib.suppress(Exception):
            models = auto._model_mapping[config]
            found += [(config, one) for one in (models if isinstance(models, tuple) else (models,))]
    return found


def tokenizer() -> tokenizers.Tokenizer:
    """A tokenizer of a few words, each a token."""
    words = [
        "<pad>",
        "<s>",
        "</s>",
        "<unk>",
        "[MASK]",
        "the",
        "cat",
        "saw",
        "that",
        "it",
        "was",
        "too",
        "tired",
    ]
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, "<unk>")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return made
