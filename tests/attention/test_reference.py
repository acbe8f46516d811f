"""The reference, which defines what is right, against plain loops and cases solved by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from regard import attend, causal, keys, look, padding, prefix, segments, window
from regard.attention.masks import Mask
from tests.attention.kernel_cases import inputs, noise, written

INF = math.inf
ROUNDING = {"rtol": 1e-13, "atol": 1e-14}
"""Two ways to add up at most a dozen numbers in float64 differ by a few units of 2.2e-16."""


def loops(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    factor: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention as one would do it on paper: output and log-sum-exp for ``(b, h, n, d)``."""
    b, h, n, d = q.shape
    g, m, e = k.shape[1], k.shape[2], v.shape[3]
    factor = 1 / math.sqrt(d) if factor is None else factor
    everything = torch.ones(b, h, n, m, dtype=torch.bool)
    seen = (everything if mask is None else everything & mask).tolist()
    added = (torch.zeros(b, h, n, m) if bias is None else bias.expand(b, h, n, m)).tolist()
    queries, keys_, values = q.tolist(), k.tolist(), v.tolist()
    output = torch.zeros(b, h, n, e, dtype=torch.float64)
    logsumexp = torch.full((b, h, n), -INF, dtype=torch.float64)
    for batch in range(b):
        for head in range(h):
            shared = head // (h // g)
            for i in range(n):
                total, sums = 0.0, [0.0] * e
                for j in range(m):
                    if not seen[batch][head][i][j]:
                        continue
                    pairs = zip(queries[batch][head][i], keys_[batch][shared][j], strict=True)
                    score = factor * math.fsum(x * y for x, y in pairs)
                    weight = math.exp(score + added[batch][head][i][j])
                    total += weight
                    for column in range(e):
                        sums[column] += weight * values[batch][shared][j][column]
                if total > 0:
                    output[batch, head, i] = torch.tensor(sums, dtype=torch.float64) / total
                    logsumexp[batch, head, i] = math.log(total)
    return output, logsumexp


SIZES = {"h": 6, "d": 3, "e": 11}
"""Six heads; queries and keys of width 3, values of width 11."""
MASKS: dict[str, Mask | Tensor | None] = {
    "none": None,
    "causal": causal,
    "window": window(before=1, after=2),
    "causal & window": causal & window(2),
    "padding": padding([0, 4]),
    "keys": keys(torch.tensor([[1, 0, 0, 1, 1, 0, 1], [0, 0, 1, 0, 0, 0, 0]]).bool()),
    "segments": segments([0, 0, 0, 1, 1, 2, 2]),
    "causal | prefix": causal | prefix(4),
    "not causal": ~causal,
    "dense": torch.rand(2, 6, 5, 7, generator=torch.Generator().manual_seed(0)) < 0.4,
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("biased", [False, True], ids=["", "bias"])
def test_is_the_triple_loop(mask: Mask | Tensor | None, biased: bool) -> None:
    q, k, v = inputs(5, 7, **SIZES)
    bias = noise(2, 6, 5, 7, seed=7) if biased else None
    seen = look(q, k, v, mask=mask, bias=bias, kernel="reference")
    output, logsumexp = loops(q, k, v, written(mask, 5, 7), bias)
    torch.testing.assert_close(seen.output, output, **ROUNDING)
    torch.testing.assert_close(seen.logsumexp, logsumexp, **ROUNDING)


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_grouped_heads_are_the_triple_loop(kv_heads: int) -> None:
    q, k, v = inputs(5, 7, g=kv_heads, **SIZES)
    bias = noise(6, 5, 7, seed=7)
    output, logsumexp = loops(q, k, v, written(causal, 5, 7), bias)
    seen = look(q, k, v, mask=causal, bias=bias, kernel="reference")
    torch.testing.assert_close(seen.output, output, **ROUNDING)
    torch.testing.assert_close(seen.logsumexp, logsumexp, **ROUNDING)


@pytest.mark.parametrize(
    "sizes", [(7, 5), (2, 6, 5, 7), (6, 5, 7), (5, 7), (1, 7), (5, 1), (1, 1), (2, 1, 1, 7)]
)
def test_bias_broadcasts(sizes: tuple[int, ...]) -> None:
    q, k, v = inputs(5, 7, **SIZES)
    bias = noise(*sizes, seed=7)
    bias = bias.mT if sizes == (7, 5) else bias
    output, logsumexp = loops(q, k, v, bias=bias)
    seen = look(q, k, v, bias=bias, kernel="reference")
    torch.testing.assert_close(seen.output, output, **ROUNDING)
    torch.testing.assert_close(seen.logsumexp, logsumexp, **ROUNDING)


def test_ranks() -> None:
    q, k, v = inputs(5, 7, **SIZES)
    mask = written(causal, 5, 7)
    output, _ = loops(q, k, v, mask)
    one = attend(q[1, 2], k[1, 2], v[1, 2], mask=causal, kernel="reference")
    batch = attend(q[:, 2], k[:, 2], v[:, 2], mask=causal, kernel="reference")
    five = attend(q[None], k[None], v[None], mask=causal, kernel="reference")
    torch.testing.assert_close(one, output[1, 2], **ROUNDING)
    torch.testing.assert_close(batch, output[:, 2], **ROUNDING)
    torch.testing.assert_close(five, output[None], **ROUNDING)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_is_computed_in_float64_and_rounded_once(dtype: torch.dtype) -> None:
    q, k, v = (x.to(dtype) for x in inputs(5, 7, **SIZES))
    output, _ = loops(q.double(), k.double(), v.double(), written(causal, 5, 7))
    rounded = attend(q, k, v, mask=causal, kernel="reference")
    assert rounded.dtype == dtype
    # The last bits of the loops' own float64 may tip a number over to its neighbour, rarely.
    assert (rounded != output.to(dtype)).sum() <= 1
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(rounded, output.to(dtype), rtol=eps, atol=0)


# Cases solved by hand. With d = 1, q = 1 and score="dot", the score of a key is the key itself, and
# keys ln 1, ln 2, ln 3 weigh 1 : 2 : 3.

ONE = torch.ones(1, 1, dtype=torch.float64)
KEYS = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64).log()
VALUES = torch.tensor([[6.0, 0.0], [12.0, 0.0], [18.0, 6.0]], dtype=torch.float64)


def by_hand(q: Tensor = ONE, **options: object) -> tuple[list[list[float]], list[float]]:
    seen = look(q, KEYS, VALUES, score="dot", kernel="reference", **options)
    return seen.output.tolist(), seen.logsumexp.tolist()


def near(wanted: object) -> object:
    return pytest.approx(wanted, rel=1e-14)


def test_by_hand() -> None:
    output, logsumexp = by_hand()
    assert output == [near([6 / 6 + 24 / 6 + 54 / 6, 3.0])]
    assert logsumexp == near([math.log(6)])


def test_mask_by_hand() -> None:
    output, logsumexp = by_hand(mask=torch.tensor([[True, True, False]]))
    assert output == [near([6 / 3 + 24 / 3, 0.0])]
    assert logsumexp == near([math.log(3)])


def test_bias_by_hand() -> None:
    output, logsumexp = by_hand(bias=torch.tensor([[2.0, 1.0, 1.0]], dtype=torch.float64).log())
    assert output == [near([12 / 7 + 24 / 7 + 54 / 7, 18 / 7])]
    assert logsumexp == near([math.log(7)])


def test_scale_by_hand() -> None:
    # q = (2, 0, 0, 0) over √4 is 1 again.
    q = torch.tensor([[2.0, 0, 0, 0]], dtype=torch.float64)
    k = torch.nn.functional.pad(KEYS, (0, 3), value=5.0)
    output = attend(q, k, VALUES, kernel="reference")
    assert output.tolist() == [near([14.0, 3.0])]


def test_causal_is_aligned_at_the_end_by_hand() -> None:
    output, _ = by_hand(ONE.expand(2, 1), mask=causal)
    assert output == [near([10.0, 0.0]), near([14.0, 3.0])]
    output, _ = by_hand(ONE.expand(4, 1), mask=causal)
    assert output == [[0, 0], near([6.0, 0.0]), near([10.0, 0.0]), near([14.0, 3.0])]


def test_one_key_is_its_value() -> None:
    q, k, v = inputs(5, 1, d=7, e=11)
    assert torch.equal(attend(q, k, v, kernel="reference"), v.expand(2, 3, 5, 11))


def test_equal_keys_give_the_mean_value() -> None:
    q, k, v = noise(5, 3), noise(1, 3, seed=1).expand(7, 3), noise(7, 11, seed=2)
    wanted = v.mean(0).expand(5, 11)
    torch.testing.assert_close(attend(q, k, v, kernel="reference"), wanted, **ROUNDING)


# Nothing to see


@pytest.mark.parametrize("how", ["mask", "bias"])
def test_a_row_with_nothing_to_see_is_zero_and_alone(how: str) -> None:
    q, k, v = inputs(5, 7, **SIZES)
    seen = torch.ones(5, 7, dtype=torch.bool)
    seen[3] = False
    option = (
        {"mask": seen} if how == "mask" else {"bias": torch.zeros(5, 7).masked_fill(~seen, -INF)}
    )
    given = look(q, k, v, kernel="reference", **option)
    output, logsumexp = loops(q, k, v, seen)
    assert (given.output[:, :, 3] == 0).all()
    assert (given.logsumexp[:, :, 3] == -INF).all()
    torch.testing.assert_close(given.output, output, **ROUNDING)
    torch.testing.assert_close(given.logsumexp, logsumexp, **ROUNDING)


def test_a_large_negative_bias_is_only_a_bias() -> None:
    q, k, v = inputs(5, 7, **SIZES)
    # 2^30 is so large that only multiples of 2^-22 survive beside it in float64.
    bias = torch.zeros(5, 7).index_fill(0, torch.tensor([3]), -(2.0**30))
    wanted = attend(q, k, v, kernel="reference")
    torch.testing.assert_close(
        attend(q, k, v, bias=bias, kernel="reference"), wanted, rtol=0, atol=2**-18
    )


def test_mask_and_bias_together() -> None:
    q, k, v = inputs(5, 7, **SIZES)
    bias = noise(6, 5, 7, seed=7)
    bias[:, 2, 1:] = -INF  # by the bias query 2 sees key 0 alone, which the mask hides
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[:, 0] = False
    seen = look(q, k, v, mask=mask, bias=bias, kernel="reference")
    output, logsumexp = loops(q, k, v, mask, bias)
    assert (seen.output[:, :, 2] == 0).all()
    torch.testing.assert_close(seen.output, output, **ROUNDING)
    torch.testing.assert_close(seen.logsumexp, logsumexp, **ROUNDING)
