"""PyTorch's own attention modules on their fast path, where a whole layer is one operator.

Its operators do not expose queries, keys and values. They are recomputed on demand, exact to the
rounding of a matrix product. Off that path the modules call `scaled_dot_product_attention` or a
softmax like others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import attend
from regard.attention.call import Call, autocast_disabled, autocasts, masked_softmax
from regard.attention.masks import Dense, Keys, Mask, Padding
from regard.attention.preparation import prepare
from regard.lens.capture.adapters.functional import Args, Named
from regard.lens.capture.forbidden import without
from regard.lens.capture.inputs import Change, Prepared, Sizes
from regard.lens.capture.modules import running
from regard.lens.capture.session import Operator, Session

_aten = torch.ops.aten
ATTENTION = _aten._native_multi_head_attention.default
LAYER = _aten._transformer_encoder_layer_fwd.default


class FastPath:
    """Adapter of `nn.MultiheadAttention` and `nn.TransformerEncoderLayer`."""

    def __init__(self) -> None:
        self.operators = {ATTENTION: self.attention, LAYER: self.layer}

    def install(self, session: Session) -> None:
        """Nothing to do: its operators are seen by the mode."""

    def remove(self, session: Session) -> None:
        """Nothing to do."""

    def attention(self, session: Session, func: Operator, args: Args, kwargs: Named) -> Any:
        """`nn.MultiheadAttention`."""
        given = _named(func, args, kwargs)
        inputs = projection_of(given)
        found = _without_forbidden(session, inputs, None)
        if found is None:
            return func(*args, **kwargs)
        call, output = found
        weights = masked_softmax(call.scores(*call.whole())) if given["need_weights"] else None
        if weights is not None and given["average_attn_weights"]:
            weights = weights.mean(1)
        return _like(_projected(output, given), inputs), weights

    def layer(self, session: Session, func: Operator, args: Args, kwargs: Named) -> Any:
        """`nn.TransformerEncoderLayer`."""
        given = _named(func, args, kwargs)
        inputs = projection_of(given)
        module = next((run.module for run in running()), None)
        owner = getattr(module, "self_attn", None)  # the name that it has off the fast path
        found = _without_forbidden(session, inputs, owner)
        if found is None:
            return func(*args, **kwargs)
        return _like(_rest_of_layer(found[1], inputs, given), inputs)


def _without_forbidden(
    session: Session, inputs: Projection, owner: nn.Module | None
) -> tuple[Call, Tensor] | None:
    """Announce a call; if links are cut, the call without them and its output ``(b, h, q, e)``."""
    place = session.place(None, inputs.tensors["x"], None, kind="self", owner=owner)
    if place is None:
        return None
    session.needs_gradient(place)
    forbidden = session.forbidden(place, inputs)
    if forbidden is None:
        session.announce(place, inputs, None)
        return None
    call = inputs.call()
    call, _ = without(call, forbidden.whole(call.sizes[2]).to(call.q.device))
    with session.whole(), torch.no_grad():
        output = attend(call.q, call.k, call.v, mask=call.mask)
    session.announce(place, Prepared(call), output)
    return call, output


def _rest_of_layer(output: Tensor, inputs: Projection, given: Named) -> Tensor:
    """The output of an encoder layer, from the output of its attention."""
    norms = [
        (given[f"norm_weight_{i}"].shape, given[f"norm_weight_{i}"], given[f"norm_bias_{i}"])
        for i in (1, 2)
    ]
    first, eps = given["norm_first"], given["eps"]
    x, act = inputs.padded(), F.gelu if given["use_gelu"] else F.relu
    x = x + _projected(output, given)
    x = x if first else F.layer_norm(x, *norms[0], eps)
    y = F.layer_norm(x, *norms[1], eps) if first else x
    y = act(F.linear(y, given["ffn_weight_1"], given["ffn_bias_1"]))
    x = x + F.linear(y, given["ffn_weight_2"], given["ffn_bias_2"])
    return x if first else F.layer_norm(x, *norms[1], eps)


def _projected(output: Tensor, given: Named) -> Tensor:
    """The heads' output ``(b, h, q, e)``, mixed."""
    return F.linear(output.transpose(1, 2).flatten(2), given["proj_weight"], given["proj_bias"])


def _like(x: Tensor, inputs: Projection) -> Tensor:
    """The result, nested if the layer's input is: padding has no place in it."""
    given = inputs.tensors["x"]
    return torch._nested_from_padded(x, given._nested_tensor_size()) if given.is_nested else x


def _named(func: Any, args: Args, kwargs: Named) -> Named:
    """The arguments of an operator by name, defaults included."""
    found = {one.name: one.default_value for one in func._schema.arguments}
    names = [one.name for one in func._schema.arguments]
    return {**found, **dict(zip(names, args, strict=False)), **kwargs}


@dataclass(frozen=True)
class Projection:
    """The arguments of an operator of the fast path: vectors before projection.

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
