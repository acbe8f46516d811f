"""Norm: the length of each word's contribution to the step's row."""

from __future__ import annotations

from collections.abc import Iterator

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
    """The norms of each layer, all heads together, at the place of the prediction."""
    return to_units(prediction, torch.stack([norms(*one) for one in _passed(prediction)]))


def of_heads(prediction: Prediction) -> Float[Tensor, "layers heads units"]:
    """The norms of each head at the place of the prediction: ‖a v W_O‖."""
    found = [
        weights * torch.linalg.vector_norm(passed, dim=-1)
        for weights, passed in _passed(prediction)
    ]
    return to_units(prediction, torch.stack(found))


def _passed(
    prediction: Prediction,
) -> Iterator[tuple[Float[Tensor, "h k"], Float[Tensor, "h k width"]]]:
    """Of each layer at the place: the mean weights of the step's rows, and the projected values."""
    for name, site, look in layers(prediction):
        if site.place == prediction.place:
            passed = projected_values(look.v[0], prediction.output_matrices[name])
            yield mean_weights(look, prediction.queries), passed


METHOD = Method("norm", "Kobayashi et al., Attention is Not Only a Weight, 2020", score)
