"""The effect of cutting each link of attention on a quantity, to first order.

For a query with weights a, values v and output o = Σ a_j v_j, cutting the link to key j and
renormalising gives o′ = (o − a_j v_j) / (1 − a_j). For a quantity M with gradient g = ∂M/∂o,

    effect(j) = M(cut) − M ≈ g · (o′ − o) = a_j / (1 − a_j) · (g · o − g · v_j)

Several keys that are cut together, the subwords of a word, have one effect:

    effect(J) = Σ_{j∈J} a_j (g · o − g · v_j) / (1 − Σ_{j∈J} a_j)

One forward and one backward pass therefore give the effect of every link of every head.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import pad

from regard.attention.call import masked_softmax

SATURATED = 1e-3
"""Below this total weight of the other keys, theirs are recomputed instead of renormalised."""


def link_effects(
    scores: Float[Tensor, "*b q k"],
    gradient_of_weights: Float[Tensor, "*b q k"],
    groups: Int64[Tensor, " k"] | None = None,
    count: int | None = None,
    sink: Float[Tensor, "*b q"] | None = None,
) -> tuple[Float[Tensor, "*b q g"], Float[Tensor, "*b q g"]]:
    """The weight of each link, or group of links, and the effect of cutting it.

    Args:
        scores: what entered the softmax, -inf where masked.
        gradient_of_weights: ∂M/∂a = g · v_j for every query and key.
        groups: the group of each key, from 0; -1 leaves a key out. Each key by itself if None.
        count: the number of groups.
        sink: per query, a further score whose share of the softmax goes to no key.

    Cutting the only link of a query makes its output 0.

    >>> scores, values = torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0], [3.0]])
    >>> g = torch.tensor([[2.0]])
    >>> weights, effects = link_effects(scores, g @ values.T)
    >>> effects  # without the first key the output is 3 instead of 2, without the second 1
    tensor([[ 2., -2.]])
    """
    if sink is not None:  # one more key, of value 0 and in no group
        if groups is None:
            count = scores.shape[-1]
            groups = torch.arange(count, device=scores.device)
        groups = pad(groups, (0, 1), value=-1)
        scores = torch.cat([scores, sink.unsqueeze(-1).to(scores.dtype)], -1)
        gradient_of_weights = pad(gradient_of_weights, (0, 1))
    weights = masked_softmax(scores)
    whole = (weights * gradient_of_weights).sum(-1, keepdim=True)  # g · o
    pull = weights * (whole - gradient_of_weights)
    if groups is not None:
        weights, pull = (grouped(x, groups, count) for x in (weights, pull))
    rest = 1 - weights
    effects = pull / rest.clamp(min=SATURATED)
    saturated = (rest < SATURATED).nonzero(as_tuple=True)
    if len(saturated[0]):
        *row, link = saturated
        own = torch.arange(scores.shape[-1], device=scores.device) if groups is None else groups
        left = scores[tuple(row)].masked_fill(own == link.unsqueeze(-1), -torch.inf)
        others = torch.softmax(left, -1).nan_to_num(0.0)
        change = (others * gradient_of_weights[tuple(row)]).sum(-1)
        effects[saturated] = change - whole[tuple(row)].squeeze(-1)
    return weights, effects


def grouped(
    x: Float[Tensor, "*b k"], groups: Int64[Tensor, " k"], count: int | None
) -> Float[Tensor, "*b g"]:
    """The sums over the keys of each group; keys of group -1 are left out."""
    size = int(groups.max()) + 1 if count is None else count
    kept = groups >= 0
    out = x.new_zeros(*x.shape[:-1], size)
    return out.index_add_(-1, groups[kept].to(x.device), x[..., kept])
