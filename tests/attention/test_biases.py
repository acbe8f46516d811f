"""Biases by distance against published implementations, plain loops and cases solved by hand."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.attention.positions import ALiBi, Bias, RelativeBias
from regard.errors import ShapeError
from tests.attention.kernel_cases import float32_noise

quick = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**31 - 1)


BIASES: dict[str, Callable[[], ALiBi | RelativeBias]] = {
    "alibi": lambda: ALiBi(5),
    "relative": lambda: RelativeBias(5, buckets=14, max_distance=23),
    "relative-one-way": lambda: RelativeBias(5, buckets=11, max_distance=23, bidirectional=False),
}
biases = pytest.mark.parametrize("make", BIASES.values(), ids=BIASES.keys())


# ALiBi


@pytest.mark.parametrize("heads", [1, 2, 3, 8, 12, 16, 20])
def test_alibi_slopes_are_blooms(heads: int) -> None:
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    theirs = bloom.build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)  # slope · key
    slopes = torch.tensor(ALiBi(heads).slopes)
    torch.testing.assert_close(slopes, theirs[:, 0, 1], rtol=1e-6, atol=0)


def test_alibi_slopes_of_8_heads_are_the_papers() -> None:
    assert ALiBi(8).slopes == tuple(2.0**-i for i in range(1, 9))


@pytest.mark.parametrize("heads", [8, 12, 16])
def test_alibi_under_a_causal_softmax_is_blooms(heads: int) -> None:
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    n = 19
    scores = float32_noise(heads, n, n)
    theirs = bloom.build_alibi_tensor(torch.ones(1, n), heads, torch.float32)
    later = torch.ones(n, n, dtype=torch.bool).triu(1)
    wanted, ours, unbiased = (
        (scores + bias).masked_fill(later, -math.inf).softmax(-1)
        for bias in (theirs, ALiBi(heads)(n, n), torch.zeros(()))
    )
    torch.testing.assert_close(ours, wanted, rtol=0, atol=2e-6)
    assert not torch.allclose(unbiased, wanted, atol=0.01)


@pytest.mark.parametrize(("q", "k"), [(5, 5), (3, 7), (7, 3), (1, 11)])
def test_alibi_is_the_loop_aligned_at_the_end(q: int, k: int) -> None:
    alibi = ALiBi(3)
    whole = alibi(q, k, dtype=torch.float64)
    assert whole.shape == (3, q, k)
    for head in range(3):
        for i in range(q):
            for j in range(k):
                wanted = -alibi.slopes[head] * abs(i + k - q - j)
                assert whole[head, i, j].item() == pytest.approx(wanted, rel=1e-15)


def test_alibi_far_away_in_bfloat16_is_rounded_once() -> None:
    alibi = ALiBi(12)
    assert torch.equal(alibi(1, 601, dtype=torch.bfloat16), alibi(1, 601).bfloat16())


# RelativeBias


def t5_attention(heads: int, buckets: int, max_distance: int, bidirectional: bool) -> nn.Module:
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    config = t5.T5Config(
        d_model=6,
        d_kv=2,
        num_heads=heads,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=not bidirectional,
    )
    return t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0)


@pytest.mark.parametrize("bidirectional", [True, False], ids=["both", "one-way"])
@pytest.mark.parametrize(
    ("buckets", "max_distance"),
    [
        (32, 128),
        (32, 20),
        (32, 1024),
        (4, 3),
        (6, 7),
        (10, 11),
        (26, 61),
        (64, 101),
        # Here logarithms in float64 would put other distances on the edges.
        (20, 160),
        (20, 320),
    ],
)
def test_relative_buckets_are_t5s(buckets: int, max_distance: int, bidirectional: bool) -> None:
    if not bidirectional and max_distance <= buckets // 2:
        max_distance = buckets // 2 + 1
    relative = torch.arange(-2 * max_distance - 1, 2 * max_distance + 2)
    wanted = t5_attention(3, buckets, max_distance, bidirectional)._relative_position_bucket(
        relative, bidirectional=bidirectional, num_buckets=buckets, max_distance=max_distance
    )
    ours = RelativeBias(
        3, buckets=buckets, max_distance=max_distance, bidirectional=bidirectional
    ).bucket(relative)
    assert ours.tolist() == wanted.tolist()


@pytest.mark.parametrize("bidirectional", [True, False], ids=["both", "one-way"])
@pytest.mark.parametrize("max_distance", [23, 128])
@pytest.mark.parametrize(("q", "k"), [(1, 1), (13, 13), (7, 19), (1, 151), (151, 151)])
def test_relative_bias_is_t5s(q: int, k: int, max_distance: int, bidirectional: bool) -> None:
    theirs = t5_attention(3, 32, max_distance, bidirectional)
    ours = RelativeBias(3, max_distance=max_distance, bidirectional=bidirectional)
    with torch.no_grad():
        ours.table.normal_(generator=torch.Generator().manual_seed(0))
        theirs.relative_attention_bias.weight.copy_(ours.table)
        wanted = theirs.compute_bias(q, k, past_seen_tokens=k - q)[0]
        assert torch.equal(ours(q, k), wanted)


def test_relative_bias_by_hand() -> None:
    # Four buckets of one way: distances 0, 1, 2 to 3 (log₂ 3 − 1 < 1), and from 4 on.
    module = RelativeBias(1, buckets=4, max_distance=8, bidirectional=False)
    assert module.starts == (0, 1, 2, 4)
    with torch.no_grad():
        module.table.copy_(torch.tensor([[10.0], [20.0], [30.0], [40.0]]))
    wanted = [[40.0, 30.0, 30.0, 20.0, 10.0, 10.0], [40.0, 40.0, 30.0, 30.0, 20.0, 10.0]]
    assert module(2, 6)[0].tolist() == wanted


def test_relative_bias_gradient_counts_the_uses_of_each_bucket() -> None:
    module = RelativeBias(3, buckets=14, max_distance=11)
    q, k = 5, 17
    module(q, k).sum().backward()
    wanted = torch.zeros(14, 3)
    for i in range(q):
        for j in range(k):
            wanted[module.bucket(torch.tensor(j - (i + k - q)))] += 1
    assert module.table.grad is not None
    assert torch.equal(module.table.grad, wanted)


# What is a bias


@biases
@quick
@given(data=st.data(), q=st.integers(0, 41), k=st.integers(0, 41))
def test_blocks_paste_to_the_whole(
    make: Callable[[], ALiBi | RelativeBias], data: st.DataObject, q: int, k: int
) -> None:
    bias = make()
    whole = bias(q, k)
    assert whole.shape == (5, q, k)
    row_cuts, col_cuts = (
        [0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=3))), n] for n in (q, k)
    )
    strips = [
        [bias.block(slice(*rows), slice(*cols), q, k) for cols in pairwise(col_cuts)]
        for rows in pairwise(row_cuts)
    ]
    pasted = torch.cat([torch.cat(strip, dim=2) for strip in strips], dim=1)
    assert torch.equal(pasted, whole)


@biases
def test_cached_decoding_sees_the_rows_of_the_whole(
    make: Callable[[], ALiBi | RelativeBias],
) -> None:
    bias = make()
    whole = bias(43, 43)
    for n in (1, 2, 29, 43):
        assert torch.equal(bias(1, n)[:, 0], whole[:, n - 1, :n])


@biases
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_bias_has_the_dtype_asked_for(
    make: Callable[[], ALiBi | RelativeBias], dtype: torch.dtype
) -> None:
    bias = make().bfloat16() if dtype == torch.bfloat16 else make()
    block = bias.block(slice(2, 5), slice(3, 10), 11, 13, dtype=dtype, device="cpu")
    assert (block.dtype, block.shape) == (dtype, (5, 3, 7))
    assert torch.equal(block, bias(11, 13, dtype=dtype)[:, 2:5, 3:10])


def test_alibi_keeps_its_slopes_in_a_bfloat16_model() -> None:
    assert torch.equal(ALiBi(12).bfloat16()(5, 7), ALiBi(12)(5, 7))


def test_only_tables_are_saved() -> None:
    saved = {name: list(make().state_dict()) for name, make in BIASES.items()}
    assert saved == {
        "alibi": [],
        "relative": ["table"],
        "relative-one-way": ["table"],
    }


def test_what_is_a_bias() -> None:
    class Zero:
        heads = 1

        def block(self, rows: slice, cols: slice, q: int, k: int, **options: object) -> Tensor:
            return torch.zeros(1, rows.stop - rows.start, cols.stop - cols.start)

    assert all(isinstance(make(), Bias) for make in BIASES.values())
    assert isinstance(Zero(), Bias)


@biases
@pytest.mark.parametrize(
    ("rows", "cols"),
    [((0, 6), (0, 7)), ((0, 5), (3, 8)), ((-1, 2), (0, 7)), ((0, 5), (-1, 7)), ((3, 2), (0, 7))],
)
def test_blocks_outside_of_the_call(
    make: Callable[[], ALiBi | RelativeBias], rows: tuple[int, int], cols: tuple[int, int]
) -> None:
    bias = make()
    text = (
        f"{type(bias).__name__}: rows {rows[0]}:{rows[1]} and cols {cols[0]}:{cols[1]} asked for, "
        "but there are q=5 queries and k=7 keys; use slices within 0:q and 0:k"
    )
    with pytest.raises(ShapeError, match=f"^{re.escape(text)}$"):
        bias.block(slice(*rows), slice(*cols), 5, 7)
