"""transformers' attention functions, which are looked up by name for each call.

Their arguments are queries, keys and values before grouped heads are repeated, the scale, the mask
and more. What is captured are the operators inside; the arguments serve to keep less: grouped keys
instead of repeated ones, queries and keys instead of all weights.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor

from regard.attention.call import HALF, Call, autocast_disabled
from regard.errors import RegardError
from regard.lens.capture.adapters.installation import Installation, Undo
from regard.lens.capture.inputs import DotProduct, Inputs, Weights
from regard.lens.capture.record import Gradients
from regard.lens.capture.session import current
from regard.lens.capture.storage import counted_views

Function = Callable[..., Any]


@dataclass(eq=False)
class Announcement:
    """The arguments of a running attention function."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None = None
    scaling: float | None = None
    softcap: float | None = None
    position_bias: Tensor | None = None
    dropout: float = 0.0
    gradients: Gradients | None = None
    """Where the gradient of the function's output is wanted, if it is."""

    def refine(self, inputs: DotProduct) -> DotProduct:
        """The inputs of an operator, with keys and values before heads were repeated."""
        k, v = self.key, self.value
        n, heads = inputs.k.shape[-2], inputs.k.shape[1]
        fits = k.dim() == 4 and k.dtype == inputs.k.dtype and v.dtype == inputs.v.dtype
        if not fits or k.shape[1] == heads or heads % k.shape[1] or n > k.shape[2]:
            return inputs
        with counted_views():
            return replace(inputs, k=k[:, :, :n], v=v[:, :, :n])

    def explain(self, weights: Weights) -> Inputs:
        """Queries and keys that reproduce these weights, if the arguments do; else the weights.

        Models bring functions of their own, some of which do more than their arguments tell. So the
        first, the middle and the last row are compared: a mask that is not among the arguments,
        such as a causal one, shows in one of them.
        """
        try:
            inputs = self._inputs()
            call = inputs.call()
            q = call.sizes[2]
            if weights.weights.shape != call.sizes or not q:
                return weights
            with autocast_disabled(call.q.device):
                error = max(_difference(call, weights.weights, row) for row in {0, q // 2, q - 1})
        except (RegardError, RuntimeError):
            return weights
        return inputs if error <= (3e-3 if call.q.dtype in HALF else 1e-6) else weights

    def _inputs(self) -> DotProduct:
        keys = self.key.shape[-2]
        mask = None if self.mask is None else self.mask[..., :keys]
        if self.position_bias is not None:
            bias = self.position_bias[..., :keys]
            mask = bias if mask is None else bias + mask
        scale, cap = self.scaling, self.softcap
        return DotProduct(
            self.query, self.key, self.value, mask, scale=scale, softcap=cap, dropout=self.dropout
        )


def _difference(call: Call, weights: Tensor, row: int) -> float:
    """The largest difference between the weights of a call and these, in one row."""
    ours = torch.softmax(call.scores(slice(row, row + 1), slice(0, call.sizes[3])), -1)
    theirs = weights[:, :, row : row + 1].to(ours.dtype)
    return float((ours.nan_to_num() - theirs.nan_to_num()).abs().max())


@cache
def _announced(function: Function) -> Function:
    """An attention function wrapped to record its arguments in the thread's session."""
    signature = inspect.signature(function)
    if list(signature.parameters)[1:4] != ["query", "key", "value"]:
        return function

    @wraps(function)
    def announced(*args: Any, **kwargs: Any) -> Any:
        session = current()
        if session is None or session.inside:
            return function(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        module = next(iter(given.values()))
        given = {**given.pop("kwargs", {}), **given}
        told = Announcement(
            given["query"], given["key"], given["value"], given.get("attention_mask"),
            given.get("scaling"), given.get("softcap"), given.get("position_bias"),
            given.get("dropout", 0.0) if module.training else 0.0,
        )  # fmt: skip
        before, session.announced = session.announced, told
        try:
            result = function(*args, **kwargs)
        finally:
            session.announced = before
        gradients = told.gradients
        if gradients is not None and result[0].requires_grad:

            def store(gradient: Tensor) -> None:
                gradients.output = gradient.detach().transpose(1, 2)  # from (b, q, h, e)

            result[0].register_hook(store)
        return result

    return announced


def _announce_functions() -> Undo | None:
    """Patch the lookup of transformers to return wrapped functions."""
    interface = getattr(sys.modules.get("transformers.modeling_utils"), "AttentionInterface", None)
    original = getattr(interface, "get_interface", None)
    if interface is None or original is None:
        return None

    def get_interface(self: Any, attn_implementation: str, default: Function) -> Function:
        function: Function = original(self, attn_implementation, default)
        return function if current() is None else _announced(function)

    interface.get_interface = get_interface

    def undo() -> None:
        interface.get_interface = original

    return undo


TRANSFORMERS = Installation(_announce_functions)
"""The adapter of the attention functions of transformers."""
