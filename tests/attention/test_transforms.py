"""`attend` under torch.compile, torch.func, autocast and fake tensors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from regard import (
    RelativeBias,
    attend,
    causal,
    look,
    padding,
    window,
)
from regard.attention.masks import Mask
from regard.errors import OptionError
from tests.attention.kernel_cases import DOUBLE, every, float32_inputs, inputs, noise, ready

COMPILED = """
import torch
from regard import attend, causal, padding
from regard.attention import which

lengths = torch.tensor([200])
x = [torch.randn(1, 2, 300, 16) for _ in "qkv"]
upstream = torch.randn(1, 2, 300, 16)
for make in (lambda: None, lambda: causal, lambda: padding(lengths)):
    assert which(*x, mask=make()) == "native"
    eager = lambda q, k, v: attend(q, k, v, mask=make())
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
    assert ran(COMPILED) == "[True, True, True, True]\n" * 3


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


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torch itself
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("outer", [jacfwd, jacrev])
@pytest.mark.parametrize("inner", [jacfwd, jacrev])
def test_hessian(
    inner: Callable[..., Callable[..., Tensor]],
    outer: Callable[..., Callable[..., Tensor]],
    dtype: torch.dtype,
) -> None:
    """Forwards over backwards included, where the tangent is hidden from the kernels."""
    x = noise(1, 2, 5, 4, dtype=dtype)

    def loss(q: Tensor, kernel: str = "auto") -> Tensor:
        return attend(q, x, x, mask=causal, kernel=kernel).square().sum()

    wanted = torch.autograd.functional.hessian(lambda q: loss(q, "plain"), x)
    near = DOUBLE if dtype == torch.float64 else {"atol": 1e-5, "rtol": 1e-4}
    torch.testing.assert_close(outer(inner(loss))(x), wanted, **near)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_hessian_by_the_native_kernel() -> None:
    x = noise(1, 2, 5, 4, dtype=torch.float32)
    text = "attend: kernel='native' cannot do this call: it has no forward-mode derivative"
    with pytest.raises(OptionError, match=text):
        hessian(lambda q: attend(q, x, x, kernel="native").sum())(x)


@pytest.mark.parametrize("n", [17, 1100], ids=["short", "long"])
def test_dropout(n: int) -> None:
    """Drawn once more by the same operations, so that the same weights are dropped."""
    q, k, v = float32_inputs(n, n, b=1, h=1)
    leaf = q.clone().requires_grad_()
    torch.manual_seed(0)
    wanted = torch.autograd.grad(attend(leaf, k, v, dropout=0.5, kernel="plain").sum(), leaf)
    torch.manual_seed(0)
    got = grad(lambda q: attend(q, k, v, dropout=0.5).sum())(q)
    torch.testing.assert_close(got, wanted[0])
    twice = torch.stack([q, q])
    for randomness in ("same", "different"):
        one, other = vmap(lambda q: attend(q, k, v, dropout=0.5), randomness=randomness)(twice)
        assert torch.allclose(one, other, atol=1e-5) == (randomness == "same")


@pytest.mark.parametrize("n", [17, 1100], ids=["short", "long"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("form", ["table", "bias"])
def test_transforms_of_the_bias_alone(form: str, dtype: torch.dtype, n: int) -> None:
    """Of the table of a module, as in an ensemble, or of a tensor."""
    q, k, v = inputs(n, n, b=1, h=1, dtype=dtype)

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = RelativeBias(1)

        def forward(self, kernel: str) -> Tensor:
            return attend(q, k, v, bias=self.bias, kernel=kernel)

    attention = Attention().to(dtype)

    def output(x: Tensor, kernel: str = "auto") -> Tensor:
        if form == "bias":
            return attend(q, k, v, bias=x, kernel=kernel)
        found: Tensor = functional_call(attention, {"bias.table": x}, kernel)
        return found

    given = noise(3, 32, 1, dtype=dtype) if form == "table" else noise(3, n, n, dtype=dtype)
    near = DOUBLE if dtype == torch.float64 else {"atol": 1e-5, "rtol": 1e-4}
    each = torch.stack([output(x, "plain") for x in given])
    torch.testing.assert_close(vmap(output)(given), each, **near)
    leaf = given[0].clone().requires_grad_()
    (wanted,) = torch.autograd.grad(output(leaf, "plain").square().sum(), leaf)
    got = grad(lambda x: output(x).square().sum())(given[0])
    torch.testing.assert_close(got, wanted, **near)


def test_lengths_without_values() -> None:
    """Mapped over, and exported."""
    q, k, v = inputs(17, 17)
    lengths = torch.tensor([[2, 17], [5, 0], [17, 1]])

    class Padded(torch.nn.Module):
        def forward(self, lengths: Tensor) -> Tensor:
            return attend(q, k, v, mask=causal & padding(lengths))

    each = torch.stack([Padded()(row) for row in lengths])
    torch.testing.assert_close(vmap(Padded())(lengths), each, **DOUBLE)
    exported = torch.export.export(Padded(), (lengths[0],), strict=False).module()
    torch.testing.assert_close(exported(lengths[1]), each[1], **DOUBLE)


@every
@pytest.mark.parametrize("tracked", [False, True], ids=["", "tracked"])
def test_autocast(regime: str, tracked: bool) -> None:
    """Inputs are rounded to bfloat16, and the rest is as for bfloat16 inputs."""
    x = [y.requires_grad_(tracked) for y in float32_inputs(67, 67)]
    with ready(regime) as kernel:
        with torch.autocast("cpu", torch.bfloat16):
            seen = look(*(3 * y for y in x), mask=causal, kernel=kernel)
            attended = attend(*(3 * y for y in x), mask=causal, kernel=kernel)
            weights, best, entropy = seen.weights(), seen.top(3)[0], seen.entropy()
        wanted = look(*((3 * y).bfloat16() for y in x), mask=causal, kernel=kernel)
        assert torch.equal(weights, wanted.weights())
        assert torch.equal(best, wanted.top(3)[0])
        assert torch.equal(entropy, wanted.entropy())
    assert attended.dtype == torch.bfloat16
    assert torch.equal(attended, seen.output)
    assert torch.equal(attended, wanted.output)
    assert torch.equal(seen.logsumexp, wanted.logsumexp)


@pytest.mark.parametrize("regime", ["blocked", "many blocks", "fused"])
def test_autocast_gradients(regime: str) -> None:
    x = float32_inputs(67, 67)
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
