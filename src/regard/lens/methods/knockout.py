"""Knockout: the loss when the links from the step's row to a word are cut."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from regard.lens.methods.method import Method
from regard.lens.predictions import Prediction


def score(prediction: Prediction) -> Float[Tensor, " units"]:
    """The loss of log p(token) − log p(instead) when all links from the step to a word are cut."""
    return prediction.metric(prediction.baseline) - prediction.metric(prediction.without_word)


METHOD = Method("knockout", "Geva et al., Dissecting Recall of Factual Associations, 2023", score)
