"""Calls of attention as PyTorch and transformers write them, brought into the form of `Call`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.attention._call import Call, autocasts, exactly
from regard.attention._prepare import prepare
from regard.attention.masks import Causal, Dense, Mask, causal
from regard.attention.scores import Scaled, Score
from regard.errors import OptionError


@dataclass(frozen=True)
class Capped:
    """The dot product times a factor, bent so that it never exceeds a cap: cap · tanh(x / cap).

    Gemma Team, "Gemma 2", 2024.
    """

    factor: float
    cap: float

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.tanh(q @ k.mT * (self.factor / self.cap)) * self.cap


@dataclass(frozen=True)
class Asked:
    """What `scaled_dot_product_attention` was given, not looked at any closer yet."""

    given: dict[str, Any]
    """The arguments of `from_sdpa`, by name."""

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """b, h, q and k."""
        return self.call().sizes

    def map(
        self, change: Callable[[Tensor], Tensor], change_mask: Callable[[Tensor], Tensor]
    ) -> Asked:
        """The same with every tensor changed."""
        changed = {
            name: (change_mask if name == "attn_mask" else change)(x)
            for name, x in self.given.items()
            if isinstance(x, Tensor)
        }
        return Asked(self.given | changed)

    def call(self) -> Call:
        """The call in regard's form; that it was made without autocast is known."""
        with exactly(self.given["query"].device):
            return from_sdpa(**self.given)


def from_sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Call:
    """A call of `scaled_dot_product_attention`."""
    if query.is_nested or key.is_nested or value.is_nested:
        raise OptionError(
            "watch: scaled_dot_product_attention is called with nested tensors, which cannot be "
            "seen through; run the model on padded ones, with a mask"
        )
    mask: Mask | None = None
    if is_causal:
        mask = causal if query.shape[-2] == key.shape[-2] else Causal(from_start=True)
    return _prepared(query, key, value, mask, attn_mask, scale, None, dropout_p)


def from_eager(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
) -> Call:
    """A call of an attention function of transformers that writes the weights out."""
    if attention_mask is not None:
        attention_mask = attention_mask[..., : key.shape[-2]]
    if position_bias is not None:
        position_bias = position_bias[..., : key.shape[-2]]
        attention_mask = position_bias if attention_mask is None else position_bias + attention_mask
    return _prepared(query, key, value, None, attention_mask, scaling, softcap, dropout)


def _prepared(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | None,
    given: Tensor | None,
    scale: float | None,
    cap: float | None,
    dropout: float,
) -> Call:
    """The call, where `given` is a mask if it is bool, and else added to the scores."""
    bias = None
    if given is not None:
        given = given if given.dim() > 1 else given.unsqueeze(0)
        if given.dtype == torch.bool:
            mask = Dense(given) if mask is None else mask & Dense(given)
        else:
            bias = given
            if autocasts(given.device):  # torch converts it with the queries
                bias = bias.to(torch.get_autocast_dtype(given.device.type))
    score: str | Score = "scaled_dot" if scale is None else Scaled(float(scale))
    if cap is not None:
        score = Capped(query.shape[-1] ** -0.5 if scale is None else float(scale), float(cap))
    return prepare("watch", query, key, value, mask, bias, score, float(dropout))
