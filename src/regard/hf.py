"""`attend` inside the models of transformers: ``model.set_attn_implementation("regard")``.

Importing this module registers the implementation. Masks of any kind, sliding windows, caches,
grouped heads, soft-capping, attention sinks and position biases go through `attend`, and so to its
native kernel.

>>> import regard.hf
>>> model.set_attn_implementation("regard")  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from regard.attention import Scaled, Softcap, attend
from regard.attention.masks import Causal, Mask

__all__ = ["attention"]


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The output ``(b, q, h, e)`` of attention as transformers calls it, and no weights.

    A mask is bool, True = may attend, or additive. Without one, queries of a causal module are
    aligned with the first keys, as in transformers' "sdpa".
    """
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    mask: Mask | Tensor | None = None
    bias = position_bias
    if attention_mask is None:
        q = query.shape[2]
        if causal and q > 1:  # no query sees a key beyond the first q: a static cache has more
            key, value = key[:, :, :q], value[:, :, :q]
            bias = None if bias is None else bias[..., :q]
            mask = Causal(from_start=True)
    elif attention_mask.dtype == torch.bool:
        mask = attention_mask[..., : key.shape[2]]
    else:
        term = attention_mask[..., : key.shape[2]]
        bias = term if bias is None else bias + term
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    output = attend(
        query,
        key,
        value,
        mask=mask,
        bias=bias,
        score=Softcap(float(softcap), scale) if softcap else Scaled(scale),
        dropout=dropout,
        sink=s_aux,
    )
    return output.transpose(1, 2).contiguous(), None


AttentionInterface.register("regard", attention)
AttentionMaskInterface.register("regard", sdpa_mask)
