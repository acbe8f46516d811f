"""Models with attention sinks, whose softmax has one score more than there are keys."""

from __future__ import annotations

from typing import Any

import pytest
import tokenizers
import torch

import regard.hf  # noqa: F401
from regard.lens import Lens, cut, watch
from tests.lens.conftest import TEXT
from tests.lens.transformers_models import GPT_OSS, N, build, transformers, words

BOTH = pytest.mark.parametrize("attention", ["eager", "regard"])


def model(attention: str, head: str = "Model") -> Any:
    made = build("GptOss", GPT_OSS, attention, head)
    for name, parameter in made.named_parameters():
        if parameter.dim() > 1 or "sinks" in name:
            torch.nn.init.normal_(parameter, std=1.0 if "sinks" in name else 0.3)
    return made


@BOTH
def test_a_sink_is_no_key_to_cut(attention: str) -> None:
    gpt_oss, ids = model(attention), words()
    results = []
    with torch.no_grad():
        for links in ([(-1, -1)], [(N - 1, N - 1)]):
            with cut(gpt_oss, links):
                results.append(gpt_oss(ids).last_hidden_state)
    assert torch.equal(*results)


@BOTH
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_links_are_cut_in_generation(attention: str, cache: str) -> None:
    gpt_oss, more = model(attention, "ForCausalLM"), {}
    if cache == "static":
        more = {"cache_implementation": "static", "disable_compile": True}
    with torch.no_grad():
        with cut(gpt_oss, [(11, 10)]):
            written = gpt_oss.generate(
                words(), max_new_tokens=6, do_sample=False, eos_token_id=None,
                output_logits=True, return_dict_in_generate=True, **more,
            )  # fmt: skip
        with cut(gpt_oss, [(11, 10)]):
            expected = gpt_oss(written.sequences[:, :-1]).logits
    logits = torch.stack(written.logits, 1)
    torch.testing.assert_close(logits, expected[:, N - 1 :], atol=1e-4, rtol=0)


def test_effects_are_the_same_in_all_implementations() -> None:
    ids, found = words(), []
    for attention in ("eager", "regard"):
        gpt_oss = model(attention)
        with watch(gpt_oss, gradients=True) as seen:
            gpt_oss(ids).last_hidden_state[:, -1, 0].sum().backward()
        found.append(torch.stack([look.effects() for look in seen.values()]))
        assert found[-1].abs().max() == pytest.approx(abs(seen.links(1)[0].effect))
    assert found[0].abs().max() > 0.1
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-3)


@BOTH
def test_why_counts_the_share_of_the_sink(
    attention: str, word_piece: tokenizers.Tokenizer, word_piece_ids: list[int]
) -> None:
    gpt_oss = model(attention, "ForCausalLM")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=word_piece, pad_token="[PAD]", unk_token="[UNK]", eos_token="[SEP]"
    )
    why = Lens(gpt_oss, tokenizer).why(TEXT)
    with torch.no_grad(), watch(gpt_oss) as seen:
        gpt_oss(torch.tensor([word_piece_ids]))
    for link in why.links:
        weights = seen[link.module].weights()[0, link.head, list(link.query_positions)]
        mean = weights[:, list(link.key_positions)].sum(-1).mean()
        assert link.attention == pytest.approx(float(mean), abs=1e-4)
