"""What attention should give, written from its definition alone, in float64 with dense masks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Truth:
    """All that a call of attention should give."""

    scores: Tensor
    """What enters the softmax; masked places are -inf."""
    weights: Tensor
    logsumexp: Tensor
    output: Tensor


def attention(raw: Tensor, seen: Tensor, v: Tensor) -> Truth:
    """Attention over scores ``(b, h, q, k)``, a bool mask alike, and values ``(b, h, k, e)``."""
    scores = raw.masked_fill(~seen, -torch.inf)
    nothing = (scores == -torch.inf).all(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(nothing, 0.0), -1).masked_fill(nothing, 0.0)
    logsumexp = torch.logsumexp(scores.masked_fill(nothing, 0.0), -1)
    logsumexp = logsumexp.masked_fill(nothing.squeeze(-1), -torch.inf)
    return Truth(scores, weights, logsumexp, weights @ v)


def score(name: str, q: Tensor, k: Tensor, factor: float, weight: Tensor | None) -> Tensor:
    """Scores by name, from their formulas."""
    if name == "dot":
        return q @ k.mT * factor
    if name == "cosine":
        lengths = q.norm(dim=-1).clamp_min(1e-12).unsqueeze(-1)
        others = k.norm(dim=-1).clamp_min(1e-12).unsqueeze(-2)
        return q @ k.mT / lengths / others
    if name == "gaussian":
        return -(q.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(-1) / 2
    if name == "bilinear":
        assert weight is not None
        return q @ weight @ k.mT
    return -(q.unsqueeze(-2) - k.unsqueeze(-3)).abs().sum(-1)


def alibi(heads: int, q: int, k: int) -> Tensor:
    """Minus distance times slope, for a number of heads that is a power of two."""
    slopes = torch.tensor([2.0 ** (-8.0 * (i + 1) / heads) for i in range(heads)]).double()
    rows, cols = places(q, k)
    return -slopes[:, None, None] * (rows - cols).abs()


def places(q: int, k: int) -> tuple[Tensor, Tensor]:
    """The positions of queries, aligned at the end, and of keys."""
    return torch.arange(q)[:, None] + k - q, torch.arange(k)[None, :]
