"""The positions of a call's queries and keys in the text.

A call whose queries are as many as its keys begins a text. One with more keys than queries
continues the text of the call before if its keys are those of that call and its own queries, or if
it is a window at their end. Any other call stands by itself, and both queries and keys are counted
from 0: learned queries that pool a sequence, prefixes, memories.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LOWEST = -9_000.0
"""A bias this low counts as a mask: models use -10,000 and less."""


@dataclass(frozen=True)
class Position:
    """The positions of a call's first query and key, and the numbers of both up to its end."""

    query: int
    key: int
    queries: int
    keys: int
    continues: bool
    text: bool
    """Whether the text began with a call that had as many keys as queries."""


class Progress:
    """The position that each module has reached in its text."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], Position] = {}
        self._row = Position(0, 0, 0, 0, False, False)
        """Position of the last call of self-attention of any module."""

    def place(self, name: str, kind: str, q: int, keys: int) -> Position:
        """The position of the next call of a module: of q queries and so many keys in use."""
        before = self._last.get((name, kind))
        if kind == "cross":
            row = self._row
            at = row.query if row.queries - row.query == q else 0
            goes_on = before is not None and before.keys == keys and at == before.queries
            found = Position(at, 0, at + q, keys, goes_on, False)
        else:
            found = _continued(before, q, keys) or Position(0, 0, q, keys, False, q == keys)
            self._row = found
        self._last[name, kind] = found
        return found


def _continued(before: Position | None, q: int, keys: int) -> Position | None:
    if before is None or q >= keys:
        return None
    end = before.keys + q
    grown, window = keys == end - before.key, before.text and keys < end
    if not (grown or window) or not (before.text or before.queries > 0):
        return None
    return Position(before.queries, end - keys, before.queries + q, end, True, before.text)


def keys_in_use(q: int, k: int, mask: Tensor | None) -> int:
    """The number of keys in use: a cache of fixed length is longer than its content."""
    if mask is None or q == k or mask.shape[-1] != k:
        return k
    seen = mask if mask.dtype == torch.bool else mask > LOWEST
    places = seen.reshape(-1, k).any(0).nonzero()
    return int(places[-1]) + 1 if len(places) else k
