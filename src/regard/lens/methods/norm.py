"""Norm: the length of what the heads pass on from each word to the step's row."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.lens.measures import attended, norms, passed_on
from regard.lens.methods.method import Method, layers, to_units
from regard.lens.predictions import Prediction


def score(prediction: Prediction) -> Float[Tensor, " units"]:
    """‖Σ_h a_h v_h W_O‖, on average over the layers; subwords of a word are added up."""
    return of_layers(prediction).mean(0)


def of_layers(prediction: Prediction) -> Float[Tensor, "layers units"]:
    """The same of each layer at the place of the prediction."""
    found = []
    for name, site, look in layers(prediction):
        if site.place == prediction.place:
            passed = passed_on(look.v[0], prediction.output_matrices[name])
            found.append(norms(attended(look, prediction.queries), passed))
    return to_units(prediction, torch.stack(found))


METHOD = Method("norm", "Kobayashi et al., Attention is Not Only a Weight, 2020", score)
