"""Attention sinks: a further score per head that takes its share and adds nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from regard import attend, causal, look
from regard.errors import DtypeError, OptionError, ShapeError


def textbook(q: Tensor, k: Tensor, v: Tensor, sink: Tensor) -> Tensor:
    """Weights of a softmax with one more column, which is then cut off."""
    n = q.shape[2]
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~causal.tensor(n), -torch.inf)
    column = sink[:, None, None].expand(len(q), -1, n, 1)
    return torch.softmax(torch.cat([scores, column], -1), -1)[..., :-1]


@pytest.mark.parametrize("kernel", ["native", "plain", "blocked", "fused", "reference"])
@pytest.mark.parametrize("size", [1.0, 3000.0])
def test_output_weights_and_gradients(kernel: str, size: float) -> None:
    torch.manual_seed(0)
    given = [torch.randn(2, 3, 40, 16) for _ in range(3)] + [torch.randn(3)]
    given[0] = given[0] * size
    exact = [x.double().requires_grad_() for x in given]
    weights = textbook(*exact)
    q, k, v, sink = (x.clone().requires_grad_(kernel != "fused") for x in given)
    seen = look(q, k, v, mask=causal, sink=sink, kernel=kernel)
    output = attend(q, k, v, mask=causal, sink=sink, kernel=kernel)
    assert torch.equal(seen.output, output)
    near = {"atol": 1e-5 * size**0.5, "rtol": 1e-4}
    torch.testing.assert_close(output.double(), weights @ exact[2], **near)
    torch.testing.assert_close(seen.weights().double(), weights.detach(), **near)
    torch.testing.assert_close(seen.top(3)[0].double(), weights.topk(3).values.detach(), **near)
    torch.testing.assert_close(
        seen.received().double(), weights.sum(-2).detach(), atol=0.05, rtol=0
    )
    if kernel != "fused":
        ours = torch.autograd.grad(output.square().sum(), (q, k, v, sink))
        theirs = torch.autograd.grad((weights @ exact[2]).square().sum(), exact)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(
                one.double(), other, atol=1e-4 * (1 + float(other.abs().max())), rtol=1e-3
            )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(dtype: torch.dtype) -> None:
    """More scores than `plain` takes, in the dtypes for which `fused` has no log-sum-exp."""
    q, k, v = torch.randn(3, 1, 1, 1025, 8, dtype=dtype)
    sink = torch.tensor([2.0])
    exact = attend(q.double(), k.double(), v.double(), sink=sink, kernel="reference")
    for output in (attend(q, k, v, sink=sink), look(q, k, v, sink=sink).output):
        assert output.dtype == dtype
        torch.testing.assert_close(output.double(), exact, atol=1e-2, rtol=1e-2)
    with pytest.raises(OptionError, match=rf"its log-sum-exp, .* is imprecise in {dtype}; use"):
        attend(q, k, v, sink=sink, kernel="fused")


def test_a_query_that_sees_nothing_gets_nothing() -> None:
    x = torch.randn(1, 2, 4, 8)
    hidden = torch.zeros(4, 4, dtype=torch.bool)
    seen = look(x, x, x, mask=hidden, sink=torch.tensor([1.0, 2.0]))
    assert (seen.output == 0).all()
    assert torch.equal(seen.logsumexp[0, :, 0], torch.tensor([1.0, 2.0]))


def test_sinks_that_do_not_fit() -> None:
    x = torch.randn(1, 2, 4, 8)
    with pytest.raises(ShapeError, match=r"attend: sink has shape \(3\), expected \(h\) = \(2\)"):
        attend(x, x, x, sink=torch.zeros(3))
    with pytest.raises(DtypeError, match=r"attend: sink is torch\.int64, expected a floating"):
        attend(x, x, x, sink=torch.zeros(2, dtype=torch.int64))
