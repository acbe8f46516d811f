"""The strongest keys of each query, around every edge of the two stages."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from regard import (
    causal,
    keys,
    look,
    padding,
    segments,
    window,
)
from regard.attention.masks import Mask
from regard.errors import OptionError
from tests.attention.kernel_cases import DOUBLE, float32_inputs, inputs, looking, ready


def distinct(rows: int, k: int, seed: int = 0) -> Tensor:
    """Scores without ties: in each row the same numbers in another order."""
    generator = torch.Generator().manual_seed(seed)
    orders = torch.stack([torch.randperm(k, generator=generator) for _ in range(rows)])
    return orders.double() * 0.01


def top_of(scores: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """`Look.top` where the bias alone makes the scores."""
    zeros = torch.zeros(scores.shape[-1], 1, dtype=scores.dtype)
    return look(zeros[: scores.shape[-2]], zeros, zeros, bias=scores, kernel="blocked").top(n)


EDGES = [
    (n, k)
    for n in (1, 2, 3, 8)
    for k in sorted(
        {x + y for x in (16 * n, 16 * (2 * n + 1), 16 * (2 * n + 2), 32 * n) for y in (-1, 0, 1)}
    )
]


@pytest.mark.parametrize(("n", "k"), EDGES)
def test_top_around_the_edges_of_two_stages(n: int, k: int) -> None:
    scores = distinct(11, k)
    values, places = top_of(scores, n)
    best, at = torch.softmax(scores, -1).topk(n, -1)
    torch.testing.assert_close(values, best, **DOUBLE)
    assert torch.equal(places, at)


@pytest.mark.parametrize("n", [1, 3, 8])
@pytest.mark.parametrize("k", [523, 528, 543])
def test_top_wherever_the_largest_stand(n: int, k: int) -> None:
    """All behind one maximum of the first stage, side by side, at the ends, or in the rest."""
    columns = k // 16
    places = [
        [5 + i * columns for i in range(n)],
        [5 + i for i in range(n)],
        list(range(n)),
        list(range(k - n, k)),
        [k - 1 - i * columns for i in range(n)],
        [(i * 37) % k for i in range(n)],
    ]
    scores = distinct(len(places), k) / 100
    for row, chosen in enumerate(places):
        for rank, place in enumerate(chosen):
            scores[row, place] = 9.0 - 0.1 * rank
    values, found = top_of(scores, n)
    assert found.tolist() == places
    weights = torch.softmax(scores, -1)
    torch.testing.assert_close(values, weights.gather(-1, torch.tensor(places)), **DOUBLE)


@looking
@pytest.mark.parametrize("n", [1, 2, 5, 17])
def test_top_has_exactly_n_columns_largest_first(regime: str, n: int) -> None:
    with ready(regime) as kernel:
        values, places = look(*inputs(17, 17), mask=causal, kernel=kernel).top(n)
    assert values.shape == places.shape == (2, 3, 17, n)
    assert (values.diff(dim=-1) <= 0).all()
    for i in range(17):
        visible = min(i + 1, n)
        assert (values[:, :, i, :visible] > 0).all()
        assert (places[:, :, i, :visible] >= 0).all()
        assert (places[:, :, i, :visible] <= i).all()
        assert (values[:, :, i, visible:] == 0).all()
        assert (places[:, :, i, visible:] == -1).all()
        assert len(set(places[0, 0, i, :visible].tolist())) == visible


@pytest.mark.parametrize("mask", [padding([0, 17]), ~keys(torch.arange(17) >= 0)], ids=repr)
def test_top_of_nothing(mask: Mask) -> None:
    values, places = look(*inputs(17, 17), mask=mask).top(3)
    nothing = 1 if mask == padding([0, 17]) else 2
    assert (values[:nothing] == 0).all()
    assert (places[:nothing] == -1).all()
    assert (places[nothing:] >= 0).all()


def test_top_of_more_than_there_are() -> None:
    seen = look(*inputs(7, 11))
    assert seen.top(11)[0].shape == (2, 3, 7, 11)
    for n in (0, -1, 12):
        with pytest.raises(OptionError, match=f"top: n={n}, expected 1 to k=11"):
            seen.top(n)


@pytest.mark.parametrize("mask", [None, causal, window(30), segments(torch.arange(1031) // 90)])
def test_top_of_long_rows(mask: Mask | None) -> None:
    q, k, v = float32_inputs(1031, 1031, b=1, h=2)
    seen = look(q, k, v, mask=mask)
    values, places = seen.top(8)
    best = seen.weights().topk(8, -1).values
    torch.testing.assert_close(values, best)
    there = seen.weights().gather(-1, places.clamp(min=0)).masked_fill(places < 0, 0.0)
    torch.testing.assert_close(there, values)
