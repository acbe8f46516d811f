"""`Mask`, the interface of all masks, and masks composed with ``&``, ``|`` and ``~``."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int64
from numpy.typing import NDArray
from torch import Tensor

from regard.attention.tracing import values_unavailable
from regard.errors import OptionError, RegardError, ShapeError, shape
from regard.native import FAR
from regard.notebook import preformatted

NONE, SOME, ALL = 0, 1, 2
"""The grades of `Mask.cover`, ordered so that ``&`` is their minimum and ``|`` their maximum."""

Edges = NDArray[np.int64]
"""Block boundaries along one axis, ``[0, 128, 256, …, n]``."""
Cover = NDArray[np.int8]
SHOWN = 8
"""Queries and keys of the mask that a notebook shows."""
Device = torch.device | None


class Spans(NamedTuple):
    """One interval of keys per query: key j of query i if low ≤ j − i ≤ high and first ≤ j < last.

    `first` and `last` are int64 ``(b or 1, 1, q or 1, 1)``.
    """

    low: int = -FAR
    high: int = FAR
    first: Int64[Tensor, "#b 1 #q 1"] | None = None
    last: Int64[Tensor, "#b 1 #q 1"] | None = None

    def __and__(self, other: Spans) -> Spans:
        """The keys in both intervals."""
        first, last = (
            one if two is None else two if one is None else join(one, two)
            for join, one, two in (
                (torch.maximum, self.first, other.first),
                (torch.minimum, self.last, other.last),
            )
        )
        return Spans(max(self.low, other.low), min(self.high, other.high), first, last)

    def __or__(self, other: Spans) -> Spans | None:
        """The keys in either interval; None unless these are certain to form one interval."""
        if self.first is self.last is other.first is other.last is None:
            meet = max(self.low, other.low) <= min(self.high, other.high) + 1
            both = Spans(min(self.low, other.low), max(self.high, other.high))
            return both if meet else None
        return None


class Mask:
    """Which keys each query may attend to. Made by the functions of `regard.attention.masks`."""

    keys_only: bool = False
    """Whether every query sees the same keys, so that the mask is a single row."""
    relative: bool = False
    """Whether the mask depends only on the distance between query and key."""
    in_few_rows: bool = False
    """Whether the mask restricts a few queries only and is too large to be materialized."""

    def block(
        self, rows: slice, cols: slice, q: int, k: int, device: Device = None
    ) -> Bool[Tensor, "*#bh #rows #cols"]:
        """The part for these queries and keys, as bool, broadcastable to ``(b, h, rows, cols)``."""
        raise NotImplementedError

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        """For every block between the edges, whether `NONE`, `SOME` or `ALL` pairs are allowed.

        Over all batch entries and heads. By default computed from the whole mask.
        """
        whole = self.block(slice(0, q), slice(0, k), q, k)
        whole = whole.reshape(-1, *whole.shape[-2:]).expand(-1, -1, k)
        sizes = (len(rows) - 1, len(cols) - 1)
        if len(whole) == 0:
            return np.full(sizes, ALL, np.int8)
        some = np.logical_or.reduceat(whole.any(0).cpu().numpy(), cols[:-1], 1)
        every = np.logical_and.reduceat(whole.all(0).cpu().numpy(), cols[:-1], 1)
        if whole.shape[1] == 1:
            return np.broadcast_to(graded(every, ~some), sizes)
        return graded(
            np.logical_and.reduceat(every, rows[:-1], 0),
            ~np.logical_or.reduceat(some, rows[:-1], 0),
        )

    def spans(self, q: int, k: int, device: Device = None) -> Spans | None:
        """The canonical mask as one interval of keys per query; None if it cannot be one."""
        return None

    def parts(self) -> list[Mask]:
        """The masks that are joined by ``&``."""
        return [self]

    def canonical(self, lead: tuple[int, ...], heads: int, rank: int, caller: str) -> Mask:
        """The same mask for a call whose leading axes were flattened into one batch axis.

        Its tensors are checked against them and get exactly one batch axis (of size 1 where it
        is the same for all). At rank 3 a dense mask of 3 axes is ``(b, q, k)``.
        """
        return self

    def take(self, entries: slice) -> Mask:
        """The canonical mask of these batch entries."""
        return self

    def held(self) -> list[Tensor]:
        """The tensors that the mask refers to."""
        found: list[Tensor] = []
        for value in self._values():
            if isinstance(value, Tensor):
                found.append(value)
            elif isinstance(value, Mask):
                found.extend(value.held())
        return found

    def fit(self, q: int, k: int) -> None:
        """Raise if the mask was made for other numbers of queries and keys."""

    def _repr_html_(self) -> str | None:
        """The mask of eight queries and keys as rows of dots; None if it was made for others."""
        try:
            seen = self.tensor(SHOWN)
        except RegardError:
            return None
        rows = seen.reshape(-1, *seen.shape[-2:])[0].expand(SHOWN, SHOWN).tolist()
        drawn = "\n".join(" ".join("●" if sees else "·" for sees in row) for row in rows)
        return preformatted(f"{self!r}\n{drawn}")

    def tensor(self, q: int, k: int | None = None) -> Bool[Tensor, "*#bh q k"]:
        """The whole mask for q queries and k keys (k = q by default), as a bool tensor.

        >>> from regard.attention import window
        >>> window(before=1).tensor(3).int().tolist()
        [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
        """
        k = q if k is None else k
        self.fit(q, k)
        whole = self.block(slice(0, q), slice(0, k), q, k)
        return whole.expand(*whole.shape[:-2], q, k).clone()

    def draw(self, q: int | None = None, k: int | None = None) -> str:
        """The mask drawn with ``█`` (may attend) and ``░``, for each batch entry and head."""
        own_q, own_k = self._sizes()
        q = q or own_q or own_k or 8
        k = k or own_k or q
        whole = self.tensor(q, k)
        drawings = [
            "\n".join(" ".join("█" if seen else "░" for seen in row) for row in one.tolist())
            for one in whole.reshape(-1, q, k)
        ]
        return "\n\n".join(drawings)

    def _sizes(self) -> tuple[int | None, int | None]:
        """The numbers of queries and keys the mask was made for; None if it fits any number."""
        return None, None

    def _values(self) -> list[Any]:
        """The values of the dataclass fields."""
        return [getattr(self, field.name) for field in fields(self)]  # type: ignore[arg-type]

    def __and__(self, other: Mask | Tensor) -> Mask:
        return Both(self, _operand(other, "&"))

    def __or__(self, other: Mask | Tensor) -> Mask:
        return Either(self, _operand(other, "|"))

    def __rand__(self, other: Tensor) -> Mask:
        return Both(_operand(other, "&"), self)

    def __ror__(self, other: Tensor) -> Mask:
        return Either(_operand(other, "|"), self)

    def __invert__(self) -> Mask:
        return self.mask if isinstance(self, Not) else Not(self)

    def __bool__(self) -> bool:
        raise OptionError("mask: has no truth value of its own; combine masks with &, | and ~")

    def _key(self) -> tuple[Any, ...]:
        """The identity of the mask: its kind and values, tensors by content."""
        return (type(self), *map(_content, self._values()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mask) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        return self.draw()


class _Composite(Mask):
    """A mask whose fields are masks."""

    @property
    def keys_only(self) -> bool:  # type: ignore[override]
        return all(part.keys_only for part in self._values())

    @property
    def relative(self) -> bool:  # type: ignore[override]
        return all(part.relative for part in self._values())

    def canonical(self, lead: tuple[int, ...], heads: int, rank: int, caller: str) -> Mask:
        return type(self)(*(x.canonical(lead, heads, rank, caller) for x in self._values()))

    def take(self, entries: slice) -> Mask:
        return type(self)(*(part.take(entries) for part in self._values()))

    def fit(self, q: int, k: int) -> None:
        for part in self._values():
            part.fit(q, k)

    def _sizes(self) -> tuple[int | None, int | None]:
        sizes = zip(*(part._sizes() for part in self._values()), strict=True)
        q, k = (max(size or 0 for size in axis) or None for axis in sizes)
        return q, k


@dataclass(frozen=True, eq=False, repr=False)
class _Pair(_Composite):
    left: Mask
    right: Mask

    def _join(self, left: Any, right: Any) -> Any:
        """Two blocks, or two `Spans`, combined."""
        raise NotImplementedError

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        left = self.left.block(rows, cols, q, k, device)
        return self._join(left, self.right.block(rows, cols, q, k, device))  # type: ignore[no-any-return]

    def spans(self, q: int, k: int, device: Device = None) -> Spans | None:
        left, right = self.left.spans(q, k, device), self.right.spans(q, k, device)
        return None if left is None or right is None else self._join(left, right)


class Both(_Pair):
    """``left & right``: the pairs that both allow."""

    @property
    def in_few_rows(self) -> bool:  # type: ignore[override]
        return self.left.in_few_rows or self.right.in_few_rows

    def parts(self) -> list[Mask]:
        return self.left.parts() + self.right.parts()

    def _join(self, left: Any, right: Any) -> Any:
        return left & right

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        return np.minimum(self.left.cover(rows, cols, q, k), self.right.cover(rows, cols, q, k))

    def __repr__(self) -> str:
        return " & ".join(
            f"({part!r})" if isinstance(part, Either) else repr(part) for part in self._values()
        )


class Either(_Pair):
    """``left | right``: the pairs that either allows."""

    def _join(self, left: Any, right: Any) -> Any:
        return left | right

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        return np.maximum(self.left.cover(rows, cols, q, k), self.right.cover(rows, cols, q, k))

    def __repr__(self) -> str:
        return f"{self.left!r} | {self.right!r}"


@dataclass(frozen=True, eq=False, repr=False)
class Not(_Composite):
    """``~mask``: the pairs that the mask forbids."""

    mask: Mask

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        return ~self.mask.block(rows, cols, q, k, device)

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        return (ALL - self.mask.cover(rows, cols, q, k)).astype(np.int8)

    def __repr__(self) -> str:
        return f"~({self.mask!r})" if isinstance(self.mask, _Pair) else f"~{self.mask!r}"


class TensorMask(Mask):
    """A mask whose first field is a tensor: batch axes, then `axes` of its own."""

    axes: ClassVar[int]

    @property
    def _tensor(self) -> Tensor:
        tensor: Tensor = self._values()[0]
        return tensor

    def canonical(self, lead: tuple[int, ...], heads: int, rank: int, caller: str) -> Mask:
        return self._flat(self._tensor, lead, caller)

    def _flat(self, tensor: Tensor, lead: tuple[int, ...], caller: str) -> Mask:
        """The same kind of mask, of the tensor with its batch axes flattened into one."""
        axes = tensor.dim() - self.axes
        batch, own = tensor.shape[:axes], tensor.shape[axes:]
        if not batch:
            return self
        if prod(batch) == 1:
            return self._with(tensor.reshape(1, *own))
        try:
            flat = tensor.expand(*lead, *own).reshape(prod(lead), *own)
        except RuntimeError:
            raise ShapeError(
                f"{caller}: mask {self!r} has batch axes {tuple(batch)}, but the call has {lead}; "
                "they must be equal or 1"
            ) from None
        return self._with(flat)

    def _with(self, tensor: Tensor) -> Mask:
        """The same mask with another tensor."""
        first, *_ = fields(self)  # type: ignore[arg-type]
        return replace(self, **{first.name: tensor})  # type: ignore[type-var]

    def take(self, entries: slice) -> Mask:
        tensor = self._tensor
        if tensor.dim() == self.axes or tensor.shape[0] == 1:
            return self
        return self._with(tensor[entries])

    def _sizes(self) -> tuple[int | None, int | None]:
        return None, self._tensor.shape[-1] if self.axes else None

    def __repr__(self) -> str:
        return f"{type(self).__name__.lower()}({listed(self._tensor)})"


def graded(every: NDArray[np.bool_], none: NDArray[np.bool_]) -> Cover:
    """The grades of blocks, from whether every pair or no pair of each is allowed."""
    return SOME + every.astype(np.int8) - none.astype(np.int8)


def _operand(other: Mask | Tensor, operator: str) -> Mask:
    from regard.attention.masks import as_mask

    return as_mask(other, operator)


def _content(value: object) -> object:
    if isinstance(value, Tensor):
        kind = torch.bool if value.dtype == torch.bool else torch.int64
        return (tuple(value.shape), value.to("cpu", kind).contiguous().numpy().tobytes())
    return value._key() if isinstance(value, Mask) else value


def listed(tensor: Tensor) -> str:
    if tensor.numel() > 16 or values_unavailable(tensor):
        return shape(tensor)
    return str(tensor.tolist())
