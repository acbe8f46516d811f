"""Positions against published implementations, plain loops and cases solved by hand."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.attention.positions import ALiBi, Bias, Learned, RelativeBias, Rotary, Sinusoidal
from regard.errors import DtypeError, OptionError, ShapeError
from tests.attention.kernel_cases import float32_noise, noise

quick = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**31 - 1)


ON_VECTORS: dict[str, Callable[[], nn.Module]] = {
    "sinusoidal": lambda: Sinusoidal(14),
    "learned": lambda: Learned(211, 14),
    "rotary": lambda: Rotary(14),
    "rotary-interleaved": lambda: Rotary(14, interleaved=True),
}
on_vectors = pytest.mark.parametrize("make", ON_VECTORS.values(), ids=ON_VECTORS.keys())


# Sinusoidal


@pytest.mark.parametrize("width", [1, 2, 7, 10, 13])
@pytest.mark.parametrize("base", [1000.0, 10_000.0])
def test_sinusoidal_is_the_double_loop(width: int, base: float) -> None:
    table = Sinusoidal(width, base=base).table(37, offset=11)
    for row in range(37):
        for place in range(width):
            angle = (11 + row) / base ** ((place - place % 2) / width)
            wanted = math.cos(angle) if place % 2 else math.sin(angle)
            assert table[row, place].item() == pytest.approx(wanted, abs=1e-7)


def test_sinusoidal_by_hand() -> None:
    # Base 100 and width 4: the angles of position p are p and p/10.
    table = Sinusoidal(4, base=100.0).table(3)
    wanted = [
        [0.0, 1.0, 0.0, 1.0],
        [0.8414710, 0.5403023, 0.0998334, 0.9950042],
        [0.9092974, -0.4161468, 0.1986693, 0.9800666],
    ]
    torch.testing.assert_close(table, torch.tensor(wanted), rtol=0, atol=1e-7)


def test_sinusoidal_base_matters_from_the_second_pair_on() -> None:
    usual, printed = Sinusoidal(6).table(5), Sinusoidal(6, base=1000.0).table(5)
    assert torch.equal(usual[:, :2], printed[:, :2])
    assert (usual[1:, 2::2] < printed[1:, 2::2]).all()


def test_sinusoidal_far_away_is_not_rounded_to_float32_angles() -> None:
    place = 16_777_217  # 2**24 + 1 is no float32
    row = Sinusoidal(3).table(1, offset=place)
    assert row[0, 0].item() == pytest.approx(math.sin(place), abs=1e-7)
    assert abs(math.sin(place) - math.sin(place - 1)) > 0.01


@pytest.mark.parametrize("width", [14, 15])
def test_sinusoidal_is_marians_permuted(width: int) -> None:
    marian = pytest.importorskip("transformers.models.marian.modeling_marian")
    theirs = marian.MarianSinusoidalPositionalEmbedding(53, width).create_weight()
    ours = Sinusoidal(width).table(53)
    permuted = torch.cat((ours[:, 0::2], ours[:, 1::2]), dim=1)
    torch.testing.assert_close(permuted, theirs, rtol=0, atol=1e-7)
    assert not torch.allclose(ours, theirs, atol=0.1)


def test_sinusoidal_adds_its_table_even_in_a_bfloat16_model() -> None:
    module = Sinusoidal(7).bfloat16()
    x = float32_noise(2, 3, 5, 7)
    assert module.table(5).dtype == torch.float32
    assert torch.equal(module(x, offset=11), x + Sinusoidal(7).table(16)[11:])


# Learned


def test_learned_adds_the_rows_of_its_positions() -> None:
    module = Learned(13, 7)
    x = float32_noise(2, 3, 5, 7)
    assert torch.equal(module(x, offset=8), x + module.table[8:13])


def test_learned_starts_small() -> None:
    torch.manual_seed(0)
    assert Learned(503, 41).table.std().item() == pytest.approx(0.02, rel=0.05)


def test_learned_gradient_counts_the_uses_of_each_row() -> None:
    module = Learned(11, 7)
    module(float32_noise(2, 3, 5, 7), offset=4).sum().backward()
    wanted = torch.zeros(11, 7)
    wanted[4:9] = 2 * 3
    assert module.table.grad is not None
    assert torch.equal(module.table.grad, wanted)


# Rotary


@pytest.mark.parametrize("base", [500.0, 10_000.0])
@pytest.mark.parametrize("offset", [0, 1013])
def test_rotary_is_llamas(base: float, offset: int) -> None:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(
        hidden_size=3 * 22, num_attention_heads=3, head_dim=22, rope_theta=base
    )
    q, k = float32_noise(2, 3, 17, 22, seed=1), float32_noise(2, 3, 17, 22, seed=2)
    positions = torch.arange(offset, offset + 17)[None]
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, positions)
    wanted_q, wanted_k = llama.apply_rotary_pos_emb(q, k, cos, sin)
    rotary = Rotary(22, base=base)
    torch.testing.assert_close(rotary(q, offset), wanted_q, rtol=0, atol=1e-6)
    torch.testing.assert_close(rotary(k, offset), wanted_k, rtol=0, atol=1e-6)


@pytest.mark.parametrize("offset", [0, 1013])
def test_rotary_interleaved_is_gptjs(offset: int) -> None:
    gptj = pytest.importorskip("transformers.models.gptj.modeling_gptj")
    x = float32_noise(2, 17, 3, 22)  # GPT-J turns before it moves the heads forward
    sin, cos = gptj.create_sinusoidal_positions(offset + 17, 22)[None, offset:].chunk(2, dim=-1)
    wanted = gptj.apply_rotary_pos_emb(x, sin, cos).transpose(1, 2)
    ours = Rotary(22, interleaved=True)(x.transpose(1, 2), offset)
    torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-6)


def test_rotary_by_hand() -> None:
    # Base 100 and width 4: at position 1 pair 0 turns by 1, pair 1 by 1/10.
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)
    c, s, c10, s10 = math.cos(1), math.sin(1), math.cos(0.1), math.sin(0.1)
    halves = [c - 3 * s, 2 * c10 - 4 * s10, 3 * c + s, 4 * c10 + 2 * s10]
    pairs = [c - 2 * s, 2 * c + s, 3 * c10 - 4 * s10, 4 * c10 + 3 * s10]
    for interleaved, wanted in [(False, halves), (True, pairs)]:
        turned = Rotary(4, base=100.0, interleaved=interleaved)(x, offset=1)
        torch.testing.assert_close(turned[0], torch.tensor(wanted, dtype=torch.float64))


def test_rotary_layouts_differ_by_a_permutation() -> None:
    x = float32_noise(3, 5, 14)
    halves = torch.cat((x[..., 0::2], x[..., 1::2]), dim=-1)
    turned = Rotary(14, interleaved=True)(x)
    assert torch.equal(Rotary(14)(halves), torch.cat((turned[..., 0::2], turned[..., 1::2]), -1))
    assert not torch.allclose(Rotary(14)(x), turned, atol=0.1)


@quick
@given(seed=seeds, half=st.integers(1, 17), offset=st.integers(0, 5000), paired=st.booleans())
def test_rotary_keeps_norms_and_leaves_position_0(
    seed: int, half: int, offset: int, paired: bool
) -> None:
    rotary = Rotary(2 * half, interleaved=paired)
    x = noise(3, 5, 2 * half, seed=seed)
    turned = rotary(x, offset)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1), rtol=1e-12, atol=0)
    assert torch.equal(rotary(x)[:, 0], x[:, 0])
    assert not torch.allclose(turned[:, 1:], rotary(x, offset + 1)[:, 1:], atol=1e-3)


@quick
@given(
    seed=seeds,
    half=st.integers(1, 17),
    places=st.tuples(st.integers(0, 500), st.integers(0, 500), st.integers(1, 500)),
    paired=st.booleans(),
)
def test_rotary_products_depend_on_relative_position_only(
    seed: int, half: int, places: tuple[int, int, int], paired: bool
) -> None:
    rotary = Rotary(2 * half, interleaved=paired)
    q, k = noise(2, 3, 1, 2 * half, seed=seed)
    i, j, shift = places
    here = (rotary(q, i) * rotary(k, j)).sum(-1)
    there = (rotary(q, i + shift) * rotary(k, j + shift)).sum(-1)
    nearer = (rotary(q, i + 1) * rotary(k, j)).sum(-1)
    torch.testing.assert_close(here, there, rtol=0, atol=1e-9)
    assert not torch.allclose(here, nearer, rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rotary_rounds_once(dtype: torch.dtype) -> None:
    x = float32_noise(3, 5, 14).to(dtype)
    assert torch.equal(Rotary(14)(x, 101), Rotary(14)(x.float(), 101).to(dtype))


def test_rotary_angles_of_float64_are_float64() -> None:
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    place = 16_777_217
    assert Rotary(2)(x, place)[0, 1].item() == pytest.approx(math.sin(place), abs=1e-12)


def test_rotary_passes_gradients_through_by_turning_back() -> None:
    x = noise(3, 5, 14).requires_grad_()
    assert torch.autograd.gradcheck(Rotary(14), (x,))


# What works on vectors


@on_vectors
@quick
@given(seed=seeds, start=st.integers(0, 101), cut=st.integers(1, 18))
def test_offset_is_a_slice_of_the_whole(
    make: Callable[[], nn.Module], seed: int, start: int, cut: int
) -> None:
    module, x = make(), float32_noise(2, 3, start + 19, 14, seed=seed)
    whole, middle, end = module(x), slice(start, start + cut), slice(start + cut, None)
    assert torch.equal(module(x[..., middle, :], offset=start), whole[..., middle, :])
    assert torch.equal(module(x[..., end, :], offset=start + cut), whole[..., end, :])


@on_vectors
def test_word_by_word_is_the_whole_sequence(make: Callable[[], nn.Module]) -> None:
    module, x = make(), float32_noise(2, 3, 23, 14)
    words = [module(x[..., i : i + 1, :], offset=i) for i in range(23)]
    assert torch.equal(torch.cat(words, dim=-2), module(x))


@on_vectors
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_dtype_and_shape_are_those_of_x(
    make: Callable[[], nn.Module], dtype: torch.dtype, batch: tuple[int, ...]
) -> None:
    x = float32_noise(*batch, 5, 14).to(dtype)
    y = make()(x, offset=3)
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    assert not torch.equal(y, x)


@on_vectors
def test_no_rows_are_no_rows(make: Callable[[], nn.Module]) -> None:
    assert make()(torch.zeros(3, 0, 14), offset=5).shape == (3, 0, 14)


def test_only_tables_are_saved() -> None:
    saved = {name: list(make().state_dict()) for name, make in ON_VECTORS.items()}
    assert saved == {
        "sinusoidal": [],
        "learned": ["table"],
        "rotary": [],
        "rotary-interleaved": [],
    }


def test_none_of_these_is_a_bias() -> None:
    assert not any(isinstance(make(), Bias) for make in ON_VECTORS.values())


# Errors


def least(name: str, argument: str, value: int, bound: int) -> str:
    return (
        f"{name}: {argument} is {value}, but the least possible is {bound}; use a larger {argument}"
    )


def base(name: str, value: float) -> str:
    return (
        f"{name}: base is {value}, but wavelengths are its powers; "
        "use a positive number such as 10000"
    )


IMPOSSIBLE: list[tuple[Callable[[], object], str]] = [
    (lambda: Sinusoidal(0), least("Sinusoidal", "width", 0, 1)),
    (lambda: Sinusoidal(7, base=0.0), base("Sinusoidal", 0.0)),
    (lambda: Sinusoidal(7, base=math.inf), base("Sinusoidal", math.inf)),
    (lambda: Sinusoidal(7).table(-1), least("Sinusoidal", "length", -1, 0)),
    (lambda: Sinusoidal(7).table(3, -2), least("Sinusoidal", "offset", -2, 0)),
    (lambda: Sinusoidal(7)(float32_noise(5, 7), -1), least("Sinusoidal", "offset", -1, 0)),
    (lambda: Learned(0, 7), least("Learned", "length", 0, 1)),
    (lambda: Learned(5, -3), least("Learned", "width", -3, 1)),
    (lambda: Learned(5, 7)(float32_noise(5, 7), -1), least("Learned", "offset", -1, 0)),
    (lambda: Rotary(0), least("Rotary", "width", 0, 2)),
    (
        lambda: Rotary(7),
        "Rotary: width is 7, but pairs of coordinates are rotated; use an even width",
    ),
    (lambda: Rotary(14, base=-1.0), base("Rotary", -1.0)),
    (lambda: Rotary(14, base=math.nan), base("Rotary", math.nan)),
    (lambda: Rotary(14)(float32_noise(5, 14), -1), least("Rotary", "offset", -1, 0)),
    (lambda: ALiBi(0), least("ALiBi", "heads", 0, 1)),
    (lambda: RelativeBias(0), least("RelativeBias", "heads", 0, 1)),
    (lambda: RelativeBias(3, buckets=2), least("RelativeBias", "buckets", 2, 4)),
    (
        lambda: RelativeBias(3, buckets=1, bidirectional=False),
        least("RelativeBias", "buckets", 1, 2),
    ),
    (
        lambda: RelativeBias(3, buckets=31),
        (
            "RelativeBias: buckets is 31, but half of them go to each direction; "
            "use an even number or bidirectional=False"
        ),
    ),
    (
        lambda: RelativeBias(3, max_distance=8),
        (
            "RelativeBias: max_distance is 8, but the first 8 buckets hold one distance each; "
            "use more than 8 or fewer buckets"
        ),
    ),
    (
        lambda: RelativeBias(3, max_distance=16, bidirectional=False),
        (
            "RelativeBias: max_distance is 16, but the first 16 buckets hold one distance each; "
            "use more than 16 or fewer buckets"
        ),
    ),
]


@pytest.mark.parametrize(("call", "text"), IMPOSSIBLE, ids=[text[:40] for _, text in IMPOSSIBLE])
def test_impossible_options(call: Callable[[], object], text: str) -> None:
    with pytest.raises(OptionError, match=f"^{re.escape(text)}$"):
        call()


def test_the_least_possible_options_work() -> None:
    for module in (Sinusoidal(1), Learned(1, 1), Rotary(2)):
        assert module(torch.zeros(1, module.width)).shape == (1, module.width)
    for bias in (
        ALiBi(1),
        RelativeBias(1, buckets=4, max_distance=2),
        RelativeBias(1, buckets=2, max_distance=2, bidirectional=False),
        RelativeBias(1, max_distance=9),
    ):
        assert bias(29, 31).isfinite().all()


@on_vectors
@pytest.mark.usefixtures("as_users_run")
def test_x_that_does_not_fit(make: Callable[[], nn.Module]) -> None:
    module = make()
    name = type(module).__name__
    width = (
        f"{name}: x has width=13 but positions have width=14 (x (2,5,13)); "
        "use the same width for both"
    )
    with pytest.raises(ShapeError, match=f"^{re.escape(width)}$"):
        module(float32_noise(2, 5, 13))
    axis = f"{name}: x has no axis n (x (14)); pass (…, n, width)"
    with pytest.raises(ShapeError, match=f"^{re.escape(axis)}$"):
        module(float32_noise(14))
    dtype = f"{name}: x is torch.int64, but vectors are floating; use x.float()"
    with pytest.raises(DtypeError, match=f"^{re.escape(dtype)}$"):
        module(torch.zeros(5, 14, dtype=torch.int64))


def test_learned_past_its_end() -> None:
    module = Learned(512, 7)
    assert module(float32_noise(5, 7), offset=507).shape == (5, 7)
    text = (
        "Learned: positions 510…514 asked for, but the table has length 512; "
        "use a longer table or a smaller offset"
    )
    with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
        module(float32_noise(5, 7), offset=510)
    with pytest.raises(ShapeError, match="positions 508…512 asked for, but the table has length"):
        module(float32_noise(5, 7), offset=508)
