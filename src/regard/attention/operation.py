"""Attention: `attend` returns its output, `look` the output with its weights on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.call import Call, autocast_disabled
from regard.attention.kernels import choose, select
from regard.attention.masks import Causal, Mask, causal
from regard.attention.positions import Bias
from regard.attention.preparation import prepare
from regard.attention.record import Look
from regard.attention.scores import Scaled, Score
from regard.errors import OptionError

Result = tuple[Tensor, Tensor | None]


@runtime_checkable
class Interceptor(Protocol):
    """Runs in place of every call while a model is watched or cut."""

    def __call__(self, call: Call, compute: Callable[[Call], Result]) -> Result:
        """The result of the call, computed by `compute` or otherwise."""

    def active(self) -> bool:
        """Whether calls of this thread are intercepted."""


AROUND: Interceptor | None = None
"""The interceptor of `regard.lens.capture` while any thread watches or cuts a model."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | str | None = None,
    bias: Tensor | Bias | None = None,
    score: str | Score = "scaled_dot",
    dropout: float = 0.0,
    sink: Tensor | None = None,
    kernel: str = "auto",
) -> Float[Tensor, "*bh q e"]:
    """The output of attention: for each query, the average of the values by its weights.

    weights = softmax(score(q, k) + bias) over the keys that the mask allows; output = weights v.

    Args:
        q: queries ``(…, h, q, d)``; also ``(n, d)`` and ``(b, n, d)``, one head.
        k: keys ``(…, h_kv, k, d)``, where h is a multiple of h_kv.
        v: values ``(…, h_kv, k, e)``. Leading axes broadcast.
        mask: which keys a query may attend to, such as ``causal & window(128)``; ``"causal"``; or
            a bool tensor broadcastable to ``(…, h, q, k)``, True = may attend.
        bias: added to the scores; a tensor of such a shape, or `ALiBi`, `RelativeBias`.
        score: the score function, see `regard.attention.scores`.
        dropout: the probability of setting a weight to 0; the others are scaled up.
        sink: a further score per head ``(h)`` that takes its share of the softmax and adds
            nothing to the output (Agarwal et al., gpt-oss, 2025; Xiao et al. 2024).
        kernel: ``"auto"``, or one of ``"native"``, ``"fused"``, ``"plain"``, ``"blocked"`` and
            ``"reference"``, which then runs or raises. Masked positions must hold finite numbers.

    The output of a query that may attend to no key is exactly 0.

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> attend(x, x, x, score="dot")
    tensor([[0.8446, 0.5777],
            [0.5777, 0.8446],
            [0.7881, 0.7881]])

    Vaswani et al., "Attention Is All You Need", 2017.
    """
    call = prepare("attend", q, k, v, mask, bias, score, dropout, sink)
    return call.restore(_run(call, kernel, logsumexp=False)[0])


def look(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | str | None = None,
    bias: Tensor | Bias | None = None,
    score: str | Score = "scaled_dot",
    dropout: float = 0.0,
    sink: Tensor | None = None,
    kernel: str = "auto",
) -> Look:
    """The output of `attend` for the same arguments, bit for bit, with its weights on demand.

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> look(x, x, x, score="dot").weights(queries=[2])
    tensor([[0.2119, 0.2119, 0.5761]])
    """
    call = prepare("look", q, k, v, mask, bias, score, dropout, sink)
    output, logsumexp = _run(call, kernel, logsumexp=True)
    return Look(call.detached(), output, logsumexp)


def which(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | str | None = None,
    bias: Tensor | Bias | None = None,
    score: str | Score = "scaled_dot",
    dropout: float = 0.0,
    sink: Tensor | None = None,
) -> str:
    """The kernel that `attend` runs for these arguments, and why no faster one does.

    >>> import torch
    >>> x = torch.zeros(1, 8, 1024, 64)
    >>> which(x, x, x, score="cosine", mask=torch.ones(1024, 1024, dtype=torch.bool)).split()[0]
    'native'
    """
    call = prepare("which", q, k, v, mask, bias, score, dropout, sink)
    with autocast_disabled(call.q.device):
        name, reasons = choose(call)
    return "; ".join([name, *reasons])


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Drop-in for `torch.nn.functional.scaled_dot_product_attention`, computed by `attend`.

    ``is_causal`` is aligned at the start, as in torch: query i sees keys 0 … i.
    """
    if is_causal and attn_mask is not None:
        raise OptionError(
            "scaled_dot_product_attention: attn_mask and is_causal are both given; give one, or "
            "use attend(…, mask=causal & …)"
        )
    both_have_heads = query.dim() > 3 and key.dim() > 3
    if not enable_gqa and both_have_heads and query.shape[-3] == 1:
        query = query.expand(*query.shape[:-3], key.shape[-3], -1, -1)
    if not enable_gqa and both_have_heads and query.shape[-3] != key.shape[-3] != 1:
        raise OptionError(
            f"scaled_dot_product_attention: query has h={query.shape[-3]} and key "
            f"h={key.shape[-3]}; grouped heads need enable_gqa=True"
        )
    boolean = attn_mask is not None and attn_mask.is_floating_point() is False
    mask: Mask | Tensor | str | None = attn_mask if boolean else None
    if is_causal:
        mask = causal if query.shape[-2] == key.shape[-2] else Causal(from_start=True)
    return attend(
        query,
        key,
        value,
        mask=mask,
        bias=None if boolean else attn_mask,
        score="scaled_dot" if scale is None else Scaled(scale),
        dropout=dropout_p,
    )


def watched() -> bool:
    """Whether calls of this thread are captured."""
    around = AROUND
    return around is not None and around.active()


def _run(call: Call, kernel: str, logsumexp: bool) -> Result:
    """The output, and the row log-sum-exp if it is requested or known anyway."""
    around = AROUND  # read once: a session in another thread may end at any moment
    if around is None:
        return _compute(call, kernel, logsumexp)
    return around(call, lambda changed: _compute(changed, kernel, logsumexp))


def _compute(call: Call, kernel: str, logsumexp: bool) -> Result:
    with autocast_disabled(call.q.device):
        if call.sink is None:
            return select(call, kernel).run(call, logsumexp)
        output, sums = select(call, kernel).run(call, True)
        assert sums is not None
        sink = call.sink.unsqueeze(-1)
        share = torch.sigmoid(sums - sink).unsqueeze(-1)
        return (output * share).to(output.dtype), torch.logaddexp(sums, sink.to(sums.dtype))
