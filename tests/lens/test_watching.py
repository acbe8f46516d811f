"""`watch` on models written by hand: what is seen, for how long, and by whom."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention as imported
from torch.utils.checkpoint import checkpoint

import regard
from regard.errors import OptionError, RegardError, StaleError
from regard.lens import Seen, watch

MODES = [torch.no_grad, torch.enable_grad, torch.inference_mode]
B, H, N, M, D = 2, 3, 5, 7, 4
WIDTH = H * D


class Attention(nn.Module):
    """Self- or cross-attention, written by hand."""

    def __init__(self, function: Callable[..., Tensor] = F.scaled_dot_product_attention) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.function = function
        self.after: Callable[[Tensor, Tensor, Tensor, Tensor], None] | None = None

    def forward(self, x: Tensor, context: Tensor | None = None, **options: object) -> Tensor:
        context = x if context is None else context
        q, k, v = (
            layer(y).unflatten(-1, (H, D)).transpose(1, 2)
            for layer, y in ((self.q, x), (self.k, context), (self.v, context))
        )
        output = self.function(q, k, v, **options)
        if self.after is not None:
            self.after(q, k, v, output)
        return output.transpose(1, 2).flatten(2)

    def weights(
        self, x: Tensor, context: Tensor | None = None, bias: Tensor | None = None
    ) -> Tensor:
        context = x if context is None else context
        q, k = (
            layer(y).unflatten(-1, (H, D)).transpose(1, 2)
            for layer, y in ((self.q, x), (self.k, context))
        )
        scores = q @ k.mT / D**0.5
        return torch.softmax(scores if bias is None else scores + bias, -1).detach()


class Block(nn.Module):
    """A decoder's block in one module, which calls attention twice by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Attention()
        self.q, self.kv, self.memory = (
            nn.Linear(WIDTH, D),
            nn.Linear(WIDTH, 2 * D),
            nn.Linear(WIDTH, 2 * D),
        )
        self.out = nn.Linear(D, WIDTH)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        x = x + self.inner(x)
        for layer, source in ((self.kv, None), (self.memory, memory), (self.memory, memory)):
            k, v = layer(x if source is None else source).chunk(2, -1)
            x = x + self.out(F.scaled_dot_product_attention(self.q(x), k, v))
        return x


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, N, WIDTH)


def unchanged(model: nn.Module, *args: Tensor, **options: object) -> Seen:
    """What is seen of a model whose output watching does not change by a bit."""
    torch.manual_seed(1)
    plain = model(*args, **options)
    torch.manual_seed(1)
    with watch(model) as seen:
        watched = model(*args, **options)
    assert torch.equal(plain, watched)
    return seen


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
    close(causal[""].weights(), model.weights(x, bias=_causal(N, N)))
    close(from_start[""].weights(), model.weights(x, context, _causal(N, M)))
    assert scaled[""].score == regard.Scaled(0.3)
    assert causal[""]._call.mask is regard.causal


def _double(x: Tensor) -> None:
    x.mul_(2)


def _causal(q: int, k: int) -> Tensor:
    return torch.full((q, k), -torch.inf).triu(1)


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
    bias = _causal(20, 20)
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
    torch.testing.assert_close(first.weights(), model.weights(x, bias=_causal(N, N)))
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
        "weights are gone; ask before the change"
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


def test_autocast_is_seen_as_it_ran(x: Tensor) -> None:
    model = Attention()
    mask = torch.zeros(N, N)
    mask[0, 1:] = torch.finfo(torch.float32).min
    with torch.autocast("cpu", torch.bfloat16):
        seen = unchanged(model, x, attn_mask=mask)
        inside = seen[""].weights()
    look = seen[""]
    assert look.q.dtype == look.output.dtype == torch.bfloat16
    assert look._call.bias.dtype == torch.bfloat16
    assert torch.equal(inside, look.weights())
    q, k = look.q.float(), look.k.float()
    expected = torch.softmax(q @ k.mT / D**0.5 + mask, -1)
    torch.testing.assert_close(look.weights(), expected, atol=1e-6, rtol=0)


def test_watching_twice_and_nested(x: Tensor) -> None:
    model, memory = Block(), torch.randn(B, M, WIDTH)
    with watch(model) as outer:
        model(x, memory)
        with watch(model.inner) as inner, watch(model) as again:
            model(x, memory)
        model(x, memory)
    assert [len(outer.calls(name)) for name in outer] == [3, 3, 6]
    assert list(inner) == [""]
    assert len(inner.calls("")) == 1
    assert len(again.calls("inner")) == 1


def test_only_the_model_that_is_watched(x: Tensor) -> None:
    model, other = Attention(), Attention()
    with watch(model) as seen:
        model(x)
        other(x)
        F.scaled_dot_product_attention(x, x, x)
        regard.attend(x, x, x)
    assert len(seen.calls("")) == 1


def test_contexts_that_end_in_another_order(x: Tensor) -> None:
    model = Attention()
    first, second = watch(model), watch(model)
    seen_first, seen_second = first.__enter__(), second.__enter__()
    model(x)
    first.__exit__(None, None, None)
    model(x)
    second.__exit__(None, None, None)
    model(x)
    assert len(seen_first.calls("")) == 1
    assert len(seen_second.calls("")) == 2


def test_threads_see_their_own_calls_only(x: Tensor) -> None:
    model = Attention()
    counts: dict[int, int] = {}
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        barrier.wait()
        if number == 0:
            for _ in range(30):
                model(x)
            return
        with watch(model) as seen:
            for _ in range(10 * number):
                model(x)
        counts[number] = len(seen.calls(""))

    with watch(model) as main:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        model(x)
        for thread in threads:
            thread.join()
    assert counts == {1: 10, 2: 20, 3: 30}
    assert len(main.calls("")) == 1


def test_an_exception_ends_it(x: Tensor) -> None:
    model = Attention()

    def fail(*tensors: Tensor) -> None:
        raise ZeroDivisionError

    model.after = fail
    with pytest.raises(ZeroDivisionError), watch(model):
        model(x)
    with pytest.raises(RuntimeError, match="must match"), watch(model):
        model(x, attn_mask=torch.zeros(N + 1, N + 1))
    outer = nn.Sequential(model)
    with watch(outer) as seen:
        with pytest.raises(ZeroDivisionError):
            outer(x)
        model.after = None
        outer(x)
    assert list(seen) == ["0"]
    assert len(seen.calls("0")) == 2


def test_an_interrupt_inside_does_not_confuse_names(x: Tensor) -> None:
    """torch does not call hooks after a KeyboardInterrupt."""
    model, memory = Block(), torch.randn(B, M, WIDTH)

    def interrupt(*tensors: Tensor) -> None:
        raise KeyboardInterrupt

    with watch(model) as seen:
        model.inner.after = interrupt
        with pytest.raises(KeyboardInterrupt):
            model(x, memory)
        model.inner.after = None
        model(x, memory)
    assert list(seen) == ["inner", "", ":cross"]


def test_a_user_mode_stays(x: Tensor) -> None:
    class Counting(torch.overrides.TorchFunctionMode):
        count = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            self.count += 1
            return func(*args, **(kwargs or {}))

    model = Attention()
    with watch(model) as seen, Counting() as counting:
        model(x)
    with Counting() as outer, watch(model) as again:
        model(x)
    watching, counting_too = watch(model), Counting()
    watching.__enter__()
    counting_too.__enter__()
    watching.__exit__(None, None, None)
    counting_too.__exit__(None, None, None)
    assert counting.count
    assert outer.count
    assert list(seen) == list(again) == [""]


def test_a_checkpoint_is_seen_once(x: Tensor) -> None:
    model = Attention()
    x.requires_grad_()
    with watch(model) as seen:
        checkpoint(model, x, use_reentrant=False).sum().backward()
    assert len(seen.calls("")) == 1


def test_gradients_are_those_without_watching(x: Tensor) -> None:
    model = Attention()
    gradients = []
    for watched in (False, True):
        model.zero_grad()
        if watched:
            with watch(model):
                model(x).square().sum().backward()
        else:
            model(x).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def added(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x + 1 for x in args)


def patched(module: nn.Linear) -> None:
    module.forward = lambda x: F.linear(x, module.weight, module.bias)  # type: ignore[method-assign]


@pytest.mark.parametrize("change", [
    lambda module: None,
    lambda module: module.register_forward_pre_hook(added),
    lambda module: module.register_full_backward_hook(lambda *_: None),
    patched,
], ids=["unchanged", "pre-hook", "backward hook", "forward"])  # fmt: skip
def test_the_modules_of_torch_around_attention(
    x: Tensor, change: Callable[[nn.Module], object]
) -> None:
    """They are followed as wholes, unless somebody has put something into them."""
    model = Attention(imported)  # which only a mode sees
    for module in (model.q, model.k, model.v):
        change(module)
    x = x.requires_grad_()
    with watch(model) as seen:
        model(x)
    assert [seen.kind(name) for name in seen] == ["self"]
    with regard.cut(model, [(0, 1)]), watch(model) as seen:
        model(x)
    assert seen[""].weights()[..., 0, 1].count_nonzero() == 0


def test_attention_inside_a_module_of_torch_that_somebody_has_changed(x: Tensor) -> None:
    model = nn.Sequential(nn.Identity(), nn.Linear(WIDTH, WIDTH))
    model[0].forward = lambda x: imported(x, x, x)
    with watch(model) as seen:
        model(x)
    assert list(seen) == ["0"]


def test_a_mode_that_comes_while_a_module_of_torch_runs(
    x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, mode, linear = Attention(imported), torch.overrides.BaseTorchFunctionMode(), F.linear

    def enter(*given: Tensor) -> Tensor:
        mode.__enter__()
        monkeypatch.undo()
        return linear(*given)

    monkeypatch.setattr(F, "linear", enter)
    with watch(model) as seen:
        model(x)
        mode.__exit__(None, None, None)
        model(x)
    assert len(seen.calls("")) == 2
    assert torch._C._len_torch_function_stack() == 0


def test_a_model_that_was_interrupted_is_seen_again(
    x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of one of torch's modules, of which torch tells nobody that it has ended."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    model = Attention(imported)
    with watch(model) as seen:
        monkeypatch.setattr(F, "linear", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model(x)
        monkeypatch.undo()
        model(x)
    assert [(name, seen.kind(name), len(seen.calls(name))) for name in seen] == [("", "self", 1)]
    assert torch._C._len_torch_function_stack() == 0


def test_what_was_seen_has_no_gradient_and_is_not_the_models_own(x: Tensor) -> None:
    model = nn.MultiheadAttention(WIDTH, H, batch_first=True).requires_grad_(False)
    with watch(model) as seen:
        model(x, x, x, need_weights=False)
    before = seen[""].weights()
    model.in_proj_weight.data = torch.zeros_like(model.in_proj_weight)
    torch.testing.assert_close(seen[""].weights(), before)
    own = Attention()
    with watch(own) as seen:
        own(x)
    assert not seen[""].q.requires_grad


def test_a_model_without_attention_says_what_it_called(x: Tensor) -> None:
    model = nn.Sequential(nn.Linear(WIDTH, 3), nn.ReLU(), nn.Softmax(-1))
    with pytest.raises(OptionError) as caught, watch(model):
        model(x)
    assert str(caught.value) == (
        "watch: Sequential ran, but made no call of attention that can be seen: not "
        "scaled_dot_product_attention, torch's attention modules, regard.attend, nor a softmax of "
        "products that is multiplied with values. It called view × 2, detach × 2, t × 1, "
        "addmm × 1, relu × 1, _softmax × 1. flex_attention, which is compiled, cannot be seen (a "
        "model of transformers may know attn_implementation='sdpa')."
    )


@pytest.mark.filterwarnings("ignore")  # torch's, of flex_attention without a compiler
def test_flex_attention_is_not_disturbed_and_said_not_to_be_seen(x: Tensor) -> None:
    model, outputs = Attention(flex_attention), []
    with pytest.raises(OptionError) as caught, torch.no_grad(), watch(model):
        outputs.append(model(x))
    with torch.no_grad():
        assert torch.equal(outputs[0], model(x))
    assert "flex_attention, which is compiled, cannot be seen" in str(caught.value)


def test_a_model_that_was_not_called() -> None:
    with watch(Attention()) as seen:
        pass
    assert str(seen) == "nothing was seen"
    with pytest.raises(KeyError) as caught:
        seen["inner"]
    assert str(caught.value) == (
        "seen: 'inner' is not there, nothing was seen; call the model inside `with "
        "regard.watch(model) as seen:`, in the same thread"
    )


def test_a_compiled_model_says_what_to_do(x: Tensor) -> None:
    model = Attention()
    with pytest.raises(OptionError) as caught, watch(torch.compile(model, backend="eager")):
        pass
    assert str(caught.value) == (
        "watch: the model is compiled, so what it calls cannot be seen; use the model from before "
        "torch.compile (compiled._orig_mod), or one without model.compile()"
    )
    outer = nn.Sequential(Attention())
    outer[0].compile(backend="eager")
    with pytest.raises(OptionError, match="its module '0' is compiled"), watch(outer):
        pass


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_scripted_model_says_what_to_do() -> None:
    scripted = torch.jit.script(nn.Linear(2, 2))
    with pytest.raises(OptionError) as caught, watch(scripted):
        pass
    assert str(caught.value) == (
        "watch: the model is a ScriptModule, so what it calls cannot be seen; use the model from "
        "before torch.jit"
    )


@pytest.mark.usefixtures("as_users_run")
def test_what_is_no_model() -> None:
    with pytest.raises(OptionError) as caught:
        watch("bert").__enter__()  # type: ignore[arg-type]
    assert str(caught.value) == (
        "watch: model is str, expected a torch.nn.Module; of a pipeline or a trainer take its "
        ".model"
    )


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_transforms_say_what_to_do(x: Tensor) -> None:
    model = Attention()
    with pytest.raises(OptionError) as caught, watch(model):
        torch.vmap(model)(x[None])
    assert str(caught.value) == (
        "watch: the model runs inside a transform of torch.func or torch.compile, whose tensors "
        "cannot be kept; call it without"
    )


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_say_what_to_do() -> None:
    nested = torch.nested.nested_tensor(
        [torch.randn(2, H, D), torch.randn(4, H, D)], layout=torch.jagged
    ).transpose(1, 2)

    class Bare(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x, x, x)

    with pytest.raises(OptionError) as caught, watch(model := Bare()):
        model(nested)
    assert str(caught.value) == (
        "watch: attention is called with nested tensors, which cannot be seen through; run the "
        "model on padded ones, with a mask"
    )
