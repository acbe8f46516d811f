"""Calls of torch's own layers, which are given vectors and make queries, keys and values of them.

`nn.MultiheadAttention` and, on its fast path, `nn.TransformerEncoderLayer` never show what they
compare. It is made again when it is asked for, exact to the rounding of a matrix product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention._call import Call, autocasts, exactly
from regard.attention._prepare import prepare
from regard.attention.masks import Causal, Dense, Keys, Mask, Padding, causal
from regard.errors import OptionError


@dataclass(frozen=True)
class Projection:
    """What such a layer was given.

    Tensors by name: ``query``, ``key``, ``value`` ``(b, n, width)``; ``weight`` of all three, or
    ``q_weight``, ``k_weight``, ``v_weight``, as torch has them; ``bias``; a ``norm_weight`` and
    ``norm_bias`` that come before all; a key ``bias_k`` and a value ``bias_v`` of the layer's own;
    and the masks. In ``attn_mask`` ``(#b, #h, q, k)`` and ``key_padding_mask`` ``(b, k)`` True
    forbids, and numbers are added to the scores.
    """

    tensors: dict[str, Tensor]
    heads: int
    causal: bool = False
    dropout: float = 0.0
    epsilon: float | None = None
    """Of the norm, if there is one."""
    zeros: bool = False
    """Whether a key and a value of zeros follow at the very end."""
    autocast: torch.dtype | None = None
    fast: bool = False
    """Whether this is torch's fast path, where whatever is not 0 in a mask forbids."""

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """b, h, q and k, without the keys that the layer adds of its own."""
        query, key = self.tensors["query"], self.tensors["key"]
        if query.is_nested:
            b, longest = query.size(0), int(_lengths(query).max())
            return b, self.heads, longest, longest
        return query.shape[0], self.heads, query.shape[1], key.shape[1]

    def map(
        self, change: Callable[[Tensor], Tensor], change_mask: Callable[[Tensor], Tensor]
    ) -> Projection:
        """The same with every tensor changed; one that has several roles is changed once."""
        changed: dict[int, Tensor] = {}
        for name, tensor in self.tensors.items():
            if id(tensor) not in changed:
                changed[id(tensor)] = (change_mask if "mask" in name else change)(tensor)
        return replace(self, tensors={name: changed[id(x)] for name, x in self.tensors.items()})

    def call(self) -> Call:
        """The call of attention that the layer makes."""
        device = self.tensors["query"].device
        with torch.autocast(device.type, dtype=self.autocast, enabled=self.autocast is not None):
            q, k, v = self._projected()
        with exactly(device):
            mask, bias = self._masks(k.shape[2])
            return prepare("watch", q, k, v, mask, bias, "scaled_dot", self.dropout)

    def _projected(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values ``(b, h, n, d)``."""
        weights = [self.tensors.get(f"{name}_weight") for name in "qkv"]
        if "weight" in self.tensors:
            weights = list(self.tensors["weight"].chunk(3))
        biases = self.tensors["bias"].chunk(3) if "bias" in self.tensors else (None,) * 3
        made = []
        for name, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
            x = self.tensors[name]
            x = x.to_padded_tensor(0.0) if x.is_nested else x
            if self.epsilon is not None:
                norm = self.tensors.get("norm_weight"), self.tensors.get("norm_bias")
                x = F.layer_norm(x, x.shape[-1:], *norm, self.epsilon)
            assert weight is not None
            x = F.linear(x, weight, bias)
            own = self.tensors.get({"key": "bias_k", "value": "bias_v"}.get(name, ""))
            if own is not None:
                x = torch.cat((x, own.reshape(1, 1, -1).expand(len(x), 1, -1).to(x.dtype)), 1)
            x = x.view(*x.shape[:2], self.heads, x.shape[2] // self.heads).transpose(1, 2)
            made.append(F.pad(x, (0, 0, 0, 1)) if self.zeros and name != "query" else x)
        return made[0], made[1], made[2]

    def _masks(self, keys: int) -> tuple[Mask | None, Tensor | None]:
        """Who may look at whom, and what is added to the scores; all see the layer's own keys."""
        masks: list[Mask] = []
        biases: list[Tensor] = []
        query = self.tensors["query"]
        if query.is_nested:
            there = Padding(_lengths(query))
            masks.append(there)
            masks.append(Dense(there.tensor(1, keys).mT))  # words that are not there see nothing
        if self.causal:
            masks.append(causal if query.shape[1] == keys else Causal(from_start=True))
        for name in ("attn_mask", "key_padding_mask"):
            given = self.tensors.get(name)
            if given is None:
                continue
            given = _slim(given)
            forbids = self.fast or given.dtype == torch.bool
            given = F.pad(given.to(torch.bool) if forbids else given, (0, keys - given.shape[-1]))
            if not forbids:
                biases.append(given if given.dim() == 4 else given[:, None, None])
            else:
                masks.append(Dense(~given) if given.dim() == 4 else Keys(~given))
        mask = masks[0] if masks else None
        for other in masks[1:]:
            mask = mask & other if mask is not None else other
        bias = biases[0] + biases[1] if len(biases) > 1 else biases[0] if biases else None
        return mask, bias


def from_layer(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Projection:
    """A call of `torch.nn.functional.multi_head_attention_forward`: its arguments."""
    if static_k is not None or static_v is not None:
        raise OptionError(
            "watch: multi_head_attention_forward with static_k or static_v cannot be seen through; "
            "call scaled_dot_product_attention with the keys and values"
        )
    tensors = _batches_first(query, key, value)
    b, heads, q, k = len(tensors["query"]), num_heads, query.shape[0], key.shape[0]
    hint = is_causal and key_padding_mask is None and not need_weights
    if attn_mask is not None and not hint:
        shape = (1, 1, q, k) if attn_mask.dim() == 2 else (b, heads, q, k)
        tensors["attn_mask"] = attn_mask.reshape(shape)
    if key_padding_mask is not None:
        tensors["key_padding_mask"] = key_padding_mask.reshape(b, k)
    named = {
        "weight": None if use_separate_proj_weight else in_proj_weight,
        "q_weight": q_proj_weight,
        "k_weight": k_proj_weight,
        "v_weight": v_proj_weight,
        "bias": in_proj_bias,
        "bias_k": bias_k,
        "bias_v": bias_v,
    }
    tensors.update({name: x for name, x in named.items() if x is not None})
    return Projection(
        tensors,
        num_heads,
        causal=hint,
        dropout=dropout_p if training else 0.0,
        zeros=add_zero_attn,
        autocast=_autocast(query),
    )


def from_fast_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Projection:
    """A call of `torch._native_multi_head_attention`: its arguments."""
    return _fast(query, num_head, qkv_weight, qkv_bias, mask, mask_type)


def from_fast_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Projection:
    """A call of `torch._transformer_encoder_layer_fwd`: its arguments."""
    projection = _fast(src, num_heads, qkv_weight, qkv_bias, mask, mask_type)
    if not norm_first:
        return projection
    norm = {"norm_weight": norm_weight_1, "norm_bias": norm_bias_1}
    return replace(projection, tensors=projection.tensors | norm, epsilon=eps)


def _fast(
    query: Tensor,
    heads: int,
    weight: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    mask_type: int | None,
) -> Projection:
    """A call on the fast path, where a mask of type 1 is ``(b, k)``."""
    tensors = {"query": query, "key": query, "value": query, "weight": weight, "bias": bias}
    if mask is not None and mask_type == 1:
        tensors["key_padding_mask"] = mask
    elif mask is not None:
        tensors["attn_mask"] = mask[(None,) * (4 - mask.dim())]
    return Projection(tensors, heads, fast=True, autocast=_autocast(query))


def _batches_first(query: Tensor, key: Tensor, value: Tensor) -> dict[str, Tensor]:
    """From ``(n, b, width)`` or ``(n, width)`` to ``(b, n, width)``; what is one stays one."""
    changed: dict[int, Tensor] = {}
    for x in (query, key, value):
        changed[id(x)] = x.transpose(0, 1) if x.dim() == 3 else x.unsqueeze(0)
    return {"query": changed[id(query)], "key": changed[id(key)], "value": changed[id(value)]}


def _slim(x: Tensor) -> Tensor:
    """A mask without the repetitions that expanding made."""
    for axis in range(x.dim() - 1):
        if x.shape[axis] > 1 and x.stride(axis) == 0:
            x = x.narrow(axis, 0, 1)
    return x


def _autocast(x: Tensor) -> torch.dtype | None:
    return torch.get_autocast_dtype(x.device.type) if autocasts(x.device) else None


def _lengths(nested: Tensor) -> Tensor:
    return nested._nested_tensor_size()[:, 0]
