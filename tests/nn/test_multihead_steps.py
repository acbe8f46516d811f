"""An attention layer's own six steps."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn

from regard import RelativeBias
from regard.attention import causal
from tests.nn.multihead_cases import POSITIONS, close, layer_of, noise


@pytest.mark.parametrize("make", POSITIONS.values(), ids=POSITIONS.keys())
@pytest.mark.parametrize("kv_heads", [2, 6])
def test_steps_end_where_the_layer_ends(
    make: Callable[[], nn.Module | None], kv_heads: int
) -> None:
    layer = layer_of(12, 6, kv_heads, make())
    x, context = noise(5, 12), noise(7, 12, seed=1)
    for options in (
        {},
        {"mask": causal},
        {"context": context},
        {"context": context, "mask": causal},
    ):
        forward = {name: value for name, value in options.items() if name == "mask"}
        s = layer.steps(x, **options)
        close(s.output, layer(x, options.get("context"), **forward))
        assert not s.output.requires_grad
        k = 7 if "context" in options else 5
        assert tuple(s.weights.shape) == (6, 5, k)
        assert tuple(s.k.shape) == (kv_heads, k, 2)
        close(s.weights.sum(-1), torch.ones(6, 5, dtype=torch.float64))
        assert len(s.of(0).steps) == 6 * 6 + 1
        assert len(s.of(0).steps[3].table.rows) == k


def test_steps_of_one_head() -> None:
    layer, x = layer_of(6, 1), noise(5, 6)
    s = layer.steps(x, words=list("abcde"))
    close(s.output, layer(x))
    assert tuple(s.weights.shape) == (5, 5)
    assert tuple(s.q.shape) == (5, 6)
    close(s.q, x @ layer.w_q + layer.b_q)
    assert s.of("c").title == "c, word 3 of 5: a b c d e"


def test_steps_are_in_no_graph() -> None:
    layer = layer_of(12, 6, 2, RelativeBias(6, buckets=6, max_distance=5))
    s = layer.steps(noise(5, 12).requires_grad_())
    names = ("x", "q", "k", "v", "scores", "scaled", "masked", "weights", "weighted", "output")
    assert [name for name in names if getattr(s, name).requires_grad] == []


def test_cross_attention_names_both_sides() -> None:
    layer = layer_of(6, 2)
    x, context = noise(3, 6), noise(2, 6, seed=1)
    s = layer.steps(x, ["le", "chat", "dort"], context=context, context_words=["the", "cat"])
    text = str(s.of("chat"))
    assert [row[0] for row in s.of("chat").steps[1].table.rows] == ["the", "cat"]
    assert "←" not in text
    unnamed = layer.steps(x, context=context)
    assert unnamed.words == ("x1", "x2", "x3")
    assert unnamed.keys == ("c1", "c2")


def test_cross_attention_is_not_called_self_attention() -> None:
    s = layer_of(6, 2).steps(noise(3, 6), context=noise(2, 6, seed=1))
    assert "Self-attention" not in str(s)
    assert "k = x W_K" not in str(s.of(0))


def test_the_same_names_on_both_sides_do_not_make_it_self_attention() -> None:
    names = ("the", "cat", "sat")
    s = layer_of(6, 2).steps(noise(3, 6), names, context=noise(3, 6, seed=1), context_words=names)
    assert "←" not in str(s.of("cat"))


def test_a_bias_is_not_left_out_of_the_formula() -> None:
    x = noise(3, 6)
    with_bias, without = layer_of(6, 2), layer_of(6, 2, bias=False)
    for told in (str(with_bias.steps(x)), str(with_bias.steps(x).of(0))):
        assert re.search(r"W_Q \+ b", told)
    assert "+ b" not in str(without.steps(x).of(0))
