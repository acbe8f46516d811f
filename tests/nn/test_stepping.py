"""Writing by the shortest way gives the numbers of the decoder itself, bit for bit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.attention import Mask, causal, dense, padding
from regard.errors import RegardError, ShapeError
from regard.native import DecoderStep, loaded
from regard.nn import FeedForward, Transformer, TransformerConfig
from regard.nn.stepping import Stepper

CONFIG = TransformerConfig(
    vocabulary=30, width=16, encoder_depth=1, decoder_depth=2, heads=4, feed_forward=20
)
SIZES: dict[str, dict[str, Any]] = {
    "too narrow for the native step": {},
    "native": {"width": 64, "feed_forward": 48},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "norm after": {"norm_place": "after"},
    "norm before": {"norm_place": "before"},
    "root mean square": {"norm": "rmsnorm", "norm_place": "before"},
    "shared keys": {"kv_heads": 2},
    "gated": {"activation": "swiglu"},
    "learned positions": {"position": "learned"},
    "turned by position": {"position": "rotary"},
    "bias by distance": {"position": "alibi"},
}


def model_of(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    return Transformer(replace(CONFIG, **changes)).eval()


@torch.inference_mode()
def written(model: Transformer, step: nn.Module | Stepper, mask: Mask | None) -> list[Tensor]:
    """What a decoder makes of five steps of two words each, beside a memory of three texts."""
    chance = torch.Generator().manual_seed(1)
    width = model.config.width
    memory = torch.randn(3, 6, width, generator=chance)
    lengths = padding(torch.tensor([6, 4, 1]))
    cache, found = model.cache(), []
    for i in range(5):
        x = torch.randn(3, 2, width, generator=chance)
        seen = torch.randn(3, 1, 2, 2 * i + 2, generator=chance) > 0
        seen[..., -1] = True
        shown = dense(seen) if mask is None else mask
        found.append(step(x, memory, mask=shown, memory_mask=lengths, cache=cache))
    assert cache.length == 10
    return found


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("mask", [None, causal], ids=["a tree", "a line"])
def test_the_numbers_are_those_of_the_decoder(
    changes: dict[str, Any], sizes: dict[str, Any], mask: Mask | None
) -> None:
    model = model_of(**sizes, **changes)
    wanted = written(model, model.decoder, mask)
    for one, other in zip(written(model, Stepper(model.decoder), mask), wanted, strict=True):
        assert torch.equal(one, other)


@pytest.mark.skipif(not loaded(), reason="there are no native operators")
@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({}, 5),
        ({"norm_place": "before"}, 5),
        ({"kv_heads": 2}, 5),
        ({"position": "learned"}, 5),
        ({"activation": "gelu"}, 0),
        ({"norm": "rmsnorm"}, 0),
        ({"position": "rotary"}, 0),
        ({"width": 32}, 0),
    ],
)
def test_what_is_usual_is_one_native_operator(
    changes: dict[str, Any], steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(**{**SIZES["native"], **changes})
    called: list[int] = []
    plain = DecoderStep.__call__

    def counted(self: DecoderStep, x: Tensor, *more: Any) -> Tensor:
        called.append(len(x))
        return plain(self, x, *more)

    monkeypatch.setattr(DecoderStep, "__call__", counted)
    written(model, Stepper(model.decoder), None)
    assert len(called) == steps


def odd_feed_forward(block: Any) -> None:
    block.feed_forward = FeedForward(64, 16)


def odd_order(block: Any) -> None:
    block.norm_first = not block.norm_first


def odd_norm(block: Any) -> None:
    block.cross_norm = nn.LayerNorm(64, bias=False)


def odd_eps(block: Any) -> None:
    block.cross_norm.eps = 0.1


def odd_layers(block: Any) -> None:
    block.feed_forward = nn.Sequential(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 64))


def odd_function(block: Any) -> None:
    plain = block.feed_forward.forward
    block.feed_forward.forward = lambda x: 3 * plain(x)


def odd_number(block: Any) -> None:
    block.feed_forward.w_in.data[:, 5] = torch.nan


@pytest.mark.parametrize(
    "change",
    [odd_feed_forward, odd_order, odd_norm, odd_eps, odd_layers, odd_function, odd_number],
)
def test_a_block_that_is_unlike_the_others_is_what_it_is(change: Callable[[Any], None]) -> None:
    model = model_of(**SIZES["native"])
    change(model.decoder.blocks[1])
    model.eval()
    wanted = written(model, model.decoder, None)
    found = written(model, Stepper(model.decoder), None)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def test_what_does_not_fit_is_refused() -> None:
    model = model_of(**SIZES["native"])
    x, memory = torch.zeros(2, 1, 64), torch.zeros(2, 5, 64)
    step = Stepper(model.decoder)
    for bad_x, bad_memory in ((x[..., :32], memory[..., :32]), (x[:1], memory)):
        with torch.inference_mode(), pytest.raises(ShapeError):
            step(bad_x, bad_memory, mask=causal, memory_mask=None, cache=model.cache())
    with torch.inference_mode():
        cache = model.cache()
        step(x, memory, mask=causal, memory_mask=None, cache=cache)
        with pytest.raises(ShapeError, match="4 sequences are continued, but 2 were read before"):
            step(torch.zeros(4, 1, 64), memory, mask=causal, memory_mask=None, cache=cache)
        for bad in (torch.ones(3, 1, 1, 5), torch.ones(2, 3, 1, 5), torch.ones(2, 1, 1, 4)):
            with pytest.raises((RuntimeError, ShapeError)):
                step(x, memory, mask=causal, memory_mask=dense(bad > 0), cache=model.cache())


def test_a_memory_mask_may_tell_sequences_apart() -> None:
    model = model_of(**SIZES["native"])
    chance = torch.Generator().manual_seed(0)
    x, memory = torch.randn(4, 1, 64, generator=chance), torch.randn(2, 6, 64, generator=chance)
    mask = dense(torch.rand(2, 1, 2, 6, generator=chance) > 0.5)
    with torch.inference_mode():
        found, wanted = (
            step(x, memory, mask=causal, memory_mask=mask, cache=model.cache())
            for step in (Stepper(model.decoder), model.decoder)
        )
    assert torch.equal(found, wanted)


@pytest.fixture
def _frequent_thread_switches() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("_frequent_thread_switches")
def test_one_stepper_may_be_used_in_several_threads() -> None:
    model = model_of(**SIZES["native"])
    wanted, step = written(model, model.decoder, None), Stepper(model.decoder)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: written(model, step, None), range(1000)):
            assert all(map(torch.equal, found, wanted))


def test_without_a_compiler_the_numbers_are_nearly_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = model_of(**SIZES["native"])
    wanted = written(model, Stepper(model.decoder), None)
    monkeypatch.setattr("regard.native.products.loaded", lambda: False)
    found = written(model, Stepper(model.decoder), None)
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_hooks_are_called() -> None:
    model = model_of()
    seen: list[int] = []
    hook = model.decoder.blocks[1].attention.register_forward_hook(
        lambda module, given, result: seen.append(result.shape[1])
    )
    written(model, Stepper(model.decoder), None)
    hook.remove()
    assert seen == [2] * 5
    written(model, Stepper(model.decoder), None)
    assert len(seen) == 5


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_whoever_watches_sees_every_step_and_changes_nothing(sizes: dict[str, Any]) -> None:
    model = model_of(**sizes)
    wanted = written(model, Stepper(model.decoder), causal)
    with regard.watch(model) as seen:
        found = written(model, Stepper(model.decoder), causal)
    assert all(map(torch.equal, found, wanted))
    assert len(seen) == 4  # two blocks, each with attention to itself and to the memory
    assert {seen[name].q.shape[-2] for name in seen} == {10}


def test_a_layer_of_another_kind_is_asked_itself() -> None:
    class Louder(type(model_of().decoder.blocks[0].attention)):  # type: ignore[misc]
        def forward(self, *args: Any, **kwargs: Any) -> Tensor:
            return 2 * super().forward(*args, **kwargs)  # type: ignore[no-any-return]

    model = model_of()
    plain = written(model, Stepper(model.decoder), None)
    model.decoder.blocks[0].attention.__class__ = Louder
    wanted = written(model, model.decoder, None)
    found = written(model, Stepper(model.decoder), None)
    assert all(map(torch.equal, found, wanted))
    assert not torch.equal(found[0], plain[0])


@pytest.mark.skipif(not loaded(), reason="there are no native operators")
def test_a_cache_of_something_else_is_never_trusted() -> None:
    """What does not fit is left to the decoder, which says what is wrong."""
    model = model_of(**SIZES["native"])
    memory, x = torch.randn(3, 6, 64), torch.randn(3, 1, 64)

    def step(stepper: Stepper, cache: Any, x: Tensor = x) -> Tensor:
        return stepper(x, memory[: len(x)], mask=causal, memory_mask=None, cache=cache)

    with torch.no_grad():
        cache = model.cache(8)
        with torch.autocast("cpu", torch.bfloat16):
            step(Stepper(model.decoder), cache)
        with pytest.raises(RegardError, match="bfloat16"):
            step(Stepper(model.decoder), cache)
        cache = model.cache()
        step(Stepper(model.decoder), cache)
        cache.select(torch.tensor([0, 1]))  # but not the memory
        with pytest.raises(RegardError):
            step(Stepper(model.decoder), cache, x[:2])
        cache = model.cache()
        step(Stepper(model_of(**SIZES["native"], kv_heads=1).decoder), cache)
        with pytest.raises(RuntimeError):
            step(Stepper(model.decoder), cache)


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.skipif(not loaded(), reason="there are no native operators")
def test_products_in_bfloat16(place: str) -> None:
    """As near as autocast is, for the most part nearer: what is added up stays float32."""
    model = model_of(**SIZES["native"], norm_place=place)
    wanted = written(model, model.decoder, None)
    found = written(model, Stepper(model.decoder, torch.bfloat16), None)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = written(model, model.decoder, None)
    for one, other, exact in zip(found, rounded, wanted, strict=True):
        assert one.dtype == torch.float32
        wrong, bar = (float((x - exact).square().mean().sqrt()) for x in (one, other))
        assert 1e-4 < wrong < 1.5 * bar


@pytest.mark.parametrize("beside", [1, 20])
@pytest.mark.skipif(not loaded(), reason="there are no native operators")
def test_products_in_bfloat16_are_the_same_however_it_runs(beside: int) -> None:
    """In one piece, layer by layer for whoever watches, and beside too many sequences for it."""
    model = model_of(**SIZES["native"])
    memory, x = torch.randn(3, 6, 64), torch.randn(3, beside, 64)
    found = []
    for watching in (False, True):
        step, cache = Stepper(model.decoder, torch.bfloat16), model.cache()
        context = regard.watch(model) if watching else nullcontext()
        with torch.no_grad(), context:
            for _ in range(3):
                y = step(x, memory, mask=causal, memory_mask=None, cache=cache)
        found.append(y)
    assert torch.equal(*found)
