"""All scores at once, in operations that PyTorch can differentiate, transform and trace."""

from __future__ import annotations

from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.call import Call, masked_softmax, weighted_sum
from regard.attention.tracing import values_unavailable

MOST = 2**20
"""The number of scores above which blocks are faster."""
PAIRWISE = 32
"""The divisor of `MOST` for other scores than dot products, which need more per pair."""


def supports(call: Call) -> str | None:
    """Why the kernel cannot run this call: only if there is nothing to compute."""
    return "there is nothing to compute" if 0 in call.sizes else None


def pays(call: Call) -> bool:
    """Whether this kernel is at least as fast as computing in blocks."""
    return prod(call.sizes) <= (MOST if call.scale is not None else MOST // PAIRWISE)


def run(call: Call, logsumexp: bool) -> tuple[Float[Tensor, "b h q e"], Tensor | None]:
    """Output, and the row log-sum-exp if it is requested."""
    rows, cols = call.whole()
    scores = call.raw(call.q, call.k, rows, cols)
    mask = call.mask_block(rows, cols)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)  # the gradient of masked_fill_ is slow
    weights = torch.softmax(scores, -1)
    if values_unavailable(weights) or bool(weights.detach()[..., 0].isnan().any()):
        weights = masked_softmax(scores)
    weights = torch.dropout(weights, call.dropout, call.dropout > 0)
    output = weighted_sum(weights, call.v).to(call.v.dtype)
    return output, scores.logsumexp(-1) if logsumexp else None
