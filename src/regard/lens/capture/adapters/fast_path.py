"""PyTorch's own attention modules on their fast path, where a whole layer is one operator.

Off that path they call `scaled_dot_product_attention` or a softmax like other modules.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import attend
from regard.attention.call import Call, masked_softmax
from regard.lens.capture.adapters.functional import Args, Named
from regard.lens.capture.forbidden import without
from regard.lens.capture.inputs import Prepared
from regard.lens.capture.modules import running
from regard.lens.capture.projection import Projection, projection_of
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
