"""The softmaxes that really run in a model: what looks are compared with in coverage.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import permutations
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten
FLASH = _aten._scaled_dot_product_flash_attention_for_cpu.default
SOFTMAX = (_aten._softmax.default, _aten._safe_softmax.default)
TOLERANCE = 1e-5


class _Softmaxes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the result of every softmax over the last axis of a tensor of rank 3 or more.

    But for those of one key, which leave nothing to choose.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is FLASH and args[1].shape[-2] > 1:
            self.found.append(_softmax(*args, **(kwargs or {})))
        last = func in SOFTMAX and args[1] in (-1, result.dim() - 1)
        if last and result.dim() > 2 and result.shape[-1] > 1:
            self.found.append(result.detach().clone())
        return result


def _softmax(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """The softmax inside PyTorch's flash operator, from the tensors that it was given."""
    if query.dim() == 4:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query.double() @ key.double().mT * scale
    if is_causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    return (scores if attn_mask is None else scores + attn_mask).softmax(-1).to(query.dtype)


@contextmanager
def softmaxes() -> Iterator[list[Tensor]]:
    """Context: collects the softmaxes of everything that runs, PyTorch's fast path switched off."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with _Softmaxes() as mode:
            yield mode.found
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def matches(softmax: Tensor, weights: Tensor) -> bool:
    """Whether weights ``(…, h, q, k)`` are those of a softmax, its leading axes in any order.

    A softmax may have one more key: a sink, which has no value.
    """
    k = weights.shape[-1]
    if softmax.shape[-1] not in (k, k + 1):
        return False
    softmax = softmax[..., :k]
    if softmax.numel() != weights.numel() or not weights.numel():
        return False
    axes = range(softmax.dim() - 1)
    for order in permutations(axes):
        ordered = softmax.permute(*order, -1).reshape(weights.shape)
        if (ordered - weights).nan_to_num().abs().max() < TOLERANCE:
            return True
    return False


def unmatched(softmaxes: list[Tensor], looks: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Softmaxes without a look, and looks without a softmax; each is taken once."""
    left, lonely = list(softmaxes), []
    for weights in looks:
        if weights.shape[-1] == 1:
            continue
        at = next((i for i, one in enumerate(left) if matches(one, weights)), None)
        if at is None:
            lonely.append(weights)
        else:
            del left[at]
    return left, lonely
