"""Gradient × attention: relevance propagated through the heads that raise the metric."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.record import Look
from regard.lens.methods.method import Method, check_differentiable, layers, to_units
from regard.lens.predictions import Prediction

NAME = "gradient-attention"


def score(prediction: Prediction) -> Float[Tensor, " units"]:
    """The step's row of R, where R ← R + Ā R and Ā is the mean over heads of (∇A ⊙ A)⁺.

    Encoder–decoders follow the paper's rules for two sequences: cross-attention adds R̄ᵀ_dd Ā R̄_ee,
    with the relevance besides the identity normalised by row.
    """
    check_differentiable(NAME, prediction)
    own: Tensor | None = None
    source: Tensor | None = None
    between: Tensor | None = None
    for _, site, look in layers(prediction):
        step = _positive(look)
        if site.place == "cross":
            assert own is not None
            assert source is not None
            added = _normalised(own).mT @ step @ _normalised(source)
            between = added if between is None else between + added
        elif site.place == "encoder" and prediction.place == "cross":
            source = torch.eye(len(step)).to(step) if source is None else source
            source = source + step @ source
        else:
            own = torch.eye(len(step)).to(step) if own is None else own
            between = None if between is None else between + step @ between
            own = own + step @ own
    relevance = own if between is None else between
    assert relevance is not None
    return to_units(prediction, relevance[list(prediction.queries)].sum(0))


def _positive(look: Look) -> Float[Tensor, "q k"]:
    """The mean over heads of (∇A ⊙ A)⁺."""
    return (look.weights() * look.gradient_of_weights())[0].clamp(min=0).mean(0)


def _normalised(relevance: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """R − I with rows that sum to 1, and I added again."""
    identity = torch.eye(len(relevance)).to(relevance)
    rest = relevance - identity
    total = rest.sum(-1, keepdim=True)
    return (
        torch.where(total > 0, rest / total.clamp(min=torch.finfo(rest.dtype).tiny), 0) + identity
    )


METHOD = Method(
    NAME,
    "Chefer et al., Generic Attention-model Explainability for Interpreting Bi-Modal and "
    "Encoder-Decoder Transformers, 2021",
    score,
)
