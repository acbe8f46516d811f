"""Sampling from logits: top-k and top-p."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def likeliest(
    logits: Float[Tensor, "rows vocabulary"], top_k: int | None, top_p: float | int | None
) -> tuple[Float[Tensor, "rows kept"], Int[Tensor, "rows kept"]]:
    """Probabilities for sampling and the words they belong to, likeliest first.

    Of the `top_k` likeliest words, those beyond the fewest that sum to `top_p` have probability 0.
    All words, in order of their ids, if neither is given.

    Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020 (`top_p`).
    """
    rows, vocabulary = logits.shape
    if top_k is None and top_p is None:
        return logits.softmax(-1), torch.arange(vocabulary, device=logits.device).expand(rows, -1)
    logits, words = logits.topk(vocabulary if top_k is None else min(top_k, vocabulary), -1)
    p = logits.softmax(-1)
    return p if top_p is None else p.masked_fill(p.cumsum(-1) - p >= top_p, 0.0), words
