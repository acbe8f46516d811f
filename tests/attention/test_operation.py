"""Properties of attention on every kernel, and looking that changes no bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import (
    ALiBi,
    attend,
    causal,
    keys,
    look,
    padding,
    prefix,
    segments,
    window,
)
from regard.attention.masks import Mask
from tests.attention.kernel_cases import (
    DOUBLE,
    DTYPES,
    REGIMES,
    every,
    float32_inputs,
    float32_noise,
    inputs,
    noise,
    ready,
)

quick = settings(max_examples=20, deadline=None)
seeds = st.integers(0, 2**31 - 1)
lengths = st.integers(1, 40)


def expressible(regime: str, mask: Mask | Tensor | None, q: int, k: int) -> bool:
    """Whether the regime can do this mask: the flash operation knows causal only for q = k."""
    if regime != "fused":
        return True
    if isinstance(mask, Mask) and not mask.keys_only:
        return mask == causal and (q == k or q == 1)
    return True


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
    before = float32_inputs(n, n, seed=seed)
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
    query, key, value = float32_inputs(q, k, g=1)
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
    query, key, value = float32_inputs(7, 31, g=1)
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
    x = [y.requires_grad_() for y in float32_inputs(41, 41, h=6, g=2)]
    upstream = float32_noise(2, 6, 41, 5, seed=9)
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
    x = [y.requires_grad_(tracked) for y in float32_inputs(q, k, b=b, h=h)]
    for mask in (None, causal, window(9)):
        assert torch.equal(look(*x, mask=mask).output, attend(*x, mask=mask))
