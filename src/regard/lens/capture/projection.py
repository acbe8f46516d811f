"""Inputs of PyTorch's attention modules on their fast path: vectors, before projection.

The fused operators of `nn.MultiheadAttention` and `nn.TransformerEncoderLayer` do not expose
queries, keys and values. They are recomputed on demand, exact to the rounding of a matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.call import Call, autocast_disabled, autocasts
from regard.attention.masks import Dense, Keys, Mask, Padding
from regard.attention.preparation import prepare
from regard.lens.capture.inputs import Change, Sizes


@dataclass(frozen=True)
class Projection:
    """The arguments of such an operator.

    Tensors by name: ``x`` ``(b, n, width)``, which may be nested; ``weight`` and ``bias`` of
    queries, keys and values together; a ``norm_weight`` and ``norm_bias`` that come before; and a
    mask, where whatever is not 0 forbids: ``attn_mask`` ``(#b, #h, q, k)`` or
    ``key_padding_mask`` ``(b, k)``.
    """

    tensors: dict[str, Tensor]
    heads: int
    epsilon: float | None = None
    """Of the norm, if there is one."""
    autocast: torch.dtype | None = None

    @property
    def sizes(self) -> Sizes:
        x = self.tensors["x"]
        n = int(_lengths(x).max()) if x.is_nested else x.shape[1]
        return x.size(0), self.heads, n, n

    @property
    def keys(self) -> tuple[Tensor, ...]:
        return ()

    def in_use(self) -> int:
        return self.sizes[3]

    def map(self, change: Change, change_mask: Change) -> Projection:
        changed = {
            name: (change_mask if "mask" in name else change)(x) for name, x in self.tensors.items()
        }
        return replace(self, tensors=changed)

    def with_keys(self, *keys: Tensor) -> Projection:
        return self

    def call(self) -> Call:
        device = self.tensors["x"].device
        with torch.autocast(device.type, dtype=self.autocast, enabled=self.autocast is not None):
            x = self.padded()
            if self.epsilon is not None:
                norm = self.tensors.get("norm_weight"), self.tensors.get("norm_bias")
                x = F.layer_norm(x, x.shape[-1:], *norm, self.epsilon)
            x = F.linear(x, self.tensors["weight"], self.tensors["bias"])
            q, k, v = x.view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        with autocast_disabled(device):
            return prepare("watch", q, k, v, self._mask(), None, "scaled_dot", 0.0)

    def padded(self) -> Tensor:
        """The vectors ``(b, n, width)``, with zeros where a nested tensor has none."""
        x = self.tensors["x"]
        return x.to_padded_tensor(0.0) if x.is_nested else x

    def _mask(self) -> Mask | None:
        x, masks = self.tensors["x"], []
        if x.is_nested:
            there: Mask = Padding(_lengths(x))
            masks += [there, Dense(there.tensor(1, self.sizes[3]).mT)]  # padding sees nothing
        if "key_padding_mask" in self.tensors:
            masks.append(Keys(~_slim(self.tensors["key_padding_mask"]).to(torch.bool)))
        if "attn_mask" in self.tensors:
            masks.append(Dense(~_slim(self.tensors["attn_mask"]).to(torch.bool)))
        return reduce(and_, masks) if masks else None


def projection_of(arguments: dict[str, Any]) -> Projection:
    """A call on the fast path, from the arguments of its operator by name.

    `torch._native_multi_head_attention` or `torch._transformer_encoder_layer_fwd`; a mask of type 1
    is ``(b, k)``.
    """
    x = arguments["src" if "src" in arguments else "query"]
    heads = arguments["num_heads" if "num_heads" in arguments else "num_head"]
    tensors = {"x": x, "weight": arguments["qkv_weight"], "bias": arguments["qkv_bias"]}
    mask, epsilon = arguments["mask"], None
    if mask is not None and arguments["mask_type"] == 1:
        tensors["key_padding_mask"] = mask
    elif mask is not None:
        tensors["attn_mask"] = mask[(None,) * (4 - mask.dim())]
    if arguments.get("norm_first"):
        epsilon = arguments["eps"]
        tensors |= {f"norm_{one}": arguments[f"norm_{one}_1"] for one in ("weight", "bias")}
    autocast = torch.get_autocast_dtype(x.device.type) if autocasts(x.device) else None
    return Projection(tensors, heads, epsilon, autocast)


def _slim(x: Tensor) -> Tensor:
    """A mask with expanded axes reduced to size 1."""
    for axis in range(x.dim() - 1):
        if x.shape[axis] > 1 and x.stride(axis) == 0:
            x = x.narrow(axis, 0, 1)
    return x


def _lengths(nested: Tensor) -> Tensor:
    return nested._nested_tensor_size()[:, 0]
