"""`cut` on the architectures of transformers."""

from __future__ import annotations

import pytest
import torch

import regard.hf  # noqa: F401
from regard.lens import Cut, cut, watch
from tests.lens.transformers_models import (
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

GEMMA = GROUPED | {
    "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip
MODERN = SIZES | {"local_attention": 6, "cls_token_id": 1, "sep_token_id": 2}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("prefix", "options"),
    [("Bert", SIZES), ("Roberta", SIZES), ("Llama", GROUPED), ("Qwen3", GROUPED)],
)
def test_a_cut_link_is_a_masked_one(prefix: str, options: Options, attention: str) -> None:
    """transformers takes a mask with all pairs as it is."""
    model, ids = build(prefix, options, attention), words()
    mask = torch.ones(1, 1, N, N, dtype=torch.bool)
    if prefix in ("Llama", "Qwen3"):
        mask = mask.tril()
    mask = mask.repeat(B, 1, 1, 1)
    mask[:, :, 5, 3] = mask[:, :, 8, 0] = False
    if attention == "eager":
        mask = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    with torch.no_grad():
        with cut(model, [(5, 3), (-1, 0)]):
            output = model(ids).last_hidden_state
        expected = model(ids, attention_mask=mask).last_hidden_state
        plain = model(ids).last_hidden_state
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=0)
    assert (output - plain).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("prefix", "options", "kind"),
    [
        ("Bert", SIZES, "self"),
        ("Gemma3Text", GEMMA, "self"),
        ("ModernBert", MODERN, "self"),
        ("T5", T5, "self"),
        ("T5", T5, "cross"),
        ("Marian", PAIR, "self"),
        ("Marian", PAIR, "cross"),
        ("ViT", PICTURE, "self"),
    ],
)
def test_both_implementations_agree(prefix: str, options: Options, kind: str) -> None:
    inputs: Options = {"input_ids": words(), "attention_mask": padded()}
    if prefix in ("T5", "Marian"):
        inputs["decoder_input_ids"] = words()
    if prefix == "ViT":
        inputs = {"pixel_values": torch.randn(B, 3, 16, 16)}
    links = [Cut(5, 4, kind=kind), Cut(0, 0, heads=2, row=1, kind=kind)]
    results = []
    for attention in ("sdpa", "eager"):
        model = build(prefix, options, attention)
        with torch.no_grad(), cut(model, links), watch(model) as seen:
            results.append(model(**inputs).last_hidden_state)
        for name in seen:
            weights = seen[name].weights()
            if seen.kind(name) != kind:
                continue
            assert not weights[:, :, 5, 4].any()
            assert not weights[1, 2, 0, 0].any()
            assert weights[0, 2, 0, 0] > 0
    assert not results[0].isnan().any()
    there = torch.ones(B, N, dtype=torch.bool)
    there = padded().bool() if prefix in ("Bert", "ModernBert", "Gemma3Text") else there
    first, second = results
    if first.shape[1] == N:
        first, second = first[there], second[there]
    torch.testing.assert_close(first, second, atol=1e-5, rtol=0)


@pytest.mark.parametrize("attention", ["sdpa", "eager", "regard"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize(
    ("prefix", "options", "key"),
    [("Llama", GROUPED, 3), ("Mistral", GROUPED | {"sliding_window": 6}, 11)],
    ids=["Llama", "Mistral"],
)
def test_generation_counts_positions_in_the_text(
    prefix: str, options: Options, key: int, attention: str, cache: str
) -> None:
    model = build(prefix, options, attention, "ForCausalLM")
    start = words()
    more = {"cache_implementation": "static"} if cache == "static" else {}
    links = [(14, key), (12, 12), (4, 2)]
    with torch.no_grad():
        with cut(model, links), watch(model) as seen:
            written = model.generate(
                start, max_new_tokens=9, do_sample=False, eos_token_id=None, pad_token_id=0,
                output_logits=True, return_dict_in_generate=True, **more,
            )  # fmt: skip
        with cut(model, links), watch(model) as whole:
            expected = model(written.sequences[:, :-1]).logits
    logits = torch.stack(written.logits, 1)
    torch.testing.assert_close(logits, expected[:, N - 1 :], atol=1e-5, rtol=0)
    for name in whole:
        ours, all_at_once = seen[name].weights(), whole[name].weights()
        assert not ours[:, :, 14, key].any()
        assert ours[:, :, 15, key].all()
        torch.testing.assert_close(ours[..., : N + 8], all_at_once, atol=1e-5, rtol=0)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("prefix", "options", "head"),
    [("Marian", PAIR, "MTModel"), ("T5", T5, "ForConditionalGeneration")],
    ids=["Marian", "T5"],
)
def test_cross_attention_in_generation(
    prefix: str, options: Options, head: str, attention: str
) -> None:
    model = build(prefix, options, attention, head)
    inputs = {"input_ids": words(), "attention_mask": padded()}
    with torch.no_grad(), cut(model, [(4, 2)], kind="cross"), watch(model) as seen:
        model.generate(**inputs, max_new_tokens=7, do_sample=False, eos_token_id=None)
    crosses = [name for name in seen if seen.kind(name) == "cross"]
    assert len(crosses) == 2
    for name in crosses:
        weights = seen[name].weights()
        assert weights.shape == (B, 4, 7, N)
        zero = (weights == 0)[0].any(0)
        assert zero.nonzero().tolist() == [[4, 2]]
