"""Attention as a layer, against plain loops over heads, and what it learns."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd import forward_ad

from regard import ALiBi, Learned, RelativeBias, Rotary, Sinusoidal
from regard.attention import causal, window
from regard.errors import OptionError, RegardError, ShapeError
from regard.nn import MultiHeadAttention, SelfAttention
from tests.nn.multihead_cases import POSITIONS, close, layer_of, noise

quick = settings(max_examples=20, deadline=None)
seeds = st.integers(0, 2**31 - 1)


# What the layer computes


def by_hand(layer: MultiHeadAttention, x: Tensor, context: Tensor) -> Tensor:
    """Head after head over plain columns, for one sequence."""

    def affine(y: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        return y @ w if b is None else y @ w + b

    q = affine(x, layer.w_q, layer.b_q)
    k, v = affine(context, layer.w_k, layer.b_k), affine(context, layer.w_v, layer.b_v)
    d, shared = layer.head_width, layer.heads // layer.kv_heads
    heads = []
    for h in range(layer.heads):
        of_q, of_kv = slice(h * d, (h + 1) * d), slice(h // shared * d, (h // shared + 1) * d)
        scores = q[:, of_q] @ k[:, of_kv].T / d**0.5
        if isinstance(layer.position, ALiBi | RelativeBias):
            scores = scores + layer.position(len(x), len(context), dtype=x.dtype)[h]
        elif layer.position is not None:
            turn = layer.position
            scores = turn(q[:, of_q]) @ turn(k[:, of_kv]).T / d**0.5
        heads.append(scores.softmax(-1) @ v[:, of_kv])
    return affine(torch.cat(heads, -1), layer.w_o, layer.b_o)


@pytest.mark.parametrize("make", POSITIONS.values(), ids=POSITIONS.keys())
@pytest.mark.parametrize("kv_heads", [1, 3, 6])
@pytest.mark.parametrize("bias", [True, False])
def test_the_layer_is_the_loop_over_heads(
    make: Callable[[], nn.Module | None], kv_heads: int, bias: bool
) -> None:
    layer = layer_of(12, 6, kv_heads, make(), bias=bias)
    x, context = noise(5, 12), noise(7, 12, seed=1)
    close(layer(x), by_hand(layer, x, x))
    if not isinstance(layer.position, Rotary):
        close(layer(x, context), by_hand(layer, x, context))
        assert not torch.allclose(layer(x), layer(x, context[:5]))


def test_grouped_heads_are_repeated_heads() -> None:
    grouped = layer_of(12, 6, 2)
    whole = layer_of(12, 6)

    def repeated(w: Tensor) -> Tensor:
        return w.unflatten(-1, (2, 2)).repeat_interleave(3, -2).flatten(-2)

    state = grouped.state_dict()
    assert state["w_k"].shape == (12, 4)
    for name in ("w_k", "w_v", "b_k", "b_v"):
        state[name] = repeated(state[name])
    whole.load_state_dict(state)
    x = noise(3, 5, 12)
    close(grouped(x, mask=causal), whole(x, mask=causal))


def test_rotary_turns_cross_attention_by_where_each_word_stands() -> None:
    layer = layer_of(12, 6, position=Rotary(2))
    x, context = noise(5, 12), noise(7, 12, seed=1)
    close(layer(x, context), by_hand(layer, x, context))


@pytest.mark.parametrize("make", POSITIONS.values(), ids=POSITIONS.keys())
def test_one_sequence_is_a_batch_of_one(make: Callable[[], nn.Module | None]) -> None:
    layer = layer_of(12, 6, position=make())
    x, context = noise(5, 12), noise(7, 12, seed=1)
    assert torch.equal(layer(x), layer(x[None])[0])
    assert torch.equal(layer(x, context), layer(x[None], context[None])[0])
    assert layer(x).shape == (5, 12)


@quick
@given(seeds, st.integers(1, 7), st.integers(1, 5))
def test_a_batch_is_each_sequence_for_itself(seed: int, n: int, b: int) -> None:
    layer, x = layer_of(6, 2, seed=seed), noise(b, n, 6, seed=seed)
    close(layer(x), torch.stack([layer(one) for one in x]))


@quick
@given(seeds, st.permutations(range(5)))
def test_order_is_invisible_without_positions(seed: int, order: list[int]) -> None:
    layer, x = layer_of(6, 2, seed=seed), noise(5, 6, seed=seed)
    close(layer(x[order]), layer(x)[order])


@pytest.mark.parametrize("name", ["rotary", "alibi", "relative"])
def test_order_is_visible_with_positions(name: str) -> None:
    layer, x = layer_of(12, 6, position=POSITIONS[name]()), noise(5, 12)
    order = [2, 0, 4, 1, 3]
    assert not torch.allclose(layer(x[order]), layer(x)[order])


def test_one_context_serves_a_batch() -> None:
    layer, x, context = layer_of(6, 2), noise(3, 5, 6), noise(7, 6, seed=1)
    close(layer(x, context), layer(x, context.expand(3, 7, 6)))


@pytest.mark.usefixtures("as_users_run")
def test_several_contexts_for_one_sequence_are_not_thrown_away() -> None:
    """Either one result per context or an error: never the result of the first alone."""
    layer, x, context = layer_of(6, 2), noise(5, 6), noise(3, 7, 6, seed=1)
    try:
        found = layer(x, context)
    except RegardError as error:
        assert "context" in str(error)  # noqa: PT017
        return
    close(found, layer(x.expand(3, 5, 6), context))


def test_masks_reach_the_operation() -> None:
    layer, x = layer_of(6, 2), noise(3, 5, 6)
    prefix = layer(x[:, :3])
    close(layer(x, mask=causal)[:, 2], prefix[:, 2])
    only = layer(x, mask=window(1))
    close(only, torch.cat([layer(x[:, i : i + 1]) for i in range(5)], 1))
    nothing = layer(x, mask=torch.zeros(5, 5, dtype=torch.bool))
    close(nothing, layer.b_o.expand(3, 5, 6))


# Learning


def all_of(layer: MultiHeadAttention) -> list[Tensor]:
    return [parameter for _, parameter in sorted(layer.named_parameters())]


@pytest.mark.parametrize("name", ["none", "rotary", "relative"])
@pytest.mark.parametrize("cross", [False, True])
def test_gradients_of_every_parameter(name: str, cross: bool) -> None:
    layer = layer_of(4, 2, 1, None if name == "none" else Rotary(2))
    if name == "relative":
        layer = layer_of(4, 2, 1, RelativeBias(2, buckets=4, max_distance=3))
    names = sorted(dict(layer.named_parameters()))
    assert len(names) == (9 if name == "relative" else 8)
    x = noise(3, 4).requires_grad_()
    context = noise(2, 4, seed=1).requires_grad_() if cross else None

    def forward(*values: Tensor) -> Tensor:
        given = dict(zip(names, values[: len(names)], strict=True))
        return torch.func.functional_call(layer, given, (*values[len(names) :],))

    inputs = [*all_of(layer), x, *([context] if context is not None else [])]
    assert torch.autograd.gradcheck(forward, inputs)
    layer(x, context).square().sum().backward()
    for parameter in all_of(layer):
        assert parameter.grad is not None
        if parameter is not layer.b_k:  # it adds the same to every score, and changes no weight
            assert parameter.grad.abs().max() > 1e-6


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torch itself
def test_gradients_of_gradients_and_forwards() -> None:
    """55 words: too long for compiled code, which goes backwards once."""
    layer, x = MultiHeadAttention(32, 4), torch.randn(4, 55, 32, requires_grad=True)

    def total(x: Tensor) -> Tensor:
        return layer(x).square().sum()

    (slope,) = torch.autograd.grad(total(x), x, create_graph=True)
    (second,) = torch.autograd.grad(slope.square().sum(), x)
    exact = layer.double()
    (wanted,) = torch.autograd.grad(total(x.double()), x, create_graph=True)
    (wanted_second,) = torch.autograd.grad(wanted.square().sum(), x)
    torch.testing.assert_close(slope, wanted, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(second, wanted_second, rtol=1e-3, atol=1e-3)
    along = torch.randn_like(x).double()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.double(), along)
        change = forward_ad.unpack_dual(exact(dual).square().sum()).tangent
    torch.testing.assert_close(change, (wanted * along).sum().double(), rtol=1e-4, atol=1e-4)


def test_a_batch_of_biases() -> None:
    layer, x = MultiHeadAttention(32, 4), torch.randn(2, 5, 32)
    parameters, biases = dict(layer.named_parameters()), torch.randn(3, 32)

    def run(bias: Tensor) -> Tensor:
        return torch.func.functional_call(layer, {**parameters, "b_o": bias}, (x,))

    found = torch.vmap(run)(biases)
    for one, bias in zip(found, biases, strict=True):
        torch.testing.assert_close(one, run(bias))


def test_dropout_is_active_in_training_only() -> None:
    layer, plain = layer_of(6, 2, dropout=0.5), layer_of(6, 2)
    x = noise(3, 5, 6)
    close(layer.eval()(x), plain(x))
    layer.train()
    assert not torch.allclose(layer(x), plain(x))
    torch.manual_seed(3)
    first = layer(x)
    assert not torch.allclose(layer(x), first)
    torch.manual_seed(3)
    assert torch.equal(layer(x), first)
    close(layer.steps(x[0]).output, plain(x[0]))


def test_dropout_keeps_the_mean() -> None:
    layer, x = layer_of(6, 2, dropout=0.3), noise(5, 6)
    wanted = layer.eval()(x)
    layer.train()
    mean = layer(x.expand(4000, 5, 6)).mean(0)
    torch.testing.assert_close(mean, wanted, rtol=0, atol=0.1)


def test_state_dict_round_trip() -> None:
    layer = layer_of(12, 6, 2, RelativeBias(6, buckets=6, max_distance=5))
    other = layer_of(12, 6, 2, RelativeBias(6, buckets=6, max_distance=5), seed=1)
    x = noise(5, 12)
    assert not torch.allclose(layer(x), other(x))
    assert not other.load_state_dict(layer.state_dict()).missing_keys
    assert torch.equal(layer(x), other(x))
    assert sorted(layer.state_dict()) == [
        *("b_k", "b_o", "b_q", "b_v", "position.table", "w_k", "w_o", "w_q", "w_v")
    ]
    assert sorted(layer_of(12, 6, bias=False).state_dict()) == ["w_k", "w_o", "w_q", "w_v"]


def test_weights_are_d_in_by_d_out_and_begin_as_those_of_the_paper() -> None:
    layer = MultiHeadAttention(12, 6, 2)
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == {
        "w_q": (12, 12),
        "w_k": (12, 4),
        "w_v": (12, 4),
        "w_o": (12, 12),
        "b_q": (12,),
        "b_k": (4,),
        "b_v": (4,),
        "b_o": (12,),
    }
    assert (layer.head_width, layer.kv_heads) == (2, 2)
    assert layer.w_q.abs().max() <= (6 / 24) ** 0.5
    assert layer.w_q.std() > 0.1
    assert all(b.abs().max() == 0 for b in (layer.b_q, layer.b_k, layer.b_v, layer.b_o))
    assert repr(layer) == "MultiHeadAttention(width=12, heads=6, kv_heads=2)"


# What does not fit


BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "heads": (
        lambda: MultiHeadAttention(6, 4),
        OptionError,
        "MultiHeadAttention: width=6 does not split into heads=4; choose heads that divide the "
        "width",
    ),
    "no-heads": (
        lambda: MultiHeadAttention(6, 0),
        OptionError,
        "MultiHeadAttention: width=6 does not split into heads=0; choose heads that divide the "
        "width",
    ),
    "kv-heads": (
        lambda: MultiHeadAttention(12, 6, 4),
        OptionError,
        "MultiHeadAttention: heads=6 is not a multiple of kv_heads=4; choose kv_heads that divide "
        "the heads",
    ),
    "width-no-whole-number": (
        lambda: MultiHeadAttention(8.0, 2),  # type: ignore[arg-type]
        OptionError,
        "MultiHeadAttention: width=8.0, expected a whole number",
    ),
    "dropout-of-nothing": (
        lambda: MultiHeadAttention(6, 2, dropout=None),  # type: ignore[arg-type]
        OptionError,
        "MultiHeadAttention: dropout=None, expected a number",
    ),
    "position": (
        lambda: MultiHeadAttention(6, 2, position=Sinusoidal(6)),
        OptionError,
        "MultiHeadAttention: position is Sinusoidal, expected Rotary, ALiBi or RelativeBias; "
        "Sinusoidal and Learned are added to x before the layer",
    ),
    "learned": (
        lambda: MultiHeadAttention(6, 2, position=Learned(5, 6)),
        OptionError,
        "MultiHeadAttention: position is Learned, expected Rotary, ALiBi or RelativeBias; "
        "Sinusoidal and Learned are added to x before the layer",
    ),
    "width": (
        lambda: MultiHeadAttention(6, 2)(torch.zeros(5, 7)),
        ShapeError,
        "MultiHeadAttention: x has shape (5,7), expected (n,width) or (b,n,width) with width=6",
    ),
    "rank": (
        lambda: MultiHeadAttention(6, 2)(torch.zeros(2, 3, 5, 6)),
        ShapeError,
        "MultiHeadAttention: x has shape (2,3,5,6), expected (n,width) or (b,n,width) with width=6",
    ),
    "context-width": (
        lambda: MultiHeadAttention(6, 2)(torch.zeros(5, 6), torch.zeros(7, 5)),
        ShapeError,
        "MultiHeadAttention: context has shape (7,5), expected (n,width) or (b,n,width) with "
        "width=6",
    ),
    "steps-of-a-batch": (
        lambda: MultiHeadAttention(6, 2).steps(torch.zeros(2, 5, 6)),
        ShapeError,
        "steps: x has shape (2,5,6), expected one sequence (n,width); pick one by x[i]",
    ),
    "steps-words": (
        lambda: MultiHeadAttention(6, 2).steps(torch.zeros(3, 6), ["a"]),
        ShapeError,
        "steps: 1 words for 3 vectors; give one per vector",
    ),
    "steps-context-words": (
        lambda: MultiHeadAttention(6, 2).steps(
            torch.zeros(3, 6), context=torch.zeros(5, 6), context_words=["a"]
        ),
        ShapeError,
        "steps: 1 context words for 5 vectors; give one per vector",
    ),
    "self-steps-of-a-batch": (
        lambda: SelfAttention().steps(torch.zeros(2, 5, 6)),
        ShapeError,
        "steps: x has shape (2,5,6), expected rows and columns; one vector per word",
    ),
}


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(("call", "kind", "text"), BAD.values(), ids=BAD.keys())
def test_what_does_not_fit_is_said(
    call: Callable[[], Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=f"^{re.escape(text)}$"):
        call()


NAMED: dict[str, tuple[Callable[[], Any], str]] = {
    "no-kv-heads": (lambda: MultiHeadAttention(6, 2, kv_heads=0), "kv_heads=0"),
    "negative-kv-heads": (lambda: MultiHeadAttention(6, 2, kv_heads=-2), "kv_heads=-2"),
    "dropout": (lambda: MultiHeadAttention(6, 2, dropout=1.5), "dropout=1.5"),
    "rotary-width": (lambda: MultiHeadAttention(6, 3, position=Rotary(4)), "width=4"),
    "alibi-heads": (lambda: MultiHeadAttention(6, 2, position=ALiBi(3)), "heads=3"),
    "dtype": (lambda: MultiHeadAttention(6, 2)(noise(5, 6)), "x is torch.float64"),
    "batch": (
        lambda: MultiHeadAttention(6, 2)(torch.zeros(3, 5, 6), torch.zeros(2, 7, 6)),
        "context",
    ),
    "steps-of-a-batch-of-contexts": (
        lambda: MultiHeadAttention(6, 2).steps(torch.zeros(5, 6), context=torch.zeros(3, 7, 6)),
        "(3,7,6)",
    ),
}


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(("call", "named"), NAMED.values(), ids=NAMED.keys())
def test_a_bad_call_is_ours_and_says_what_is_wrong(call: Callable[[], Any], named: str) -> None:
    """A layer is checked when it is made, and a call by the names that its user knows."""
    with pytest.raises(RegardError, match=re.escape(named)):
        call()
