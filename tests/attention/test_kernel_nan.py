"""NaN and infinity on every kernel: they stay in the rows they belong to."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from regard import attend, causal, look
from regard.attention.masks import Mask
from tests.attention.budget import INF, NAN, all_but
from tests.attention.kernel_cases import (
    COARSE_BLOCKS,
    DTYPES,
    every,
    float32_inputs,
    inputs,
    leaves,
    ready,
)

KINDS = pytest.mark.parametrize(  # the flash operation takes 512 keys at a time
    ("n", "dtype"), [(7, torch.float32), (601, torch.float32), *((67, x) for x in DTYPES)], ids=str
)


def few(n: int, dtype: torch.dtype) -> list[Tensor]:
    return inputs(n, n, b=2, h=4, g=2, dtype=dtype)


@every
@KINDS
@pytest.mark.parametrize("mask", [None, causal], ids=["none", "causal"])
def test_nan_in_a_query_is_in_its_row_alone(
    regime: str, dtype: torch.dtype, n: int, mask: Mask | None
) -> None:
    q, k, v = few(n, dtype)
    q[1, 2, n // 2, 3] = NAN
    with ready(regime, COARSE_BLOCKS) as kernel:
        output = attend(*leaves(q, k, v), mask=mask, kernel=kernel)
    wanted = torch.zeros(2, 4, n, 1, dtype=torch.bool)
    wanted[1, 2, n // 2] = True
    assert torch.equal(output.isnan(), wanted.expand_as(output))


@every
@KINDS
@pytest.mark.parametrize("place", [0, 3, -1])
def test_nan_in_a_key_is_in_the_rows_that_see_it(
    regime: str, dtype: torch.dtype, n: int, place: int
) -> None:
    q, k, v = few(n, dtype)
    k[1, 1, place, 3] = NAN
    with ready(regime, COARSE_BLOCKS) as kernel:
        everywhere = attend(*leaves(q, k, v), kernel=kernel)
        later = attend(*leaves(q, k, v), mask=causal, kernel=kernel)
    wanted = torch.zeros(2, 4, n, 1, dtype=torch.bool)
    wanted[1, 2:] = True  # the two heads that share the second key head
    assert torch.equal(everywhere.isnan(), wanted.expand_as(everywhere))
    wanted[1, 2:, : place % n] = False
    assert torch.equal(later.isnan(), wanted.expand_as(later))


@every
@KINDS
def test_nan_in_a_value_is_in_its_column_alone(regime: str, dtype: torch.dtype, n: int) -> None:
    q, k, v = few(n, dtype)
    v[1, 1, n // 2, 3] = NAN
    with ready(regime, COARSE_BLOCKS) as kernel:
        output = attend(*leaves(q, k, v), kernel=kernel)
    wanted = torch.zeros_like(output, dtype=torch.bool)
    wanted[1, 2:, :, 3] = True
    assert torch.equal(output.isnan(), wanted)


@every
@pytest.mark.parametrize("where", [0, 1, 2], ids=["q", "k", "v"])
def test_nan_throughout(regime: str, where: int) -> None:
    given = float32_inputs(67, 67)
    given[where].fill_(NAN)
    with ready(regime, COARSE_BLOCKS) as kernel:
        assert attend(*leaves(*given), mask=causal, kernel=kernel).isnan().all()


@every
@pytest.mark.parametrize("n", [7, 64, 67])
def test_nan_that_may_see_nothing_is_zero(regime: str, n: int) -> None:
    q, k, v = float32_inputs(n, n)
    q[:, :, 5] = NAN
    with ready(regime, COARSE_BLOCKS) as kernel:
        seen = look(*leaves(q, k, v), mask=all_but([5], n, n), kernel=kernel)
    assert (seen.output[:, :, 5] == 0).all()
    assert not seen.output.isnan().any()
    assert (seen.logsumexp[:, :, 5] == -INF).all()


@every
@pytest.mark.parametrize("n", [7, 67])
def test_a_bias_of_plus_infinity_is_nan_in_its_row(regime: str, n: int) -> None:
    given = leaves(*float32_inputs(n, n))
    bias = torch.zeros(n, n)
    bias[2, n // 2] = INF
    with ready(regime, COARSE_BLOCKS) as kernel:
        output, usual = attend(*given, bias=bias, kernel=kernel), attend(*given, kernel=kernel)
    wanted = torch.zeros(2, 3, n, 5, dtype=torch.bool)
    wanted[:, :, 2] = True
    assert torch.equal(output.isnan(), wanted)
    torch.testing.assert_close(output[~wanted], usual[~wanted])


@every
@pytest.mark.parametrize("n", [7, 67])
def test_the_logsumexp_of_plus_infinity(regime: str, n: int) -> None:
    bias = torch.zeros(n, n)
    bias[2, n // 2] = INF
    with ready(regime, COARSE_BLOCKS) as kernel:
        logsumexp = look(*leaves(*float32_inputs(n, n)), bias=bias, kernel=kernel).logsumexp
    assert torch.equal(logsumexp == INF, (torch.arange(n) == 2).expand(2, 3, n))
