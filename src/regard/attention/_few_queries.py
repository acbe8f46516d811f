"""Attention of few queries, as when a text is written word by word: in compiled code, if it can be.

Keys and values are then read once and hardly worked with, so that every copy of them, and every
operation by itself, counts. And of the keys that a mask hides, none is read at all.
"""

from __future__ import annotations

from torch import Tensor

from regard import compiled
from regard.attention._call import Call, unreadable


def possible(call: Call) -> bool:
    """Whether it can be done, and pays."""
    b, h, q, k = call.sizes
    d, e = call.q.shape[3], call.v.shape[3]
    return (
        0 < q <= compiled.QUERIES
        and b > 0
        and 0 < k <= compiled.KEYS
        and call.factor is not None
        and call.bias is None
        and not call.dropout
        and (call.mask is None or not unreadable(*call.mask.held()))
        and compiled.multiples((d, e))
        and compiled.usable(b * h * q * k * (d + e), call.q, call.k, call.v)
    )


def few_queries(call: Call, logsumexp: bool) -> tuple[Tensor, Tensor | None]:
    """Output, and the row log-sum-exp if it was asked for."""
    assert call.factor is not None
    mask = call.mask_block(*call.whole())
    return compiled.attend_few(call.q, call.k, call.v, call.factor, mask, logsumexp)
