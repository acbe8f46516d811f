"""The native attention operator: as exact as plain float32, whatever the layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import ALiBi, attend, causal, look, native, padding, prefix, window
from regard.attention import RelativeBias, Scaled, Softcap, which
from regard.attention.masks import Mask
from tests.native.drawn import drawn, error

pytestmark = pytest.mark.skipif(not native.loaded(), reason="there are no native operators")


def rms(found: Tensor, wanted: Tensor) -> float:
    return float((found.double() - wanted).square().mean().sqrt())


def with_gradients(
    run: Callable[..., Tensor], tensors: list[Tensor], above: Tensor
) -> list[Tensor]:
    """The output, and the gradients of all tensors."""
    leaves = [x.detach().clone().requires_grad_() for x in tensors]
    output = run(*leaves)
    return [output.detach(), *torch.autograd.grad(output, leaves, above.to(output.dtype))]


LENGTHS = [1, 2, 4, 8, 9, 12, 13, 16, 17, 31, 32, 33, 48, 97, 255, 256, 257, 300]
"""Around the edges of vectors, tiles and blocks."""


def masks(kind: str, b: int, h: int, n: int, m: int, seed: int) -> Mask | Tensor | None:
    lengths = (drawn(b, seed=seed).abs() * m).long().clamp(0, m)
    return {
        "none": None,
        "causal": causal,
        "window": window(before=5, after=2),
        "padding": padding(lengths),
        "causal, padded": causal & padding(lengths),
        "prefix": causal | prefix(3),
        "not": ~window(3),
        "shared": drawn(b, 1, n, m, seed=seed) > 0,
        "own": drawn(b, h, n, m, seed=seed) > 0,
        "keys": drawn(b, 1, 1, m, seed=seed) > 0,
    }[kind]


@settings(max_examples=60, deadline=None)
@given(
    b=st.integers(1, 3), g=st.sampled_from([1, 2]), shared=st.sampled_from([1, 3]),
    n=st.sampled_from(LENGTHS), m=st.sampled_from(LENGTHS),
    d=st.sampled_from([1, 7, 16, 24, 32, 64, 80]), e=st.sampled_from([1, 5, 16, 40, 64]),
    kind=st.sampled_from(["none", "causal", "window", "padding", "causal, padded", "prefix", "not",
                          "shared", "own", "keys"]),
    term=st.sampled_from(["", "", "bias", "alibi", "relative", "softcap", "turned"]),
    threads=st.sampled_from([1, 2]), seed=st.integers(0, 10**6),
)  # fmt: skip
def test_output_and_gradients(
    b: int, g: int, shared: int, n: int, m: int, d: int, e: int, kind: str, term: str,
    threads: int, seed: int,
) -> None:  # fmt: skip
    h = g * shared
    given = [drawn(b, n, h, d, seed=seed).transpose(1, 2), drawn(b, g, m, d, seed=seed + 1),
             drawn(b, g, m, e, seed=seed + 2)]  # fmt: skip
    options: dict[str, Any] = {"mask": masks(kind, b, h, n, m, seed + 3)}
    torch.manual_seed(seed)
    if term == "bias":
        given.append(drawn(h, n, m, seed=seed + 5))
    elif term in ("alibi", "relative"):
        options["bias"] = ALiBi(h) if term == "alibi" else RelativeBias(h)
    elif term:
        options["score"] = Softcap(0.8) if term == "softcap" else Scaled(-0.3)

    def run(kernel: str) -> Callable[..., Tensor]:
        def attended(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
            more = options if bias is None else {**options, "bias": bias}
            return attend(q, k, v, kernel=kernel, **more)

        return attended

    above = drawn(b, h, n, e, seed=seed + 4)
    exact = with_gradients(run("reference"), [x.double() for x in given], above)
    plainly = with_gradients(run("plain"), given, above)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        found = with_gradients(run("native"), given, above)
        seen = look(*given[:3], kernel="native", **options) if term != "bias" else None
    finally:
        torch.set_num_threads(before)
    # In small tensors both errors are chance: a rounding of the products that are added is granted,
    # in the gradients of keys and values those of all queries.
    added = (d + e, d + e, d + e + shared * n, d + e + shared * n, d + e)
    for have, plain, want, products in zip(found, plainly, exact, added[: len(found)], strict=True):
        assert rms(have, want) <= 2 * rms(plain, want) + 2**-24 * products**0.5
    if seen is not None:
        assert torch.equal(seen.output, found[0])
        true = look(*(x.double() for x in given[:3]), kernel="reference", **options)
        torch.testing.assert_close(seen.logsumexp.double(), true.logsumexp, atol=2e-5, rtol=1e-5)


def test_of_relative_biases_the_tables_learn() -> None:
    bias = RelativeBias(4)
    x, above = [drawn(2, 4, 40, 16, seed=i) for i in range(3)], drawn(2, 4, 40, 16, seed=9)
    grads = []
    for kernel in ("native", "reference"):
        output = attend(*x, bias=bias, mask=causal, kernel=kernel)
        grads.append(torch.autograd.grad(output, bias.table, above)[0])
    torch.testing.assert_close(*grads, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("n", [5, 20, 300])
def test_in_bfloat16_sums_are_float32(n: int) -> None:
    narrow = [drawn(2, 2, n, 48, seed=i).bfloat16().requires_grad_() for i in range(3)]
    wide = [x.detach().float().requires_grad_() for x in narrow]
    output, wanted = attend(*narrow, mask=causal), attend(*wide, mask=causal, kernel="native")
    assert which(*narrow, mask=causal) == "native"
    assert output.dtype == torch.bfloat16
    assert error(output, wanted.detach().bfloat16().double()) <= 2**-7 * float(
        wanted.detach().abs().max()
    )
    above = drawn(2, 2, n, 48, seed=9).bfloat16()
    ours = torch.autograd.grad(output, narrow, above)
    theirs = torch.autograd.grad(wanted, wide, above.float())
    for one, other in zip(ours, theirs, strict=True):
        assert rms(one, other.double()) <= 2**-8 * float(other.abs().max())


@pytest.mark.parametrize("n", [5, 20, 300])
@pytest.mark.parametrize("mask", [None, causal, window(4)], ids=["all", "causal", "window"])
def test_batch_entries_do_not_depend_on_each_other(n: int, mask: Mask | None) -> None:
    q, k, v = (drawn(5, 2, n, 32, seed=i) for i in range(3))
    whole = attend(q, k, v, mask=mask, kernel="native")
    for i in range(5):
        one = attend(*(x[i : i + 1] for x in (q, k, v)), mask=mask, kernel="native")
        assert torch.equal(one[0], whole[i])
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        assert torch.equal(attend(q, k, v, mask=mask, kernel="native"), whole)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("n", [2, 20])
@pytest.mark.parametrize("place", [0, 3, 19])
def test_nan_and_infinity_are_what_they_are(place: int, n: int) -> None:
    q, k, v = drawn(1, 1, n, 16), drawn(1, 1, 20, 16, seed=1), drawn(1, 1, 20, 16, seed=2)
    broken_k, broken_v = k.clone(), v.clone()
    broken_k[0, 0, place], broken_v[0, 0, place] = torch.nan, torch.inf
    assert attend(q, broken_k, v, kernel="native").isnan().all()
    assert not attend(q, k, broken_v, kernel="native").isfinite().any()
    k[0, 0, 1] = torch.inf
    seen = look(torch.ones(1, 1, n, 16), k, v, kernel="native")
    assert (seen.logsumexp == torch.inf).all()
    assert seen.output.isnan().all()


def test_keys_that_no_query_sees_are_not_read() -> None:
    """A window of 8 in a long text: NaN far away changes nothing."""
    q, k, v = (drawn(1, 1, 2000, 16, seed=i) for i in range(3))
    wanted = attend(q[:, :, :500], k[:, :, :500], v[:, :, :500], mask=causal & window(8))
    for x in (q, k, v):
        x[:, :, 1000:] = torch.nan
    found = attend(q, k, v, mask=causal & window(8))
    assert torch.equal(found[:, :, :500], wanted)
    assert found[:, :, 1000:].isnan().all()


@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0])
@pytest.mark.parametrize("n", [20, 300])
def test_gradients_however_large_the_scores(scale: float, n: int) -> None:
    given = [drawn(2, 3, n, 16, seed=i, scale=scale if i == 0 else 1.0) for i in range(3)]
    above = drawn(2, 3, n, 16, seed=9)
    exact, plainly, found = (
        with_gradients(lambda *x: attend(*x, kernel=kernel), x, above)  # noqa: B023
        for kernel, x in (
            ("reference", [x.double() for x in given]), ("plain", given), ("native", given),
        )
    )  # fmt: skip
    for have, plain, want in zip(found, plainly, exact, strict=True):
        assert rms(have, want) <= 2 * rms(plain, want)


def test_strange_layouts() -> None:
    q = drawn(3, 16, 9, 2).permute(0, 3, 2, 1)
    k = drawn(1, 1, 9, 16, seed=1).expand(3, 2, 9, 16)
    v = drawn(3, 2, 18, 16, seed=2)[:, :, ::2].flip(-1)
    mask = (drawn(1, 1, 9, 9, seed=3) > 0).mT.expand(3, 2, 9, 9)
    wanted = attend(*(x.contiguous() for x in (q, k, v)), mask=mask.contiguous(), kernel="plain")
    torch.testing.assert_close(attend(q, k, v, mask=mask, kernel="native"), wanted)
    any_bytes = torch.tensor([0, 255] * 8 + [1], dtype=torch.uint8).view(torch.bool)[None]
    for n in (1, 20):
        x, y = drawn(1, 1, n, 16), drawn(1, 1, 17, 16)
        wanted = attend(x, y, y, mask=any_bytes.clone() & torch.ones(1, 17, dtype=torch.bool))
        assert torch.equal(attend(x, y, y, mask=any_bytes), wanted)


def test_more_elements_than_32_bits_count() -> None:
    """Strides beyond 2³¹: batch entries of a tensor whose rest is never written to."""
    far = torch.empty(2, 1, 2**27, 16)  # reserved, not filled
    x = far[:, :, -6:].normal_(generator=torch.Generator().manual_seed(0))
    near = x.clone()
    assert torch.equal(attend(x, x, x, kernel="native"), attend(near, near, near, kernel="native"))


def test_dropout_is_the_mean_and_its_gradient_that_of_what_was_kept() -> None:
    q, k, v = (drawn(1, 2, 40, 16, seed=i) for i in range(3))
    outputs = []
    for seed in range(400):
        torch.manual_seed(seed)
        outputs.append(attend(q, k, v, dropout=0.3, kernel="native"))
    torch.testing.assert_close(torch.stack(outputs).mean(0), attend(q, k, v), atol=0.08, rtol=0)
    torch.manual_seed(0)
    assert torch.equal(attend(q, k, v, dropout=0.3, kernel="native"), outputs[0])

    def run(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return attend(q, k, x, dropout=0.3, kernel="native")

    for where, x in (("v", v), ("q", q)):
        along, eps = drawn(1, 2, 40, 16, seed=8), 1e-2
        leaf = x.clone().requires_grad_()

        def again(y: Tensor, where: str = where) -> Tensor:
            torch.manual_seed(3)
            given = (q, k, y) if where == "v" else (y, k, v)
            return attend(*given, dropout=0.3, kernel="native")

        (slope,) = torch.autograd.grad(again(leaf).sum(), leaf)
        ends = [again(x + sign * eps * along).double().sum() for sign in (1, -1)]
        measured = float(ends[0] - ends[1]) / (2 * eps)
        assert abs(measured - float((slope * along).double().sum())) < 0.02


@pytest.mark.parametrize("n", [3, 20, 300])
def test_statistics(n: int) -> None:
    q, k = drawn(2, 4, n, 32, scale=2.0), drawn(2, 2, n, 32, seed=1)
    lengths = torch.tensor([n, max(n - 9, 0)])
    seen = look(q, k, k, mask=causal & padding(lengths), kernel="native")
    true = look(q.double(), k.double(), k.double(), mask=causal & padding(lengths))
    count = min(n, 7)
    torch.testing.assert_close(seen.entropy().double(), true.entropy(), atol=1e-5, rtol=1e-5)
    values, keys = seen.top(count)
    wanted, places = true.top(count)
    torch.testing.assert_close(values.double(), wanted, atol=1e-6, rtol=1e-5)
    same = (keys == places) | (wanted < 1e-6)
    assert same.float().mean() > 0.99
    torch.testing.assert_close(seen.received().double(), true.received(), atol=1e-4, rtol=1e-5)
