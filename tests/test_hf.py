"""Models of transformers give the same under "regard" as under "eager", whatever they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
)  # fmt: skip

import regard.hf

SMALL = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
         "intermediate_size": 48, "vocab_size": 99, "max_position_embeddings": 64}  # fmt: skip
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}
SIZES: dict[str, tuple[type, dict[str, Any]]] = {
    "bert": (AutoModel, SMALL),
    "roberta": (AutoModel, {**SMALL, "pad_token_id": 1}),
    "electra": (AutoModel, {**SMALL, "embedding_size": 16}),
    "distilbert": (AutoModel, {"dim": 32, "n_heads": 4, "n_layers": 2, "hidden_dim": 48,
                               "vocab_size": 99}),
    "gpt2": (AutoModelForCausalLM, {"n_embd": 32, "n_head": 4, "n_layer": 2, "vocab_size": 99,
                                    "n_positions": 64}),
    "gpt_neox": (AutoModelForCausalLM, {**SMALL, "rotary_pct": 0.5}),
    "llama": (AutoModelForCausalLM, GROUPED),
    "mistral": (AutoModelForCausalLM, {**GROUPED, "sliding_window": 5}),
    "qwen2": (AutoModelForCausalLM, GROUPED),
    "qwen3": (AutoModelForCausalLM, GROUPED),
    "gemma": (AutoModelForCausalLM, GROUPED),
    "gemma2": (AutoModelForCausalLM, {**GROUPED, "attn_logit_softcapping": 5.0,
                                      "sliding_window": 4}),
    "gemma3_text": (AutoModelForCausalLM, {**GROUPED, "sliding_window": 4}),
    "phi3": (AutoModelForCausalLM, GROUPED),
    "olmo2": (AutoModelForCausalLM, GROUPED),
    "gpt_oss": (AutoModelForCausalLM, {**GROUPED, "sliding_window": 4, "num_local_experts": 2,
                                       "num_experts_per_tok": 1}),
    "bart": (AutoModelForSeq2SeqLM, {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
                                     "encoder_attention_heads": 4, "decoder_attention_heads": 4,
                                     "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
                                     "vocab_size": 99, "max_position_embeddings": 64}),
    "vit": (AutoModel, {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
                        "intermediate_size": 48, "image_size": 16, "patch_size": 4}),
}  # fmt: skip


def outputs(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        found = model(**inputs)
    return found.logits if "logits" in found else found.last_hidden_state


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SIZES)
def test_as_eager(name: str) -> None:
    kind, sizes = SIZES[name]
    config = AutoConfig.for_model(name, **sizes)
    torch.manual_seed(0)
    model = kind.from_config(config, attn_implementation="eager").eval()
    if name == "vit":
        inputs = {"pixel_values": torch.randn(2, 3, 16, 16)}
    else:
        ids = torch.randint(3, 99, (2, 12))
        mask = torch.ones(2, 12, dtype=torch.int64)
        mask[1, :4] = 0  # padded on the left, as generation wants it
        inputs = {"input_ids": ids, "attention_mask": mask}
        if kind is AutoModelForSeq2SeqLM:
            inputs["decoder_input_ids"] = ids[:, :7]
    wanted = outputs(model, inputs)
    model.set_attn_implementation("regard")
    assert model.config._attn_implementation == "regard"
    with regard.watch(model) as seen:
        found = outputs(model, inputs)
    assert len(seen) >= 2
    seen_rows = slice(None) if name == "vit" or kind is AutoModelForSeq2SeqLM else slice(4, None)
    torch.testing.assert_close(found[:, seen_rows], wanted[:, seen_rows], atol=2e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt_oss"])
def test_generation_with_a_cache(name: str, cache: str) -> None:
    kind, sizes = SIZES[name]
    torch.manual_seed(0)
    model = kind.from_config(AutoConfig.for_model(name, **sizes), attn_implementation="eager")
    model.eval()
    ids = torch.randint(3, 99, (2, 6))
    said = []
    for implementation in ("eager", "regard"):
        model.set_attn_implementation(implementation)
        said.append(
            model.generate(
                ids, max_new_tokens=6, do_sample=False, use_cache=True,
                cache_implementation=None if cache == "dynamic" else "static",
                disable_compile=True,
            )
        )  # fmt: skip
    assert torch.equal(*said)
