"""Native products, norms and searches: as exact as torch's."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from regard import native
from regard.nn import FeedForward, MultiHeadAttention
from regard.nn.native_layers import LayerNorm
from tests.native.drawn import OPS, drawn, error

pytestmark = pytest.mark.skipif(not native.loaded(), reason="there are no native operators")


def test_shapes_that_do_not_fit_are_refused_as_ever() -> None:
    with torch.no_grad():
        for wrong in (torch.ones(5, 128), torch.ones(5, 32)):
            with pytest.raises(RuntimeError):
                FeedForward(64, 64)(wrong)
            with pytest.raises(RuntimeError):
                LayerNorm(64)(wrong)
        assert FeedForward(64, 64)(torch.ones(0, 64)).shape == (0, 64)
        assert MultiHeadAttention(64, 4)(torch.ones(2, 0, 64)).shape == (2, 0, 64)


@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"elementwise_affine": False}],
    ids=["usual", "no bias", "none"],
)
@pytest.mark.parametrize("shape", [(32,), (2, 16)])
def test_norms_of_all_kinds(options: dict[str, bool], shape: tuple[int, ...]) -> None:
    ours, theirs = LayerNorm(shape, **options), torch.nn.LayerNorm(shape, **options)
    x = drawn(3, *shape)
    if ours.weight is not None:
        ours.weight = torch.nn.Parameter(drawn(*shape, 2)[..., 0])  # not in one piece
        theirs.weight = torch.nn.Parameter(ours.weight.detach().contiguous())
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x))


def test_much_work_is_left_to_several_threads() -> None:
    threads = torch.get_num_threads()
    try:
        for count, may in ((1, True), (2, False)):
            torch.set_num_threads(count)
            assert native.fits(2**30, drawn(2, 2)) is may
            assert native.fits(100, drawn(2, 2))
    finally:
        torch.set_num_threads(threads)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.sampled_from([0, 1, 3, 4, 11, 12, 13, 24, 25, 61]), d=st.sampled_from([1, 7, 64, 300]),
    n=st.sampled_from([16, 32, 48, 80]), biased=st.booleans(), seed=st.integers(0, 10**6),
)  # fmt: skip
def test_products(rows: int, d: int, n: int, biased: bool, seed: int) -> None:
    x, w = drawn(rows, d, seed=seed), drawn(d, n, seed=seed + 1)
    bias = drawn(n, seed=seed + 2) if biased else None
    y = OPS.affine(x, w, bias)
    wanted = x.double() @ w.double() + (0.0 if bias is None else bias.double())
    torch.testing.assert_close(y.double(), wanted, atol=1e-5 * d**0.5, rtol=1e-5)
    for i in range(rows):
        assert torch.equal(OPS.affine(x[i : i + 1], w, bias)[0], y[i])
    # The same weights, put side by side beforehand.
    assert torch.equal(OPS.affine_panels(x, native.panels(w), bias, n), y)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.sampled_from([0, 1, 3, 4, 11, 12, 13, 25, 61]), d=st.sampled_from([2, 6, 64, 300]),
    n=st.sampled_from([16, 32, 48, 80]), biased=st.booleans(), seed=st.integers(0, 10**6),
)  # fmt: skip
def test_products_in_bfloat16(rows: int, d: int, n: int, biased: bool, seed: int) -> None:
    """Both sides are rounded to it, and the sums are float32."""
    x, w = drawn(rows, d, seed=seed), drawn(d, n, seed=seed + 1)
    bias = drawn(n, seed=seed + 2) if biased else None
    narrow = native.panels(w, torch.bfloat16)
    y = OPS.affine_panels(x, narrow, bias, n)
    wanted = x.bfloat16().double() @ w.bfloat16().double()
    wanted += 0.0 if bias is None else bias.double()
    torch.testing.assert_close(y.double(), wanted, atol=1e-5 * d**0.5, rtol=1e-5)
    for i in range(rows):
        alone = OPS.affine_panels(x[i : i + 1], narrow, bias, n)
        assert torch.equal(alone[0], y[i])


def test_rounding_to_bfloat16_is_torchs() -> None:
    """To the nearest, halves to even; what is not finite stays so."""
    bits = torch.arange(0x3F7F0000, 0x3F830000, 0x1000, dtype=torch.int32)
    odd = torch.tensor([0.0, -0.0, 1e-30, 3e38, 3.3961e38, torch.inf, -torch.inf, torch.nan])
    x = torch.cat((bits.view(torch.float32), odd))
    wide = torch.stack((x, torch.zeros_like(x)), 1)
    weight = native.panels(torch.tensor([[1.0], [0.0]]).expand(2, 16), torch.bfloat16)
    y = OPS.affine_panels(wide, weight, None, 16)
    torch.testing.assert_close(y[:, 0], x.bfloat16().float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("d", [127, 128, 129, 512, 2048])
def test_long_products_are_as_exact_as_torchs(d: int) -> None:
    x, w = drawn(61, d), drawn(d, 80, seed=1)
    exact = x.double() @ w.double()
    ours, theirs = (
        float((y - exact).square().mean().sqrt()) for y in (OPS.affine(x, w, None), x @ w)
    )
    assert ours <= 2 * theirs


@pytest.mark.parametrize("shape", [(1, 16), (5, 48), (2, 3, 128)])
@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_layer_norm(shape: tuple[int, ...], shift: float) -> None:
    x = drawn(*shape) + shift
    weight, bias = drawn(shape[-1], seed=1), drawn(shape[-1], seed=2)
    wanted = F.layer_norm(x.double(), shape[-1:], weight.double(), bias.double(), 1e-5)
    bar = error(F.layer_norm(x, shape[-1:], weight, bias, 1e-5), wanted)
    assert error(OPS.layer_norm(x, weight, bias, 1e-5), wanted) <= 2 * bar + 1e-6


def test_a_sentence_with_nan_has_nan_alone() -> None:
    logits = drawn(4, 100)
    wanted = OPS.best_words(logits, torch.zeros(2, 2), 3)
    logits[1, 40] = torch.nan
    found = OPS.best_words(logits, torch.zeros(2, 2), 3)
    assert found[0][0].isnan().all()
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one[1], other[1])


def test_where_nothing_is_likely_there_are_still_so_many_words() -> None:
    log_p, beginnings, words = OPS.best_words(drawn(2, 5), torch.full((1, 2), -torch.inf), 7)
    assert (log_p == -torch.inf).all()
    assert len(set(zip(beginnings[0].tolist(), words[0].tolist(), strict=True))) == 7
    assert int(beginnings.max()) == 1
    assert int(words.max()) == 4
