"""Cross-entropy without the tokens × vocabulary matrix of logits.

For a batch of 4,096 tokens and 30,000 words that matrix has half a gigabyte, several times over.
Here projection, softmax and their gradients are computed for a few hundred tokens at a time, in one
buffer. Under bfloat16 autocast the matrix products are in bfloat16, all else in the dtype of the
weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.call import autocast_disabled, product_dtype
from regard.errors import DtypeError, OptionError, ShapeError, check_share, shape

FAR = 1e10
"""Sums of exponentials between its inverse and this are safe from overflow and underflow, and so
are products of their terms with numbers that are not themselves near 1e±38."""
CHUNK = 2**21
"""The number of logits held at once: 8 MiB in float32, which stay in the processor's caches."""


class Loss(NamedTuple):
    """Sums over the tokens; divide by their number over all workers."""

    total: Float[Tensor, ""]
    """The training objective: cross-entropy with label smoothing; differentiable."""
    likelihood: Float[Tensor, ""]
    """The negative log-likelihood, without gradient; the exponential of its mean is perplexity."""


def cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    expected: Tensor,
    *,
    bias: Tensor | None = None,
    smoothing: float | int = 0.0,
) -> Loss:
    """The cross-entropy of softmax(hidden weightᵀ + bias) with the expected words, summed.

    loss = Σ (1 − s) (−log p[expected]) + s · mean over words of (−log p)

    where s is the smoothing. The same numbers as `torch.nn.functional.cross_entropy` with
    ``reduction="sum"`` and ``label_smoothing=s``, gradients included, in bounded memory.

    Args:
        hidden: ``(tokens, width)``, without padding, which would cost as much as words.
        weight: ``(vocabulary, width)``, the shape of an embedding, so that the two can be tied.
        expected: ``(tokens,)``, ids of words.
        bias: ``(vocabulary,)``, added to the logits.
        smoothing: the share of the target distribution that is uniform over all words.

    >>> hidden, weight = torch.eye(2), torch.tensor([[2.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    >>> cross_entropy(hidden, weight, torch.tensor([0, 1])).total
    tensor(0.4791)

    Szegedy et al., "Rethinking the Inception Architecture", 2016 (label smoothing).
    """
    _check(hidden, weight, expected, bias, smoothing)
    products = product_dtype(weight)
    hidden = hidden.to(weight.dtype)  # the weight is wider under autocast
    try:
        with autocast_disabled(hidden.device):
            total, likelihood = _Chunks.apply(  # type: ignore[no-untyped-call]
                hidden, weight, bias, expected, smoothing, products, torch.is_grad_enabled()
            )
    except (IndexError, RuntimeError):
        # Checked only now: a check of all ids beforehand would slow down every step.
        _check_numbers(expected, len(weight))
        raise
    return Loss(total, likelihood)


def loss_of_words(
    hidden: Tensor,
    expected: Tensor,
    real: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    *,
    smoothing: float | int,
) -> Loss:
    """The cross-entropy of a decoder's vectors ``(b, n, width)`` with the words ``(b, n)``.

    Restricted to where `real`, bool ``(b, n)``, is True, so that padding costs nothing.
    """
    if expected.shape != hidden.shape[:2]:
        raise ShapeError(
            f"loss: expected has shape {shape(expected)}, but there are {shape(hidden[..., 0])} "
            "words (b,n); give the word that comes after each"
        )
    if real is None:
        return cross_entropy(
            hidden.flatten(0, 1), weight, expected.flatten(), bias=bias, smoothing=smoothing
        )
    if real.shape != expected.shape or real.dtype != torch.bool:
        raise ShapeError(
            f"loss: real is {real.dtype} {shape(real)} beside expected {shape(expected)}; "
            "give one bool per word"
        )
    return cross_entropy(hidden[real], weight, expected[real], bias=bias, smoothing=smoothing)


class _Chunks(torch.autograd.Function):
    """Gradients are computed in the forward pass, with the probabilities; backward scales them.

    With p the probabilities, the gradient of the logits is p − (1 − s) · expected − s / vocabulary.
    The last term is constant, so it is added to the sums at the end instead of to p.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        expected: Tensor,
        smoothing: float | int,
        products: torch.dtype,
        differentiate: bool,
    ) -> tuple[Tensor, Tensor]:
        tokens, vocabulary = len(hidden), len(weight)
        wanted = [differentiate and need for need in ctx.needs_input_grad[:3]]
        grad_hidden = torch.empty_like(hidden) if wanted[0] else None
        grad_weight = torch.zeros_like(weight) if wanted[1] else None
        grad_bias = torch.zeros_like(bias) if wanted[2] and bias is not None else None
        some = max(1, min(tokens, CHUNK // vocabulary))
        buffer = hidden.new_empty(some, vocabulary)
        chosen, log_p = hidden.new_empty(tokens), hidden.new_empty(tokens)
        narrow_hidden, narrow_weight = hidden.to(products), weight.to(products)
        for start in range(0, tokens, some):
            part = slice(start, min(start + some, tokens))
            rows, words = hidden[part], expected[part, None]
            logits = buffer[: len(rows)]
            given = narrow_hidden[part], narrow_weight, bias
            _project(*given, out=logits)
            chosen[part] = logits.gather(1, words)[:, 0]
            total, log_total = _exponentials(logits, *given)
            log_p[part] = chosen[part] - log_total[:, 0]
            # Instead of the exponentials, the narrower factors are divided by their sums.
            logits.scatter_add_(1, words, (smoothing - 1) * total)
            if grad_bias is not None:
                grad_bias += logits.T @ total[:, 0].reciprocal()
            logits = logits.to(products)
            if grad_hidden is not None:
                _multiply(logits, narrow_weight, grad_hidden[part]).div_(total)
            if grad_weight is not None:
                _add_product(grad_weight, logits.T, (rows / total).to(products))
        likelihood = -log_p.sum()
        loss = (1 - smoothing) * likelihood
        if smoothing:
            # The mean of the logits is a product with the mean of the weights.
            mean_weight = weight.mean(0)
            mean = hidden @ mean_weight + (0 if bias is None else bias.mean())
            loss = loss + smoothing * (chosen - log_p - mean).sum()
            if grad_hidden is not None:
                grad_hidden -= smoothing * mean_weight
            if grad_weight is not None:
                grad_weight -= (smoothing / vocabulary) * hidden.sum(0)
            if grad_bias is not None:
                grad_bias -= smoothing * tokens / vocabulary
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        ctx.mark_non_differentiable(likelihood)
        return loss, likelihood

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        grads = (None if found is None else found * grad for found in ctx.saved_tensors)
        return (*grads, None, None, None, None)


def _multiply(x: Tensor, y: Tensor, out: Tensor) -> Tensor:
    """x y, into `out`, which may be of a wider dtype."""
    return torch.mm(x, y, out=out) if x.dtype == out.dtype else out.copy_(x @ y)


def _add_product(onto: Tensor, x: Tensor, y: Tensor) -> None:
    """x y added to `onto`, which may be of a wider dtype."""
    if x.dtype == onto.dtype:
        onto.addmm_(x, y)
    else:
        onto += x @ y


def _project(rows: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
    if bias is None or rows.dtype != out.dtype:
        _multiply(rows, weight.T, out)
        if bias is not None:
            out += bias
    else:
        torch.addmm(bias, rows, weight.T, out=out)


def _exponentials(
    logits: Tensor, rows: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Float[Tensor, "rows 1"], Float[Tensor, "rows 1"]]:
    """The sums of each row's exponentials, which overwrite the logits, and their logarithms.

    The row maximum is subtracted only if the exponentials overflow or underflow without it.
    """
    if logits.dtype != torch.float16:
        total = logits.exp_().sum(1, keepdim=True)
        least, most = torch.aminmax(total)
        if least.item() > 1 / FAR and most.item() < FAR:  # neither holds for NaN
            return total, total.log()
    _project(rows, weight, bias, logits)
    log_total = logits.logsumexp(1, keepdim=True)
    torch.softmax(logits, 1, out=logits)
    return torch.ones_like(log_total), log_total


def _check(
    hidden: Tensor, weight: Tensor, expected: Tensor, bias: Tensor | None, smoothing: float | int
) -> None:
    if (
        hidden.dim() != 2
        or weight.dim() != 2
        or hidden.shape[1] != weight.shape[1]
        or len(weight) == 0
    ):
        raise ShapeError(
            f"cross_entropy: hidden {shape(hidden)} and weight {shape(weight)}, expected "
            "(tokens,width) and (vocabulary,width)"
        )
    if expected.shape != hidden.shape[:1]:
        raise ShapeError(
            f"cross_entropy: expected has shape {shape(expected)} beside hidden {shape(hidden)}; "
            "give one word number per row of hidden"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(
            f"cross_entropy: bias has shape {shape(bias)} beside weight {shape(weight)}; "
            "give one number per word"
        )
    if expected.dtype != torch.int64:
        raise DtypeError(f"cross_entropy: expected is {expected.dtype}; use expected.long()")
    check_share("cross_entropy: smoothing", smoothing)


def _check_numbers(expected: Tensor, vocabulary: int) -> None:
    if len(expected) and not 0 <= int(expected.min()) <= int(expected.max()) < vocabulary:
        raise OptionError(
            f"cross_entropy: expected has numbers from {int(expected.min())} to "
            f"{int(expected.max())}, but there are {vocabulary:,} words, 0 to {vocabulary - 1:,}; "
            "leave padding out"
        )
