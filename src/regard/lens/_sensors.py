"""Where calls of attention are heard: each way of making one, followed through.

Every sensor does the same. It brings the call into regard's form, asks whether somebody forbids
some of its pairs, runs it as the model would, and tells what ran.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import handle_torch_function

from regard.attention import attend
from regard.attention._call import HALF, Call, autocasts, exactly
from regard.attention.operation import Result
from regard.lens._forbidden import run_without, without
from regard.lens._frames import Frame
from regard.lens._listener import Function
from regard.lens._listening import Session, current
from regard.lens._projection import from_fast_attention, from_fast_layer, from_layer
from regard.lens._torch_calls import Asked, from_eager, from_sdpa

Arguments = tuple[Any, ...]
Named = dict[str, Any]

_SDPA = inspect.signature(from_sdpa)
_LAYER = inspect.signature(from_layer)


def _heard(
    handler: Callable[[Session, Function, Arguments, Named], Any],
) -> Callable[[Function], Function]:
    """What makes of a function the same function, but with the handler if somebody listens."""

    def wrap(function: Function) -> Function:
        @wraps(function)
        def heard(*args: Any, **kwargs: Any) -> Any:
            deciding = _deciding(args, kwargs)
            if (
                deciding
            ):  # asked as torch asks them, of the function that is now found under its name
                found = getattr(F, getattr(function, "__name__", ""), heard)
                return handle_torch_function(found, deciding, *args, **kwargs)
            session = current()
            if session is None or session.busy:
                return function(*args, **kwargs)
            with session.alone():
                return handler(session, function, args, kwargs)

        return heard

    return wrap


@cache
def _decides(kind: type[Tensor]) -> bool:
    """Whether a kind of tensor has something of its own to say."""
    how = getattr(kind.__torch_function__, "__func__", kind.__torch_function__)
    plain = getattr(Tensor.__torch_function__, "__func__", Tensor.__torch_function__)
    return how is not plain and how is not torch._C._disabled_torch_function_impl


def _deciding(args: Arguments, kwargs: Named) -> list[Tensor]:
    """Tensors among the arguments whose kind decides what a torch function does with them.

    But not nested ones, which cannot be seen through.
    """
    if not torch._C._is_torch_function_enabled():
        return []
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
    return [x for x in tensors if type(x) is not Tensor and not x.is_nested and _decides(type(x))]


@_heard
def sdpa(session: Session, function: Function, args: Arguments, kwargs: Named) -> Tensor:
    """`torch.nn.functional.scaled_dot_product_attention`."""
    if not session.cuts:
        output: Tensor = function(*args, **kwargs)  # first, for it knows best what is wrong
        asked = dict(zip(_SDPA.parameters, args, strict=False)) | kwargs
        q, k, v = asked["query"], asked["key"], asked["value"]
        later = not (autocasts(q.device) or q.is_nested or k.is_nested or v.is_nested)
        call = Asked(asked) if later else from_sdpa(**asked)
        session.saw(session.kind(q, k, v), call, output)
        session.belongs(output, q)
        return output
    call, kind = from_sdpa(*args, **kwargs), session.kind(*_qkv(args, kwargs))
    forbidden = session.forbidden(kind, call)
    if forbidden is None:
        output = function(*args, **kwargs)
    else:
        given = _SDPA.bind(*args, **kwargs).arguments
        call, hide, empty = without(call, forbidden.whole(call.sizes[2]))
        hide = call.restore(hide.expand(call.sizes))
        mask = given.get("attn_mask")
        if given.pop("is_causal", False):
            mask = torch.ones(call.sizes[2:], dtype=torch.bool, device=hide.device).tril()
        given["attn_mask"] = ~hide if mask is None else _hidden(mask, hide)
        output = function(**given).masked_fill(call.restore(empty.expand(*call.sizes[:3], 1)), 0.0)
    session.saw(kind, call, output)
    session.belongs(output, _qkv(args, kwargs)[0])
    return output


def _hidden(mask: Tensor, hide: Tensor) -> Tensor:
    """A mask as torch has it, which hides more."""
    return mask & ~hide if mask.dtype == torch.bool else torch.where(hide, -torch.inf, mask)


def _qkv(args: Arguments, kwargs: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    given = {**dict(zip(("query", "key", "value"), args, strict=False)), **kwargs}
    return given["query"], given["key"], given["value"]


@cache
def eager(function: Function) -> Function:
    """A function of transformers that writes the weights out: its result and they are returned.

    It takes a module, queries, keys and values, a mask that is added to the scores, and more.
    """
    signature = inspect.signature(function)

    @_heard
    def handler(session: Session, function: Function, args: Arguments, kwargs: Named) -> Any:
        bound = signature.bind(*args, **kwargs)
        module, query, key, value = list(bound.arguments.values())[:4]
        names = ("attention_mask", "scaling", "softcap", "position_bias")
        given = {name: bound.arguments[name] for name in names if name in bound.arguments}
        dropout = bound.arguments.get("dropout", 0.0) if module.training else 0.0
        call = from_eager(query, key, value, dropout=dropout, **given)
        kind = session.kind(query, key, value)
        forbidden = session.forbidden(kind, call) if session.cuts else None
        if forbidden is None:
            output, weights, *rest = function(*args, **kwargs)
            doubt = _doubt(call, weights, function, module)
        else:
            call, hide, empty = without(call, forbidden.whole(call.sizes[2]))
            mask = given.get("attention_mask")
            mask = query.new_zeros(1) if mask is None else mask[..., : key.shape[-2]]
            bound.arguments["attention_mask"] = _hidden(mask, hide)
            output, weights, *rest = function(*bound.args, **bound.kwargs)
            output = output.masked_fill(empty.transpose(1, 2), 0.0)  # (b, q, h, d)
            weights = weights if weights is None else weights.masked_fill(empty, 0.0)
            doubt = ""
        by_head = output.transpose(1, 2)
        if output.requires_grad:
            output = by_head.transpose(1, 2)  # so that a hook on `by_head` is in the graph
        session.saw(kind, call, by_head, module, doubt)
        session.belongs(output, query)
        return (output, weights, *rest)

    return handler(function)


def _doubt(call: Call, weights: object, function: Function, module: nn.Module) -> str:
    """Why the call does not explain the weights that came of it, by its last query; "" if it does.

    Each model brings a function of its own, and some do more than their arguments say.
    """
    b, h, q, k = call.sizes
    if not isinstance(weights, Tensor) or weights.shape != (b, h, q, k) or call.dropout:
        return ""
    with torch.no_grad(), exactly(call.q.device):
        scores = call.scores(slice(q - 1, q), slice(0, k))
        ours = torch.softmax(scores, -1).nan_to_num()
        error = float((ours - weights[:, :, q - 1 :].to(ours.dtype).nan_to_num()).abs().max())
    if error <= (3e-2 if call.q.dtype in HALF else 1e-3):
        return ""
    return (
        f"watch: {type(module).__name__} does more than softmax of scaled products and mask (in "
        f"{function.__module__}.{function.__qualname__}): weights differ by {error:.2g}; ask the "
        "model for them with output_attentions=True"
    )


@_heard
def layer(session: Session, function: Function, args: Arguments, kwargs: Named) -> Any:
    """`torch.nn.functional.multi_head_attention_forward`."""
    projection = from_layer(*args, **kwargs)
    query, key, value = _qkv(args, kwargs)
    one = query is key or query is value or query.data_ptr() in (key.data_ptr(), value.data_ptr())
    kind = "self" if one or _handed_one(session.frame) else "cross"
    forbidden = session.forbidden(kind, projection) if session.cuts else None
    if forbidden is None:
        result = function(*args, **kwargs)
        session.saw(kind, projection, None)
        session.belongs(result, query)
        return result
    call = projection.call()
    own = call.sizes[3] - forbidden.pairs.shape[3]  # keys that the layer adds of its own
    call, _, _ = without(call, F.pad(forbidden.whole(call.sizes[2]), (0, own)))
    bound = _LAYER.bind(*args, **kwargs)
    bound.apply_defaults()
    output = attend(call.q, call.k, call.v, mask=call.mask, bias=call.bias, dropout=call.dropout)
    session.saw(kind, call, output)
    result = _finished(output, call, bound.arguments)
    session.belongs(result, query)
    return result


def _handed_one(frame: Frame | None) -> bool:
    """Whether the queries and values that a layer of torch was given are forms of one sequence."""
    if frame is None or type(frame.module).forward is not nn.MultiheadAttention.forward:
        return False
    query, _, value = _qkv(frame.args, frame.named)
    return frame.are_forms_of_one([query], [value])


def _finished(output: Tensor, call: Call, given: Named) -> tuple[Tensor, Tensor | None]:
    """What the layer makes of the output of attention, and the weights if it was asked for them."""
    batched = given["query"].dim() == 3
    joined = output.permute(2, 0, 1, 3).flatten(2)  # (q, b, width)
    joined = F.linear(joined, given["out_proj_weight"], given["out_proj_bias"])
    weights = None
    if given["need_weights"]:
        scores = call.scores(*call.whole())
        nothing = (scores == -torch.inf).all(-1, keepdim=True)
        weights = torch.softmax(scores.masked_fill(nothing, 0.0), -1).masked_fill(nothing, 0.0)
        weights = weights.mean(1) if given["average_attn_weights"] else weights
    if batched:
        return joined, weights
    return joined.squeeze(1), None if weights is None else weights.squeeze(0)


@_heard
def fast_attention(session: Session, function: Function, args: Arguments, kwargs: Named) -> Any:
    """`torch._native_multi_head_attention`: `nn.MultiheadAttention` on its fast path."""
    result = function(*args, **kwargs)
    session.saw("self", from_fast_attention(*args, **kwargs), None)
    return result


@_heard
def fast_layer(session: Session, function: Function, args: Arguments, kwargs: Named) -> Any:
    """`torch._transformer_encoder_layer_fwd`: `nn.TransformerEncoderLayer` on its fast path."""
    result = function(*args, **kwargs)
    module = None if session.frame is None else session.frame.module
    owner = getattr(module, "self_attn", None)  # the name that it has off the fast path
    session.saw("self", from_fast_layer(*args, **kwargs), None, owner)
    return result


def own(call: Call, compute: Callable[[Call], Result]) -> Result:
    """regard's `attend` and `look`."""
    return _own(compute)(call)  # type: ignore[no-any-return]


@_heard
def _own(session: Session, function: Function, args: Arguments, kwargs: Named) -> Result:
    call: Call = args[0]
    kind = session.kind(call.q, call.k, call.v)
    forbidden = session.forbidden(kind, call) if session.cuts else None
    result: Result
    if forbidden is None:
        result = function(call)
    else:
        call, result = run_without(call, forbidden, function)
    session.saw(kind, call, result[0])
    session.belongs(result[0], call.q)
    return result
