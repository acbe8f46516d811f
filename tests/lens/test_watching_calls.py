"""Several calls of one module: joined over caches, copied when they change in place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.nn.functional import scaled_dot_product_attention as imported

from regard.errors import OptionError, StaleError
from regard.lens import Seen, watch
from tests.lens.small_models import MODES, WIDTH, Attention, B, D, H, M, N, causal_bias, unchanged


def _double(x: Tensor) -> None:
    x.mul_(2)


def test_the_calls_of_a_module_are_joined(x: Tensor) -> None:
    model = Attention()
    longer = torch.randn(B, M, WIDTH)
    with watch(model) as seen:
        model(x)
        model(longer, is_causal=True)
        model(x, longer, attn_mask=torch.randn(N, M))
    assert list(seen) == ["", ":cross"]
    joined, calls = seen[""], seen.calls("")
    whole = joined.weights()
    assert whole.shape == (B, H, N + M, N + M)
    torch.testing.assert_close(whole[:, :, :N, :N], calls[0].weights())
    torch.testing.assert_close(whole[:, :, N:, N:], calls[1].weights())
    assert not whole[:, :, :N, N:].any()
    assert not whole[:, :, N:, :N].any()
    assert torch.equal(joined.output, torch.cat([call.output for call in calls], 2))
    torch.testing.assert_close(joined.entropy(), torch.cat([c.entropy() for c in calls], 2))
    torch.testing.assert_close(joined.received(), torch.cat([c.received() for c in calls], 2))
    values, keys = joined.top(3)
    torch.testing.assert_close(values[:, :, :N], calls[0].top(3)[0])
    assert torch.equal(keys[:, :, :N], calls[0].top(3)[1])
    all_keys = joined.top(N + M)[1][:, :, :N]  # more than the first call has
    assert torch.equal(all_keys[..., :N], calls[0].top(N)[1])
    assert (all_keys[..., N:] == -1).all()
    seen_second = calls[1].top(3)[1]
    assert torch.equal(keys[:, :, N:], torch.where(seen_second < 0, -1, seen_second + N))
    assert repr(joined) == "Look(3 heads, 12 queries, 12 keys, 2 calls joined)"


def test_biases_are_joined_too(x: Tensor) -> None:
    model = Attention()
    with watch(model) as seen:
        model(x, attn_mask=torch.randn(H, N, N))
        model(x.flip(1), attn_mask=torch.randn(B, 1, 1, N))
        model(x.flip(0))
    joined, calls = seen[""], seen.calls("")
    for i, call in enumerate(calls):
        own = slice(i * N, (i + 1) * N)
        torch.testing.assert_close(joined.weights()[:, :, own, own], call.weights())
    torch.testing.assert_close(joined.entropy(), torch.cat([c.entropy() for c in calls], 2))
    assert joined.contributions(queries=[N]).shape == (B, H, 1, 3 * N)


def test_many_blocks_of_joined_calls() -> None:
    """Longer than the blocks that a look works in, with edges inside of them."""
    model = Attention()
    with watch(model) as seen:
        for n in (100, 61, 130):
            model(torch.randn(B, n, WIDTH), is_causal=n == 61)
    joined, calls = seen[""], seen.calls("")
    torch.testing.assert_close(joined.received(), torch.cat([c.received() for c in calls], 2))
    torch.testing.assert_close(joined.top(2)[0], torch.cat([c.top(2)[0] for c in calls], 2))
    torch.testing.assert_close(joined.entropy(), torch.cat([c.entropy() for c in calls], 2))


def test_calls_that_cannot_be_joined_say_so(x: Tensor) -> None:
    model = Attention()
    with watch(model) as seen:
        model(x)
        model(x[:1], scale=0.5)
    with pytest.raises(OptionError) as caught:
        seen[""]
    assert str(caught.value) == (
        "watch: the 2 calls of '' cannot be joined, they have b=2 and 1; take them one by one from "
        "seen.calls('')"
    )
    assert len(seen.calls("")) == 2


class Cached(Attention):
    """Keeps keys and values: joined anew, in place, of a fixed length, or the last four only."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.forget()

    def forget(self) -> None:
        self.length = 0
        self.kv: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        q, *new = (
            layer(x).unflatten(-1, (H, D)).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        before, self.length = self.length, self.length + x.shape[1]
        mask = None
        if self.way in ("in place", "fixed length"):
            self.kv = self.kv or [torch.zeros(len(x), H, 32, D) for _ in new]
            for cache, y in zip(self.kv, new, strict=True):
                cache[:, :, before : self.length] = y
            k, v = self.kv
            if self.way == "in place":
                k, v = k[:, :, : self.length], v[:, :, : self.length]
            else:
                mask = torch.arange(32) <= torch.arange(before, self.length)[:, None]
        else:
            if self.kv:
                new = [torch.cat(pair, 2) for pair in zip(self.kv, new, strict=True)]
            self.kv = [y[:, :, -4:] for y in new] if self.way == "window" and before else new
            k, v = self.kv
        causal = mask is None and not before
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)


WAYS = ["joined", "in place", "fixed length", "window"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", WAYS)
def test_caches(way: str, mode: type) -> None:
    """A text read in pieces is seen as one, and each piece by itself."""
    model, text = Cached(way), torch.randn(B, 20, WIDTH)
    pieces = [text[:, :6], *text[:, 6:].split(1, 1)]
    with mode():
        plain = [model(piece) for piece in pieces]
        model.forget()
        with watch(model) as seen:
            watched = [model(piece) for piece in pieces]
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert seen.kind("") == "self"
    look, calls = seen[""], seen.calls("")
    bias = causal_bias(20, 20)
    if way == "window":
        far = torch.arange(20)[:, None] - torch.arange(20) > 3
        bias[6:] = bias[6:].masked_fill(far[6:], -torch.inf)
    expected = model.weights(text, bias=bias)
    torch.testing.assert_close(look.weights()[..., :20], expected)
    assert look.k.shape[2] == 20
    keys = model.k(text).unflatten(-1, (H, D)).transpose(1, 2).detach()
    torch.testing.assert_close(look.k, keys)
    assert len(calls) == 15
    own = {"fixed length": slice(0, 20), "window": slice(5, 9)}.get(way, slice(0, 9))
    torch.testing.assert_close(calls[3].weights()[..., :20], look.weights(queries=[8])[..., own])


@pytest.mark.parametrize("way", WAYS)
def test_generation_keeps_no_copy_per_step(way: str, held_bytes: Callable[[Seen], int]) -> None:
    def held(steps: int) -> int:
        model = Cached(way)
        with torch.no_grad(), watch(model) as seen:
            for _ in range(steps):
                model(torch.randn(1, 1, WIDTH))
        return held_bytes(seen)

    once, twice = held(10), held(20)
    assert twice <= 2 * once


def test_rows_that_change_places_are_kept_apart(x: Tensor) -> None:
    """Beam search goes on with other sequences: what was seen before stays what it was."""
    model = Cached("joined")
    with torch.no_grad(), watch(model) as seen:
        model(x)
        model.kv = [y.flip(0) for y in model.kv]
        model(x[:, :1])
    first, second = seen.calls("")
    torch.testing.assert_close(first.weights(), model.weights(x, bias=causal_bias(N, N)))
    assert torch.equal(second.k[:, :, :N], first.k.flip(0))
    joined = seen[""].weights()
    assert joined.shape == (B, H, N + 1, N + 1)
    torch.testing.assert_close(joined[:, :, :N, :N], first.weights())
    torch.testing.assert_close(joined[:, :, N:], second.weights())


@pytest.mark.parametrize("which", range(3))
def test_a_change_in_place_is_noticed(x: Tensor, which: int) -> None:
    model = Attention()
    model.after = lambda *tensors: _double(tensors[which])
    with torch.no_grad(), watch(model) as seen:
        model(x)
    with pytest.raises(StaleError) as caught:
        seen[""]
    assert str(caught.value) == (
        "watch: a tensor of this call was changed in place after the model had used it, so its "
        "weights are lost; read them before the change"
    )


def test_a_change_in_place_after_asking_is_noticed(x: Tensor) -> None:
    model = Attention()
    kept: list[Tensor] = []
    model.after = lambda q, *_: kept.append(q)
    with torch.no_grad(), watch(model) as seen:
        model(x)
    look = seen[""]
    look.weights()
    kept[0].mul_(2)
    with pytest.raises(StaleError):
        look.weights()


@pytest.mark.parametrize("make", [causal_upper_left, causal_lower_right])
@pytest.mark.parametrize("way", [lambda *x: F.scaled_dot_product_attention(*x), imported])
def test_masks_that_are_tensors_of_a_kind_of_their_own(
    make: Callable[[int, int], Tensor], way: Callable[..., Tensor]
) -> None:
    """They look at which function is called, and must find the one that torch has."""

    class Model(Attention):
        def forward(self, x: Tensor, context: Tensor) -> Tensor:  # type: ignore[override]
            q, k, v = self.q(x), self.k(context), self.v(context)
            return way(*(y[:, None] for y in (q, k, v)), mask)

    mask = make(N, M)
    seen = unchanged(Model(), torch.randn(B, N, WIDTH), torch.randn(B, M, WIDTH))
    allowed = torch.ones(N, M).tril(0 if make is causal_upper_left else M - N).bool()
    assert torch.equal(seen[""].weights() > 0, allowed.expand(B, 1, N, M))


def test_asking_under_autocast_changes_nothing(x: Tensor) -> None:
    model = Attention()
    seen = unchanged(model, x)
    with torch.autocast("cpu", torch.bfloat16):
        weights = seen[""].weights()
    assert weights.dtype == torch.float32
    assert torch.equal(weights, unchanged(model, x)[""].weights())


def test_a_mask_changed_in_place_afterwards_changes_nothing(x: Tensor) -> None:
    mask = torch.ones(N, N, dtype=torch.bool)
    with watch(model := Attention()) as seen:
        model(x, attn_mask=mask)
        mask[0] = False
    torch.testing.assert_close(seen[""].weights(), model.weights(x))


def test_an_added_mask_changed_in_place_is_noticed(x: Tensor) -> None:
    mask = torch.randn(N, N)
    with watch(model := Attention()) as seen:
        model(x, attn_mask=mask)
        mask[0] = 0
    with pytest.raises(StaleError):
        seen[""]


@pytest.mark.parametrize("which", range(4))
def test_without_counted_changes_a_copy_is_kept(x: Tensor, which: int) -> None:
    model = Attention()
    expected = model.weights(x)
    model.after = lambda *tensors: _double(tensors[which])
    with torch.inference_mode(), watch(model) as seen:
        model(x)
    torch.testing.assert_close(seen[""].weights(), expected)
    assert not seen[""].output.is_inference()


@pytest.mark.parametrize("mode", MODES)
def test_an_output_changed_in_place_is_computed_again(x: Tensor, mode: type) -> None:
    model = Attention()
    outputs: list[Tensor] = []
    with mode():
        model.after = lambda *tensors: outputs.append(tensors[3].clone())
        model(x)
        model.after = lambda *tensors: _double(tensors[3])
        with watch(model) as seen:
            model(x)
    torch.testing.assert_close(seen[""].output, outputs[0].detach().clone())


def test_tensors_changed_before_are_copied(x: Tensor) -> None:
    """What a model has written in place once, it may write again."""

    class Rotating(Attention):
        def forward(self, x: Tensor) -> Tensor:
            q = self.q(x)
            q += 1
            output = F.scaled_dot_product_attention(q, self.k(x), self.v(x))
            q += 1
            return output

    with torch.no_grad():
        seen = unchanged(Rotating(), x)
    assert seen[""].weights().sum(-1).allclose(torch.ones(B, N))


def test_one_mask_is_held_once_for_all_layers(x: Tensor) -> None:
    model = nn.ModuleList([Attention() for _ in range(3)])

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = model

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x, attn_mask=mask.clone())
            return x

    for mode in MODES:
        for mask in (torch.ones(N, N, dtype=torch.bool).tril(), torch.randn(N, N)):
            with mode():
                seen = unchanged(Stack(), x, mask)
            held = [look._call.bias for look in seen.values()]
            assert len({tensor.data_ptr() for tensor in held}) == 1
