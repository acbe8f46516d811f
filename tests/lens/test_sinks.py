"""Models with attention sinks, whose softmax has one score more than there are keys."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import regard.hf  # noqa: F401
from regard.lens import cut, watch
from tests.lens.transformers_models import GPT_OSS, N, build, words

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
