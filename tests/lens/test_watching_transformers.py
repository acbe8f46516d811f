"""`watch` on the architectures of transformers: random weights, tiny sizes, their own code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.lens import Seen, cut, watch
from tests.lens.transformers_models import (
    GPT_OSS,
    GROUPED,
    PAIR,
    PICTURE,
    SIZES,
    T5,
    B,
    N,
    Options,
    build,
    padded,
    words,
)

transformers = pytest.importorskip("transformers", reason="needs the extra hf")


def text() -> Options:
    return {"input_ids": words(), "attention_mask": padded()}


def pair() -> Options:  # both sides as long: lengths tell nothing
    return text() | {"decoder_input_ids": words()}


def picture() -> Options:
    return {"pixel_values": torch.randn(B, 3, 16, 16)}


GPT2: Options = {
    "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "n_positions": 256,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
DISTIL: Options = {
    "vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64,
    "max_position_embeddings": 64,
}  # fmt: skip
SPEECH: Options = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "conv_dim": (16, 16), "conv_stride": (5, 4), "conv_kernel": (10, 4),
    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}  # fmt: skip
WHISPER = PAIR | {
    "num_mel_bins": 8, "max_source_positions": N, "max_target_positions": 20,
    "suppress_tokens": None, "begin_suppress_tokens": None,
}  # fmt: skip

ARCHITECTURES: dict[str, tuple[str, Options, Callable[[], Options]]] = {
    "ALBERT": ("Albert", SIZES | {"embedding_size": 16}, text),
    "BERT": ("Bert", SIZES, text),
    "DistilBERT": ("DistilBert", DISTIL, text),
    "ELECTRA": ("Electra", SIZES | {"embedding_size": 32}, text),
    "MobileBERT": ("MobileBert", SIZES | {"embedding_size": 16, "intra_bottleneck_size": 16}, text),
    "ModernBERT": (
        "ModernBert",
        SIZES
        | {"num_hidden_layers": 3, "local_attention": 4, "global_attn_every_n_layers": 2}
        | {"cls_token_id": 1, "sep_token_id": 2},
        text,
    ),
    "RoBERTa": ("Roberta", SIZES, text),
    "GPT-2": ("GPT2", GPT2, text),
    "GPT-NeoX": ("GPTNeoX", SIZES, text),
    "Gemma 3": (
        "Gemma3Text",
        GROUPED | {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]},
        text,
    ),
    "Llama": ("Llama", GROUPED, text),
    "Mistral": ("Mistral", GROUPED | {"sliding_window": 4}, text),
    "OPT": ("OPT", SIZES | {"ffn_dim": 64, "word_embed_proj_dim": 32}, text),
    "Phi-3": ("Phi3", GROUPED, text),
    "Qwen3": ("Qwen3", GROUPED, text),
    "BART": ("Bart", PAIR, pair),
    "Marian": ("Marian", PAIR, pair),
    "Pegasus": ("Pegasus", PAIR, pair),
    "T5": ("T5", T5, pair),
    "Whisper": (
        "Whisper",
        WHISPER,
        lambda: {"input_features": torch.randn(B, 8, 2 * N), "decoder_input_ids": words()},
    ),
    "wav2vec 2.0": ("Wav2Vec2", SPEECH, lambda: {"input_values": torch.randn(B, 400)}),
    "CLIP": (
        "CLIP",
        {"text_config": SIZES, "vision_config": PICTURE, "projection_dim": 16},
        lambda: text() | picture(),
    ),
    "ViT": ("ViT", PICTURE, picture),
}
"""By name: the prefix of the classes, the configuration, and what the model is given."""


def unchanged(model: Any, run: Callable[[], Any]) -> Seen:
    """What is seen of a model whose output watching does not change by a bit."""
    plain = run()
    with watch(model) as seen:
        watched = run()
    pairs = list(zip(tensors(plain), tensors(watched), strict=True))
    assert pairs
    assert all(torch.equal(a, b) for a, b in pairs)
    return seen


def tensors(result: object) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    values = result.values() if isinstance(result, dict) else result
    if not isinstance(values, list | tuple) and not isinstance(result, dict):
        return []
    return [x for value in values for x in tensors(value)]


def asked(result: Any) -> list[Tensor]:
    """The weights that a model itself returns, in the order in which it computes them."""
    if hasattr(result, "text_model_output"):
        pictures, texts = result.vision_model_output, result.text_model_output
        return [*pictures.attentions, *texts.attentions]
    if "encoder_attentions" in result:
        both = zip(result.decoder_attentions, result.cross_attentions, strict=True)
        return [*result.encoder_attentions, *(x for one in both for x in one)]
    return list(result.attentions)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures(name: str, attention: str) -> None:
    prefix, options, make = ARCHITECTURES[name]
    model, inputs = build(prefix, options, attention), make()
    with torch.no_grad():
        seen = unchanged(model, lambda: model(**inputs))
        eager = build(prefix, options, "eager")
        expected = asked(eager(**inputs, output_attentions=True))
    looks = [(name, look) for name in seen for look in seen.calls(name)]
    assert len(looks) == len(expected) > 1
    assert all(seen.kind(name) == ("cross" if _is_cross(name) else "self") for name in seen)
    there = inputs.get("attention_mask", torch.ones(B, N)).bool()
    for (module, look), weights in zip(looks, expected, strict=True):
        ours = look.weights()
        if ours.shape[2] == N and "decoder.layers" not in module:  # padding looks at random
            ours, weights = (w.transpose(1, 2)[there] for w in (ours, weights))
        torch.testing.assert_close(ours, weights, atol=1e-5, rtol=0)


def _is_cross(name: str) -> bool:
    return name.endswith(("encoder_attn", "EncDecAttention"))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["BERT", "GPT-2", "Marian", "T5"])
def test_the_score_of_a_masked_link_is_minus_infinity(name: str, attention: str) -> None:
    prefix, options, make = ARCHITECTURES[name]
    with torch.no_grad():
        model, inputs = build(prefix, options, attention), make()
        seen = unchanged(model, lambda: model(**inputs))
    for look in seen.values():
        masked = look.scores() == -torch.inf
        assert masked.any()
        assert torch.equal(masked, look.weights() == 0)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["BERT", "Llama", "Gemma 3", "Marian", "T5", "ViT"])
def test_inference_mode_and_autocast(name: str, attention: str) -> None:
    prefix, options, make = ARCHITECTURES[name]
    model, inputs = build(prefix, options, attention), make()
    with torch.no_grad():
        reference = unchanged(model, lambda: model(**inputs))
    with torch.inference_mode():
        seen = unchanged(model, lambda: model(**inputs))
    for module in reference:
        assert torch.equal(seen[module].weights(), reference[module].weights())
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        low = unchanged(model, lambda: model(**inputs))
    assert list(low) == list(reference)
    for module in reference:
        assert low[module].q.dtype in (torch.bfloat16, torch.float32)
        error = (low[module].weights() - reference[module].weights()).abs()
        assert error.max() < 0.05 or name == "T5"  # unscaled products, rounded
    if attention == "sdpa":
        assert low[module].q.dtype == torch.bfloat16


def test_training_with_dropout() -> None:
    model = build("Bert", SIZES, "sdpa").train()
    inputs = text()

    def run() -> Any:
        torch.manual_seed(1)
        return model(**inputs).last_hidden_state

    seen = unchanged(model, run)
    assert seen["encoder.layer.0.attention.self"]._call.dropout == 0.1
    sums = seen["encoder.layer.1.attention.self"].weights().sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


GENERATION: Options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("prefix", "options", "head"),
    [
        ("GPT2", GPT2, "LMHeadModel"),
        ("Llama", GROUPED, "ForCausalLM"),
        ("Mistral", GROUPED | {"sliding_window": 6}, "ForCausalLM"),
    ],
    ids=["GPT-2", "Llama", "Mistral"],
)
@pytest.mark.parametrize("cache", ["dynamic", "static", "left padding"])
def test_generation(prefix: str, options: Options, head: str, attention: str, cache: str) -> None:
    """Text that was written word by word is seen as if it had been read at once."""
    model = build(prefix, options, attention, head)
    start = {"input_ids": words()}
    more: Options = {}
    if cache == "left padding":
        start["attention_mask"] = padded(left=True)
    if cache == "static":
        more["cache_implementation"] = "static"
    with torch.no_grad():
        seen = unchanged(
            model, lambda: model.generate(**start, max_new_tokens=12, **GENERATION, **more)
        )
        written = model.generate(**start, max_new_tokens=12, **GENERATION)[:, :-1]
        there = torch.ones_like(written)
        there[:, :N] = start.get("attention_mask", there[:, :N])
        places = (there.cumsum(-1) - 1).clamp(min=0)
        eager = build(prefix, options, "eager", head)
        expected = eager(
            written, attention_mask=there, position_ids=places, output_attentions=True
        ).attentions
    length = written.shape[1]
    for name, weights in zip(seen, expected, strict=True):
        look = seen[name]
        assert len(seen.calls(name)) == 12
        assert look.weights().shape[2] == length
        real = there.bool()
        ours = look.weights()[..., :length].transpose(1, 2)[real]
        torch.testing.assert_close(ours, weights.transpose(1, 2)[real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("prefix", "options", "head"),
    [("Marian", PAIR, "MTModel"), ("T5", T5, "ForConditionalGeneration")],
    ids=["Marian", "T5"],
)
def test_translation_with_caches(prefix: str, options: Options, head: str, attention: str) -> None:
    model = build(prefix, options, attention, head)
    inputs = text()
    with torch.no_grad():
        seen = unchanged(model, lambda: model.generate(**inputs, max_new_tokens=7, **GENERATION))
        written = model.generate(**inputs, max_new_tokens=7, **GENERATION)[:, :-1]
        eager = build(prefix, options, "eager", head)
        result = eager(**inputs, decoder_input_ids=written, output_attentions=True)
    self_names = [name for name in seen if "decoder" in name and seen.kind(name) == "self"]
    cross_names = [name for name in seen if seen.kind(name) == "cross"]
    assert all(_is_cross(name) for name in cross_names)
    for names, all_weights in (
        (self_names, result.decoder_attentions),
        (cross_names, result.cross_attentions),
    ):
        for name, weights in zip(names, all_weights, strict=True):
            assert len(seen.calls(name)) == 7
            torch.testing.assert_close(seen[name].weights(), weights, atol=1e-5, rtol=0)
    assert seen[cross_names[0]].k.shape[2] == N


def test_beams_are_kept_apart() -> None:
    model = build("Llama", GROUPED, "sdpa", "ForCausalLM")
    start = words()
    with torch.no_grad():
        seen = unchanged(
            model, lambda: model.generate(start, max_new_tokens=6, num_beams=3, **GENERATION)
        )
    for name in seen:
        calls = seen.calls(name)
        assert [call.k.shape[2] for call in calls] == list(range(N, N + 6))
        joined = seen[name].weights()
        row = 0
        for call in calls:
            rows = slice(row, row + call.q.shape[2])
            own = joined[:, :, rows]
            torch.testing.assert_close(own.sum(-1), torch.ones(own.shape[:3]))
            torch.testing.assert_close(own.amax(-1), call.weights().amax(-1))
            row = rows.stop


def test_texts_with_and_without_padding_are_joined() -> None:
    """transformers leaves heads grouped for the one, and writes them out for the other: kept are
    those from before."""
    model = build("Llama", GROUPED, "sdpa")
    with torch.no_grad(), watch(model) as seen:
        model(words())
        model(**text())
    for name in seen:
        calls = seen.calls(name)
        assert [call.k.shape[1] for call in calls] == [2, 2]
        for i, call in enumerate(calls):
            own = slice(i * N, (i + 1) * N)
            torch.testing.assert_close(seen[name].weights()[:, :, own, own], call.weights())


def test_layers_are_in_the_order_in_which_they_ran() -> None:
    """ALBERT's groups of layers take turns."""
    options = SIZES | {"embedding_size": 16, "inner_group_num": 2, "num_hidden_layers": 3}
    model = build("Albert", options, "sdpa")
    with torch.no_grad(), watch(model) as seen:
        model(words())
    names = [name.removesuffix(".attention") for name in seen]
    assert len(names) == 2
    layers = [key.split(".attention") for key in seen.layers()]
    assert layers == [[names[i % 2], f"#{i // 2}"] for i in range(6)]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_words_written_one_by_one_take_memory_once(
    attention: str, held_bytes: Callable[[Seen], int]
) -> None:
    count = 60
    model = build("GPT2", GPT2 | {"n_embd": 8, "n_layer": 1, "n_head": 2}, attention, "LMHeadModel")
    with torch.no_grad(), watch(model) as seen:
        model.generate(words(1)[:1], max_new_tokens=count, **GENERATION)
    assert len(seen.calls("transformer.h.0.attn")) == count
    assert seen["transformer.h.0.attn"].weights().shape == (1, 2, count, count)
    each = count * 8 * 4
    held = held_bytes(seen)
    # Queries are parts of what made queries, keys and values together; then outputs, keys, values;
    # and masks, a number for each pair.
    assert held <= 1.2 * (3 + 1 + 1 + 1) * each + count * count * 4


def test_capped_scores() -> None:
    options = GROUPED | {"sliding_window": 4, "attn_logit_softcapping": 0.02}
    model, inputs = build("Gemma2", options, "eager"), text()
    with torch.no_grad():
        seen = unchanged(model, lambda: model(**inputs))
        expected = model(**inputs, output_attentions=True).attentions
    for look, weights in zip(seen.values(), expected, strict=True):
        torch.testing.assert_close(look.weights(), weights, atol=1e-5, rtol=0)
        assert look.compared(scaled=True).abs().max() <= 0.02


def test_a_mask_that_the_function_makes_itself_is_seen(sizes: dict[str, Any]) -> None:
    """The last row alone would not show it: there every key may be looked at."""
    from transformers import AttentionInterface

    def causal_by_itself(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **_: Any
    ) -> tuple[Tensor, None]:
        scores = query @ key.repeat_interleave(query.shape[1] // key.shape[1], 1).mT
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        weights = (scores * module.scaling).masked_fill(hidden, -torch.inf).softmax(-1)
        output = weights @ value.repeat_interleave(query.shape[1] // value.shape[1], 1)
        return output.transpose(1, 2), None

    AttentionInterface.register("causal_by_itself", causal_by_itself)
    config = transformers.LlamaConfig(vocab_size=60, **sizes["llama"])
    model = transformers.LlamaModel._from_config(config, attn_implementation="causal_by_itself")
    with torch.no_grad(), watch(model.eval()) as seen:
        model(torch.randint(5, 60, (1, 6)), use_cache=False)
    for look in seen.values():
        assert not look.weights().triu(1).any()


def test_sinks_have_a_share_of_the_weights() -> None:
    model, inputs = build("GptOss", GPT_OSS, "eager"), text()
    for name, parameter in model.named_parameters():
        if "sinks" in name:
            torch.nn.init.normal_(parameter)
    with torch.no_grad():
        seen = unchanged(model, lambda: model(**inputs))
        expected = model(**inputs, output_attentions=True).attentions
    assert list(seen) == ["layers.0.self_attn", "layers.1.self_attn"]
    for look, weights in zip(seen.values(), expected, strict=True):
        torch.testing.assert_close(look.weights(), weights, atol=1e-5, rtol=0)
        assert look.weights().sum(-1).max() < 0.99
        torch.testing.assert_close(
            look.top(1)[0], weights.amax(-1, keepdim=True), atol=1e-5, rtol=0
        )
        torch.testing.assert_close(look.received(), weights.sum(-2), atol=1e-5, rtol=0)


def test_attention_written_out_in_the_model_is_seen_and_cut() -> None:
    options = {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99}
    model, ids = build("Bloom", options, "eager"), words()
    with torch.no_grad():
        seen = unchanged(model, lambda: model(ids))
        expected = model(ids, output_attentions=True).attentions
        with cut(model, [(5, 2)], heads=1), watch(model) as without:
            model(ids)
    for look, weights in zip(seen.values(), expected, strict=True):
        torch.testing.assert_close(look.weights(), weights, atol=1e-6, rtol=0)
        torch.testing.assert_close(look.weights() @ look.v, look.output)
    for look in without.values():
        weights = look.weights()
        assert not weights[:, 1, 5, 2].any()
        assert weights[:, 0, 5, 2].all()
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))


def test_local_attention_is_seen_block_by_block() -> None:
    model = build("LongT5", T5, "eager")
    with torch.no_grad():
        inputs = pair()
        seen = unchanged(model, lambda: model(**inputs))
    assert {name.split(".")[0] for name in seen} == {"encoder", "decoder"}
    assert seen.missed == ()


def test_experts_are_chosen_by_a_softmax_that_is_no_attention() -> None:
    options = GROUPED | {"num_local_experts": 2}
    with torch.no_grad(), watch(model := build("Mixtral", options, "sdpa")) as seen:
        model(words())
    assert seen.missed == ()


def test_a_mixture_by_softmax_is_no_attention() -> None:
    class Mixture(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.one = torch.nn.Linear(8, 2), torch.nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            share = self.gate(x).softmax(-1)
            x = x + share[..., :1] * self.one(x)
            x = x + torch.nn.functional.scaled_dot_product_attention(x, x, x)
            return x @ x.mT

    with watch(model := Mixture()) as seen:
        model(torch.randn(2, 5, 8))
    assert seen.missed == ()
