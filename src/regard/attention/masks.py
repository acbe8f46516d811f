"""Lazy masks: which keys each query may attend to, composed with ``&``, ``|`` and ``~``.

True means *may attend*. A mask has no shape until it is used: a kernel asks for the blocks it needs
(`Mask.block`), and beforehand which blocks are empty, full or in between (`Mask.cover`), so that
empty blocks cost nothing. Where q and k differ in length they are aligned at the end: query i
stands at position i + k - q.

>>> print(causal | prefix(3))
█ █ █ ░ ░ ░ ░ ░
█ █ █ ░ ░ ░ ░ ░
█ █ █ ░ ░ ░ ░ ░
█ █ █ █ ░ ░ ░ ░
█ █ █ █ █ ░ ░ ░
█ █ █ █ █ █ ░ ░
█ █ █ █ █ █ █ ░
█ █ █ █ █ █ █ █
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention.mask import ALL, Cover, Device, Edges, Spans, TensorMask, graded, listed
from regard.attention.mask import Mask as Mask
from regard.attention.tracing import values_unavailable
from regard.errors import DtypeError, OptionError, ShapeError, check_whole, shape
from regard.native import FAR


class _Relative(Mask):
    """A mask whose `spans` limit nothing but the distance between query and key."""

    relative = True

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        keys = torch.arange(cols.start, cols.stop, device=device)
        distance = keys - torch.arange(rows.start, rows.stop, device=device).unsqueeze(1)
        low, high, *_ = self.spans(q, k, device)
        return (distance >= low) & (distance <= high)

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        low, high, *_ = self.spans(q, k)
        return _band_cover(rows, cols, (low, low), (high, high))

    def spans(self, q: int, k: int, device: Device = None) -> Spans:
        raise NotImplementedError


@dataclass(frozen=True, eq=False, repr=False)
class Causal(_Relative):
    """Each query sees its own position and those before it."""

    from_start: bool = False
    """Query i stands at position i, as with torch's ``is_causal``, and not at i + k - q."""

    def spans(self, q: int, k: int, device: Device = None) -> Spans:
        return Spans(high=0 if self.from_start else k - q)

    def __call__(self) -> Causal:
        """The mask itself, so that ``causal()`` works like ``window(3)``."""
        return self

    def at(self, offsets: Tensor | Sequence[int]) -> Band:
        """The same mask, with the first query of batch entry b at position ``offsets[b]``.

        For caches of a fixed length, whose entries are filled to different lengths.

        >>> print(Causal().at([1]).tensor(2, 4).int().tolist())
        [[[[1, 1, 0, 0], [1, 1, 1, 0]]]]
        """
        return Band(checked_whole(offsets, "causal.at: offsets"), -1, 0)

    def __repr__(self) -> str:
        return "causal, from the start" if self.from_start else "causal"


@dataclass(frozen=True, eq=False, repr=False)
class Window(_Relative):
    """Each query sees this many positions before and after its own, and its own."""

    before: int
    after: int

    def spans(self, q: int, k: int, device: Device = None) -> Spans:
        return Spans(k - q - self.before, k - q + self.after)

    def at(self, offsets: Tensor | Sequence[int]) -> Band:
        """The same mask, with the first query of batch entry b at position ``offsets[b]``."""
        return Band(checked_whole(offsets, "window.at: offsets"), self.before, self.after)

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

    def spans(self, q: int, k: int, device: Device = None) -> Spans:
        return Spans(last=torch.full((1, 1, 1, 1), self.length, device=device))

    def __repr__(self) -> str:
        return f"prefix({self.length})"


@dataclass(frozen=True, eq=False, repr=False)
class Band(TensorMask):
    """Keys near the query's position, which is ``offsets[b] + i`` for query i of batch entry b."""

    offsets: Int[Tensor, "*batch"]
    before: int
    """The number of positions before its own that a query sees; -1: all."""
    after: int
    axes = 0

    def _edges(self, rows: slice, device: Device) -> tuple[Tensor, Tensor]:
        """The first key that each query sees, and one past the last, ``(…, 1, rows, 1)``."""
        positions = torch.arange(rows.start, rows.stop, device=device).unsqueeze(1)
        positions = positions + self.offsets.to(positions.device)[..., None, None, None]
        first = positions - self.before if self.before >= 0 else torch.zeros_like(positions)
        return first, positions + self.after + 1

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        first, last = self._edges(rows, device)
        keys = torch.arange(cols.start, cols.stop, device=device)
        return (keys >= first) & (keys < last)

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        if self.offsets.numel() == 0:
            return np.full((len(rows) - 1, len(cols) - 1), ALL, np.int8)
        least, most = (int(x) for x in torch.aminmax(self.offsets))
        before = FAR if self.before < 0 else self.before
        lows, highs = (least - before, most - before), (least + self.after, most + self.after)
        return _band_cover(rows, cols, lows, highs)

    def spans(self, q: int, k: int, device: Device = None) -> Spans:
        first, last = (x.reshape(-1, 1, q, 1) for x in self._edges(slice(0, q), device))
        return Spans(first=first, last=last)

    def __repr__(self) -> str:
        name = "causal" if self.before < 0 else repr(Window(self.before, self.after))
        return f"{name}.at({listed(self.offsets)})"


@dataclass(frozen=True, eq=False, repr=False)
class Padding(TensorMask):
    """The first ``lengths[b]`` keys of batch entry b are words, the rest is padding."""

    lengths: Int[Tensor, "*batch"]
    axes = 0
    keys_only = True

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        keys = torch.arange(cols.start, cols.stop, device=device)
        return keys < self.lengths.to(keys.device)[..., None, None, None]

    def spans(self, q: int, k: int, device: Device = None) -> Spans:
        return Spans(last=self.lengths.reshape(-1, 1, 1, 1).to(device, torch.int64))

    def fit(self, q: int, k: int) -> None:
        if self.lengths.numel() == 0 or values_unavailable(self.lengths):
            return
        if int(self.lengths.max()) > k:
            raise ShapeError(
                f"padding: lengths reach {int(self.lengths.max())} but there are k={k} keys; "
                "a length counts the keys that are not padding"
            )

    def _sizes(self) -> tuple[int | None, int | None]:
        return None, max(int(self.lengths.max()), 1) if self.lengths.numel() else None


@dataclass(frozen=True, eq=False, repr=False)
class Keys(TensorMask):
    """The keys marked True are seen by every query."""

    seen: Bool[Tensor, "*batch k"]
    axes = 1
    keys_only = True

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        part = self.seen[..., cols].to(device)
        return part.unsqueeze(0) if part.dim() == 1 else part[..., None, None, :]

    def fit(self, q: int, k: int) -> None:
        if self.seen.shape[-1] != k:
            raise ShapeError(
                f"keys: the mask has {self.seen.shape[-1]} entries but there are k={k} keys; "
                "give one bool per key"
            )


@dataclass(frozen=True, eq=False, repr=False)
class Segments(TensorMask):
    """Each query sees the keys of its own segment, such as a sentence of a packed sequence."""

    ids: Int[Tensor, "*batch k"]
    axes = 1

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        ids = self.ids.to(device)
        shift = k - q
        same = ids[..., rows.start + shift : rows.stop + shift, None] == ids[..., None, cols]
        return same if ids.dim() == 1 else same.unsqueeze(-3)

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        ids = self.ids.reshape(-1, k).cpu().numpy()
        (low_q, high_q), (low_k, high_k) = (
            (np.minimum.reduceat(of, starts, 1), np.maximum.reduceat(of, starts, 1))
            for of, starts in ((ids[:, k - q :], rows[:-1]), (ids, cols[:-1]))
        )
        low_q, high_q = low_q[:, :, None], high_q[:, :, None]
        low_k, high_k = low_k[:, None, :], high_k[:, None, :]
        one = (low_q == high_q) & (low_k == high_k) & (low_q == low_k)
        apart = (high_q < low_k) | (high_k < low_q)
        return graded(np.all(one, 0), np.all(apart, 0))

    def fit(self, q: int, k: int) -> None:
        if self.ids.shape[-1] != k or q > k:
            raise ShapeError(
                f"segments: there are {self.ids.shape[-1]} ids, but q={q} queries and k={k} keys; "
                "give one id per key, and no more queries than keys"
            )


@dataclass(frozen=True, eq=False, repr=False)
class Dense(TensorMask):
    """A mask given as a bool tensor."""

    seen: Bool[Tensor, "*bh q k"]
    axes = 3

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        have_q, have_k = self.seen.shape[-2:]
        part = self.seen if have_q == 1 else self.seen[..., rows, :]
        return (part if have_k == 1 else part[..., cols]).to(device)

    def fit(self, q: int, k: int) -> None:
        have_q, have_k = self.seen.shape[-2:]
        if have_q not in (1, q) or have_k not in (1, k):
            raise ShapeError(
                f"mask: has q={have_q}, k={have_k} (mask {shape(self.seen)}), but there are q={q} "
                f"queries and k={k} keys; give a mask (…,q,k), 1 where it is the same for all"
            )

    def canonical(self, lead: tuple[int, ...], heads: int, rank: int, caller: str) -> Mask:
        seen = with_four_axes(self.seen, rank)
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


causal = Causal()
"""Each query sees its own position and those before it."""


def window(n: int | None = None, *, before: int | None = None, after: int | None = None) -> Window:
    """Positions within n - 1 of the query on either side, or `before` and `after` it.

    The query's own position always counts. A side that is not given is empty:
    ``window(before=2)`` sees two positions back and itself. ``causal & window(3)`` lets position
    5 see 3, 4 and 5.

    >>> window(2) == window(before=1, after=1)
    True
    """
    for name, value in (("n", n), ("before", before), ("after", after)):
        if value is not None:
            check_whole(f"window: {name}", value)
    if n is not None:
        if before is not None or after is not None:
            raise OptionError("window: give n, or before and after, not both")
        if n < 1:
            raise OptionError(f"window: n={n}, expected 1 (only itself) or more")
        return Window(n - 1, n - 1)
    if before is None and after is None:
        raise OptionError("window: give n, or before and after")
    before, after = before or 0, after or 0
    if before < 0 or after < 0:
        raise OptionError(f"window: before={before}, after={after}, expected 0 or more")
    return Window(before, after)


def prefix(n: int) -> Prefix:
    """The first n keys, for every query: ``causal | prefix(n)`` is the mask of a prefix model."""
    check_whole("prefix: n", n)
    if n < 0:
        raise OptionError(f"prefix: n={n}, expected 0 or more")
    return Prefix(n)


def padding(lengths: Tensor | Sequence[int] | int) -> Padding:
    """The first ``lengths[b]`` keys of batch entry b; the rest is padding.

    >>> print(padding([2, 3]).tensor(1, 4).int().tolist())
    [[[[1, 1, 0, 0]]], [[[1, 1, 1, 0]]]]
    """
    counts = checked_whole(lengths, "padding: lengths", "; for a bool per key use keys(…)")
    readable = counts.numel() > 0 and not values_unavailable(counts)
    if readable and int(counts.min()) < 0:
        raise OptionError(f"padding: a length is {int(counts.min())}, expected 0 or more")
    return Padding(counts)


def keys(seen: Tensor) -> Keys:
    """The keys marked True in a bool tensor ``(…, k)``, for every query of a batch entry."""
    return Keys(checked_bool(seen, "keys", least=1))


def segments(ids: Tensor | Sequence[int]) -> Segments:
    """The keys with the query's own id, for sequences packed into one row.

    >>> print(segments([0, 0, 1]))
    █ █ ░
    █ █ ░
    ░ ░ █
    """
    numbers = checked_whole(ids, "segments: ids", " (…,k)", bools=True)
    if numbers.dim() == 0:
        raise ShapeError("segments: ids is one number, expected (…,k), one per key")
    return Segments(numbers)


def dense(seen: Tensor) -> Dense:
    """The mask given as a bool tensor, broadcastable to ``(…, h, q, k)``."""
    return Dense(checked_bool(seen, "dense", least=2))


def as_mask(mask: Mask | Tensor | str, caller: str) -> Mask:
    """The mask itself, `dense` of a bool tensor, or the mask named ``"causal"``."""
    if isinstance(mask, Mask):
        return mask
    if isinstance(mask, str) and mask == "causal":
        return Causal()
    if isinstance(mask, Tensor):
        return Dense(checked_bool(mask, f"{caller}: mask", least=2))
    given = repr(mask) if isinstance(mask, str) else type(mask).__name__
    raise OptionError(
        f"{caller}: mask is {given}, expected a mask such as causal or window(3), "
        "or a bool tensor (…,q,k)"
    )


def with_four_axes(term: Tensor, rank: int) -> Tensor:
    """A mask or bias with leading axes added up to four; at rank 3, ``(b, q, k)`` is one head."""
    if term.dim() == rank == 3:
        return term.unsqueeze(1)
    return term[(None,) * (4 - term.dim())] if term.dim() < 4 else term


def checked_whole(
    numbers: Tensor | Sequence[int] | int, name: str, remedy: str = "", bools: bool = False
) -> Tensor:
    """The numbers as a tensor; raises unless they are integers, or bools where these count."""
    try:
        found = torch.as_tensor(numbers)
    except (TypeError, ValueError, RuntimeError):
        kind = type(numbers).__name__
        raise DtypeError(f"{name} are {kind}, expected whole numbers{remedy}") from None
    if found.is_floating_point() or found.is_complex() or (found.dtype == torch.bool and not bools):
        raise DtypeError(f"{name} are {found.dtype}, expected whole numbers{remedy}")
    return found


def checked_bool(seen: Tensor, name: str, least: int) -> Tensor:
    """The tensor; raises unless it is of bools and has at least `least` axes."""
    if not isinstance(seen, Tensor) or seen.dtype != torch.bool:
        kind = seen.dtype if isinstance(seen, Tensor) else type(seen).__name__
        raise DtypeError(
            f"{name} is {kind}, expected a bool tensor (True = may attend); "
            "additive terms go to bias="
        )
    if seen.dim() < least:
        axes = "(…,k)" if least == 1 else "(…,q,k)"
        raise ShapeError(f"{name} has shape {shape(seen)}, expected {axes}")
    return seen


def _band_cover(rows: Edges, cols: Edges, lows: tuple[int, int], highs: tuple[int, int]) -> Cover:
    """The cover of low ≤ j − i ≤ high, from the least and the largest of each limit."""
    nearest = cols[:-1] - (rows[1:, None] - 1)  # the least j − i of each block, and the largest
    farthest = (cols[1:] - 1) - rows[:-1, None]
    return graded(
        (nearest >= lows[1]) & (farthest <= highs[0]),
        (farthest < lows[0]) | (nearest > highs[1]),
    )
