"""Who may look at whom: lazy masks that compose with ``&``, ``|`` and ``~``.

True means *may attend*. A mask has no shape until it is used: it is asked for the block of it that
a kernel needs (`Mask.block`), and beforehand which blocks hold nothing at all, everything, or
something in between (`Mask.cover`), so that blocks without a reachable key cost nothing. Where q
and k differ in length they are aligned at the end: query i stands at position i + k - q.

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

import torch
from torch import Tensor

from regard.attention.mask_kinds import (
    ALL,
    NONE,
    SOME,
    Both,
    Causal,
    Dense,
    Either,
    Keys,
    Mask,
    Not,
    Padding,
    Prefix,
    Segments,
    Spans,
    Window,
    as_mask,
    checked_bool,
)
from regard.errors import DtypeError, OptionError, ShapeError

__all__ = [
    "ALL",
    "NONE",
    "SOME",
    "Both",
    "Causal",
    "Dense",
    "Either",
    "Keys",
    "Mask",
    "Not",
    "Padding",
    "Prefix",
    "Segments",
    "Spans",
    "Window",
    "as_mask",
    "causal",
    "dense",
    "keys",
    "padding",
    "prefix",
    "segments",
    "window",
]

causal = Causal()
"""Each query sees its own position and those before it."""


def window(n: int | None = None, *, before: int | None = None, after: int | None = None) -> Window:
    """The positions near a query: within n - 1 on either side, or so many before and after.

    The query's own position always counts. A side that is not named has none:
    ``window(before=2)`` sees two positions back and itself. ``causal & window(3)`` lets position
    5 see 3, 4 and 5.

    >>> window(2) == window(before=1, after=1)
    True
    """
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
    if n < 0:
        raise OptionError(f"prefix: n={n}, expected 0 or more")
    return Prefix(n)


def padding(lengths: Tensor | Sequence[int] | int) -> Padding:
    """The keys that are words, where batch entry b has ``lengths[b]`` words and then padding.

    >>> print(padding([2, 3]).tensor(1, 4).int().tolist())
    [[[[1, 1, 0, 0]]], [[[1, 1, 1, 0]]]]
    """
    counts = torch.as_tensor(lengths)
    if counts.is_floating_point() or counts.is_complex() or counts.dtype == torch.bool:
        raise DtypeError(
            f"padding: lengths are {counts.dtype}, expected whole numbers; "
            "for a bool per key use keys(…)"
        )
    if counts.numel() and int(counts.min()) < 0:
        raise OptionError(f"padding: a length is {int(counts.min())}, expected 0 or more")
    return Padding(counts)


def keys(seen: Tensor) -> Keys:
    """The keys marked True in a bool tensor ``(…, k)``, for every query of a batch entry."""
    return Keys(checked_bool(seen, "keys", least=1))


def segments(ids: Tensor | Sequence[int]) -> Segments:
    """The keys with the query's own id, for sentences packed one after the other into a row.

    >>> print(segments([0, 0, 1]))
    █ █ ░
    █ █ ░
    ░ ░ █
    """
    numbers = torch.as_tensor(ids)
    if numbers.is_floating_point() or numbers.is_complex():
        raise DtypeError(f"segments: ids are {numbers.dtype}, expected whole numbers (…,k)")
    if numbers.dim() == 0:
        raise ShapeError("segments: ids is one number, expected (…,k), one per key")
    return Segments(numbers)


def dense(seen: Tensor) -> Dense:
    """The mask written out in full, broadcastable to ``(…, h, q, k)``."""
    return Dense(checked_bool(seen, "dense", least=2))
