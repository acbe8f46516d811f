"""When exponentials may be taken as they are.

A softmax subtracts the largest number of a row first, so that no exponential overflows and not all
are 0. As long as their sum is near enough to 1, that changes nothing, and costs as much again.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

FAR = 1e10
"""Sums up to this, and down to its inverse, have lost nothing; nor has what their terms are
multiplied with, unless it is itself near the end of what float32 has, 1e±38."""


def near(sums: Float[Tensor, "*rows"]) -> Bool[Tensor, "*rows"]:
    """Which sums of exponentials can be relied on; neither NaN nor 0 can."""
    return (sums > 1 / FAR) & (sums < FAR)


def all_near(sums: Float[Tensor, "*rows"]) -> bool:
    """Whether all can."""
    least, most = torch.aminmax(sums)
    return least.item() > 1 / FAR and most.item() < FAR
