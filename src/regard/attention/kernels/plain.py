"""All scores at once, in operations that PyTorch can differentiate, transform and trace."""

from __future__ import annotations

from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.call import Call, masked_softmax, values_unavailable, weighted_sum

MOST = 2**20
"""More scores than this are faster in blocks."""
PAIRWISE = 32
"""How much fewer if the score is no dot product and holds more than a number a pair."""


def supports(call: Call) -> str | None:
    """None, unless there is nothing to compute."""
    return "there is nothing to compute" if 0 in call.sizes else None


def pays(call: Call) -> bool:
    """Whether nothing is gained by computing the scores in blocks."""
    return prod(call.sizes) <= (MOST if call.scale is not None else MOST // PAIRWISE)


def run(call: Call, logsumexp: bool) -> tuple[Float[Tensor, "b h q e"], Tensor | None]:
    """Output, and the row log-sum-exp if it was asked for."""
    rows, cols = call.whole()
    scores = call.raw(call.q, call.k, rows, cols)
    mask = call.mask_block(rows, cols)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)  # in place, its gradient would be slow
    weights = torch.softmax(scores, -1)
    if values_unavailable(weights) or bool(weights.detach()[..., 0].isnan().any()):
        weights = masked_softmax(scores)
    weights = torch.dropout(weights, call.dropout, call.dropout > 0)
    output = weighted_sum(weights, call.v).to(call.v.dtype)
    return output, scores.logsumexp(-1) if logsumexp else None
