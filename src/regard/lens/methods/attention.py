"""Attention: the weights of the step's row."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.lens.measures import mean_weights
from regard.lens.methods.method import Method, layers, to_units
from regard.lens.predictions import Prediction


def heads(prediction: Prediction) -> Float[Tensor, "layers heads units"]:
    """The mean weights of the step's rows, by layer and head."""
    looks = [look for _, site, look in layers(prediction) if site.place == prediction.place]
    weights = torch.stack([mean_weights(look, prediction.queries) for look in looks])
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
