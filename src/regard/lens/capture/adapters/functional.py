"""PyTorch's functional attention: `scaled_dot_product_attention`, however it was called.

On a CPU it becomes one operator of queries, keys, values and a mask; or, where that does not
support a call, plain products and a softmax, which `written_out` captures.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

from regard.lens.capture.inputs import DotProduct
from regard.lens.capture.positions import LOWEST
from regard.lens.capture.record import Gradients
from regard.lens.capture.session import Operator, Session
from regard.lens.capture.storage import StorageMap

_aten = torch.ops.aten
FLASH = _aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = _aten._scaled_dot_product_flash_attention_for_cpu_backward.default
COMPOSITES = (
    _aten.scaled_dot_product_attention.default,
    _aten._scaled_dot_product_attention_math.default,
)
"""Operators that a mode sees undecomposed in inference mode."""

Args = tuple[Any, ...]
Named = dict[str, Any]


class Functional:
    """Adapter of `torch.nn.functional.scaled_dot_product_attention`."""

    def __init__(self) -> None:
        self.operators = {
            FLASH: self.flash,
            BACKWARD: self.backward,
            **dict.fromkeys(COMPOSITES, decomposed),
        }

    def install(self, session: Session) -> None:
        session.state[self] = _Calls()

    def remove(self, session: Session) -> None:
        for output, mask in session.state.pop(self).cut:
            if output.grad_fn is not None:  # its backward pass may be still to come
                _replace_mask_in_backward(output.grad_fn, mask)

    def flash(self, session: Session, func: Operator, args: Args, kwargs: Named) -> Any:
        """A call of PyTorch's CPU flash operator."""
        inputs = _inputs(*args, **kwargs)
        place = session.place(inputs.q, inputs.k, inputs.v)
        if place is None:
            return func(*args, **kwargs)
        calls: _Calls = session.state[self]
        forbidden = session.forbidden(place, inputs)
        mask, in_use = None, inputs.in_use()
        if forbidden is not None:
            mask = _without(inputs, forbidden.whole(inputs.sizes[2]).to(inputs.q.device))
            inputs = DotProduct(inputs.q, inputs.k, inputs.v, mask, scale=inputs.scale)
            output, logsumexp = func(*args[:3], 0.0, False, attn_mask=mask, scale=inputs.scale)
        else:
            output, logsumexp = func(*args, **kwargs)
        wanted = session.needs_gradient(place, inputs.q, inputs.k, inputs.v)
        told = session.announced
        seen = inputs if told is None else told.refine(inputs)
        gradients = session.announce(place, seen, output, in_use)
        if wanted and mask is None and told is not None:
            told.gradients = gradients
        elif wanted or mask is not None:
            calls.by_logsumexp[logsumexp] = mask, gradients
        if mask is not None and torch.is_grad_enabled():
            calls.cut.append((output, mask))
        return output, logsumexp

    def backward(self, session: Session, func: Operator, args: Args, kwargs: Named) -> Any:
        """The backward pass of a call."""
        entry = session.state[self].by_logsumexp.get(args[5])
        if entry is None:
            return func(*args, **kwargs)
        mask, gradients = entry
        gradients.output = args[0].detach()
        return func(*args, **kwargs) if mask is None else _masked_backward(func, args, kwargs, mask)


class _Calls:
    """The calls of one session whose backward pass may still run."""

    def __init__(self) -> None:
        self.by_logsumexp: StorageMap[tuple[Tensor | None, Gradients]] = StorageMap()
        self.cut: list[tuple[Tensor, Tensor]] = []


def decomposed(session: Session, func: Any, args: Args, kwargs: Named) -> Any:
    """A composite operator, decomposed within the mode."""
    if any(isinstance(x, Tensor) and x.is_nested for x in args):
        session.nested = True
        return func(*args, **kwargs)
    _push_mode(session)
    try:
        return func.decompose(*args, **kwargs)
    finally:
        _pop_mode()


def _inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> DotProduct:
    return DotProduct(query, key, value, attn_mask, is_causal, scale, dropout=dropout_p)


def _without(inputs: DotProduct, forbidden: Tensor) -> Tensor:
    """The mask of a call, added to the scores, with -inf at forbidden links.

    A query with only masked keys left gets -inf everywhere, and so an output of 0.
    """
    _, _, q, k = inputs.sizes
    mask = inputs.q.new_zeros(1, 1, q, k)
    if inputs.mask is not None:
        mask = mask + inputs.mask
    if inputs.is_causal:
        mask = mask.masked_fill(mask.new_ones(q, k, dtype=torch.bool).triu(1), -torch.inf)
    mask = mask.masked_fill(forbidden, -torch.inf)
    empty = forbidden.any(-1, keepdim=True) & (mask <= LOWEST).all(-1, keepdim=True)
    return mask.masked_fill(empty, -torch.inf)


def _masked_backward(func: Operator, args: Args, kwargs: Named, mask: Tensor) -> Any:
    """The backward operator with the mask of the forward pass."""
    *given, _is_causal = args
    return func(*given, False, **{**kwargs, "attn_mask": mask})


class _MaskedBackward(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode for the backward pass of one call that was cut."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._mask = mask

    def __torch_dispatch__(
        self, func: Operator, types: object, args: Args = (), kwargs: Any = None
    ) -> Any:
        if func is BACKWARD:
            return _masked_backward(func, args, kwargs or {}, self._mask)
        return func(*args, **(kwargs or {}))


def _replace_mask_in_backward(node: Any, mask: Tensor) -> None:
    """Run a node of the autograd graph within `_MaskedBackward`, once the context has ended."""
    if "FlashAttentionForCpu" not in node.name():
        return
    node.register_prehook(lambda _: _push_mode(_MaskedBackward(mask)))
    node.register_hook(lambda *_: _pop_mode() and None)
