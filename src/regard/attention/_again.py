"""The gradients of attention in operations that can be differentiated again.

Compiled code cannot be. When gradients are asked for that have gradients themselves
(``create_graph=True``), they are computed here, with all scores at once.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention._call import HALF, spread


def gradients(
    q: Float[Tensor, "b h q d"],
    k: Float[Tensor, "b g k d"],
    v: Float[Tensor, "b g k e"],
    factor: float,
    grad: Float[Tensor, "b h q e"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    bias: Float[Tensor, "..."] | None = None,
) -> tuple[Float[Tensor, "b h q d"], Float[Tensor, "b g k d"], Float[Tensor, "b g k e"]]:
    """The gradients of q, k and v, given that of the output."""
    dtype = v.dtype
    if dtype in HALF:
        q, k, v, grad = q.float(), k.float(), v.float(), grad.float()
    groups, heads = k.shape[1], q.shape[1]
    keys, values = spread(k, heads), spread(v, heads)
    scores = q @ keys.mT * factor
    scores = scores if bias is None else scores + bias
    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    nothing = (scores == -torch.inf).all(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(nothing, 0.0), -1).masked_fill(nothing, 0.0)
    towards = grad @ values.mT
    slopes = weights * (towards - (weights * towards).sum(-1, keepdim=True)) * factor
    of_k, of_v = (
        x.reshape(len(x), groups, heads // groups, *x.shape[2:]).sum(2)
        for x in (slopes.mT @ q, weights.mT @ grad)
    )
    return (slopes @ keys).to(dtype), of_k.to(dtype), of_v.to(dtype)
