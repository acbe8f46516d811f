"""Each native operator beside the same in float64, and under what PyTorch does with operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.library import opcheck
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from regard import ALiBi, attend, causal, look, native, padding, prefix, window
from regard.attention import RelativeBias, Scaled, Softcap, which
from regard.attention.masks import Mask
from regard.nn import Dropout, FeedForward, MultiHeadAttention
from regard.nn._norm import LayerNorm

pytestmark = pytest.mark.skipif(not native.loaded(), reason="there are no native operators")
OPS = torch.ops.regard


def drawn(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def error(found: Tensor, wanted: Tensor) -> float:
    return float((found.detach().double() - wanted).abs().max())


def rms(found: Tensor, wanted: Tensor) -> float:
    return float((found.double() - wanted).square().mean().sqrt())


# ── attention ─────────────────────────────────────────────────────────────────────────────────


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
    for have, plain, want in zip(found, plainly, exact, strict=True):
        # In small tensors both errors are chance: a rounding of d + e products is granted.
        assert rms(have, want) <= 2 * rms(plain, want) + 2**-24 * (d + e) ** 0.5
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


# ── PyTorch's own machinery ───────────────────────────────────────────────────────────────────


def arguments(name: str) -> tuple[Any, ...]:
    q, k, v = (drawn(2, h, 9, 16, seed=h) for h in (4, 2, 2))
    first = torch.zeros(2, 1, 9, 1, dtype=torch.int64)
    pairs = (0.25, 0.9, -5, 3, first, first + 8, torch.ones(1, 1, 9, 9, dtype=torch.bool),
             drawn(1, 4, 9, 9), drawn(4, 17))  # fmt: skip
    seed = torch.tensor([5])
    if name == "attend_backward":
        output, highest, total = OPS.attend(q, k, v, *pairs, 0.1, seed)
        return (output, total, q, k, v, output, highest, total, *pairs, 0.1, seed, True, True)
    x = drawn(3, 32)
    own = [torch.zeros(2, 2, 8, 16) for _ in range(2)]
    weights = 64 * 128 + 3 * 64 * 64 + 64 * 32 * 2
    vectors = 6 * 64 + 128 + 3 * 64 + 32 + 64
    step = (drawn(2, 1, 64), drawn(weights), None, drawn(vectors), own, [drawn(2, 2, 5, 16)] * 2,
            torch.ones(1, 1, 1, 4, dtype=torch.bool), None, 3, 4, 32, True, 1e-5)  # fmt: skip
    return {
        "attend": (q, k, v, *pairs, 0.1, seed),
        "statistics": (q, k, *pairs, 3),
        "drop": (x, x, seed, 1, 8),
        "best_words": (x, torch.zeros(1, 3), 4),
        "affine": (x, drawn(32, 16), drawn(16)),
        "affine_panels": (x, drawn(32 * 16), None, 16),
        "affine_int8": (x, torch.zeros(32 * 16, dtype=torch.uint8), drawn(16), None),
        "layer_norm": (x, drawn(32), drawn(32), 1e-5),
        "decoder_step": step,
    }[name]


@pytest.mark.parametrize(
    "name",
    ["attend", "attend_backward", "statistics", "drop", "best_words", "affine", "affine_panels",
     "affine_int8", "layer_norm", "decoder_step"],
)  # fmt: skip
def test_opcheck(name: str) -> None:
    opcheck(getattr(OPS, name).default, arguments(name))


def test_opcheck_with_gradients() -> None:
    q, k, v, *pairs, _, _ = arguments("attend")
    leaves = [x.requires_grad_() for x in (q, k, v)]
    pairs[7], pairs[8] = pairs[7].requires_grad_(), pairs[8].requires_grad_()
    opcheck(OPS.attend.default, (*leaves, *pairs, 0.0, None))
    opcheck(OPS.drop.default, (leaves[0], None, torch.tensor([1]), 1, 8))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # of torch's own
@pytest.mark.parametrize("n", [3, 20])
def test_torch_func(n: int) -> None:
    q, k, v = (drawn(3, 2, n, 16, seed=i) for i in range(3))

    def loss(q: Tensor, mask: Tensor | None = None) -> Tensor:
        return attend(q, k, v, mask=mask, kernel="native").square().sum()

    leaf = q.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(loss(leaf), leaf)
    torch.testing.assert_close(torch.func.grad(loss)(q), wanted)
    many = torch.stack([q, 2 * q])
    each = torch.func.vmap(torch.func.grad(loss))(many)
    torch.testing.assert_close(each[0], wanted, atol=1e-5, rtol=1e-5)
    whole = torch.func.grad(lambda x: torch.func.vmap(loss)(x).sum())(many)
    torch.testing.assert_close(whole, each)
    masked = drawn(4, n, n, seed=5) > 0
    found = torch.func.vmap(lambda mask: attend(q, k, v, mask=mask, kernel="native"))(masked)
    for one, mask in zip(found, masked, strict=True):
        torch.testing.assert_close(one, attend(q, k, v, mask=mask))
    assert which(q, k, v) == "native"
    _, tangent = torch.func.jvp(lambda x: attend(x, k, v), (q,), (q,))  # by plain operations
    ends = [attend((1 + eps) * q.double(), k.double(), v.double()) for eps in (1e-6, -1e-6)]
    torch.testing.assert_close(tangent.double(), (ends[0] - ends[1]) / 2e-6, atol=1e-4, rtol=1e-4)


def test_a_dispatch_mode_sees_the_operator() -> None:
    names: list[str] = []

    class Names(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    x = drawn(1, 2, 20, 16).requires_grad_()
    wanted = attend(x, x, x)
    with Names():
        found = attend(x, x, x)
        found.sum().backward()
    assert torch.equal(found, wanted)
    assert names.count("regard.attend.default") == 1
    assert names.count("regard.attend_backward.default") == 1


def test_traced_graphs_hold_the_operators() -> None:
    layer, x = FeedForward(16, 32), drawn(3, 16)
    with torch.no_grad():
        graph = make_fx(layer)(x)
        torch.testing.assert_close(graph(2 * x), layer(2 * x))
    q = drawn(1, 1, 20, 16)
    graph = make_fx(lambda q: attend(q, q, q, mask=causal))(q)
    assert "regard.attend" in graph.code
    assert torch.equal(graph(2 * q), attend(2 * q, 2 * q, 2 * q, mask=causal))


@pytest.mark.parametrize("n", [4, 20])
def test_batches_of_gradients(n: int) -> None:
    """As `jacobian(vectorize=True)` has them, beside one at a time."""
    q, k, v = (drawn(2, h, n, 16, seed=h).requires_grad_() for h in (4, 2, 2))
    output = attend(q, k, v, mask=causal)
    above = drawn(3, *output.shape, seed=7)
    batched = torch.autograd.grad(
        output, (q, k, v), above, is_grads_batched=True, retain_graph=True
    )
    for i in range(3):
        single = torch.autograd.grad(output, (q, k, v), above[i], retain_graph=True)
        for one, other in zip(single, batched, strict=True):
            torch.testing.assert_close(other[i], one, atol=1e-5, rtol=1e-5)


BAD: dict[str, Callable[[list[Any]], None]] = {
    "another dtype": lambda x: x.__setitem__(1, x[1].double()),
    "another width": lambda x: x.__setitem__(1, x[1][..., :8]),
    "other keys": lambda x: x.__setitem__(2, x[2][:, :, :5]),
    "heads": lambda x: x.__setitem__(0, x[0][:, :3]),
    "rank": lambda x: x.__setitem__(0, x[0][0]),
    "mask": lambda x: x.__setitem__(9, x[9][..., :4]),
    "bias": lambda x: x.__setitem__(10, x[10].double()),
    "first": lambda x: x.__setitem__(7, x[7].int()),
    "relative": lambda x: x.__setitem__(11, x[11][:, 1:]),
    "dropout": lambda x: x.__setitem__(12, 1.0),
    "no seed": lambda x: x.__setitem__(13, None),
}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD.keys())
def test_the_operator_refuses_what_does_not_fit(change: Callable[[list[Any]], None]) -> None:
    args = list(arguments("attend"))
    change(args)
    with pytest.raises(RuntimeError):
        OPS.attend(*args)


# ── dropout ───────────────────────────────────────────────────────────────────────────────────


def dropped(x: Tensor, onto: Tensor | None, seed: int, share: int, of: int) -> Tensor:
    return OPS.drop(x, onto, torch.tensor([seed]), share, of)  # type: ignore[no-any-return]


@pytest.mark.parametrize("count", [1, 15, 16, 17, 100_003])
def test_the_same_seed_drops_the_same_places(count: int) -> None:
    x, onto = drawn(count) + 10, drawn(count, seed=1)
    once = dropped(x, None, 5, 3, 8)
    assert torch.equal(dropped(x, None, 5, 3, 8), once)
    assert torch.equal(dropped(x, onto, 5, 3, 8), onto + once)
    assert torch.equal(once, torch.where(once == 0, 0.0, x * (8 / 5)))
    if count > 1000:
        assert not torch.equal(dropped(x, None, 6, 3, 8), once)
        assert not torch.equal(dropped(x, None, 5 + 2**40, 3, 8), once)


def test_what_is_dropped_looks_like_chance() -> None:
    """Shares, and how often two are dropped together: at some distances, and by two seeds."""
    count = 2**20
    near = 6 * (0.3 * 0.7 / count) ** 0.5  # six deviations
    share, of = round(0.3 * 2**15), 2**15
    drops = [dropped(torch.ones(count), None, seed, share, of) == 0 for seed in (1, 2, 2**50)]
    for lost in drops:
        assert abs(lost.float().mean().item() - share / of) < near
        for lag in (1, 2, 15, 16, 17, 128, 4096):
            both = (lost[lag:] & lost[:-lag]).float().mean().item()
            assert abs(both - (share / of) ** 2) < near
        for column in lost.view(-1, 128).float().mean(0).tolist():
            assert abs(column - share / of) < near * 128**0.5
    for one, other in ((0, 1), (0, 2), (1, 2)):
        both = (drops[one] & drops[other]).float().mean().item()
        assert abs(both - (share / of) ** 2) < near


def test_a_batch_of_gradients_is_dropped_in_the_same_places() -> None:
    x = drawn(6, 50).requires_grad_()
    y = Dropout(0.5)(x)
    above = drawn(3, 6, 50, seed=1)
    (batched,) = torch.autograd.grad(y, x, above, is_grads_batched=True, retain_graph=True)
    for i in range(3):
        (single,) = torch.autograd.grad(y, x, above[i], retain_graph=True)
        assert torch.equal(batched[i], single)


# ── products and norms


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
            assert native.fits(2**30, drawn(2, 2)) is may
            assert native.fits(100, drawn(2, 2))
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
    y = OPS.affine(x, w, bias)
    wanted = x.double() @ w.double() + (0.0 if bias is None else bias.double())
    torch.testing.assert_close(y.double(), wanted, atol=1e-5 * d**0.5, rtol=1e-5)
    for i in range(rows):
        assert torch.equal(OPS.affine(x[i : i + 1], w, bias)[0], y[i])
    # The same weights, put side by side beforehand.
    assert torch.equal(OPS.affine_panels(x, native.panels(w), bias, n), y)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.sampled_from([0, 1, 3, 4, 11, 12, 13, 25, 61]), d=st.sampled_from([2, 6, 64, 300]),
    n=st.sampled_from([16, 32, 48, 80]), biased=st.booleans(), seed=st.integers(0, 10**6),
)  # fmt: skip
def test_products_in_bfloat16(rows: int, d: int, n: int, biased: bool, seed: int) -> None:
    """Both sides are rounded to it, and the sums are float32."""
    x, w = drawn(rows, d, seed=seed), drawn(d, n, seed=seed + 1)
    bias = drawn(n, seed=seed + 2) if biased else None
    narrow = native.panels(w, torch.bfloat16)
    y = OPS.affine_panels(x, narrow, bias, n)
    wanted = x.bfloat16().double() @ w.bfloat16().double()
    wanted += 0.0 if bias is None else bias.double()
    torch.testing.assert_close(y.double(), wanted, atol=1e-5 * d**0.5, rtol=1e-5)
    for i in range(rows):
        alone = OPS.affine_panels(x[i : i + 1], narrow, bias, n)
        assert torch.equal(alone[0], y[i])


def test_rounding_to_bfloat16_is_torchs() -> None:
    """To the nearest, halves to even; what is not finite stays so."""
    bits = torch.arange(0x3F7F0000, 0x3F830000, 0x1000, dtype=torch.int32)
    odd = torch.tensor([0.0, -0.0, 1e-30, 3e38, 3.3961e38, torch.inf, -torch.inf, torch.nan])
    x = torch.cat((bits.view(torch.float32), odd))
    wide = torch.stack((x, torch.zeros_like(x)), 1)
    weight = native.panels(torch.tensor([[1.0], [0.0]]).expand(2, 16), torch.bfloat16)
    y = OPS.affine_panels(wide, weight, None, 16)
    torch.testing.assert_close(y[:, 0], x.bfloat16().float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("d", [127, 128, 129, 512, 2048])
def test_long_products_are_as_exact_as_torchs(d: int) -> None:
    x, w = drawn(61, d), drawn(d, 80, seed=1)
    exact = x.double() @ w.double()
    ours, theirs = (
        float((y - exact).square().mean().sqrt()) for y in (OPS.affine(x, w, None), x @ w)
    )
    assert ours <= 2 * theirs


@pytest.mark.parametrize("shape", [(1, 16), (5, 48), (2, 3, 128)])
@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_layer_norm(shape: tuple[int, ...], shift: float) -> None:
    x = drawn(*shape) + shift
    weight, bias = drawn(shape[-1], seed=1), drawn(shape[-1], seed=2)
    wanted = F.layer_norm(x.double(), shape[-1:], weight.double(), bias.double(), 1e-5)
    bar = error(F.layer_norm(x, shape[-1:], weight, bias, 1e-5), wanted)
    assert error(OPS.layer_norm(x, weight, bias, 1e-5), wanted) <= 2 * bar + 1e-6


# ── the best words ────────────────────────────────────────────────────────────────────────────


def test_a_sentence_with_nan_has_nan_alone() -> None:
    logits = drawn(4, 100)
    wanted = OPS.best_words(logits, torch.zeros(2, 2), 3)
    logits[1, 40] = torch.nan
    found = OPS.best_words(logits, torch.zeros(2, 2), 3)
    assert found[0][0].isnan().all()
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one[1], other[1])


def test_where_nothing_is_likely_there_are_still_so_many_words() -> None:
    log_p, beginnings, words = OPS.best_words(drawn(2, 5), torch.full((1, 2), -torch.inf), 7)
    assert (log_p == -torch.inf).all()
    assert len(set(zip(beginnings[0].tolist(), words[0].tolist(), strict=True))) == 7
    assert int(beginnings.max()) == 1
    assert int(words.max()) == 4
