"""Gradient × input: the change of the metric along the vector of each word."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.lens.methods.inputs import gradients
from regard.lens.methods.method import Method, check_differentiable, to_units
from regard.lens.predictions import Prediction

NAME = "gradient-input"


def score(prediction: Prediction) -> Float[Tensor, " units"]:
    """∂M/∂x · x for the vector x of each word, without its position."""
    check_differentiable(NAME, prediction)
    words, found = gradients(NAME, prediction, torch.ones(1))
    return to_units(prediction, (words * found[0]).sum(-1))


METHOD = Method(NAME, "Shrikumar et al., Not Just a Black Box, 2016; Denil et al., 2015", score)
