"""Gradients of gradients, whatever computes the first of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd import gradgradcheck

from regard import attend, causal, dense, window
from regard.attention.masks import Mask
from regard.nn import Dropout, MultiHeadAttention

Function = Callable[..., Tensor]


def seen(*shape: int) -> Mask:
    """A mask that hides some keys, and all of them from the second query."""
    some = torch.rand(shape) > 0.3
    some[..., 1, :] = False
    return dense(some)


def second(run: Function, tensors: list[Tensor]) -> list[Tensor]:
    """The gradients of the length of the gradients, beside the output and these."""
    leaves = [x.detach().clone().requires_grad_() for x in tensors]
    output = run(*leaves)
    slopes = torch.cos(torch.arange(output.numel())).view_as(output).to(output.dtype)
    first = torch.autograd.grad((output * slopes).sum(), leaves, create_graph=True)
    length = sum(x.square().sum() for x in first)
    assert isinstance(length, Tensor)
    return [x.detach() for x in (output, *first, *torch.autograd.grad(length, leaves))]


def agree(found: list[Tensor], wanted: list[Tensor]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(
            one.double(), other, atol=1e-5 * float(other.abs().max()), rtol=0
        )


@pytest.mark.parametrize("kernel", ["plain", "blocked"])
@pytest.mark.parametrize("masked", ["", "causal", "hidden"])
def test_in_float64(kernel: str, masked: str) -> None:
    mask = {"causal": causal, "hidden": seen(2, 1, 5, 5)}.get(masked)
    given = [torch.randn(2, h, 5, 3, dtype=torch.float64, requires_grad=True) for h in (4, 2, 2)]
    run = partial(attend, mask=mask, kernel=kernel)
    assert gradgradcheck(run, given, fast_mode=True)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("n", [3, 24, 56])
def test_whatever_is_chosen(n: int, masked: bool) -> None:
    mask = seen(3, 1, n, n) if masked else None
    given = [torch.randn(3, h, n, 16) for h in (6, 3, 3)]
    found = second(lambda q, k, v: attend(q, k, v, mask=mask), given)
    exact = [x.double() for x in given]
    agree(found, second(lambda q, k, v: attend(q, k, v, mask=mask, kernel="reference"), exact))


@pytest.mark.parametrize("kernel", ["native", "blocked"])
def test_one_tensor_for_all_and_a_bias(kernel: str) -> None:
    x, bias = torch.randn(2, 2, 40, 12), torch.randn(2, 40, 40)

    def run(kernel: str) -> Function:
        return lambda x, bias: attend(x, x, x, bias=bias, mask=window(9), kernel=kernel)

    agree(second(run(kernel), [x, bias]), second(run("reference"), [x.double(), bias.double()]))


@pytest.mark.parametrize("onto", [False, True])
def test_of_dropout(onto: bool) -> None:
    x = torch.randn(50, 32, requires_grad=True)
    torch.manual_seed(1)
    y = Dropout(0.3)(x.square(), x if onto else None)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (again,) = torch.autograd.grad(first.sum(), x)
    kept = (y.detach() - (x.detach() if onto else 0)) != 0
    torch.testing.assert_close(again, torch.where(kept, 2 / 0.7, 0.0), atol=1e-3, rtol=0)


def test_of_layers() -> None:
    layer = MultiHeadAttention(32, 2)
    x = torch.randn(9, 24, 32)
    agree(second(layer, [x]), second(layer.double(), [x.double()]))
