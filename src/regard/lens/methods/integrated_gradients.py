"""Integrated gradients: gradient × input along the path from zero vectors to the words."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.lens.methods.inputs import gradients
from regard.lens.methods.method import Method, check_differentiable, to_units
from regard.lens.predictions import Prediction
from regard.lens.predictions.prediction import TOKENS

NAME = "integrated-gradients"
STEPS = 64
"""Points on the path."""


def score(prediction: Prediction, steps: int = STEPS) -> Float[Tensor, " units"]:
    """x · ∫ ∂M/∂x(αx) dα, by the midpoint rule.

    The path begins with zero word vectors; positions are kept. All words are scaled together,
    special tokens too, so the scores sum to the change of the metric.
    """
    check_differentiable(NAME, prediction)
    shares = (torch.arange(steps) + 0.5) / steps
    size = max(1, TOKENS // max(1, prediction.length))
    total: Tensor | None = None
    for part in torch.split(shares, size):
        words, found = gradients(NAME, prediction, part)
        summed = found.sum(0)
        total = summed if total is None else total + summed
    assert total is not None
    return to_units(prediction, (words * total / steps).sum(-1))


METHOD = Method(NAME, "Sundararajan et al., Axiomatic Attribution for Deep Networks, 2017", score)
