"""The reference: plain attention in float64, which defines correct results."""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.call import Call, masked_logsumexp, masked_softmax, repeat_kv


def supports(call: Call) -> str | None:
    """None: every call is supported."""
    return None


def run(
    call: Call, logsumexp: bool = True
) -> tuple[Float[Tensor, "b h q e"], Float[Tensor, "b h q"]]:
    """Output and row log-sum-exp, computed in float64 whatever the dtype of the input."""
    exact = dataclasses.replace(call, q=call.q.double(), k=call.k.double(), v=call.v.double())
    scores = exact.scores(*exact.whole())
    weights = torch.dropout(masked_softmax(scores), call.dropout, call.dropout > 0)
    output = weights @ repeat_kv(exact.v, exact.q.shape[1])
    return output.to(call.v.dtype), masked_logsumexp(scores).to(call.work)
