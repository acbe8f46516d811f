"""`watch` on torch's own layers, on their fast path for inference and off it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import StaleError
from regard.lens import watch
from tests.lens.small_models import MODES, unchanged

FAST = [torch.no_grad, torch.inference_mode]
B, H, N, M, WIDTH = 3, 2, 7, 5, 6

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, N, WIDTH)


@pytest.fixture
def padded() -> Tensor:
    """True where there is padding, as torch has it."""
    return torch.arange(N) >= torch.tensor([[N], [5], [3]])


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b.detach(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("option", ["plain", "bias", "add_bias_kv", "add_zero_attn"])
def test_multihead_attention(
    x: Tensor, padded: Tensor, mode: type, need_weights: bool, batch_first: bool, option: str
) -> None:
    options = {"bias": {"bias": False}, "plain": {}}.get(option, {option: True})
    model = nn.MultiheadAttention(WIDTH, H, batch_first=batch_first, **options).eval()
    x = x if batch_first else x.transpose(0, 1)
    causal = torch.ones(N, N, dtype=torch.bool).triu(1)
    for masks in (
        {},
        {"key_padding_mask": padded},
        {"attn_mask": causal},
        {"attn_mask": causal, "key_padding_mask": padded},
        {"attn_mask": torch.randn(N, N)},
        {"attn_mask": torch.randn(B * H, N, N), "key_padding_mask": torch.randn(B, N)},
    ):
        with mode():
            seen = unchanged(model, x, x, x, need_weights=need_weights, **masks)
        _, expected = model(x, x, x, average_attn_weights=False, **masks)
        assert seen.kind("") == "self"
        close(seen[""].weights(), expected)


def test_the_causal_hint_is_aligned_at_the_start(x: Tensor) -> None:
    model = nn.MultiheadAttention(WIDTH, H, batch_first=True)
    memory = torch.randn(B, M, WIDTH)
    for keys in (x, memory):
        mask = torch.ones(N, keys.shape[1], dtype=torch.bool).triu(1)
        seen = unchanged(model, x, keys, keys, attn_mask=mask, is_causal=True, need_weights=False)
        _, expected = model(x, keys, keys, attn_mask=mask, average_attn_weights=False)
        close(seen[""].weights(), expected)


@pytest.mark.parametrize("mode", MODES)
def test_unbatched(x: Tensor, padded: Tensor, mode: type) -> None:
    model = nn.MultiheadAttention(WIDTH, H).eval()
    with mode():
        seen = unchanged(model, x[1], x[1], x[1], key_padding_mask=padded[1])
    _, expected = model(x[1], x[1], x[1], key_padding_mask=padded[1], average_attn_weights=False)
    close(seen[""].weights()[0], expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("length", [M, N])
def test_cross_attention(x: Tensor, mode: type, length: int) -> None:
    model = nn.MultiheadAttention(WIDTH, H, kdim=4, vdim=8, batch_first=True).eval()
    k, v = torch.randn(B, length, 4), torch.randn(B, length, 8)
    with mode():
        seen = unchanged(model, x, k, v)
    close(seen[""].weights(), model(x, k, v, average_attn_weights=False)[1])
    assert seen.kind("") == "cross"


def test_queries_and_keys_with_positions_are_self_attention(x: Tensor) -> None:
    model = nn.MultiheadAttention(WIDTH, H, batch_first=True)
    turned = x + torch.randn(N, WIDTH)
    assert unchanged(model, turned, turned, x).kind("") == "self"


def test_dropout_while_training(x: Tensor) -> None:
    model = nn.MultiheadAttention(WIDTH, H, dropout=0.5, batch_first=True)
    for need_weights in (True, False):
        seen = unchanged(model, x, x, x, need_weights=need_weights)
        expected = model.eval()(x, x, x, average_attn_weights=False)[1]
        model.train()
        close(seen[""].weights(), expected)  # before dropout


def encoder(norm_first: bool = False, **options: Any) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        WIDTH, H, 8, batch_first=True, norm_first=norm_first, **options
    )
    nested = not norm_first
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()


def by_hand(model: nn.TransformerEncoder, x: Tensor, bias: Tensor | None) -> list[Tensor]:
    """The weights of each layer, written out."""
    found = []
    for layer in model.layers:
        y = layer.norm1(x) if layer.norm_first else x
        q, k, _ = (
            z.view(B, N, H, -1).transpose(1, 2)
            for z in F.linear(
                y, layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias
            ).chunk(3, -1)
        )
        scores = q @ k.mT / (WIDTH // H) ** 0.5
        found.append(torch.softmax(scores if bias is None else scores + bias, -1))
        mask = None if bias is None else bias.expand(B, H, N, N).reshape(B * H, N, N)
        x = layer(x, src_mask=mask)
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("masked", ["not", "causal", "padding", "both"])
def test_transformer_encoder(
    x: Tensor, padded: Tensor, mode: type, norm_first: bool, masked: str
) -> None:
    model = encoder(norm_first)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 5)  # both layers begin alike
    causal = torch.full((N, N), -torch.inf).triu(1)
    options: dict[str, Tensor] = {}
    bias = torch.zeros(N, N)
    if masked in ("causal", "both"):
        options["mask"] = causal
        bias = bias + causal
    if masked in ("padding", "both"):
        hidden = torch.zeros(B, N).masked_fill(padded, -torch.inf)
        options["src_key_padding_mask"] = hidden if "mask" in options else padded
        bias = bias + hidden[:, None, None]
    with mode():
        seen = unchanged(model, x, **options)
    assert list(seen) == ["layers.0.self_attn", "layers.1.self_attn"]
    there = ~padded if masked in ("padding", "both") else torch.ones(B, N, dtype=torch.bool)
    for look, expected in zip(seen.values(), by_hand(model, x, bias), strict=True):
        ours, expected = (w.transpose(1, 2)[there] for w in (look.weights(), expected))
        torch.testing.assert_close(ours, expected.detach(), atol=2e-6, rtol=0)


@pytest.mark.parametrize("mode", FAST)
def test_the_fast_path_is_taken(x: Tensor, padded: Tensor, mode: type) -> None:
    """The modes and hooks of others end it; ours must not."""
    calls = []
    original = torch._transformer_encoder_layer_fwd

    def counted(*args: Any) -> Tensor:
        calls.append(args[0].is_nested)
        return original(*args)

    torch._transformer_encoder_layer_fwd = counted  # type: ignore[assignment]
    try:
        model = encoder()
        with mode(), watch(model):
            model(x)
            model(x, src_key_padding_mask=padded)
    finally:
        torch._transformer_encoder_layer_fwd = original
    assert calls == [False, False, True, True]


@pytest.mark.parametrize("mode", FAST)
def test_padding_that_was_packed_away_looks_at_nothing(
    x: Tensor, padded: Tensor, mode: type
) -> None:
    model = encoder()
    with mode():
        seen = unchanged(model, x, src_key_padding_mask=padded)
    for look in seen.values():
        sums = look.weights().sum(-1)
        close(sums, (~padded).float()[:, None].expand(B, H, N))
        assert look.output[2, :, 3:].abs().sum() == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("train", [False, True])
def test_the_whole_transformer(x: Tensor, mode: type, train: bool) -> None:
    model = nn.Transformer(WIDTH, H, 2, 2, 8, batch_first=True).train(train)
    target = torch.randn(B, N, WIDTH)
    mask = nn.Transformer.generate_square_subsequent_mask(N)
    with mode():
        seen = unchanged(model, x, target, tgt_mask=mask, tgt_is_causal=True)
    assert [(name, seen.kind(name)) for name in seen] == [
        ("encoder.layers.0.self_attn", "self"),
        ("encoder.layers.1.self_attn", "self"),
        ("decoder.layers.0.self_attn", "self"),
        ("decoder.layers.0.multihead_attn", "cross"),
        ("decoder.layers.1.self_attn", "self"),
        ("decoder.layers.1.multihead_attn", "cross"),
    ]
    assert torch.equal(
        seen["decoder.layers.1.self_attn"].weights() > 0,
        torch.ones(N, N, dtype=torch.bool).tril().expand(B, H, N, N),
    )


def test_autocast(x: Tensor) -> None:
    model = nn.MultiheadAttention(WIDTH, H, batch_first=True).eval()
    for mode in MODES:
        with mode(), torch.autocast("cpu", torch.bfloat16):
            seen = unchanged(model, x, x, x)
            _, expected = model(x, x, x, average_attn_weights=False)
        torch.testing.assert_close(seen[""].weights(), expected.detach().float(), atol=4e-3, rtol=0)


def test_subclasses(x: Tensor) -> None:
    class Wrapped(nn.MultiheadAttention):
        def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x, x, x)[0]

    class Own(nn.MultiheadAttention):
        def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
            return F.scaled_dot_product_attention(x, x, x)

    for kind in (Wrapped, Own):
        for mode in MODES:
            with mode():
                seen = unchanged(kind(WIDTH, H, batch_first=True).eval(), x)
            assert list(seen) == [""]


def test_a_function_of_torch_called_by_hand(x: Tensor) -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.MultiheadAttention(WIDTH, H)

        def forward(self, x: Tensor, **options: Any) -> Tensor:
            inner = self.inner
            return F.multi_head_attention_forward(
                x, x, x, WIDTH, H, inner.in_proj_weight, inner.in_proj_bias, None, None, False,
                0.0, inner.out_proj.weight, inner.out_proj.bias, **options,
            )[0]  # fmt: skip

    model = Bare()
    seen = unchanged(model, x.transpose(0, 1))
    assert list(seen) == [""]
    close(seen[""].weights(), model.inner(*[x.transpose(0, 1)] * 3, average_attn_weights=False)[1])
    static = torch.randn(B * H, N, WIDTH // H)
    seen = unchanged(model, x.transpose(0, 1), static_k=static, static_v=static)
    assert seen[""].weights().shape == (B, H, N, N)


def test_weights_that_were_trained_since_are_noticed(x: Tensor) -> None:
    model = encoder()
    with torch.no_grad(), watch(model) as seen:
        model(x)
    asked = seen["layers.0.self_attn"]
    with torch.no_grad():
        model.layers[0].self_attn.in_proj_weight.mul_(2)
        model.layers[1].self_attn.in_proj_weight.mul_(2)
    assert asked.weights().shape == (B, H, N, N)
    with pytest.raises(StaleError, match="read them before the change"):
        seen["layers.1.self_attn"]


def test_an_input_that_was_changed_since_is_noticed_or_copied(x: Tensor) -> None:
    model = encoder()
    with torch.no_grad(), watch(model) as seen:
        model(x)
    x.mul_(2)
    with pytest.raises(StaleError):
        seen["layers.0.self_attn"]
    with torch.inference_mode():
        y = x.clone()
        expected = by_hand(model, y, None)[0]
        with watch(model) as seen:
            model(y)
        y.mul_(2)
    close(seen["layers.0.self_attn"].weights(), expected.clone())


def test_calls_are_joined(x: Tensor) -> None:
    model = encoder()
    with torch.no_grad(), watch(model) as seen:
        model(x)
        model(x.flip(1))
    look, calls = seen["layers.0.self_attn"], seen.calls("layers.0.self_attn")
    assert look.weights().shape == (B, H, 2 * N, 2 * N)
    close(look.weights()[:, :, N:, N:], calls[1].weights())
