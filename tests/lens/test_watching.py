"""`watch` on models that call torch's function: the same bits, the exact weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention as imported

import regard
from regard.errors import RegardError
from regard.lens import watch
from tests.lens.small_models import (
    MODES,
    WIDTH,
    Attention,
    B,
    Block,
    D,
    H,
    M,
    N,
    causal_bias,
    unchanged,
)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "function",
    [
        F.scaled_dot_product_attention,
        lambda *args, **options: F.scaled_dot_product_attention(*args, **options),
        imported,
        partial(imported, is_causal=False),
        torch.ops.aten.scaled_dot_product_attention,
        torch.ops.aten.scaled_dot_product_attention.default,
        regard.attend,
        regard.scaled_dot_product_attention,
        lambda q, k, v: regard.look(q, k, v).output,
    ],
    ids=[
        "attribute",
        "looked up",
        "imported",
        "partial",
        "packet",
        "overload",
        "attend",
        "swapped",
        "look",
    ],
)
def test_a_model_by_hand(x: Tensor, mode: type, function: Callable[..., Tensor]) -> None:
    model = Attention(function)
    with mode():
        seen = unchanged(model, x)
    assert list(seen) == [""]
    torch.testing.assert_close(seen[""].weights(), model.weights(x), atol=1e-6, rtol=0)
    assert seen[""].output.shape == (B, H, N, D)
    assert not seen[""].output.requires_grad


@pytest.mark.parametrize("mode", MODES)
def test_every_form_of_a_call(x: Tensor, mode: type) -> None:
    model = Attention().eval()
    context = torch.randn(B, M, WIDTH)
    allowed = torch.rand(B, 1, N, M) > 0.4
    allowed[..., 0] = True
    bias = torch.randn(H, N, M)
    with mode():
        by_mask = unchanged(model, x, context, attn_mask=allowed)
        by_bias = unchanged(model, x, context, attn_mask=bias)
        scaled = unchanged(model, x, context, scale=0.3)
        causal = unchanged(model, x, is_causal=True)
        from_start = unchanged(model, x, context, is_causal=True)
        by_keys = unchanged(model, x, context, attn_mask=allowed[0, 0, :1])
    hidden = torch.zeros(B, 1, N, M).masked_fill(~allowed, -torch.inf)
    close = partial(torch.testing.assert_close, atol=1e-6, rtol=0)
    close(by_mask[""].weights(), model.weights(x, context, hidden))
    close(by_bias[""].weights(), model.weights(x, context, bias))
    close(by_keys[""].weights(), model.weights(x, context, hidden[0, 0, :1]))
    close(causal[""].weights(), model.weights(x, bias=causal_bias(N, N)))
    close(from_start[""].weights(), model.weights(x, context, causal_bias(N, M)))
    assert scaled[""].score == regard.Scaled(0.3)
    assert causal[""]._call.mask is regard.causal


def test_three_axes_and_dropout(x: Tensor) -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).chunk(3, -1)
            return imported(q, k, v, dropout_p=0.5)

    model = Flat()
    seen = unchanged(model, x)
    q, k, _ = model.qkv(x).chunk(3, -1)
    expected = torch.softmax(q @ k.mT / WIDTH**0.5, -1).detach()
    torch.testing.assert_close(seen[""].weights(), expected)  # before dropout
    assert seen[""].weights().shape == (B, N, N)


@pytest.mark.parametrize("layer", [Attention(), nn.MultiheadAttention(WIDTH, H, batch_first=True)])
@pytest.mark.parametrize("sizes", [(B, 0, M), (0, N, M), (B, 0, 0)])
def test_nothing_to_look_from_or_at(layer: nn.Module, sizes: tuple[int, int, int]) -> None:
    b, q, k = sizes
    x, memory = torch.randn(b, q, WIDTH), torch.randn(b, k, WIDTH)
    more = (memory,) if isinstance(layer, nn.MultiheadAttention) else ()
    with watch(layer) as seen:
        layer(x, memory, *more)
    if seen:  # else PyTorch has left attention out
        assert seen[""].weights().shape == (b, H, q, k)
        assert seen[""].entropy().shape == (b, H, q)


def test_grouped_heads(x: Tensor) -> None:
    class Grouped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.kv = nn.Linear(WIDTH, 4 * D), nn.Linear(WIDTH, 2 * D)

        def forward(self, x: Tensor) -> Tensor:
            q = self.q(x).view(B, N, 4, D).transpose(1, 2)
            kv = self.kv(x).view(B, N, 2, D).transpose(1, 2)
            return F.scaled_dot_product_attention(q, kv, kv, enable_gqa=True)

    seen = unchanged(Grouped(), x)
    assert seen[""].q.shape[1] == 4
    assert seen[""].k.shape[1] == 2
    torch.testing.assert_close(
        seen[""].weights() @ seen[""].v.repeat_interleave(2, 1), seen[""].output
    )


def test_self_and_cross(x: Tensor) -> None:
    memory = torch.randn(B, N, WIDTH)  # as long as x: lengths tell nothing
    seen = unchanged(Block(), x, memory)
    assert list(seen) == ["inner", "", ":cross"]
    assert [seen.kind(name) for name in seen] == ["self", "self", "cross"]
    assert [len(seen.calls(name)) for name in seen] == [1, 1, 2]
    model = Attention()
    assert unchanged(model, x).kind("") == "self"
    assert unchanged(model, x, memory).kind("") == "cross"
    assert unchanged(model, x, x.clone()).kind("") == "cross"


def test_prints_a_table(x: Tensor) -> None:
    seen = unchanged(Block(), x, torch.randn(B, M, WIDTH))
    assert str(seen) == (
        "module       kind   calls  batch  heads  queries  keys\n"
        "inner        self       1      2      3        5     5\n"
        "(the model)  self       1      2      1        5     5\n"
        ":cross       cross      2      2      1       10     7"
    )
    assert repr(seen).startswith("Seen(3 modules)\nmodule ")


def test_is_a_mapping(x: Tensor) -> None:
    seen = unchanged(Block(), x, torch.randn(B, M, WIDTH))
    assert len(seen) == 3
    assert "inner" in seen
    assert "outer" not in seen
    assert seen.get("outer") is None
    assert seen["inner"] is seen["inner"]
    assert dict(seen).keys() == {"inner", "", ":cross"}
    with pytest.raises(KeyError) as caught:
        seen["iner"]
    assert str(caught.value) == (
        "seen: no attention was seen in 'iner'; there are 3 modules, such as 'inner', ':cross', "
        "''; print(seen) lists them"
    )
    assert isinstance(caught.value, RegardError)
