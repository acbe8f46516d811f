"""Rollout: the share of each word in the step's row, along all paths of attention."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from regard.lens.measures import propagated
from regard.lens.methods.method import Method, layers, step_distribution, to_units
from regard.lens.predictions import Prediction


def score(prediction: Prediction) -> Float[Tensor, " units"]:
    """The share of each word, each sublayer half residual and half the mean of its heads.

    The paper is about encoders. In a translator the row goes from the decoder through
    cross-attention into the encoder; the rest has come from words written before.
    """
    here, source = step_distribution(prediction), None
    for _, site, look in reversed(layers(prediction)):
        if site.place == "cross":
            read = propagated(look, here) / 2
            source = read if source is None else source + read
            here = here / 2
        elif source is not None and site.place == "encoder":
            source = (source + propagated(look, source)) / 2
        else:
            here = (here + propagated(look, here)) / 2
    return to_units(prediction, here if source is None else source)


METHOD = Method(
    "rollout", "Abnar and Zuidema, Quantifying Attention Flow in Transformers, 2020", score
)
