"""Attention: how much the step's row looks at each word."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.lens.measures import attended
from regard.lens.methods.method import Method, layers, to_units
from regard.lens.predictions import Prediction


def heads(prediction: Prediction) -> Float[Tensor, "layers heads units"]:
    """The weights of the step's rows, on average over these, head by head."""
    looks = [look for _, site, look in layers(prediction) if site.place == prediction.place]
    weights = torch.stack([attended(look, prediction.queries) for look in looks])
    return to_units(prediction, weights)


def mean(prediction: Prediction) -> Float[Tensor, " units"]:
    """The mean over all layers and heads."""
    return heads(prediction).mean((0, 1))


def strongest(prediction: Prediction) -> Float[Tensor, " units"]:
    """The strongest of all heads."""
    return heads(prediction).amax((0, 1))


PAPER = "Bahdanau et al., Neural Machine Translation by Jointly Learning to Align and Translate"
MEAN = Method("attention", f"{PAPER}, 2015", mean)
STRONGEST = Method("attention-max", f"{PAPER}, 2015", strongest)
