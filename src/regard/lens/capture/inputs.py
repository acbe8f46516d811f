"""The inputs of an attention call, in the forms in which hosts pass them.

Each form knows the sizes of the call, can have its tensors replaced (by those that are kept), and
converts to a `Call` of regard on demand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from regard.attention.call import Call, autocast_disabled
from regard.attention.masks import Causal, Dense, Mask, causal
from regard.attention.preparation import prepare
from regard.attention.scores import Scaled, Score, Softcap
from regard.lens.capture.positions import keys_in_use

Change = Callable[[Tensor], Tensor]
Sizes = tuple[int, int, int, int]


@runtime_checkable
class Inputs(Protocol):
    """One form of a call."""

    @property
    def sizes(self) -> Sizes:
        """Batch, heads, queries, keys."""

    @property
    def keys(self) -> tuple[Tensor, ...]:
        """Keys ``(b, g, k, d)``, where they are known, and values; none if they are not visible."""

    def in_use(self) -> int:
        """The number of keys in use; a cache of fixed length has more."""

    def map(self, change: Change, change_mask: Change) -> Inputs:
        """The same with every tensor replaced."""

    def with_keys(self, *keys: Tensor) -> Inputs:
        """The same with others in place of `keys`."""

    def call(self) -> Call:
        """The call in regard's form."""


@dataclass(frozen=True)
class DotProduct:
    """Queries ``(…, h, q, d)``, keys and values, as `scaled_dot_product_attention` has them.

    `mask` is a bool tensor (True = may attend) or is added to the scores; `is_causal` is aligned at
    the start.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None = None
    is_causal: bool = False
    scale: float | None = None
    softcap: float | None = None
    dropout: float = 0.0

    @property
    def sizes(self) -> Sizes:
        h = self.q.shape[-3] if self.q.dim() > 3 else 1
        q, k = self.q.shape[-2], self.k.shape[-2]
        b = self.q.numel() // max(h * q * self.q.shape[-1], 1)
        return b, h, q, k

    @property
    def keys(self) -> tuple[Tensor, ...]:
        return (self.k, self.v) if self.k.dim() == 4 else ()

    def in_use(self) -> int:
        _, _, q, k = self.sizes
        return keys_in_use(q, k, self.mask)

    def map(self, change: Change, change_mask: Change) -> DotProduct:
        mask = None if self.mask is None else change_mask(self.mask)
        return replace(self, q=change(self.q), k=change(self.k), v=change(self.v), mask=mask)

    def with_keys(self, *keys: Tensor) -> DotProduct:
        k, v = keys
        return replace(self, k=k, v=v)

    def call(self) -> Call:
        mask: Mask | None = None
        if self.is_causal:
            equal = self.q.shape[-2] == self.k.shape[-2]
            mask = causal if equal else Causal(from_start=True)
        bias = None
        if self.mask is not None:
            given = self.mask if self.mask.dim() > 1 else self.mask.unsqueeze(0)
            if given.dtype == torch.bool:
                mask = Dense(given) if mask is None else mask & Dense(given)
            else:
                bias = given
        score: str | Score = "scaled_dot" if self.scale is None else Scaled(float(self.scale))
        if self.softcap is not None:
            score = Softcap(float(self.softcap), self.scale)
        with autocast_disabled(self.q.device):
            return prepare("watch", self.q, self.k, self.v, mask, bias, score, self.dropout)


@dataclass(frozen=True)
class Weights:
    """The weights ``(b, h, q, k)`` themselves, and what else of the call is known.

    As a call, its scores are the logarithms of the weights. What a row lacks of 1 went to a sink.
    """

    weights: Tensor
    v: Tensor | None = None
    rank: int = 4
    """The rank that the model had: 2 or 3 without an axis of heads."""
    q: Tensor | None = None
    k: Tensor | None = None
    """Queries ``(b, h, q, d)`` and keys ``(b, g, k, d)``: both or none."""

    @property
    def sizes(self) -> Sizes:
        b, h, q, k = self.weights.shape
        return b, h, q, k

    @property
    def keys(self) -> tuple[Tensor, ...]:
        if self.v is None:
            return ()
        return (self.v,) if self.k is None else (self.k, self.v)

    def in_use(self) -> int:
        _, _, q, k = self.sizes
        return k if q == k else keys_in_use(q, k, self.weights > 0)

    def map(self, change: Change, change_mask: Change) -> Weights:
        v, q, k = (None if x is None else change(x) for x in (self.v, self.q, self.k))
        return replace(self, weights=change(self.weights), v=v, q=q, k=k)

    def with_keys(self, *keys: Tensor) -> Weights:
        *k, v = keys
        return replace(self, k=k[0] if k else None, v=v)

    def call(self) -> Call:
        weights = self.weights
        b, h, q, k = weights.shape
        half = weights.dtype in (torch.bfloat16, torch.float16)
        weights = weights.float() if half else weights
        v = self.v if self.v is not None else weights.new_zeros(b, h, k, 0)
        v = v.to(weights.dtype)
        nothing = weights.new_zeros(b, 1, 1, 1)
        scores = weights.log()
        return Call(
            nothing.expand(b, h, q, 1), nothing.expand(b, v.shape[1], k, 1), v, Scaled(1.0), None,
            scores, 0.0, (b,), self.rank, caller="watch",
        )  # fmt: skip


@dataclass(frozen=True)
class Prepared:
    """A call that already has regard's form."""

    given: Call

    @property
    def sizes(self) -> Sizes:
        return self.given.sizes

    @property
    def keys(self) -> tuple[Tensor, ...]:
        return self.given.k, self.given.v

    def in_use(self) -> int:
        _, _, q, k = self.sizes
        mask = self.given.mask.seen if isinstance(self.given.mask, Dense) else self.given.bias
        return keys_in_use(q, k, mask if isinstance(mask, Tensor) else None)

    def map(self, change: Change, change_mask: Change) -> Prepared:
        call = self.given
        for part in (call.score, call.bias):
            if isinstance(part, nn.Module):
                for parameter in part.parameters():
                    change(parameter)
        mask = None if call.mask is None else _mapped(call.mask, change_mask)
        bias = change_mask(call.bias) if isinstance(call.bias, Tensor) else call.bias
        q, k, v = change(call.q), change(call.k), change(call.v)
        return Prepared(replace(call, q=q, k=k, v=v, mask=mask, bias=bias, caller="watch"))

    def with_keys(self, *keys: Tensor) -> Prepared:
        k, v = keys
        return Prepared(replace(self.given, k=k, v=v))

    def call(self) -> Call:
        return self.given


def _mapped(mask: Mask, change: Change) -> Mask:
    """The mask with every tensor in it replaced."""
    parts: dict[str, Tensor | Mask] = {}
    for field in fields(mask):  # type: ignore[arg-type]
        value = getattr(mask, field.name)
        if isinstance(value, Tensor):
            parts[field.name] = change(value)
        elif isinstance(value, Mask):
            parts[field.name] = _mapped(value, change)
    return replace(mask, **parts) if parts else mask  # type: ignore[type-var]
