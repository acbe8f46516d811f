"""`Lens.steps`: the numbers of one link, in the arithmetic of its model."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.lens import Lens
from tests.lens.conftest import TEXT
from tests.lens.transformers_models import GROUPED, T5, Options, build, transformers

GEMMA = GROUPED | {"attn_logit_softcapping": 0.2, "query_pre_attn_scalar": 16}


@pytest.mark.parametrize(
    ("prefix", "head", "options", "printed"),
    [
        ("Gemma2", "ForCausalLM", GEMMA, "× 0.25, softcap 0.2"),
        ("Granite", "ForCausalLM", GROUPED | {"attention_multiplier": 0.3}, "× 0.3"),
        ("Llama", "ForCausalLM", GROUPED, "÷ √8"),
        ("T5", "ForConditionalGeneration", T5, "× 1"),
    ],
)
def test_the_steps_are_those_of_the_model(
    prefix: str, head: str, options: Options, printed: str, word_piece: Any
) -> None:
    model = build(prefix, options, "eager", head)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=word_piece, eos_token="[SEP]")
    lens = Lens(model, fast)
    steps = lens.steps(TEXT, key="street")
    assert steps.product == pytest.approx(float(steps.q @ steps.k), abs=1e-5)
    assert f"3. Scale           {printed} = {steps.scaled:.4f}\n" in str(steps)
    why = lens.why(TEXT, most=1, control=1, texts=False)
    row = why.row
    torch.testing.assert_close(row.product, (row.q.unsqueeze(-2) * row.k).sum(-1))
    assert set(row.scaling) == {steps.scaling}
    assert printed in str(why.view())


@pytest.mark.parametrize(
    ("query", "key", "place"),
    [
        ("it", "animal", "encoder"),
        ("es", "Tier", "decoder"),
        ("müde", "es", "decoder"),
        ("Tier", "animal", "cross"),
    ],
)
def test_a_word_of_every_place_is_asked(pocket: Lens, query: str, key: str, place: str) -> None:
    steps = pocket.steps(TEXT, query=query, key=key, place=place)
    assert (steps.query, steps.key, steps.place) == (query, key, place)
