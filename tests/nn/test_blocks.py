"""Blocks and feed-forward networks against the same thing in plain lines."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import ALiBi, Rotary, causal, padding
from regard.errors import OptionError
from regard.nn import Block, Dropout, FeedForward, TransformerConfig
from regard.nn.blocks import TwoWayALiBi
from regard.nn.cache import BlockCache

SHAPE: dict[str, Any] = {"width": 12, "heads": 2, "feed_forward": 20, "dropout": 0.0}


def block_of(cross: bool = False, **changes: Any) -> Block:
    """A block in float64 of which no parameter is 0 or 1."""
    block = Block(TransformerConfig(**{**SHAPE, **changes}), cross=cross).double()
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return block


def noise(*sizes: int) -> Tensor:
    return torch.randn(*sizes, dtype=torch.float64)


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_feed_forward_is_two_layers(activation: str) -> None:
    layer, x = FeedForward(6, 10, activation).double(), noise(3, 5, 6)
    with torch.no_grad():
        for bias in (layer.b_in, layer.b_out):
            assert bias is not None
            bias.normal_()
    function = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}[activation]
    wanted = function(x @ layer.w_in + layer.b_in) @ layer.w_out + layer.b_out
    close(layer(x), wanted)
    close(layer(x[0, 0]), wanted[0, 0])


def test_swiglu_has_a_gate_and_no_biases() -> None:
    layer, x = FeedForward(6, 10, "swiglu").double(), noise(3, 5, 6)
    assert layer.w_gate is not None
    close(layer(x), (F.silu(x @ layer.w_gate) * (x @ layer.w_in)) @ layer.w_out)
    assert sorted(name for name, _ in layer.named_parameters()) == ["w_gate", "w_in", "w_out"]
    assert repr(layer) == "FeedForward(width=6, inner=10, swiglu)"


def test_an_unknown_activation() -> None:
    with pytest.raises(OptionError, match="FeedForward: activation='tanh', expected one of relu, "):
        FeedForward(6, 10, "tanh")


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("cross", [False, True])
def test_norms_before_or_after_and_dropout_on_each_part(cross: bool, dropout: float) -> None:
    x, memory, drop = noise(3, 5, 12), noise(3, 7, 12), Dropout(dropout)
    for place in ("before", "after"):
        block = block_of(cross, norm_place=place, dropout=dropout)
        layers = [(block.attention_norm, lambda y, b=block: b.attention(y, mask=causal))]
        if cross:
            layers.append((block.cross_norm, lambda y, b=block: b.cross(y, memory)))
        layers.append((block.feed_forward_norm, block.feed_forward))
        torch.manual_seed(7)
        wanted = x
        for norm, function in layers:
            if place == "before":
                wanted = wanted + drop(function(norm(wanted)))
            else:
                wanted = norm(wanted + drop(function(wanted)))
        torch.manual_seed(7)
        close(block(x, memory if cross else None, mask=causal), wanted)


def test_which_norm() -> None:
    assert isinstance(block_of(norm="rmsnorm").attention_norm, nn.RMSNorm)
    assert block_of(norm="rmsnorm").attention_norm.eps == 1e-6
    assert isinstance(block_of().attention_norm, nn.LayerNorm)
    assert block_of().feed_forward_norm.eps == 1e-5
    for norm in ("rmsnorm", "layernorm"):
        block = block_of(True, norm=norm, norm_eps=0.01)
        found = {one.eps for name, one in block.named_children() if name.endswith("_norm")}
        assert found == {0.01}


def test_positions_inside_attention_are_of_words_among_themselves_only() -> None:
    for position, kind in (("rotary", Rotary), ("alibi", ALiBi)):
        block = block_of(True, position=position)
        assert isinstance(block.attention.position, kind)
        assert block.cross is not None
        assert block.cross.position is None
    for position in ("sinusoidal", "learned"):
        assert block_of(position=position).attention.position is None


def test_words_after_are_farther_than_words_before_in_every_second_head() -> None:
    for heads in (1, 3, 8):
        two_way, plain = TwoWayALiBi(heads)(5, 7), ALiBi(heads)(5, 7)
        ahead = torch.arange(7) > torch.arange(5)[:, None] + 2
        assert torch.equal(two_way[:, ~ahead], plain[:, ~ahead])
        assert torch.equal(two_way[0::2, ahead], 2 * plain[0::2, ahead])
        assert torch.equal(two_way[1::2], plain[1::2])


def test_several_sequences_for_each_sentence_of_the_memory() -> None:
    block, memory, lengths = block_of(True), noise(3, 7, 12), torch.tensor([7, 2, 4])
    x = noise(6, 5, 12)
    once = block(x, memory, mask=causal, memory_mask=padding(lengths))
    copied = block(
        x,
        memory.repeat_interleave(2, 0),
        mask=causal,
        memory_mask=padding(lengths.repeat_interleave(2)),
    )
    close(once, copied)


@pytest.mark.parametrize("position", ["rotary", "alibi", "sinusoidal"])
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_in_parts_with_a_cache(position: str, kv_heads: int) -> None:
    block = block_of(True, position=position, kv_heads=kv_heads)
    x, memory = noise(3, 6, 12), noise(3, 7, 12)
    cache = BlockCache()
    parts = [block(part, memory, mask=causal, cache=cache) for part in x.split([1, 3, 1, 1], dim=1)]
    close(torch.cat(parts, 1), block(x, memory, mask=causal))
    assert (cache.own.length, cache.memory.length) == (6, 7)


def test_dropout_only_while_training() -> None:
    block, x = block_of(dropout=0.5), noise(2, 5, 12)
    assert not torch.equal(block(x), block(x))
    assert torch.equal(block.eval()(x), block(x))


def test_it_shows_its_parts() -> None:
    text = repr(block_of(True))
    for part in ("MultiHeadAttention(width=12, heads=2", "FeedForward(width=12, inner=20, relu)"):
        assert re.search(re.escape(part), text)
