"""What masks are: each kind, and how kinds compose. `masks` makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int, Int64
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import DtypeError, OptionError, ShapeError, shape

FAR = 2**40
"""A distance between positions that no two of them have."""
NONE, SOME, ALL = 0, 1, 2
"""What `Mask.cover` says of a block. So graded, ``&`` is the minimum, ``|`` the maximum."""

Edges = NDArray[np.int64]
"""Block boundaries along one axis, ``[0, 128, 256, …, n]``."""
Cover = NDArray[np.int8]
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
        """The keys in either interval, if they are one; None if they are two, or might be."""
        if self.first is self.last is other.first is other.last is None:
            meet = max(self.low, other.low) <= min(self.high, other.high) + 1
            both = Spans(min(self.low, other.low), max(self.high, other.high))
            return both if meet else None
        return None


class Mask:
    """Which pairs of query and key may meet. Made by the functions below, not by hand."""

    keys_only: bool = False
    """Whether every query sees the same keys, so that one row stands for the whole mask."""
    relative: bool = False
    """Whether only the distance between query and key counts."""

    def block(
        self, rows: slice, cols: slice, q: int, k: int, device: Device = None
    ) -> Bool[Tensor, "*#bh #rows #cols"]:
        """The part for these queries and keys, as bool, broadcastable to ``(b, h, rows, cols)``."""
        raise NotImplementedError

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        """For every block between the edges: `NONE`, `SOME` or `ALL` of its pairs may meet."""
        raise NotImplementedError

    def spans(self, q: int, k: int, device: Device = None) -> Spans | None:
        """The canonical mask as one interval of keys per query; None if it is none."""
        return None

    def canonical(self, lead: tuple[int, ...], heads: int, rank: int, caller: str) -> Mask:
        """The same mask for a call whose leading axes were flattened into one batch axis.

        What it holds is checked against them and gets exactly one batch axis (of size 1 where it
        is the same for all). At rank 3 a dense mask of 3 axes is ``(b, q, k)``.
        """
        return self

    def take(self, entries: slice) -> Mask:
        """The canonical mask of these batch entries."""
        return self

    def held(self) -> list[Tensor]:
        """The tensors that the mask is made of."""
        found: list[Tensor] = []
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                found.append(value)
            elif isinstance(value, Mask):
                found.extend(value.held())
        return found

    def fit(self, q: int, k: int) -> None:
        """Raise if what the mask holds was made for other numbers of queries and keys."""

    def tensor(self, q: int, k: int | None = None) -> Bool[Tensor, "*#bh q k"]:
        """The whole mask for q queries and k keys (as many, if not said), as a bool tensor.

        >>> Window(before=1, after=0).tensor(3).int().tolist()
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
        """How many queries and keys the mask was made for; None if it fits any number."""
        return None, None

    def __and__(self, other: Mask | Tensor) -> Mask:
        return Both(self, as_mask(other, "&"))

    def __or__(self, other: Mask | Tensor) -> Mask:
        return Either(self, as_mask(other, "|"))

    def __invert__(self) -> Mask:
        return self.mask if isinstance(self, Not) else Not(self)

    def __bool__(self) -> bool:
        raise OptionError("mask: has no truth value of its own; combine masks with &, | and ~")

    def _key(self) -> tuple[Any, ...]:
        """What makes two masks the same mask; tensors count by their content."""
        values = (getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]
        return (type(self), *(_content(value) for value in values))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mask) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        return self.draw()


@dataclass(frozen=True, eq=False, repr=False)
class Causal(Mask):
    """Each query sees its own position and those before it."""

    relative = True
    from_start: bool = False
    """Query i stands at position i, as torch's ``is_causal`` has it, and not at i + k - q."""

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        return _behind(rows, cols, q, k, device) >= (k - q if self.from_start else 0)

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        nearest, farthest = _distances(rows, cols, q, k)
        least = k - q if self.from_start else 0
        return _grade(nearest >= least, farthest < least)

    def spans(self, q: int, k: int, device: Device = None) -> Spans:
        return Spans(high=0 if self.from_start else k - q)

    def __call__(self) -> Causal:
        """The mask itself, so that ``causal()`` works like ``window(3)``."""
        return self

    def at(self, offsets: Tensor | Sequence[int]) -> Band:
        """The same where the first query of batch entry b stands at position ``offsets[b]``.

        For caches of a fixed length, whose entries are filled to different lengths.

        >>> print(Causal().at([1]).tensor(2, 4).int().tolist())
        [[[[1, 1, 0, 0], [1, 1, 1, 0]]]]
        """
        return Band(checked_whole(offsets, "causal.at"), -1, 0)

    def __repr__(self) -> str:
        return "causal, from the start" if self.from_start else "causal"


@dataclass(frozen=True, eq=False, repr=False)
class Window(Mask):
    """Each query sees this many positions before and after its own, and its own."""

    relative = True
    before: int
    after: int

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        behind = _behind(rows, cols, q, k, device)
        return (behind <= self.before) & (behind >= -self.after)

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        nearest, farthest = _distances(rows, cols, q, k)
        return _grade(
            (nearest >= -self.after) & (farthest <= self.before),
            (farthest < -self.after) | (nearest > self.before),
        )

    def spans(self, q: int, k: int, device: Device = None) -> Spans:
        return Spans(k - q - self.before, k - q + self.after)

    def at(self, offsets: Tensor | Sequence[int]) -> Band:
        """The same where the first query of batch entry b stands at position ``offsets[b]``."""
        return Band(checked_whole(offsets, "window.at"), self.before, self.after)

    def __repr__(self) -> str:
        if self.before == self.after:
            return f"window({self.before + 1})"
        return f"window(before={self.before}, after={self.after})"


@dataclass(frozen=True, eq=False, repr=False)
class Prefix(Mask):
    """Every query sees the first keys."""

    length: int
    keys_only = True

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        return torch.arange(cols.start, cols.stop, device=device).unsqueeze(0) < self.length

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        columns = _grade(cols[1:] <= self.length, cols[:-1] >= self.length)
        return np.broadcast_to(columns, (len(rows) - 1, len(columns)))

    def spans(self, q: int, k: int, device: Device = None) -> Spans:
        return Spans(last=torch.full((1, 1, 1, 1), self.length, device=device))

    def __repr__(self) -> str:
        return f"prefix({self.length})"


class _Held(Mask):
    """A mask that holds one tensor, its first field, with batch axes before its `own` axes."""

    own: ClassVar[int]

    def canonical(self, lead: tuple[int, ...], heads: int, rank: int, caller: str) -> Mask:
        field, *_ = fields(self)  # type: ignore[arg-type]
        return self._flat(getattr(self, field.name), lead, caller)

    def _flat(self, tensor: Tensor, lead: tuple[int, ...], caller: str) -> Mask:
        """The same kind of mask, of a tensor whose batch axes are made one."""
        axes = tensor.dim() - self.own
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
        """The same mask, holding another tensor."""
        first, *_ = fields(self)  # type: ignore[arg-type]
        return replace(self, **{first.name: tensor})  # type: ignore[type-var]

    def take(self, entries: slice) -> Mask:
        field, *_ = fields(self)  # type: ignore[arg-type]
        tensor = getattr(self, field.name)
        if tensor.dim() == self.own or tensor.shape[0] == 1:
            return self
        return self._with(tensor[entries])


@dataclass(frozen=True, eq=False, repr=False)
class Band(_Held):
    """Keys near the query's position, which is ``offsets[b] + i`` for query i of batch entry b."""

    offsets: Int[Tensor, "*batch"]
    before: int
    """How many positions before its own a query sees; -1: all."""
    after: int
    own = 0

    def _edges(self, rows: slice, device: Device) -> tuple[Tensor, Tensor]:
        """The first key that each query sees, and one past the last, ``(…, 1, rows, 1)``."""
        places = torch.arange(rows.start, rows.stop, device=device).unsqueeze(1)
        places = places + self.offsets.to(places.device)[..., None, None, None]
        first = places - self.before if self.before >= 0 else torch.zeros_like(places)
        return first, places + self.after + 1

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        first, last = self._edges(rows, device)
        keys = torch.arange(cols.start, cols.stop, device=device)
        return (keys >= first) & (keys < last)

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        if self.offsets.numel() == 0:
            return np.full((len(rows) - 1, len(cols) - 1), ALL, np.int8)
        low, high = (int(x) for x in torch.aminmax(self.offsets))
        before = FAR if self.before < 0 else self.before
        top, bottom = rows[:-1][:, None], rows[1:][:, None] - 1
        left, right = cols[:-1], cols[1:] - 1
        return _grade(
            (left >= bottom + high - before) & (right <= top + low + self.after),
            (right < top + low - before) | (left > bottom + high + self.after),
        )

    def spans(self, q: int, k: int, device: Device = None) -> Spans:
        first, last = (x.reshape(-1, 1, q, 1) for x in self._edges(slice(0, q), device))
        return Spans(first=first, last=last)

    def __repr__(self) -> str:
        name = "causal" if self.before < 0 else repr(Window(self.before, self.after))
        return f"{name}.at({_listed(self.offsets)})"


@dataclass(frozen=True, eq=False, repr=False)
class Padding(_Held):
    """The first ``lengths[b]`` keys of batch entry b are words, the rest is padding."""

    lengths: Int[Tensor, "*batch"]
    own = 0
    keys_only = True

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        places = torch.arange(cols.start, cols.stop, device=device)
        return places < self.lengths.to(places.device)[..., None, None, None]

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        if self.lengths.numel() == 0:
            return np.full((len(rows) - 1, len(cols) - 1), ALL, np.int8)
        shortest, longest = (int(length) for length in torch.aminmax(self.lengths))
        columns = _grade(cols[1:] <= shortest, cols[:-1] >= longest)
        return np.broadcast_to(columns, (len(rows) - 1, len(columns)))

    def spans(self, q: int, k: int, device: Device = None) -> Spans:
        return Spans(last=self.lengths.reshape(-1, 1, 1, 1).to(device, torch.int64))

    def fit(self, q: int, k: int) -> None:
        if self.lengths.numel() and int(self.lengths.max()) > k:
            raise ShapeError(
                f"padding: lengths reach {int(self.lengths.max())} but there are k={k} keys; "
                "a length counts the keys that are not padding"
            )

    def _sizes(self) -> tuple[int | None, int | None]:
        return None, max(int(self.lengths.max()), 1) if self.lengths.numel() else None

    def __repr__(self) -> str:
        return f"padding({_listed(self.lengths)})"


@dataclass(frozen=True, eq=False, repr=False)
class Keys(_Held):
    """The keys marked True are seen by every query."""

    seen: Bool[Tensor, "*batch k"]
    own = 1
    keys_only = True

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        part = self.seen[..., cols].to(device)
        return part.unsqueeze(0) if part.dim() == 1 else part[..., None, None, :]

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        whole = self.block(slice(0, q), slice(0, k), q, k)
        return _cover_of(whole.reshape(-1, 1, k), rows, cols)

    def fit(self, q: int, k: int) -> None:
        if self.seen.shape[-1] != k:
            raise ShapeError(
                f"keys: the mask has {self.seen.shape[-1]} places but there are k={k} keys; "
                "give one bool per key"
            )

    def _sizes(self) -> tuple[int | None, int | None]:
        return None, self.seen.shape[-1]

    def __repr__(self) -> str:
        return f"keys({_listed(self.seen)})"


@dataclass(frozen=True, eq=False, repr=False)
class Segments(_Held):
    """A query sees the keys of its own segment: sentences packed into one row stay apart."""

    ids: Int[Tensor, "*batch k"]
    own = 1

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        ids = self.ids.to(device)
        shift = k - q
        same = ids[..., rows.start + shift : rows.stop + shift, None] == ids[..., None, cols]
        return same if ids.dim() == 1 else same.unsqueeze(-3)

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        ids = self.ids.reshape(-1, k).cpu().numpy()
        starts, shift = cols[:-1], k - q
        low_k, high_k = np.minimum.reduceat(ids, starts, 1), np.maximum.reduceat(ids, starts, 1)
        own, starts = ids[:, shift:], rows[:-1]
        low_q, high_q = np.minimum.reduceat(own, starts, 1), np.maximum.reduceat(own, starts, 1)
        low_q, high_q = low_q[:, :, None], high_q[:, :, None]
        low_k, high_k = low_k[:, None, :], high_k[:, None, :]
        one = (low_q == high_q) & (low_k == high_k) & (low_q == low_k)
        apart = (high_q < low_k) | (high_k < low_q)
        return _grade(np.all(one, 0), np.all(apart, 0))

    def fit(self, q: int, k: int) -> None:
        if self.ids.shape[-1] != k or q > k:
            raise ShapeError(
                f"segments: there are {self.ids.shape[-1]} ids, but q={q} queries and k={k} keys; "
                "give one id per key, and no more queries than keys"
            )

    def _sizes(self) -> tuple[int | None, int | None]:
        return None, self.ids.shape[-1]

    def __repr__(self) -> str:
        return f"segments({_listed(self.ids)})"


@dataclass(frozen=True, eq=False, repr=False)
class Dense(_Held):
    """A mask written out in full."""

    seen: Bool[Tensor, "*bh q k"]
    own = 3

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        have_q, have_k = self.seen.shape[-2:]
        part = self.seen if have_q == 1 else self.seen[..., rows, :]
        return (part if have_k == 1 else part[..., cols]).to(device)

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        whole = self.block(slice(0, q), slice(0, k), q, k)
        return _cover_of(whole.reshape(-1, *whole.shape[-2:]).expand(-1, -1, k), rows, cols)

    def fit(self, q: int, k: int) -> None:
        have_q, have_k = self.seen.shape[-2:]
        if have_q not in (1, q) or have_k not in (1, k):
            raise ShapeError(
                f"mask: has q={have_q}, k={have_k} (mask {shape(self.seen)}), but there are q={q} "
                f"queries and k={k} keys; give a mask (…,q,k), 1 where it is the same for all"
            )

    def canonical(self, lead: tuple[int, ...], heads: int, rank: int, caller: str) -> Mask:
        seen = self.seen
        if seen.dim() < 4:
            seen = (
                seen.unsqueeze(1) if seen.dim() == rank == 3 else seen[(None,) * (4 - seen.dim())]
            )
        if seen.shape[-3] not in (1, heads):
            raise ShapeError(
                f"{caller}: mask has h={seen.shape[-3]} (mask {shape(self.seen)}), but q has "
                f"h={heads}; give one mask per head, or 1 for all"
            )
        return self._flat(seen, lead, caller)

    @property
    def keys_only(self) -> bool:  # type: ignore[override]
        return self.seen.shape[-2] == 1

    def _sizes(self) -> tuple[int | None, int | None]:
        return self.seen.shape[-2], self.seen.shape[-1]

    def __repr__(self) -> str:
        return f"dense({shape(self.seen)})"


@dataclass(frozen=True, eq=False, repr=False)
class _Pair(Mask):
    """Two masks and what joins them."""

    left: Mask
    right: Mask

    @property
    def keys_only(self) -> bool:  # type: ignore[override]
        return self.left.keys_only and self.right.keys_only

    @property
    def relative(self) -> bool:  # type: ignore[override]
        return self.left.relative and self.right.relative

    def canonical(self, lead: tuple[int, ...], heads: int, rank: int, caller: str) -> Mask:
        return type(self)(
            self.left.canonical(lead, heads, rank, caller),
            self.right.canonical(lead, heads, rank, caller),
        )

    def fit(self, q: int, k: int) -> None:
        self.left.fit(q, k)
        self.right.fit(q, k)

    def take(self, entries: slice) -> Mask:
        return type(self)(self.left.take(entries), self.right.take(entries))

    def _sizes(self) -> tuple[int | None, int | None]:
        pairs = zip(self.left._sizes(), self.right._sizes(), strict=True)
        q, k = (max(one or 0, other or 0) or None for one, other in pairs)
        return q, k


class Both(_Pair):
    """``left & right``: what both allow."""

    def spans(self, q: int, k: int, device: Device = None) -> Spans | None:
        left, right = self.left.spans(q, k, device), self.right.spans(q, k, device)
        return None if left is None or right is None else left & right

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        return self.left.block(rows, cols, q, k, device) & self.right.block(
            rows, cols, q, k, device
        )

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        return np.minimum(self.left.cover(rows, cols, q, k), self.right.cover(rows, cols, q, k))

    def __repr__(self) -> str:
        return " & ".join(
            f"({part!r})" if isinstance(part, Either) else repr(part)
            for part in (self.left, self.right)
        )


class Either(_Pair):
    """``left | right``: what one of them allows."""

    def spans(self, q: int, k: int, device: Device = None) -> Spans | None:
        left, right = self.left.spans(q, k, device), self.right.spans(q, k, device)
        return None if left is None or right is None else left | right

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        return self.left.block(rows, cols, q, k, device) | self.right.block(
            rows, cols, q, k, device
        )

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        return np.maximum(self.left.cover(rows, cols, q, k), self.right.cover(rows, cols, q, k))

    def __repr__(self) -> str:
        return f"{self.left!r} | {self.right!r}"


@dataclass(frozen=True, eq=False, repr=False)
class Not(Mask):
    """``~mask``: what the mask forbids."""

    mask: Mask

    @property
    def keys_only(self) -> bool:  # type: ignore[override]
        return self.mask.keys_only

    @property
    def relative(self) -> bool:  # type: ignore[override]
        return self.mask.relative

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        return ~self.mask.block(rows, cols, q, k, device)

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        return (ALL - self.mask.cover(rows, cols, q, k)).astype(np.int8)

    def canonical(self, lead: tuple[int, ...], heads: int, rank: int, caller: str) -> Mask:
        return Not(self.mask.canonical(lead, heads, rank, caller))

    def fit(self, q: int, k: int) -> None:
        self.mask.fit(q, k)

    def take(self, entries: slice) -> Mask:
        return Not(self.mask.take(entries))

    def _sizes(self) -> tuple[int | None, int | None]:
        return self.mask._sizes()

    def __repr__(self) -> str:
        return f"~({self.mask!r})" if isinstance(self.mask, _Pair) else f"~{self.mask!r}"


def as_mask(mask: Mask | Tensor | str, caller: str) -> Mask:
    """A mask as it is, a bool tensor as `dense` reads it, or the mask called ``"causal"``."""
    if isinstance(mask, Mask):
        return mask
    if mask == "causal":
        return Causal()
    if isinstance(mask, Tensor):
        return Dense(checked_bool(mask, f"{caller}: mask", least=2))
    given = repr(mask) if isinstance(mask, str) else type(mask).__name__
    raise OptionError(
        f"{caller}: mask is {given}, expected a mask such as causal or window(3), "
        "or a bool tensor (…,q,k)"
    )


def checked_whole(numbers: Tensor | Sequence[int], caller: str) -> Tensor:
    """The numbers as a tensor, if they are whole."""
    found = torch.as_tensor(numbers)
    if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
        raise DtypeError(f"{caller}: offsets are {found.dtype}, expected whole numbers")
    return found


def checked_bool(seen: Tensor, caller: str, least: int) -> Tensor:
    """The tensor, if it is of bools and has at least so many axes."""
    if not isinstance(seen, Tensor) or seen.dtype != torch.bool:
        kind = seen.dtype if isinstance(seen, Tensor) else type(seen).__name__
        raise DtypeError(
            f"{caller} is {kind}, expected a bool tensor (True = may attend); "
            "additive terms go to bias="
        )
    if seen.dim() < least:
        axes = "(…,k)" if least == 1 else "(…,q,k)"
        raise ShapeError(f"{caller} has shape {shape(seen)}, expected {axes}")
    return seen


def _behind(rows: slice, cols: slice, q: int, k: int, device: Device) -> Tensor:
    """How far each key stands behind each query: position minus position."""
    shift = k - q
    places = torch.arange(rows.start + shift, rows.stop + shift, device=device)
    return places[:, None] - torch.arange(cols.start, cols.stop, device=device)


def _distances(rows: Edges, cols: Edges, q: int, k: int) -> tuple[Edges, Edges]:
    """The smallest and the largest of `_behind` in each block."""
    first, last = rows[:-1] + (k - q), rows[1:] - 1 + (k - q)
    return first[:, None] - (cols[1:] - 1), last[:, None] - cols[:-1]


def _grade(everything: NDArray[np.bool_], nothing: NDArray[np.bool_]) -> Cover:
    return SOME + everything.astype(np.int8) - nothing.astype(np.int8)


def _cover_of(whole: Bool[Tensor, "bh #q k"], rows: Edges, cols: Edges) -> Cover:
    """The cover of a mask that is written out, over all batch entries and heads."""
    if whole.shape[0] == 0:
        return np.full((len(rows) - 1, len(cols) - 1), ALL, np.int8)
    anyone, everyone = whole.any(0).cpu().numpy(), whole.all(0).cpu().numpy()
    anyone, everyone = (
        np.logical_or.reduceat(anyone, cols[:-1], 1),
        np.logical_and.reduceat(everyone, cols[:-1], 1),
    )
    if whole.shape[1] == 1:
        grades = _grade(everyone, ~anyone)
        return np.broadcast_to(grades, (len(rows) - 1, grades.shape[1]))
    return _grade(
        np.logical_and.reduceat(everyone, rows[:-1], 0),
        ~np.logical_or.reduceat(anyone, rows[:-1], 0),
    )


def _content(value: object) -> object:
    if isinstance(value, Tensor):
        kind = torch.bool if value.dtype == torch.bool else torch.int64
        return (tuple(value.shape), value.to("cpu", kind).contiguous().numpy().tobytes())
    return value._key() if isinstance(value, Mask) else value


def _listed(tensor: Tensor) -> str:
    return str(tensor.tolist()) if tensor.numel() <= 16 else shape(tensor)
