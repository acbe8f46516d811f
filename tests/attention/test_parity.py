"""The choice of a kernel, and parity with torch's functions and modules."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard import (
    ALiBi,
    Scaled,
    attend,
    causal,
    look,
    padding,
    prefix,
    segments,
    window,
)
from regard.attention import which
from regard.attention.masks import Mask
from regard.errors import OptionError
from tests.attention.kernel_cases import (
    DOUBLE,
    every,
    float32_inputs,
    float32_noise,
    inputs,
    noise,
    ready,
)

CALLS: dict[str, tuple[str, str, Callable[[], tuple[list[Tensor], dict[str, object]]]]] = {
    # the kernel, a part of the reason, and the call
    "long": ("native", "", lambda: (float32_inputs(7, 1031, b=5), {})),
    "window": ("native", "", lambda: (float32_inputs(401, 401), {"mask": window(3)})),
    "causal, q ≠ k": ("native", "", lambda: (float32_inputs(301, 401), {"mask": causal})),
    "dropout": ("native", "", lambda: (float32_inputs(7, 11), {"dropout": 0.5})),
    "ALiBi": ("native", "", lambda: (float32_inputs(7, 11), {"bias": ALiBi(3)})),
    "widths": (
        "native",
        "",
        lambda: ([*float32_inputs(7, 11)[:2], float32_noise(2, 3, 11, 13)], {}),
    ),
    "short, float64": (
        "plain",
        "native cannot: it supports float32 and bfloat16, and q is torch.float64",
        lambda: (inputs(67, 61), {}),
    ),
    "long, float64": (
        "fused",
        "plain cannot: so many scores are faster in blocks",
        lambda: (inputs(601, 601), {"mask": causal}),
    ),
    "window, float64": (
        "blocked",
        "fused cannot: the mask window(3) would have to be materialized",
        lambda: (inputs(601, 601), {"mask": window(3)}),
    ),
    "score": (
        "plain",
        "native cannot: the score does not reduce to a dot product",
        lambda: (float32_inputs(7, 11), {"score": lambda q, k: -torch.cdist(q, k)}),
    ),
    "wide": ("plain", "native cannot: heads are wider", lambda: (float32_inputs(7, 11, d=300), {})),
    "nothing": ("blocked", "there is nothing to compute", lambda: (float32_inputs(0, 11), {})),
}


@pytest.mark.parametrize(("kernel", "reason", "call"), CALLS.values(), ids=CALLS.keys())
def test_which_says_what_runs_and_why(
    kernel: str, reason: str, call: Callable[[], tuple[list[Tensor], dict[str, object]]]
) -> None:
    x, options = call()
    sentence = which(*x, **options)
    assert sentence.split(";")[0] == kernel
    assert reason in sentence
    torch.manual_seed(1)
    chosen = attend(*x, **options)
    torch.manual_seed(1)
    assert torch.equal(chosen, attend(*x, kernel=kernel, **options))


@pytest.mark.parametrize("kernel", ["native", "fused"])
@pytest.mark.parametrize("function", [attend, look])
def test_an_explicit_kernel_never_falls_back(kernel: str, function: Callable[..., object]) -> None:
    x, options = CALLS["window, float64"][2]()
    with pytest.raises(OptionError, match=f"kernel='{kernel}' cannot do this call"):
        function(*x, kernel=kernel, **options)


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(OptionError, match="kernel='flash' is unknown, expected 'auto', 'native'"):
        attend(*inputs(7, 11), kernel="flash")


@every
@pytest.mark.parametrize(("q", "k"), [(7, 7), (7, 11), (11, 7), (67, 131)])
def test_parity_with_scaled_dot_product_attention(regime: str, q: int, k: int) -> None:
    x = inputs(q, k)
    seen = noise(2, 1, q, k, seed=5) > 0
    bias = noise(3, q, k, seed=6)
    with ready(regime) as kernel:
        pairs = [
            (attend(*x, kernel=kernel), F.scaled_dot_product_attention(*x)),
            (
                attend(*x, mask=seen, kernel=kernel),
                F.scaled_dot_product_attention(*x, attn_mask=seen).nan_to_num(0.0),
            ),
            (
                attend(*x, bias=bias, kernel=kernel),
                F.scaled_dot_product_attention(*x, attn_mask=bias),
            ),
            (
                attend(*x, score=Scaled(0.3), kernel=kernel),
                F.scaled_dot_product_attention(*x, scale=0.3),
            ),
        ]
        if q == k:
            pairs.append(
                (
                    attend(*x, mask=causal, kernel=kernel),
                    F.scaled_dot_product_attention(*x, is_causal=True),
                )
            )
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, **DOUBLE)


def _written_out(what: str, q: int, k: int) -> Tensor:
    position, key = torch.arange(q)[:, None] + k - q, torch.arange(k)
    return {
        "causal": key <= position,
        "window(3)": (key - position).abs() < 3,
        "window(before=4, after=1)": (key >= position - 4) & (key <= position + 1),
        "causal & window(3)": (key <= position) & (key > position - 3),
        "segments": key // 4 == position // 4,
        "causal & segments": (key <= position) & (key // 4 == position // 4),
        "prefix(3)": (key < 3).expand(q, k),
        "causal | prefix(3)": (key <= position) | (key < 3),
        "~window(2)": (key - position).abs() >= 2,
    }[what]


def _lazy(what: str, k: int) -> Mask:
    own = segments(torch.arange(k) // 4)
    return {
        "causal": causal,
        "window(3)": window(3),
        "window(before=4, after=1)": window(before=4, after=1),
        "causal & window(3)": causal & window(3),
        "segments": own,
        "causal & segments": causal & own,
        "prefix(3)": prefix(3),
        "causal | prefix(3)": causal | prefix(3),
        "~window(2)": ~window(2),
    }[what]


@pytest.mark.parametrize("regime", ["reference", "blocked", "many blocks", "auto"])
@pytest.mark.parametrize(("q", "k"), [(31, 31), (13, 31), (1, 31), (31, 13)])
@pytest.mark.parametrize(
    "what",
    [
        "causal",
        "window(3)",
        "window(before=4, after=1)",
        "causal & window(3)",
        "segments",
        "causal & segments",
        "prefix(3)",
        "causal | prefix(3)",
        "~window(2)",
    ],
)
def test_lazy_masks_are_written_masks(regime: str, what: str, q: int, k: int) -> None:
    if "segments" in what and q > k:
        pytest.skip("queries are among the keys")
    x, whole = inputs(q, k), _written_out(what, q, k)
    with ready(regime) as kernel:
        ours = attend(*x, mask=_lazy(what, k), kernel=kernel)
    theirs = F.scaled_dot_product_attention(*x, attn_mask=whole)
    theirs = theirs.masked_fill(~whole.any(-1, keepdim=True), 0.0)
    torch.testing.assert_close(ours, theirs, **DOUBLE)


def _heads(x: Tensor, count: int) -> Tensor:
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


@pytest.mark.parametrize("regime", ["reference", "blocked", "many blocks", "fused"])
@pytest.mark.parametrize("masked", ["", "padding", "attn_mask", "both"])
def test_parity_with_multihead_attention(regime: str, masked: str) -> None:
    layer = nn.MultiheadAttention(21, 3, batch_first=True, dtype=torch.float64)
    nn.init.normal_(layer.in_proj_bias)
    nn.init.normal_(layer.out_proj.bias)
    x, y = noise(2, 11, 21, seed=1), noise(2, 13, 21, seed=2)
    seen = _written_out("causal", 11, 13) if masked in ("attn_mask", "both") else None
    counts = torch.tensor([13, 6]) if masked in ("padding", "both") else None
    output, weights = layer(
        x,
        y,
        y,
        attn_mask=None if seen is None else ~seen,  # True = may not, in torch
        key_padding_mask=None if counts is None else torch.arange(13) >= counts[:, None],
        average_attn_weights=False,
    )
    matrices, shifts = layer.in_proj_weight.chunk(3), layer.in_proj_bias.chunk(3)
    q, k, v = (
        _heads(z @ matrix.T + shift, 3)
        for z, matrix, shift in zip((x, y, y), matrices, shifts, strict=True)
    )
    mask: Mask | None = None if seen is None else regard.dense(seen)
    if counts is not None:
        mask = padding(counts) if mask is None else mask & padding(counts)
    with ready(regime) as kernel:
        ours = look(q, k, v, mask=mask, kernel=kernel)
    joined = ours.output.transpose(1, 2).flatten(2) @ layer.out_proj.weight.T + layer.out_proj.bias
    torch.testing.assert_close(joined, output, **DOUBLE)
    torch.testing.assert_close(ours.weights(), weights.detach(), **DOUBLE)


def swap(*x: Tensor, **options: object) -> None:
    """regard's function and torch's give the same."""
    ours = regard.scaled_dot_product_attention(*x, **options)
    theirs = F.scaled_dot_product_attention(*x, **options)
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, **DOUBLE)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 2, 3)], ids=str)
@pytest.mark.parametrize(("q", "k"), [(7, 7), (5, 11), (11, 5), (1, 11), (11, 1)])
def test_swap(lead: tuple[int, ...], q: int, k: int) -> None:
    x = [noise(*lead, n, 13, seed=i) for i, n in enumerate((q, k, k))]
    seen = noise(q, k, seed=5) > -1
    seen[:, 0] = True
    swap(*x)
    swap(*x, is_causal=True)  # aligned at the start
    swap(*x, attn_mask=seen)
    swap(*x, attn_mask=noise(q, k, seed=6))
    swap(*x, attn_mask=noise(*lead, q, k, seed=6))
    swap(*x, attn_mask=seen.expand(*lead, q, k))
    swap(*x, scale=0.2)
    swap(*x, dropout_p=0.0)
    swap(*x[:2], noise(*lead, k, 17, seed=7))


@pytest.mark.parametrize("g", [1, 2, 3])
def test_swap_with_grouped_heads(g: int) -> None:
    x = inputs(7, 11, h=6, g=g)
    swap(*x, enable_gqa=True)
    swap(*x, enable_gqa=True, is_causal=True)
    swap(*(y[None] for y in x), enable_gqa=True)


def test_swap_broadcasts() -> None:
    q, k, v = inputs(7, 11)
    swap(q, k[:1], v[:1])
    swap(q, k[:, :1], v[:, :1])
    swap(q, k[0, 0], v[0, 0])


def test_swap_with_nothing_to_see() -> None:
    swap(*inputs(7, 11), attn_mask=torch.zeros(7, 11, dtype=torch.bool))


def test_swap_with_dropout_drops() -> None:
    x = inputs(7, 11)
    torch.manual_seed(1)
    one = regard.scaled_dot_product_attention(*x, dropout_p=0.5)
    torch.manual_seed(1)
    assert torch.equal(one, attend(*x, dropout=0.5))
    assert not torch.equal(one, attend(*x))


def test_swap_refuses_what_torch_refuses() -> None:
    x = inputs(7, 11, h=6, g=2)
    with pytest.raises(OptionError, match="grouped heads need enable_gqa=True"):
        regard.scaled_dot_product_attention(*x)
    with pytest.raises(OptionError, match="attn_mask and is_causal are both given"):
        regard.scaled_dot_product_attention(
            *inputs(7, 7), attn_mask=torch.ones(7, 7, dtype=torch.bool), is_causal=True
        )
