"""The native operators as operators of PyTorch: schemas, transforms, traces, refusals, dropout."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode

from regard import attend, causal, native
from regard.attention import which
from regard.nn import Dropout, FeedForward
from tests.native.drawn import OPS, drawn

pytestmark = pytest.mark.skipif(not native.loaded(), reason="there are no native operators")


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
    with warnings.catch_warnings(action="ignore"):  # that it loops
        (mapped,) = torch.func.vmap(lambda g: torch.autograd.grad(y, x, g, retain_graph=True))(
            above
        )
    for i in range(3):
        (single,) = torch.autograd.grad(y, x, above[i], retain_graph=True)
        assert torch.equal(batched[i], single)
        assert torch.equal(mapped[i], single)
