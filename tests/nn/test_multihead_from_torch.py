"""Attention layers made from torch's compute the same numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from regard.attention import causal, padding
from regard.errors import OptionError, RegardError
from regard.nn import MultiHeadAttention
from tests.nn.multihead_cases import close, noise


def torch_of(*args: Any, seed: int = 0, **options: Any) -> nn.MultiheadAttention:
    torch.manual_seed(seed)
    module = nn.MultiheadAttention(*args, dtype=torch.float64, **options)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return module


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("heads", [1, 2, 7])
def test_from_torch_self_attention(bias: bool, heads: int) -> None:
    module = torch_of(14, heads, bias=bias, batch_first=True)
    layer, x = MultiHeadAttention.from_torch(module), noise(3, 5, 14)
    close(layer(x), module(x, x, x, need_weights=False)[0])
    assert (layer.b_q is None) == (not bias)


def test_from_torch_cross_attention() -> None:
    module = torch_of(14, 2, batch_first=True)
    layer, x, context = MultiHeadAttention.from_torch(module), noise(3, 5, 14), noise(3, 11, 14)
    close(layer(x, context), module(x, context, context, need_weights=False)[0])
    close(layer(x[0], context[0]), module(x[0], context[0], context[0])[0])


def test_from_torch_whatever_its_batch_axis() -> None:
    module = torch_of(14, 2)
    layer, x = MultiHeadAttention.from_torch(module), noise(3, 5, 14)
    y = x.transpose(0, 1)
    close(layer(x), module(y, y, y)[0].transpose(0, 1))


def test_from_torch_masks_are_the_other_way_round() -> None:
    module = torch_of(14, 2, batch_first=True)
    layer, x = MultiHeadAttention.from_torch(module), noise(3, 5, 14)
    hidden = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
    wanted = module(x, x, x, attn_mask=hidden)[0]
    close(layer(x, mask=~hidden), wanted)
    close(layer(x, mask=causal), wanted)
    assert not torch.allclose(layer(x), wanted)

    lengths = torch.tensor([5, 2, 3])
    pad = torch.arange(5) >= lengths[:, None]
    wanted = module(x, x, x, key_padding_mask=pad)[0]
    close(layer(x, mask=padding(lengths)), wanted)
    close(layer(x, mask=~pad[:, None, None, :]), wanted)

    both = module(x, x, x, key_padding_mask=pad, attn_mask=hidden)[0]
    close(layer(x, mask=causal & padding(lengths)), both)


def test_from_torch_weights_are_torchs() -> None:
    module = torch_of(14, 2, batch_first=True)
    x, context = noise(5, 14), noise(11, 14, seed=1)
    s = MultiHeadAttention.from_torch(module).steps(x, context=context)
    output, weights = module(x, context, context, average_attn_weights=False)
    close(s.weights, weights)
    close(s.output, output)


def test_from_torch_carries_dropout_and_mode() -> None:
    module = torch_of(14, 2, dropout=0.5, batch_first=True)
    x = noise(3, 5, 14)
    training = MultiHeadAttention.from_torch(module)
    layer = MultiHeadAttention.from_torch(module.eval())
    assert training.training
    assert not layer.training
    assert layer.dropout == 0.5
    close(layer(x), module(x, x, x)[0])
    assert not torch.allclose(training(x), layer(x))


def test_from_torch_keeps_the_dtype_and_makes_a_copy() -> None:
    module = nn.MultiheadAttention(6, 2)
    layer = MultiHeadAttention.from_torch(module)
    assert {parameter.dtype for parameter in layer.parameters()} == {torch.float32}
    before = layer.w_q.clone()
    with torch.no_grad():
        module.in_proj_weight.zero_()
    assert torch.equal(layer.w_q, before)
    assert all(parameter.requires_grad for parameter in layer.parameters())


UNSUPPORTED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "bias-kv": (
        lambda: nn.MultiheadAttention(6, 2, add_bias_kv=True),
        "from_torch: the module adds keys of its own (add_bias_kv or add_zero_attn), which "
        "MultiHeadAttention does not",
    ),
    "zero": (
        lambda: nn.MultiheadAttention(6, 2, add_zero_attn=True),
        "from_torch: the module adds keys of its own (add_bias_kv or add_zero_attn), which "
        "MultiHeadAttention does not",
    ),
    "kdim": (
        lambda: nn.MultiheadAttention(6, 2, kdim=5),
        "from_torch: the module has kdim=5 and vdim=6 beside embed_dim=6; MultiHeadAttention has "
        "one width",
    ),
    "vdim": (
        lambda: nn.MultiheadAttention(6, 2, vdim=7),
        "from_torch: the module has kdim=6 and vdim=7 beside embed_dim=6; MultiHeadAttention has "
        "one width",
    ),
}


@pytest.mark.parametrize(("make", "text"), UNSUPPORTED.values(), ids=UNSUPPORTED.keys())
def test_from_torch_says_what_it_cannot_take(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(OptionError, match=f"^{re.escape(text)}$"):
        MultiHeadAttention.from_torch(make())


@pytest.mark.usefixtures("as_users_run")
def test_from_torch_of_something_else() -> None:
    with pytest.raises(RegardError, match=r"^from_torch: .*Linear.*MultiheadAttention"):
        MultiHeadAttention.from_torch(nn.Linear(6, 6))  # type: ignore[arg-type]
