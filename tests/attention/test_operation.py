"""What attention must do whoever computes it: properties, and parity with torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.func import grad, vmap
from torch.utils._python_dispatch import TorchDispatchMode

import regard
from regard import (
    ALiBi,
    Scaled,
    attend,
    causal,
    keys,
    look,
    padding,
    prefix,
    segments,
    window,
)
from regard.attention import which
from regard.attention.kernels import blocked
from regard.attention.masks import Mask
from regard.errors import OptionError

quick = settings(max_examples=20, deadline=None)
seeds = st.integers(0, 2**31 - 1)
lengths = st.integers(1, 40)
REGIMES = ("reference", "native", "plain", "many blocks", "fused")
every = pytest.mark.parametrize("regime", REGIMES)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
DOUBLE = {"rtol": 1e-12, "atol": 1e-13}
"""Two orders of summing some hundred float64 numbers of size 1 differ by less than this."""


@contextmanager
def ready(regime: str) -> Iterator[str]:
    """The name of the kernel; for many blocks, with blocks so small that short rows need many."""
    with pytest.MonkeyPatch.context() as patch:
        if regime == "many blocks":
            patch.setattr(blocked, "HEIGHT", 8)
            patch.setattr(blocked, "WIDTH", 4)
            patch.setattr(blocked, "SPAN", 2**9)
        try:
            yield "blocked" if regime == "many blocks" else regime
        except OptionError as error:
            if "it has float32 and bfloat16" in str(error):
                pytest.skip("refused")
            raise


def noise(*sizes: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


def inputs(
    q: int,
    k: int,
    *,
    b: int = 2,
    h: int = 3,
    g: int | None = None,
    d: int = 5,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> list[Tensor]:
    sizes = ((b, h, q, d), (b, g or h, k, d), (b, g or h, k, d))
    return [noise(*size, seed=seed + i, dtype=dtype) for i, size in enumerate(sizes)]


def expressible(regime: str, mask: Mask | Tensor | None, q: int, k: int) -> bool:
    """Whether the regime can do this mask: the flash operation knows causal only for q = k."""
    if regime != "fused":
        return True
    if isinstance(mask, Mask) and not mask.keys_only:
        return mask == causal and (q == k or q == 1)
    return True


# Properties


@every
@quick
@given(q=lengths, k=lengths, seed=seeds, density=st.floats(0, 1))
def test_rows_sum_to_one_or_zero(regime: str, q: int, k: int, seed: int, density: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(2, 1, q, k, generator=generator) < density
    given_q, given_k, _ = inputs(q, k, seed=seed)
    ones = torch.ones_like(given_k)
    with ready(regime) as kernel:
        seen = look(given_q, given_k, ones, mask=mask, kernel=kernel)
    wanted = mask.any(-1).double().expand(2, 3, q)
    torch.testing.assert_close(seen.weights().sum(-1), wanted, **DOUBLE)
    torch.testing.assert_close(seen.output, wanted.unsqueeze(-1).expand(2, 3, q, 5), **DOUBLE)
    assert (seen.weights() >= 0).all()
    assert (seen.weights().masked_select(~mask) == 0).all()


@every
@quick
@given(n=lengths, seed=seeds)
def test_permuting_the_words_permutes_the_output(regime: str, n: int, seed: int) -> None:
    x = inputs(n, n, seed=seed)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    with ready(regime) as kernel:
        before = attend(*x, kernel=kernel)
        after = attend(*(y[:, :, order] for y in x), kernel=kernel)
    torch.testing.assert_close(after, before[:, :, order], **DOUBLE)


@every
@quick
@given(q=lengths, k=lengths, seed=seeds)
def test_the_order_of_keys_does_not_matter(regime: str, q: int, k: int, seed: int) -> None:
    query, key, value = inputs(q, k, seed=seed)
    order = torch.randperm(k, generator=torch.Generator().manual_seed(seed))
    with ready(regime) as kernel:
        before = attend(query, key, value, kernel=kernel)
        after = attend(query, key[:, :, order], value[:, :, order], kernel=kernel)
    torch.testing.assert_close(after, before, **DOUBLE)


@every
@quick
@given(n=st.integers(2, 40), data=st.data(), seed=seeds)
def test_causal_output_does_not_know_what_follows(
    regime: str, n: int, data: st.DataObject, seed: int
) -> None:
    place = data.draw(st.integers(1, n - 1))
    before = inputs(n, n, seed=seed, dtype=torch.float32)
    after = [x.clone() for x in before]
    for x in after:
        x[:, :, place:] = 1e3 * torch.rand_like(x[:, :, place:]) - 500
    with ready(regime) as kernel:
        one, other = (attend(*x, mask=causal, kernel=kernel) for x in (before, after))
    assert torch.equal(one[:, :, :place], other[:, :, :place])
    assert not torch.equal(one[:, :, place:], other[:, :, place:])


@every
@pytest.mark.parametrize("tracked", [False, True], ids=["", "tracked"])
@quick
@given(q=lengths, data=st.data(), large=st.sampled_from([1.0, 1e4, 1e30]))
def test_padding_never_leaks(
    regime: str, tracked: bool, q: int, data: st.DataObject, large: float
) -> None:
    counts = data.draw(st.lists(st.integers(0, 30), min_size=2, max_size=2))
    k = max(counts) + data.draw(st.integers(1, 9))
    query, key, value = inputs(q, k, g=1, dtype=torch.float32)
    others = [key.clone(), value.clone()]
    for entry, count in enumerate(counts):
        for x in others:
            x[entry, :, count:] = large * (torch.rand_like(x[entry, :, count:]) - 0.5)
    query.requires_grad_(tracked)
    with ready(regime) as kernel:
        one = attend(query, key, value, mask=padding(counts), kernel=kernel)
        other = attend(query, *others, mask=padding(counts), kernel=kernel)
    assert torch.equal(one, other)


@every
@pytest.mark.parametrize("score", ["dot", "cosine", "gaussian"])
@pytest.mark.parametrize("large", [1e3, 1e12])
def test_hidden_keys_never_leak_into_any_score(regime: str, score: str, large: float) -> None:
    """Wherever they stand: the first three keys and the last are hidden."""
    query, key, value = inputs(7, 31, g=1, dtype=torch.float32)
    seen = (torch.arange(31) > 2) & (torch.arange(31) < 30)
    others = [torch.where(seen[:, None], x, large * (x - 0.5)) for x in (key, value)]
    with ready(regime) as kernel:
        one = attend(query, key, value, mask=keys(seen), score=score, kernel=kernel)
        other = attend(query, *others, mask=keys(seen), score=score, kernel=kernel)
    assert torch.equal(one, other)


@every
@quick
@given(q=lengths, k=lengths, seed=seeds, shift=st.floats(-100, 100))
def test_a_shift_of_all_scores_changes_nothing(
    regime: str, q: int, k: int, seed: int, shift: float
) -> None:
    x, bias = inputs(q, k, seed=seed), noise(3, q, k, seed=seed)
    with ready(regime) as kernel:
        before = look(*x, bias=bias, kernel=kernel)
        after = look(*x, bias=bias + shift, kernel=kernel)
    # Beside a shift of 100 the scores keep 100 · 2.2e-16 less of their last digits.
    torch.testing.assert_close(after.output, before.output, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(after.logsumexp - shift, before.logsumexp, rtol=0, atol=1e-12)


@pytest.mark.parametrize("regime", ["reference", "blocked", "many blocks", "auto"])
@pytest.mark.parametrize(
    ("mask", "step"),
    [
        (causal, 1),
        (causal, 7),
        (causal & window(5), 1),
        (causal & window(5), 7),
        (causal | prefix(4), 7),  # the words of a prefix see each other, so they come together
    ],
    ids=repr,
)
def test_cached_decoding_is_full_decoding(regime: str, mask: Mask, step: int) -> None:
    """Some queries at a time, with all the keys so far, need no special case."""
    n = 41
    q, k, v = inputs(n, n, h=6, g=2)
    with ready(regime) as kernel:
        full = attend(q, k, v, mask=mask, bias=ALiBi(6), kernel=kernel)
        parts = [
            attend(
                q[:, :, i : i + step],
                k[:, :, : min(i + step, n)],
                v[:, :, : min(i + step, n)],
                mask=mask,
                bias=ALiBi(6),
                kernel=kernel,
            )
            for i in range(0, n, step)
        ]
    torch.testing.assert_close(torch.cat(parts, 2), full, **DOUBLE)


def test_fused_decodes_one_word_at_a_time() -> None:
    q, k, v = inputs(41, 41, h=6, g=2)
    full = attend(q, k, v, mask=causal, kernel="fused")
    parts = [
        attend(q[:, :, i : i + 1], *(x[:, :, : i + 1] for x in (k, v)), mask=causal, kernel="fused")
        for i in range(41)
    ]
    torch.testing.assert_close(torch.cat(parts, 2), full, **DOUBLE)


# Looking


MASKS: dict[str, Mask | Tensor | None] = {
    "none": None,
    "causal": causal,
    "causal & window": causal & window(5),
    "padding": padding([41, 7]),
    "no words": padding([0, 41]),
    "keys": keys(torch.arange(41) % 3 > 0),
    "segments": segments(torch.arange(41) // 9),
    "causal | prefix": causal | prefix(3),
    "dense": torch.rand(2, 1, 41, 41, generator=torch.Generator().manual_seed(0)) < 0.5,
}
MODES: dict[str, Callable[[], object]] = {
    "grad": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
}


@pytest.mark.parametrize("regime", [*REGIMES, "auto"])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
def test_looked_is_unlooked_bit_for_bit(
    regime: str,
    mask: Mask | Tensor | None,
    dtype: torch.dtype,
    mode: Callable[[], object],
) -> None:
    if not expressible(regime, mask, 41, 41):
        pytest.skip("the flash operation has no such mask")
    x = inputs(41, 41, h=6, g=2, dtype=dtype)
    with mode(), ready(regime) as kernel:
        x = [y.clone().requires_grad_(torch.is_grad_enabled()) for y in x]
        seen = look(*x, mask=mask, kernel=kernel)
        attended = attend(*x, mask=mask, kernel=kernel)
    assert attended.dtype == dtype
    assert torch.equal(seen.output, attended)
    assert seen.output.requires_grad == (mode is torch.enable_grad)
    assert not seen.logsumexp.requires_grad
    assert not seen.weights().requires_grad


@pytest.mark.parametrize("regime", [*REGIMES, "auto"])
def test_looking_leaves_the_gradient_alone(regime: str) -> None:
    x = [y.requires_grad_() for y in inputs(41, 41, h=6, g=2, dtype=torch.float32)]
    upstream = noise(2, 6, 41, 5, seed=9, dtype=torch.float32)
    with ready(regime) as kernel:
        outputs = (
            look(*x, mask=causal, kernel=kernel).output,
            attend(*x, mask=causal, kernel=kernel),
        )
        looked, unlooked = (torch.autograd.grad(y, x, upstream) for y in outputs)
    for one, other in zip(looked, unlooked, strict=True):
        assert torch.equal(one, other)


LONG = [(1, 2, 300, 300), (4, 4, 64, 64), (1, 1, 2100, 2100), (3, 2, 5, 700)]


@pytest.mark.parametrize(("b", "h", "q", "k"), LONG)
@pytest.mark.parametrize("tracked", [False, True], ids=["", "tracked"])
def test_looked_is_unlooked_in_other_sizes(b: int, h: int, q: int, k: int, tracked: bool) -> None:
    x = [y.requires_grad_(tracked) for y in inputs(q, k, b=b, h=h, dtype=torch.float32)]
    for mask in (None, causal, window(9)):
        assert torch.equal(look(*x, mask=mask).output, attend(*x, mask=mask))


# Which kernel


def single(*sizes: int, **options: int) -> list[Tensor]:
    return inputs(*sizes, dtype=torch.float32, **options)


CALLS: dict[str, tuple[str, str, Callable[[], tuple[list[Tensor], dict[str, object]]]]] = {
    # the kernel, a part of the reason, and the call
    "long": ("native", "", lambda: (single(7, 1031, b=5), {})),
    "window": ("native", "", lambda: (single(401, 401), {"mask": window(3)})),
    "causal, q ≠ k": ("native", "", lambda: (single(301, 401), {"mask": causal})),
    "dropout": ("native", "", lambda: (single(7, 11), {"dropout": 0.5})),
    "ALiBi": ("native", "", lambda: (single(7, 11), {"bias": ALiBi(3)})),
    "widths": ("native", "", lambda: ([*single(7, 11)[:2], noise(2, 3, 11, 13).float()], {})),
    "short, float64": (
        "plain",
        "native cannot: it has float32 and bfloat16, and q is torch.float64",
        lambda: (inputs(67, 61), {}),
    ),
    "long, float64": (
        "fused",
        "plain cannot: so many scores are faster in blocks",
        lambda: (inputs(601, 601), {"mask": causal}),
    ),
    "window, float64": (
        "blocked",
        "fused cannot: the mask window(3) would have to be written out",
        lambda: (inputs(601, 601), {"mask": window(3)}),
    ),
    "score": (
        "plain",
        "native cannot: the score does not reduce to a dot product",
        lambda: (single(7, 11), {"score": lambda q, k: -torch.cdist(q, k)}),
    ),
    "wide": ("plain", "native cannot: heads are wider", lambda: (single(7, 11, d=300), {})),
    "nothing": ("blocked", "there is nothing to compute", lambda: (single(0, 11), {})),
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


# Parity with torch


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


# The one-line swap


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


# torch's transformations


COMPILED = """
import torch
from regard import attend, causal
from regard.attention import which

x = [torch.randn(1, 2, 300, 16) for _ in "qkv"]
upstream = torch.randn(1, 2, 300, 16)
for mask in (None, causal):
    assert which(*x, mask=mask) == "native"
    eager = lambda q, k, v: attend(q, k, v, mask=mask)
    compiled = torch.compile(eager, fullgraph=True, backend="aot_eager")
    results = []
    for function in (compiled, eager):
        tracked = [y.clone().requires_grad_() for y in x]
        output = function(*tracked)
        results.append([output.detach(), *torch.autograd.grad(output, tracked, upstream)])
    print([torch.equal(one, other) for one, other in zip(*results, strict=True)])
"""


def test_compile() -> None:
    """In one graph, forwards and backwards, bit for bit.

    In a process of its own: dynamo cannot trace the type checks of the test run. The backend is
    aot_eager, for inductor passes this test as well but needs 40 s to start.
    """
    assert ran(COMPILED) == "[True, True, True, True]\n" * 2


def ran(code: str) -> str:
    """What the program prints."""
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


TRANSFORMED = {"fused": (1, 2, 300), "short": (3, 2, 17)}
transformed = pytest.mark.parametrize(("b", "h", "n"), TRANSFORMED.values(), ids=TRANSFORMED.keys())


@transformed
@pytest.mark.parametrize("axes", [(0, 0, 0), (None, 0, 0), (0, None, None), (0, None, 0)], ids=str)
@pytest.mark.parametrize("mask", [None, causal, window(4)], ids=["none", "causal", "window"])
def test_vmap(b: int, h: int, n: int, axes: tuple[int | None, ...], mask: Mask | None) -> None:
    x = [noise(*(() if axis is None else (5,)), b, h, n, 7, seed=i) for i, axis in enumerate(axes)]
    mapped = vmap(lambda *y: attend(*y, mask=mask), in_dims=axes)(*x)
    each = torch.stack(
        [
            attend(
                *(y if axis is None else y[i] for y, axis in zip(x, axes, strict=True)),
                mask=mask,
                kernel="reference",
            )
            for i in range(5)
        ]
    )
    torch.testing.assert_close(mapped, each, **DOUBLE)


@transformed
@pytest.mark.parametrize("argument", [0, 1, 2], ids=["q", "k", "v"])
@pytest.mark.parametrize("mask", [None, causal, window(4)], ids=["none", "causal", "window"])
def test_grad(b: int, h: int, n: int, argument: int, mask: Mask | None) -> None:
    x = inputs(n, n, b=b, h=h)
    tracked = [y.clone().requires_grad_() for y in x]
    wanted = torch.autograd.grad(
        attend(*tracked, mask=mask, kernel="reference").square().sum(), tracked
    )
    got = grad(lambda *y: attend(*y, mask=mask).square().sum(), argnums=argument)(*x)
    torch.testing.assert_close(got, wanted[argument], **DOUBLE)


@transformed
@pytest.mark.parametrize("mask", [None, causal], ids=["none", "causal"])
def test_vmap_of_grad(b: int, h: int, n: int, mask: Mask | None) -> None:
    """Gradients per example, which plain autograd has no way to give at once."""
    x = [noise(5, b, h, n, 7, seed=i) for i in range(3)]
    tracked = [y.clone().requires_grad_() for y in x]
    wanted = torch.autograd.grad(
        attend(*tracked, mask=mask, kernel="reference").square().sum(), tracked
    )
    got = vmap(grad(lambda *y: attend(*y, mask=mask).square().sum(), argnums=(0, 1, 2)))(*x)
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, **DOUBLE)


@every
@pytest.mark.parametrize("tracked", [False, True], ids=["", "tracked"])
def test_autocast(regime: str, tracked: bool) -> None:
    """Inputs are rounded to bfloat16, and the rest is as for bfloat16 inputs."""
    x = [y.requires_grad_(tracked) for y in inputs(67, 67, dtype=torch.float32)]
    with ready(regime) as kernel:
        with torch.autocast("cpu", torch.bfloat16):
            seen = look(*(3 * y for y in x), mask=causal, kernel=kernel)
            attended = attend(*(3 * y for y in x), mask=causal, kernel=kernel)
            weights, best, entropy = seen.weights(), seen.top(3)[0], seen.entropy()
        wanted = look(*((3 * y).bfloat16() for y in x), mask=causal, kernel=kernel)
    assert attended.dtype == torch.bfloat16
    assert torch.equal(attended, seen.output)
    assert torch.equal(attended, wanted.output)
    assert torch.equal(seen.logsumexp, wanted.logsumexp)
    assert torch.equal(weights, wanted.weights())
    assert torch.equal(best, wanted.top(3)[0])
    assert torch.equal(entropy, wanted.entropy())


@pytest.mark.parametrize("regime", ["blocked", "many blocks", "fused"])
def test_autocast_gradients(regime: str) -> None:
    x = inputs(67, 67, dtype=torch.float32)
    upstream = noise(2, 3, 67, 5, seed=9, dtype=torch.bfloat16)
    with ready(regime) as kernel:
        rounded = [y.bfloat16().requires_grad_() for y in x]
        wanted = torch.autograd.grad(attend(*rounded, kernel=kernel), rounded, upstream)
        tracked = [y.requires_grad_() for y in x]
        with torch.autocast("cpu", torch.bfloat16):
            output = attend(*tracked, kernel=kernel)
        got = torch.autograd.grad(output, tracked, upstream)
    for ours, theirs in zip(got, wanted, strict=True):
        assert ours.dtype == torch.float32
        assert torch.equal(ours, theirs.float())


# What importing costs


def test_importing_regard_loads_no_optional_dependency() -> None:
    optional = [
        "ctranslate2",
        "gensim",
        "sacrebleu",
        "starlette",
        "tensorboard",
        "transformers",
        "uvicorn",
    ]
    assert ran(f"import regard, sys; print([x for x in {optional} if x in sys.modules])") == "[]\n"


@pytest.mark.parametrize("n", [5, 20, 60, 300])
def test_tensors_without_numbers_have_shapes(n: int) -> None:
    x = torch.empty(2, 2, n, 16, device="meta")
    with torch.no_grad():
        assert attend(x, x, x, mask=causal).shape == x.shape


class Zeros(TorchDispatchMode):
    """Puts zeros in the place of whatever an operation makes."""

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: object = None,
    ) -> object:
        made = func(*args, **(kwargs or {}))
        return torch.zeros_like(made) if isinstance(made, Tensor) and made.dim() else made


@pytest.mark.parametrize("mask", [None, causal, window(7)], ids=["all", "causal", "window"])
@pytest.mark.parametrize("n", [5, 20, 100, 300])
@pytest.mark.parametrize("given", ["fake", "real", "zeros"])
def test_nothing_is_kept_that_only_stands_for_numbers(
    given: str, n: int, mask: Mask | None
) -> None:
    """Whatever attends first, in memory that a thread keeps: what comes after has its own."""
    x = torch.randn(2, 3, n, 24)

    def attends(y: Tensor) -> Tensor:
        return attend(y, y, y, mask=mask)

    def twice() -> Tensor:
        if given == "zeros":
            with Zeros():
                attends(x)
        else:
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                shape = attends(mode.from_tensor(x) if given == "fake" else x)
                assert type(shape) is FakeTensor
                assert shape.shape == x.shape
        return attends(x)

    with ThreadPoolExecutor(1) as anew:  # a thread that has kept nothing yet
        found = anew.submit(twice).result()
    assert type(found) is Tensor
    exact = attend(*(x.double() for _ in range(3)), mask=mask, kernel="reference")
    torch.testing.assert_close(found.double(), exact, atol=1e-5, rtol=0)
