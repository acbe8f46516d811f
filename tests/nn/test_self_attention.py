"""Self-attention without parameters: what feeds it decides."""

from __future__ import annotations

import pytest
import torch

import regard
from regard.attention import causal
from regard.nn import SelfAttention
from tests.nn.multihead_cases import close, noise


@pytest.mark.parametrize("score", ["dot", "scaled_dot", "cosine", "gaussian"])
def test_self_attention_is_attend(score: str) -> None:
    layer = SelfAttention(score)
    x = noise(3, 5, 7)
    assert list(layer.parameters()) == []
    assert torch.equal(layer(x), regard.attend(x, x, x, score=score))
    assert torch.equal(
        layer(x[0], mask=causal), regard.attend(*[x[0]] * 3, mask=causal, score=score)
    )
    close(layer(x)[1], layer(x[1]))
    s = layer.steps(x[0], list("abcde"), mask=causal)
    close(s.output, layer(x[0], mask=causal))
    assert s.of("b").title == "b, word 2 of 5: a b c d e"


def test_self_attention_by_hand() -> None:
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    big = torch.e / (torch.e + 1)
    close(SelfAttention()(x), torch.tensor([[big, 1 - big], [1 - big, big]], dtype=torch.float64))


def test_self_attention_teaches_what_feeds_it() -> None:
    x = noise(3, 2).requires_grad_()
    assert torch.autograd.gradcheck(SelfAttention(), (x,))
