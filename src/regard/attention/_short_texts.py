"""Attention of short texts, with its gradient: in compiled code, if it can be.

A sentence of 20 words has 400 scores in each head: they fit beside its queries, keys and values
into the memory next to a core, and torch's operations would carry them away and back five times.
In bfloat16 it is computed in float32, as everywhere, and rounded at the end.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard import compiled
from regard.attention._again import gradients
from regard.attention._call import Call, exactly, unreadable

SHORT = 48
"""So many words are a short text; from 64 on, the fused operation is as fast. And what is in one
piece, and needs no gradient, is as fast as plain matrix products."""


def possible(call: Call) -> bool:
    """Whether it can be done, and pays."""
    b, _, q, k = call.sizes
    return (
        0 < q <= SHORT
        and 0 < k <= SHORT
        and b > 0
        and call.factor is not None
        and call.bias is None
        and not call.dropout
        and (call.needs_grad or not call.in_one_piece)
        and (call.mask is None or not unreadable(*call.mask.held()))
        and compiled.multiples((call.q.shape[3], call.v.shape[3]))
        and compiled.readable(call.q, call.k, call.v, dtypes=(torch.float32, torch.bfloat16))
    )


def short_texts(call: Call) -> tuple[Tensor, Tensor]:
    """Output and row log-sum-exp."""
    assert call.factor is not None
    mask = call.mask_block(*call.whole())
    q, k, v = (x.float() for x in (call.q, call.k, call.v))
    if call.needs_grad:
        output, sums = _Attention.apply(call.factor, mask, q, k, v)  # type: ignore[no-untyped-call]
    else:
        output, sums = compiled.attend_short(q, k, v, call.factor, mask)
    return output.to(call.v.dtype), sums


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, factor: float, mask: Tensor | None, q: Tensor, k: Tensor, v: Tensor
    ) -> tuple[Tensor, Tensor]:
        output, sums = compiled.attend_short(q, k, v, factor, mask)
        ctx.factor = factor
        ctx.save_for_backward(q, k, v, mask)
        ctx.mark_non_differentiable(sums)
        return output, sums

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mask = ctx.saved_tensors
        with exactly(grad.device):
            if torch.is_grad_enabled() or not compiled.readable(grad):
                grads = gradients(q, k, v, ctx.factor, grad, mask=mask)
            else:
                grads = compiled.attend_short_backwards(q, k, v, ctx.factor, mask, grad)
        return None, None, *grads
