"""Norm: the length of each word's contribution to the step's row."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.lens.measures import mean_weights, norms, projected_values
from regard.lens.methods.method import Method, layers, to_units
from regard.lens.predictions import Prediction


def score(prediction: Prediction) -> Float[Tensor, " units"]:
    """‖Σ_h a_h v_h W_O‖, the mean over layers, summed over the tokens of a word."""
    return of_layers(prediction).mean(0)


def of_layers(prediction: Prediction) -> Float[Tensor, "layers units"]:
    """The norms of each layer at the place of the prediction."""
    found = []
    for name, site, look in layers(prediction):
        if site.place == prediction.place:
            passed = projected_values(look.v[0], prediction.output_matrices[name])
            found.append(norms(mean_weights(look, prediction.queries), passed))
    return to_units(prediction, torch.stack(found))


METHOD = Method("norm", "Kobayashi et al., Attention is Not Only a Weight, 2020", score)
