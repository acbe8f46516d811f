"""Effects: the estimated effect of cutting the step's links to a word, from one backward pass."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from regard.lens.estimation import step_links
from regard.lens.methods.method import Method
from regard.lens.predictions import Prediction


def score(prediction: Prediction) -> Float[Tensor, " units"]:
    """The estimated loss of the metric, summed over all heads; see `regard.attention.link_effects`.

    Links are estimated one by one, each with the others in place.
    """
    return -step_links(prediction).effects.sum((0, 1))


METHOD = Method("effects", "regard, first-order effects of renormalised cuts", score)
