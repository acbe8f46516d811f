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

from torch import Tensor

from regard.attention.mask import ALL, NONE, SOME, Both, Either, Mask, Not, Spans
from regard.attention.mask_kinds import (
    Causal,
    Dense,
    Keys,
    Padding,
    Prefix,
    Segments,
    Window,
    as_mask,
    checked_bool,
    checked_whole,
)
from regard.attention.tracing import values_unavailable
from regard.errors import OptionError, ShapeError, check_whole

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
