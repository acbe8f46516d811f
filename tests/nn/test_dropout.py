"""Dropout: its share, its expected value, its mask in the gradient, and what it costs nothing."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.errors import OptionError
from regard.nn import Dropout

MANY = 400_003  # not a multiple of four, nor of anything else


def dropped(share: float, x: Tensor, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    found: Tensor = Dropout(share)(x)
    return found


@pytest.mark.parametrize("share", [0.003, 0.1, 0.3, 0.5, 0.9])
def test_share_and_expectation(share: float) -> None:
    found = dropped(share, torch.ones(MANY, dtype=torch.float64))
    kept = found != 0
    # Five standard deviations of a binomial: one run in two million would fail by chance.
    allowed = 5 * math.sqrt(share * (1 - share) / MANY)
    assert abs(1 - kept.double().mean() - share) < allowed
    assert abs(found.mean() - 1) < allowed / (1 - share)
    level = round(share * 2**15) / 2**15  # the share that is really dropped
    assert torch.equal(found[kept], torch.full_like(found[kept], 1 / (1 - level)))


def test_each_of_the_four_parts_of_a_draw_is_random() -> None:
    masks = dropped(0.3, torch.ones(MANY - 3)).view(-1, 4) == 0
    assert (masks.double().mean(0) - 0.3).abs().max() < 5 * math.sqrt(0.3 * 0.7 / len(masks))
    together = torch.corrcoef(masks.T.double()) - torch.eye(4, dtype=torch.float64)
    assert together.abs().max() < 5 / math.sqrt(len(masks))
    neighbours = (masks[:-1] & masks[1:]).double().mean()
    assert abs(neighbours - 0.09) < 5 * math.sqrt(0.09 * 0.91 / masks.numel())


def test_the_seed_decides() -> None:
    x = torch.randn(7, 11)
    assert torch.equal(dropped(0.5, x), dropped(0.5, x))
    assert not torch.equal(dropped(0.5, x), dropped(0.5, x, seed=1))
    layer = Dropout(0.5)
    assert not torch.equal(layer(x), layer(x))


def test_torch_func() -> None:
    layer, x = Dropout(0.5), torch.randn(7, 11)
    slope = torch.func.grad(lambda x: layer(x).sum())(x)
    assert set(slope.unique().tolist()) == {0.0, 2.0}
    for randomness in ("same", "different"):
        one, other = torch.func.vmap(layer, randomness=randomness)(torch.stack([x, x]))
        assert torch.equal(one, other) == (randomness == "same")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_gradient_has_the_same_mask(dtype: torch.dtype) -> None:
    x = torch.randn(5, 13, dtype=dtype, requires_grad=True)
    pull = torch.randn(5, 13, dtype=dtype)
    found = dropped(0.4, x)
    found.backward(pull)
    assert found.dtype == dtype
    assert x.grad is not None
    factor = torch.tensor(1 / (1 - round(0.4 * 2**15) / 2**15), dtype=dtype)
    kept = found != 0
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(found, torch.where(kept, x * factor, 0))
    torch.testing.assert_close(x.grad, torch.where(kept, pull * factor, 0))


@given(sizes=st.lists(st.integers(0, 6), max_size=4), share=st.floats(0, 0.999999))
@settings(max_examples=60, deadline=None)
def test_any_shape_and_share(sizes: list[int], share: float) -> None:
    x = torch.rand(sizes) + 1
    found = dropped(share, x)
    assert found.shape == x.shape
    level = min(round(share * 2**15), 2**15 - 1) / 2**15
    kept = found != 0
    torch.testing.assert_close(found[kept], x[kept] / (1 - level))


def test_tensors_that_are_not_contiguous() -> None:
    x = torch.randn(6, 10).T[::2]
    found = dropped(0.5, x)
    kept = found != 0
    assert torch.equal(found[kept], 2 * x[kept])


def test_added_to_another_it_is_the_sum() -> None:
    x, onto = (torch.randn(5, 13, requires_grad=True) for _ in range(2))
    pull = torch.randn(5, 13)
    torch.manual_seed(0)
    found = Dropout(0.4)(x, onto=onto)
    torch.testing.assert_close(found, onto + dropped(0.4, x))
    found.backward(pull)
    assert onto.grad is not None
    assert torch.equal(onto.grad, pull)
    assert torch.equal(Dropout(0.4).eval()(x, onto=onto), onto + x)


def test_under_autocast_the_sum_keeps_its_width() -> None:
    x, onto = torch.randn(7, 16).bfloat16(), torch.randn(7, 16)
    layer = Dropout(0.3)
    torch.manual_seed(5)
    wanted = layer(x.float(), onto=onto)
    torch.manual_seed(5)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x, onto=onto)
    assert torch.equal(found, wanted)


def test_only_while_training() -> None:
    x = torch.randn(5, 6)
    before = torch.random.get_rng_state()
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert Dropout(2.0**-18)(x) is x
    assert torch.equal(torch.random.get_rng_state(), before)  # not even a number is drawn


def test_the_input_is_left_alone() -> None:
    x = torch.randn(50)
    before = x.clone()
    dropped(0.5, x)
    assert torch.equal(x, before)


@pytest.mark.parametrize("share", [-0.1, 1.0, math.nan])
def test_impossible_shares(share: float) -> None:
    with pytest.raises(OptionError, match=f"Dropout: share={share}, expected 0 up to, but not in"):
        Dropout(share)


def test_it_says_its_share() -> None:
    assert repr(Dropout(0.25)) == "Dropout(share=0.25)"


def test_without_numbers() -> None:
    """On the meta device, and while the default device is another."""
    with torch.device("meta"):
        assert Dropout(0.5)(torch.empty(3, 4)).is_meta
        kept = Dropout(0.5)(torch.ones(1000, device="cpu"))
    assert set(kept.tolist()) == {0.0, 2.0}
