"""Numbers at the edge of what attention is given: large, infinite, turned round, or none at all.

Written against the public functions only, so that they hold for whatever kernel runs.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from regard import attend, causal, keys, look
from regard.attention import Bilinear, Scaled, scaled_dot_product_attention
from regard.errors import OptionError

KERNELS = ("auto", "plain", "blocked", "fused")
every = pytest.mark.parametrize("kernel", KERNELS)


def gradients(kernel: str, *given: Tensor, **options: object) -> list[Tensor]:
    """The output, and the gradients of a fixed function of it."""
    leaves = [x.detach().clone().requires_grad_() for x in given]
    output = attend(*leaves, kernel=kernel, **options)  # type: ignore[arg-type]
    along = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).reshape(output.shape)
    return [output.detach(), *torch.autograd.grad(output, leaves, along)]


@pytest.mark.parametrize("n", [8, 32, 100, 600])
@pytest.mark.parametrize("scale", [-0.5, 0.0])
@every
def test_a_scale_that_is_not_positive_works_under_a_causal_mask(
    n: int, scale: float, kernel: str
) -> None:
    q, k, v = torch.randn(3, 1, 2, n, 16)
    options = {"mask": causal, "score": Scaled(scale)}
    if kernel == "fused":
        with pytest.raises(OptionError, match=f"at a scale of {scale:g}, which is not positive"):
            attend(q, k, v, kernel=kernel, **options)
        return
    for ours, true in zip(
        gradients(kernel, q, k, v, **options),
        gradients("reference", q, k, v, **options),
        strict=True,
    ):
        torch.testing.assert_close(ours, true, rtol=1e-4, atol=1e-5)


def test_torch_calls_may_turn_scores_round() -> None:
    q, k, v = torch.randn(3, 1, 2, 32, 16)
    ours = scaled_dot_product_attention(q, k, v, is_causal=True, scale=-0.5)
    true = attend(q, k, v, mask=causal, score=Scaled(-0.5), kernel="reference")
    torch.testing.assert_close(ours, true)


@pytest.mark.parametrize("size", [100.0, 1000.0])
@pytest.mark.parametrize("n", [64, 300])
@every
def test_gradients_of_large_scores_are_exact(kernel: str, n: int, size: float) -> None:
    q, k = torch.randint(-1, 2, (2, 1, 2, n, 16)) * size  # products are exact in float32
    v = torch.randn(1, 2, n, 16)
    true = gradients("reference", q, k, v, score="dot")
    for ours, expected in zip(gradients(kernel, q, k, v, score="dot"), true, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=4e-6 * size)


@every
def test_tracking_a_gradient_changes_no_bit_of_large_scores(kernel: str) -> None:
    q, k, v = torch.randn(3, 1, 2, 300, 16)
    plain = attend(100 * q, 100 * k, v, kernel=kernel)
    assert torch.equal(attend((100 * q).requires_grad_(), 100 * k, v, kernel=kernel), plain)


@pytest.mark.parametrize("size", [1.0, 100.0])
def test_a_row_that_sees_nothing_receives_and_ranks_nothing(size: float) -> None:
    x = torch.randn(6, 8) * size
    seen = torch.ones(6, 6, dtype=torch.bool)
    seen[2] = False
    found = look(x, x, x, mask=seen)
    weights = found.weights()
    torch.testing.assert_close(found.received(), weights.sum(0))
    values, places = found.top(3)
    torch.testing.assert_close(values, weights.topk(3, -1).values)
    assert places[2].tolist() == [-1, -1, -1]
    assert (found.entropy()[2], found.logsumexp[2]) == (0, -math.inf)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("where", ["q", "k"])
@pytest.mark.parametrize("n", [5, 40, 200])
@every
def test_infinite_scores_come_out_as_nan(
    n: int, where: str, dtype: torch.dtype, kernel: str
) -> None:
    q, k, v = torch.randn(3, 1, 1, n, 16, dtype=torch.float64).to(dtype)
    (q if where == "q" else k)[0, 0, 3, 2] = math.inf
    expected = attend(q, k, v, kernel="reference")
    assert expected.isnan().any()
    assert torch.equal(attend(q, k, v, kernel=kernel).isnan(), expected.isnan())


@every
def test_a_learned_score_has_gradients_beside_a_query_that_sees_nothing(kernel: str) -> None:
    score, x = Bilinear(8), torch.randn(6, 8, requires_grad=True)
    seen = torch.ones(6, 6, dtype=torch.bool)
    seen[2] = False

    def slopes(by: str) -> tuple[Tensor, ...]:
        output = attend(x, x, x, mask=seen, score=score, kernel=by)
        return torch.autograd.grad(output.square().sum(), [x, score.weight])

    for ours, true in zip(slopes(kernel), slopes("reference"), strict=True):
        torch.testing.assert_close(ours, true, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("score", ["scaled_dot", "dot", "cosine", "gaussian"])
@pytest.mark.parametrize("kernel", ["auto", "blocked", "reference"])
@pytest.mark.parametrize(("q", "k"), [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("heads", [(), (2, 1), (0, 2)])
def test_no_queries_and_no_keys_are_allowed(
    heads: tuple[int, ...], q: int, k: int, kernel: str, score: str
) -> None:
    queries, others = torch.randn(*heads, q, 8), torch.randn(*heads, k, 8)
    found = look(queries, others, others, score=score, kernel=kernel)
    assert torch.equal(found.output, torch.zeros(*heads, q, 8))
    assert torch.equal(found.received(), torch.zeros(*heads, k))
    assert torch.equal(found.entropy(), torch.zeros(*heads, q))
    assert found.weights().shape == (*heads, q, k)


def test_no_queries_of_grouped_heads_are_compared_by_distance() -> None:
    q, k = torch.randn(2, 6, 0, 8), torch.randn(2, 3, 5, 8)
    assert attend(q, k, k, score="gaussian").shape == (2, 6, 0, 8)


@pytest.mark.parametrize("score", ["scaled_dot", "cosine", "gaussian"])
def test_a_first_query_of_nan_spoils_no_other(score: str) -> None:
    q, k, v = torch.randn(3, 1, 2, 9, 8)
    expected = attend(q, k, v, score=score)[..., 1:, :]
    q[..., 0, :] = math.nan
    output = attend(q, k, v, score=score)
    assert output[..., 0, :].isnan().all()
    torch.testing.assert_close(output[..., 1:, :], expected)


@pytest.mark.parametrize("batch", [0, 2])
def test_a_mask_of_no_keys_hides_nothing_from_a_look(batch: int) -> None:
    q, k = torch.randn(batch, 1, 3, 8), torch.randn(batch, 1, 0, 8)
    found = look(q, k, k, mask=keys(torch.ones(batch, 0, dtype=torch.bool)))
    assert found.received().shape == (batch, 1, 0)
    assert torch.equal(found.output, torch.zeros(batch, 1, 3, 8))


@every
def test_nan_comes_out_at_a_scale_of_zero(kernel: str) -> None:
    q, k, v = torch.randn(3, 1, 2, 70, 16)
    q[0, 0, 3, 2] = math.nan
    output = attend(q, k, v, score=Scaled(0.0), kernel=kernel)
    assert output[0, 0, 3].isnan().all()
    assert not output[0, 1].isnan().any()
    assert attend(q, k, v, score=Scaled(0.0), kernel="reference")[0, 0, 3].isnan().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every
def test_what_a_look_computes_in_half_precision_is_exact(dtype: torch.dtype, kernel: str) -> None:
    """The flash operation estimates the log-sum-exp there."""
    x = (torch.randn(1, 2, 200, 16) / 20).to(dtype)
    found, true = look(x, x, x, kernel=kernel), look(x.double(), x.double(), x.double())
    torch.testing.assert_close(found.logsumexp.double(), true.logsumexp, rtol=0, atol=3e-6)
    torch.testing.assert_close(found.top(3)[0].double(), true.top(3)[0], rtol=3e-6, atol=0)
