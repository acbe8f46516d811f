"""The payload: true to the look, and as small as promised."""

from __future__ import annotations

import base64
import json
import re
import zlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from regard.errors import OptionError
from regard.view import Layer, Sparsity, Text, View, attention_view, page, payload

UNIT = 65535


def unpacked(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=kind)


def dense(layer: dict[str, Any], queries: int, keys: int) -> np.ndarray:
    """The weights (h, q, k) that a layer of a payload holds, NaN where it holds none."""
    counts = unpacked(layer["counts"], "<u2").reshape(layer["heads"], queries)
    places, weights = unpacked(layer["places"], "<u2"), unpacked(layer["weights"], "<u2")
    found = np.full((layer["heads"] * queries, keys), np.nan)
    ends = np.cumsum(counts.reshape(-1))
    for row, (end, count) in enumerate(zip(ends, counts.reshape(-1), strict=True)):
        links = slice(end - count, end)
        assert (np.diff(weights[links].astype(int)) <= 0).all(), "the strongest come first"
        found[row, places[links]] = weights[links] / UNIT
    return found.reshape(layer["heads"], queries, keys)


def test_short_texts_are_whole_and_masked_places_missing(samples: Any) -> None:
    view = samples.translation()
    made = view.payload()
    assert made["sparse"] == {"most": 64, "threshold": 0.001, "whole": True, "kept": 1.0}
    for layer, data in zip(view.layers, made["layers"], strict=True):
        exact = layer.look.weights()[0].numpy()
        found = dense(data, *layer.sizes)
        scores = layer.look.scores()[0].numpy()
        np.testing.assert_array_equal(np.isnan(found), scores == -np.inf)
        # Half a step of 16 bits, and what one rounding of a score makes of a weight.
        rounding = np.finfo(np.float32).eps * np.abs(scores[scores > -np.inf]).max()
        assert rounding < 0.2 / UNIT
        assert np.abs(np.nan_to_num(found) - exact).max() <= 0.5 / UNIT + rounding


def test_long_texts_keep_the_strongest_and_say_what_is_lost(samples: Any) -> None:
    look = samples.looked(200)
    view = View({"t": Text.of(["w"] * 200)}, [Layer("one", "self", "t", "t", look)])
    made = view.payload()
    found = dense(made["layers"][0], 200, 200)
    exact = look.weights()[0].numpy()
    kept = ~np.isnan(found)
    assert kept.sum(-1).max() == 16
    # Nothing that was left out is stronger than what was kept, and nothing weak was kept.
    weakest = np.where(kept, exact, np.inf).min(-1)
    strongest_lost = np.where(kept, 0, exact).max(-1)
    full = kept.sum(-1) == 16
    assert (strongest_lost[full] <= weakest[full] + 1e-7).all()
    assert (strongest_lost[~full] < 0.001).all()
    assert np.where(kept, exact, 1).min() >= 0.001
    share = np.where(kept, exact, 0).sum(-1).mean(-1)
    assert made["layers"][0]["kept"] == pytest.approx(share.tolist(), abs=1e-4)
    assert made["sparse"]["kept"] == pytest.approx(share.mean(), abs=1e-4)
    assert 0.3 < made["sparse"]["kept"] < 1


def test_summaries_are_those_of_the_look(samples: Any) -> None:
    look = samples.looked(70, 90)
    texts = {"a": Text.of(["w"] * 70), "b": Text.of(["w"] * 90)}
    layer = View(texts, [Layer("one", "cross", "a", "b", look)]).payload()["layers"][0]
    entropy = unpacked(layer["entropy"], "<u2").reshape(4, 70) / UNIT * np.log(90)
    np.testing.assert_allclose(entropy, look.entropy()[0].numpy(), atol=1e-4)
    received = unpacked(layer["received"], "<u2").reshape(4, 90) / UNIT * layer["receivedMost"]
    np.testing.assert_allclose(received, look.received()[0].numpy(), atol=1e-3)


def test_a_row_that_sees_nothing_loses_nothing(samples: Any) -> None:
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[2] = False
    look = samples.looked(5, mask=mask)
    layer = View({"t": Text.of(list("abcde"))}, [Layer("one", "self", "t", "t", look)])
    made = layer.payload()["layers"][0]
    assert unpacked(made["counts"], "<u2").reshape(4, 5)[0].tolist() == [5, 5, 0, 5, 5]
    assert made["kept"] == [1.0] * 4


def test_plain_weights_are_those_that_were_given() -> None:
    exact = torch.rand(2, 3, 5, 5).softmax(-1)
    for given in (exact, [layer[None] for layer in exact]):  # as a tensor, and as transformers does
        view = attention_view(given, list("abcde"))
        made = view.payload()
        found = np.stack([dense(layer, 5, 5) for layer in made["layers"]])
        np.testing.assert_allclose(found, exact.numpy(), atol=1 / UNIT)
        assert made["steps"] == [None, None]  # queries and keys are not known


def test_nothing_in_it_can_end_the_script(samples: Any) -> None:
    text = Text("</script>", ("</script>", "<!--", "\ud800"), ("</script>", "<!--", "\ud800"),
                (0, 1, 2))  # fmt: skip
    view = View({"t": text}, [Layer("</script>", "self", "t", "t", samples.looked(3))], title="<b>")
    plain = payload.text_of(view.payload())
    assert "<" not in plain
    assert [unit[0] for unit in json.loads(plain)["texts"]["t"]["units"]] == [
        "</script>", "<!--", "\ud800",
    ]  # fmt: skip
    assert view.html().count("</script>") == 2


def test_a_page_holds_the_whole_payload(samples: Any) -> None:
    view = samples.translation()
    held = re.search(r'id="payload">([^<]*)<', view.html())
    assert held is not None
    rest = json.loads(held[1])
    bulk = json.loads(zlib.decompress(base64.b64decode(rest.pop("deflated"))))
    assert {**rest, **bulk} == json.loads(json.dumps(view.payload()))


def test_saved_steps_are_those_of_the_look(samples: Any) -> None:
    view = samples.translation()
    for layer, made in zip(view.layers, view.payload(["it", "war"])["steps"], strict=True):
        queries = made["queries"]
        assert queries == ([2] if layer.queries == "target" else [8])
        head, query = 3, queries[0]
        keys = made["keys"][head]
        look = layer.look
        exact = {
            "product": look.compared([query], [head]),
            "scaled": look.scores([query], [head]),
            "weight": look.weights([query], [head]),
        }
        for name, row in exact.items():
            found = [-np.inf if x is None else x for x in made[name][head][0]]
            np.testing.assert_allclose(found, row[0, 0, 0].numpy()[keys], atol=6e-6)
        group = head * look.k.shape[1] // 4
        for name, vectors in (("k", look.k), ("v", look.v)):
            found = unpacked(made[name]["data"], "<i2").reshape(4, len(keys), -1)[head]
            scale = made[name]["scale"]
            np.testing.assert_allclose(found * scale, vectors[0, group].numpy()[keys], atol=scale)


def test_saved_steps_of_long_texts_hold_the_chosen_words_and_the_strongest_keys(
    samples: Any,
) -> None:
    look = samples.looked(300)
    words = [f"w{i}" for i in range(300)]
    view = View({"t": Text.of(words)}, [Layer("one", "self", "t", "t", look)])
    assert view.payload()["steps"] == [None]
    made = view.payload(["w7", "w250"])["steps"][0]
    keys = made["keys"]
    _, best = look.top(8)
    for head in range(4):
        wanted = {7, 250, *best[0, head, 7].tolist(), *best[0, head, 250].tolist()}
        assert wanted <= set(keys[head])
        assert len(set(keys[head])) == len(keys[head]) == 18


def test_512_words_of_six_layers_and_twelve_heads_are_under_6_mb(samples: Any) -> None:
    look = samples.looked(666, heads=12)  # 512 words are some 666 tokens
    text = Text(
        "", ["w"] * 666, [f"word{i}" for i in range(512)], [min(i, 511) for i in range(666)]
    )
    layers = [Layer(f"layer {i}", "self", "t", "t", look) for i in range(6)]
    assert Sparsity().links(layers) == 16
    assert Sparsity().links(layers, beside=14_000_000) == 5  # what an explanation takes, links give
    made = View({"t": text}, layers[:1], sparsity=Sparsity(16, 0.0)).payload([])
    made["layers"] *= 6
    document = page.page(made, "")
    assert 2_000_000 < len(document.encode()) < 6_000_000


def test_what_may_not_be(samples: Any) -> None:
    with pytest.raises(OptionError, match="Sparsity: most expected 1 or more, got 0; or None"):
        Sparsity(0)
    with pytest.raises(OptionError, match=r"Sparsity: threshold expected 0 or more and below 1"):
        Sparsity(threshold=1)
    assert samples.sentence().places[-1] == -1


def test_vectors_of_two_findings_are_shared_only_if_they_are_equal() -> None:
    def finding(value: list[float]) -> SimpleNamespace:
        row = {"q": [[value]], "output": [[value]], "k": [[[value]]], "v": [[[value]]]}
        return SimpleNamespace(row=row, reads=[])

    found = payload.findings_data([finding([0.0, 1.0]), finding([0.0, 3.0])])  # type: ignore[list-item]
    packed = [found["vectors"][one["row"]["q"]] for one in found["findings"]]
    assert [one["scale"] * 32767 for one in packed] == pytest.approx([1, 3])
    assert len({one["row"]["k"][0] for one in found["findings"]}) == 2
