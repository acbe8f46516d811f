"""Each compiled loop beside the same in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from regard import attend, compiled, look
from regard.attention import causal, dense, padding
from regard.attention._few_queries import possible
from regard.attention._prepare import prepare
from regard.attention.operation import which
from regard.compiled.building import library
from regard.nn import Dropout, FeedForward, MultiHeadAttention
from regard.nn._norm import LayerNorm

pytestmark = pytest.mark.skipif(library() is None, reason="nothing is compiled here")


def drawn(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def error(found: Tensor, wanted: Tensor) -> float:
    return float((found.double() - wanted).abs().max())


# ── attention ─────────────────────────────────────────────────────────────────────────────────


def plain(q: Tensor, k: Tensor, v: Tensor, factor: float, mask: Tensor | None) -> Tensor:
    """The textbook, in the dtype that it is given; what sees nothing is 0."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * factor
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return torch.softmax(scores, -1).nan_to_num(0.0) @ v


@settings(max_examples=80, deadline=None)
@given(
    b=st.integers(1, 3), g=st.sampled_from([1, 2]), shared=st.sampled_from([1, 3]),
    n=st.integers(1, 16), m=st.sampled_from([1, 2, 15, 16, 17, 31, 33, 100]),
    d=st.sampled_from([16, 32, 48, 64]), e=st.sampled_from([16, 32, 48, 80]),
    kind=st.sampled_from(["none", "shared", "own", "wide"]), scale=st.sampled_from([0.1, 1.0, 6.0]),
    seed=st.integers(0, 10**6),
)  # fmt: skip
def test_attention_of_few_queries(
    b: int, g: int, shared: int, n: int, m: int, d: int, e: int, kind: str, scale: float, seed: int
) -> None:
    h = g * shared
    q = drawn(b, n, h, d, seed=seed, scale=scale).transpose(1, 2)
    k, v = drawn(b, g, m + 3, d, seed=seed + 1)[:, :, :m], drawn(b, g, m, e, seed=seed + 2)
    shapes = {"shared": (b, 1, n, m), "own": (b, h, n, m), "wide": (1, 1, 1, m)}
    mask = drawn(*shapes[kind], seed=seed + 3) > 0 if kind in shapes else None
    output, sums = compiled.attend_few(q, k, v, d**-0.5, mask, logsumexp=True)
    again, nothing = compiled.attend_few(q, k, v, d**-0.5, mask, logsumexp=False)
    assert torch.equal(output, again)
    assert nothing is None
    wanted = plain(q.double(), k.double(), v.double(), d**-0.5, mask)
    bar = 2 * error(plain(q, k, v, d**-0.5, mask), wanted)
    assert error(output, wanted) <= bar + 1e-6 * scale
    assert sums is not None
    keys = k.double().repeat_interleave(shared, 1)
    scores = q.double() @ keys.mT * d**-0.5
    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    torch.testing.assert_close(sums.double(), scores.logsumexp(-1), atol=1e-5 * scale, rtol=1e-6)


def test_rows_do_not_depend_on_each_other() -> None:
    q, k, v = drawn(3, 2, 5, 32), drawn(3, 2, 21, 32, seed=1), drawn(3, 2, 21, 32, seed=2)
    whole = attend(q, k, v)
    for i in range(3):
        for j in range(5):
            one = attend(q[i : i + 1, :, j : j + 1], k[i : i + 1], v[i : i + 1])
            assert torch.equal(one[0, :, 0], whole[i, :, j])


@pytest.mark.parametrize("place", [0, 3, 19])
def test_nan_and_infinity_are_what_they_are(place: int) -> None:
    q, k, v = drawn(1, 1, 2, 16), drawn(1, 1, 20, 16, seed=1), drawn(1, 1, 20, 16, seed=2)
    hidden = torch.ones(1, 20, dtype=torch.bool)
    hidden[0, place] = False
    wanted = attend(q, k, v, mask=dense(hidden))
    for bad in (torch.nan, torch.inf):
        broken_k, broken_v = k.clone(), v.clone()
        broken_k[0, 0, place], broken_v[0, 0, place] = torch.nan, bad
        assert attend(q, broken_k, v).isnan().all()
        assert not attend(q, k, broken_v).isfinite().any()
        assert torch.equal(attend(q, broken_k, broken_v, mask=dense(hidden)), wanted)


def test_an_infinite_score_has_an_infinite_sum() -> None:
    q, k, v = torch.ones(1, 1, 20, 16), drawn(1, 1, 3, 16), drawn(1, 1, 3, 16)
    k[0, 0, 1] = torch.inf
    for kernel in ("auto", "reference"):
        for n in (2, 20):
            seen = look(q[:, :, :n], k, v, kernel=kernel)
            assert (seen.logsumexp == torch.inf).all()
            assert seen.output.isnan().all()


def test_a_mask_may_be_any_bytes() -> None:
    k = drawn(1, 1, 100, 16)
    mask = torch.tensor([0, 255] * 50, dtype=torch.uint8).view(torch.bool)[None]
    for n in (1, 20):
        q = drawn(1, 1, n, 16, seed=1)
        wanted = attend(q, k, k, mask=torch.tensor([False, True] * 50)[None])
        assert torch.equal(attend(q, k, k, mask=mask), wanted)


def test_masks_are_transformed() -> None:
    masks = drawn(3, 2, 7) > 0
    for n in (2, 20):
        q, k = drawn(1, 1, n, 16), drawn(1, 1, 7, 16, seed=1)
        rows = masks[:, :1].expand(3, n, 7) if n > 2 else masks
        found = torch.func.vmap(lambda mask, q=q, k=k: attend(q, k, k, mask=mask))(rows)
        for one, mask in zip(found, rows, strict=True):
            torch.testing.assert_close(one, attend(q, k, k, mask=mask))


def test_what_sees_nothing_is_zero() -> None:
    q, k, v = drawn(2, 2, 3, 16), drawn(2, 2, 5, 16, seed=1), drawn(2, 2, 5, 16, seed=2)
    seen = look(q, k, v, mask=padding(torch.tensor([0, 5])))
    assert torch.equal(seen.output[0], torch.zeros(2, 3, 16))
    assert (seen.logsumexp[0] == -torch.inf).all()
    assert seen.logsumexp[1].isfinite().all()
    assert torch.equal(seen.output, attend(q, k, v, mask=padding(torch.tensor([0, 5]))))


def test_attend_takes_this_way_for_few_queries_only() -> None:
    k = drawn(2, 2, 40, 16)
    for q, may in ((drawn(2, 2, 16, 16), True), (drawn(2, 2, 17, 16), False)):
        assert possible(prepare("attend", q, k, k, causal, None, "scaled_dot", 0.0)) is may


# ── short texts, and the gradient ─────────────────────────────────────────────────────────────


def with_gradients(
    run: Callable[..., Tensor], tensors: list[Tensor], above: Tensor
) -> list[Tensor]:
    """The output, and the gradients of all tensors."""
    leaves = [x.detach().clone().requires_grad_() for x in tensors]
    output = run(*leaves)
    return [output.detach(), *torch.autograd.grad(output, leaves, above.to(output.dtype))]


@settings(max_examples=60, deadline=None)
@given(
    b=st.integers(1, 3), g=st.sampled_from([1, 2]), shared=st.sampled_from([1, 3]),
    n=st.sampled_from([17, 23, 31, 32, 33, 48]), m=st.sampled_from([1, 2, 15, 16, 17, 33, 48]),
    d=st.sampled_from([16, 32, 48]), e=st.sampled_from([16, 32, 80]),
    kind=st.sampled_from(["none", "shared", "own", "wide"]), threads=st.sampled_from([1, 2]),
    seed=st.integers(0, 10**6),
)  # fmt: skip
def test_attention_of_short_texts_and_its_gradient(
    b: int, g: int, shared: int, n: int, m: int, d: int, e: int, kind: str, threads: int, seed: int
) -> None:
    h = g * shared
    shapes = {"shared": (b, 1, n, m), "own": (b, h, n, m), "wide": (1, 1, 1, m)}
    mask = drawn(*shapes[kind], seed=seed + 3) > 0 if kind in shapes else None
    given = [drawn(b, h, n, d, seed=seed), drawn(b, g, m, d, seed=seed + 1),
             drawn(b, g, m, e, seed=seed + 2)]  # fmt: skip
    above = drawn(b, n, h, e, seed=seed + 4).transpose(1, 2)
    exact = [x.double() for x in given]
    wanted = with_gradients(lambda *x: attend(*x, mask=mask, kernel="reference"), exact, above)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        found = with_gradients(lambda *x: attend(*x, mask=mask, kernel="blocked"), given, above)
        seen = look(*(x.requires_grad_() for x in given), mask=mask, kernel="blocked")
    finally:
        torch.set_num_threads(before)
    assert torch.equal(seen.output, found[0])
    apart = [x.detach().transpose(1, 2).contiguous().transpose(1, 2) for x in given]
    assert torch.equal(compiled.attend_short(*apart, d**-0.5, mask)[0], found[0])
    for one, other in zip(found, wanted, strict=True):
        # Sums over n rows of products of e numbers, which may cancel out.
        assert error(one, other) <= 3e-7 * (float(other.abs().max()) + (e * n) ** 0.5)
    torch.testing.assert_close(
        seen.weights().double().sum(-1), (seen.logsumexp > -torch.inf).double(), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0])
def test_gradients_however_large_the_scores(scale: float) -> None:
    given = [drawn(4, 3, 20, 16, seed=i, scale=scale if i == 0 else 1.0) for i in range(3)]
    above = drawn(4, 3, 20, 16, seed=9)

    def textbook(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return plain(q, k, v, 0.25, None)

    exact = with_gradients(textbook, [x.double() for x in given], above)
    simple = with_gradients(textbook, given, above)
    found = with_gradients(lambda *x: attend(*x, kernel="blocked"), given, above)
    for have, plainly, want in zip(found, simple, exact, strict=True):
        wrong, bar = (float((x - want).square().mean().sqrt()) for x in (have, plainly))
        assert wrong <= 2 * bar


def test_short_texts_take_this_way() -> None:
    for n, name in ((48, "_AttentionBackward"), (49, "")):
        x = drawn(4, 2, n, 16).requires_grad_()
        assert type(attend(x, x, x).grad_fn).__name__.startswith(name)
        assert which(x, x, x).endswith("compiled code") is (n == 48)


@pytest.mark.parametrize("tracked", [False, True], ids=["", "tracked"])
def test_short_texts_in_bfloat16_are_computed_in_float32(tracked: bool) -> None:
    narrow = [drawn(16, 20, 2, 16, seed=i).bfloat16().transpose(1, 2) for i in range(3)]
    wide = [x.float().requires_grad_(tracked) for x in narrow]
    narrow = [x.requires_grad_(tracked) for x in narrow]
    assert which(*narrow).endswith("compiled code")
    found, wanted = look(*narrow), look(*wide)
    assert found.output.dtype == torch.bfloat16
    assert torch.equal(attend(*narrow), found.output)
    assert torch.equal(found.output, wanted.output.bfloat16())
    assert torch.equal(found.logsumexp, wanted.logsumexp)
    with torch.autocast("cpu", torch.bfloat16):
        assert which(*wide).endswith("compiled code")
        assert torch.equal(attend(*wide), found.output)
    if tracked:
        above = drawn(16, 20, 2, 16, seed=9).transpose(1, 2).bfloat16()
        ours = torch.autograd.grad(attend(*narrow), narrow, above)
        theirs = torch.autograd.grad(attend(*wide), wide, above.float())
        for one, other in zip(ours, theirs, strict=True):
            assert torch.equal(one, other.bfloat16())


def test_texts_do_not_depend_on_each_other() -> None:
    q, k, v = drawn(3, 2, 21, 32), drawn(3, 2, 21, 32, seed=1), drawn(3, 2, 21, 32, seed=2)
    mask = torch.ones(21, 21, dtype=torch.bool).tril()
    whole, _ = compiled.attend_short(q, k, v, 0.1, mask)
    for i in range(3):
        one, _ = compiled.attend_short(q[i : i + 1], k[i : i + 1], v[i : i + 1], 0.1, mask)
        assert torch.equal(one[0], whole[i])


@pytest.mark.parametrize("masked", [False, True])
def test_gradients_that_only_stand_for_numbers(masked: bool) -> None:
    """Batches of gradients, as `jacobian(vectorize=True)` has them, beside one at a time."""
    q, k, v = (drawn(2, h, 18, 16, seed=h).requires_grad_() for h in (4, 2, 2))
    mask = drawn(2, 1, 18, 18, seed=5) > 0 if masked else None
    if mask is not None:
        mask[:, :, 3] = False
    output = attend(q, k, v, mask=mask, kernel="blocked")
    above = drawn(3, *output.shape, seed=7)
    batched = torch.autograd.grad(
        output, (q, k, v), above, is_grads_batched=True, retain_graph=True
    )
    for i in range(3):
        single = torch.autograd.grad(output, (q, k, v), above[i], retain_graph=True)
        for one, other in zip(single, batched, strict=True):
            torch.testing.assert_close(other[i], one, atol=1e-5, rtol=1e-5)


# ── dropout ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [1, 15, 16, 17, 100_003])
def test_the_same_seed_drops_the_same_places(count: int) -> None:
    x, onto = drawn(count) + 10, drawn(count, seed=1)
    once = compiled.drop(x, None, 5, 3, 8)
    assert torch.equal(compiled.drop(x, None, 5, 3, 8), once)
    assert torch.equal(compiled.drop(x, onto, 5, 3, 8), onto + once)
    assert torch.equal(once, torch.where(once == 0, 0.0, x * (8 / 5)))
    if count > 1000:
        assert not torch.equal(compiled.drop(x, None, 6, 3, 8), once)
        assert not torch.equal(compiled.drop(x, None, 5 + 2**40, 3, 8), once)


def test_what_is_dropped_looks_like_chance() -> None:
    """Shares, and how often two are dropped together: at some distances, and by two seeds."""
    count = 2**20
    near = 6 * (0.3 * 0.7 / count) ** 0.5  # six deviations
    share, of = round(0.3 * 2**15), 2**15
    drops = [compiled.drop(torch.ones(count), None, seed, share, of) == 0 for seed in (1, 2, 2**50)]
    for dropped in drops:
        assert abs(dropped.float().mean().item() - share / of) < near
        for lag in (1, 2, 15, 16, 17, 128, 4096):
            both = (dropped[lag:] & dropped[:-lag]).float().mean().item()
            assert abs(both - (share / of) ** 2) < near
        for column in dropped.view(-1, 128).float().mean(0).tolist():
            assert abs(column - share / of) < near * 128**0.5
    for one, other in ((0, 1), (0, 2), (1, 2)):
        both = (drops[one] & drops[other]).float().mean().item()
        assert abs(both - (share / of) ** 2) < near


# ── what can be read ──────────────────────────────────────────────────────────────────────────


def test_a_batch_of_gradients_is_dropped_in_the_same_places() -> None:
    x = drawn(6, 50).requires_grad_()
    y = Dropout(0.5)(x)
    above = drawn(3, 6, 50, seed=1)
    (batched,) = torch.autograd.grad(y, x, above, is_grads_batched=True, retain_graph=True)
    for i in range(3):
        (single,) = torch.autograd.grad(y, x, above[i], retain_graph=True)
        assert torch.equal(batched[i], single)


def test_only_plain_numbers_are_read() -> None:
    x = drawn(3, 16)
    assert compiled.readable(x)
    assert not compiled.readable(x.bfloat16())
    assert compiled.readable(x.bfloat16(), dtypes=(torch.bfloat16,))  # whoever asks converts it
    assert compiled.usable(1, x, None, torch.nn.Parameter(x, requires_grad=False))
    assert not compiled.usable(1, x.double())
    assert not compiled.usable(1, x.to("meta"))
    assert not compiled.usable(1, torch.nn.Parameter(x))
    with torch.no_grad():
        assert compiled.usable(1, torch.nn.Parameter(x))
    assert not compiled.usable(1, torch.complex(x, x).conj().imag)
    with torch.autocast("cpu"):
        assert not compiled.usable(1, x)
    with torch.autograd.forward_ad.dual_level():
        assert not compiled.usable(1, x)
    told: list[bool] = []
    torch.func.vmap(lambda row: told.append(compiled.usable(1, row)) or row)(x)
    with pytest.warns(DeprecationWarning, match="trace"):
        torch.jit.trace(
            lambda row: told.append(compiled.usable(1, row)) or row + 1, x, check_trace=False
        )
    assert told == [False, False]


def test_whoever_writes_down_operations_sees_them() -> None:
    layer, x = FeedForward(16, 32), drawn(3, 16)
    with torch.no_grad():
        graph = make_fx(layer)(x)
        torch.testing.assert_close(graph(2 * x), layer(2 * x))
        with FakeTensorMode(allow_non_fake_inputs=True):
            assert layer(x).shape == (3, 16)
        assert torch.equal(layer(torch._efficientzerotensor(3, 16)), layer(torch.zeros(3, 16)))


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
            assert compiled.usable(2**30, drawn(2, 2)) is may
            assert compiled.usable(100, drawn(2, 2))
    finally:
        torch.set_num_threads(threads)


# ── products and norms ────────────────────────────────────────────────────────────────────────


@settings(max_examples=60, deadline=None)
@given(
    rows=st.sampled_from([0, 1, 3, 4, 11, 12, 13, 24, 25, 61]), d=st.sampled_from([1, 7, 64, 300]),
    n=st.sampled_from([16, 32, 48, 80]), biased=st.booleans(), seed=st.integers(0, 10**6),
)  # fmt: skip
def test_products(rows: int, d: int, n: int, biased: bool, seed: int) -> None:
    x, w = drawn(rows, d, seed=seed), drawn(d, n, seed=seed + 1)
    bias = drawn(n, seed=seed + 2) if biased else None
    y = compiled.affine(x, w, bias)
    wanted = x.double() @ w.double() + (0.0 if bias is None else bias.double())
    torch.testing.assert_close(y.double(), wanted, atol=1e-5 * d**0.5, rtol=1e-5)
    for i in range(rows):
        assert torch.equal(compiled.affine(x[i : i + 1], w, bias)[0], y[i])
    # Weights that lie the other way round.
    assert torch.equal(compiled.affine(x, w.T.contiguous().T, bias), y)
    # The same weights, put side by side beforehand.
    out = torch.empty(rows, n)
    assert torch.equal(compiled.affine_by_panels(x, compiled.panels(w), bias, out), y)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.sampled_from([0, 1, 3, 4, 11, 12, 13, 25, 61]), d=st.sampled_from([2, 6, 64, 300]),
    n=st.sampled_from([16, 32, 48, 80]), biased=st.booleans(), seed=st.integers(0, 10**6),
)  # fmt: skip
def test_products_in_bfloat16(rows: int, d: int, n: int, biased: bool, seed: int) -> None:
    """Both sides are rounded to it, and the sums are float32."""
    x, w = drawn(rows, d, seed=seed), drawn(d, n, seed=seed + 1)
    bias = drawn(n, seed=seed + 2) if biased else None
    narrow = compiled.panels(w, torch.bfloat16)
    y = compiled.affine_by_panels(x, narrow, bias, torch.empty(rows, n))
    wanted = x.bfloat16().double() @ w.bfloat16().double()
    wanted += 0.0 if bias is None else bias.double()
    torch.testing.assert_close(y.double(), wanted, atol=1e-5 * d**0.5, rtol=1e-5)
    for i in range(rows):
        alone = compiled.affine_by_panels(x[i : i + 1], narrow, bias, torch.empty(1, n))
        assert torch.equal(alone[0], y[i])


def test_rounding_to_bfloat16_is_torchs() -> None:
    """To the nearest, halves to even; what is not finite stays so."""
    bits = torch.arange(0x3F7F0000, 0x3F830000, 0x1000, dtype=torch.int32)
    odd = torch.tensor([0.0, -0.0, 1e-30, 3e38, 3.3961e38, torch.inf, -torch.inf, torch.nan])
    x = torch.cat((bits.view(torch.float32), odd))
    wide = torch.stack((x, torch.zeros_like(x)), 1)
    weight = compiled.panels(torch.tensor([[1.0], [0.0]]).expand(2, 16), torch.bfloat16)
    y = compiled.affine_by_panels(wide, weight, None, torch.empty(len(x), 16))
    torch.testing.assert_close(y[:, 0], x.bfloat16().float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("d", [127, 128, 129, 512, 2048])
def test_long_products_are_as_exact_as_torchs(d: int) -> None:
    x, w = drawn(61, d), drawn(d, 80, seed=1)
    exact = x.double() @ w.double()
    ours, theirs = (
        float((y - exact).square().mean().sqrt()) for y in (compiled.affine(x, w, None), x @ w)
    )
    assert ours <= 2 * theirs


@pytest.mark.parametrize("shape", [(1, 16), (5, 48), (2, 3, 128)])
@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_layer_norm(shape: tuple[int, ...], shift: float) -> None:
    x = drawn(*shape) + shift
    weight, bias = drawn(shape[-1], seed=1), drawn(shape[-1], seed=2)
    wanted = F.layer_norm(x.double(), shape[-1:], weight.double(), bias.double(), 1e-5)
    bar = error(F.layer_norm(x, shape[-1:], weight, bias, 1e-5), wanted)
    assert error(compiled.layer_norm(x, weight, bias, 1e-5), wanted) <= 2 * bar + 1e-6


# ── the likeliest words ───────────────────────────────────────────────────────────────────────


def test_a_word_that_is_no_number_is_told() -> None:
    logits = drawn(2, 100)
    assert compiled.best_words(logits, torch.zeros(1, 2), 3) is not None
    logits[1, 40] = torch.nan
    assert compiled.best_words(logits, torch.zeros(1, 2), 3) is None


def test_where_nothing_is_likely_there_are_still_so_many_words() -> None:
    best = compiled.best_words(drawn(2, 5), torch.full((1, 2), -torch.inf), 7)
    assert best is not None
    log_p, beginnings, words = best
    assert (log_p == -torch.inf).all()
    assert len(set(zip(beginnings[0].tolist(), words[0].tolist(), strict=True))) == 7
    assert int(beginnings.max()) == 1
    assert int(words.max()) == 4
