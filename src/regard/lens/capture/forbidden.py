"""`Forbidden`: the links to mask in a call, as pairs in a few of its rows.

In a long text only the rows of these queries are computed a second time, with the mask. So no n × n
mask is made, and all other rows keep their bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from regard.attention.call import Call
from regard.attention.mask import ALL, SOME, Cover, Device, Edges
from regard.attention.masks import Dense, Mask
from regard.attention.operation import Result
from regard.lens.capture.positions import LOWEST

LONG, FEW = 2**18, 1 / 8
"""From so many pairs of query and key on, up to this share of the rows is computed separately."""


@dataclass(frozen=True, eq=False)
class Forbidden:
    """Masked pairs of query and key, all in these rows."""

    rows: tuple[int, ...]
    """Numbers of queries, ascending."""
    pairs: Bool[Tensor, "#b #h r k"]

    def __or__(self, other: Forbidden) -> Forbidden:
        rows = tuple(sorted({*self.rows, *other.rows}))
        at, others = (np.searchsorted(rows, x.rows).tolist() for x in (self, other))
        return Forbidden(rows, self._placed(at, len(rows)) | other._placed(others, len(rows)))

    def whole(self, queries: int) -> Bool[Tensor, "#b #h q k"]:
        """All rows, of so many queries."""
        return self.pairs if len(self.rows) == queries else self._placed(self.rows, queries)

    def _placed(self, at: Sequence[int], rows: int) -> Bool[Tensor, "#b #h _ k"]:
        """The pairs of each row at its place among so many rows."""
        b, h, _, k = self.pairs.shape
        found = self.pairs.new_zeros(b, h, rows, k)
        found[:, :, list(at)] = self.pairs
        return found


@dataclass(frozen=True, eq=False, repr=False)
class InRows(Mask):
    """A mask that forbids some pairs in a few rows and allows all others."""

    rows: tuple[int, ...]
    allowed: Bool[Tensor, "#b #h r k"]
    in_few_rows = True

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        b, h, _, _ = self.allowed.shape
        sizes = (b, h, rows.stop - rows.start, cols.stop - cols.start)
        found = torch.ones(sizes, dtype=torch.bool, device=device)
        for i, row in enumerate(self.rows):
            if rows.start <= row < rows.stop:
                found[:, :, row - rows.start] = self.allowed[:, :, i, cols].to(found.device)
        return found

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        found = np.full((len(rows) - 1, len(cols) - 1), ALL, dtype=np.int8)
        found[np.searchsorted(rows, np.array(self.rows), side="right") - 1] = SOME
        return found

    def take(self, entries: slice) -> Mask:
        return self if len(self.allowed) == 1 else InRows(self.rows, self.allowed[entries])

    def __repr__(self) -> str:
        return f"cut({len(self.rows)} of the queries)"


def without(call: Call, forbidden: Tensor) -> tuple[Call, Tensor]:
    """The call without the forbidden pairs, and all masked pairs: those, and empty rows.

    A bias of -9,000 or less counts as a mask, as in transformers.
    """
    rows, cols = call.whole()
    seen = ~forbidden
    mask, bias = call.mask_block(rows, cols), call.bias_block(rows, cols)
    if mask is not None:
        seen = seen & mask
    if bias is not None:
        seen = seen & (bias > LOWEST)
    empty = forbidden.any(-1, keepdim=True) & ~seen.any(-1, keepdim=True)
    hidden = forbidden | empty
    return _and(call, Dense(~hidden)), hidden


def run_without(
    call: Call, forbidden: Forbidden, run: Callable[[Call], Result]
) -> tuple[Call, Result]:
    """The call without the forbidden pairs, and its result, `run` by regard's own kernels."""
    _, _, q, k = call.sizes
    forbidden = replace(forbidden, pairs=forbidden.pairs.to(call.q.device))
    if q * k < LONG or len(forbidden.rows) > FEW * q:
        call, _ = without(call, forbidden.whole(q))
        return call, run(call)
    few = _rows_of(call, forbidden.rows)
    few, hidden = without(few, forbidden.pairs)
    at = torch.tensor(forbidden.rows, device=call.q.device)
    parts = zip(run(call), run(few), strict=True)
    output, sums = (
        None if whole is None or part is None else whole.index_copy(2, at, part)
        for whole, part in parts
    )
    assert output is not None
    return _and(call, InRows(forbidden.rows, ~hidden)), (output, sums)


def _and(call: Call, allowed: Mask) -> Call:
    """The call with one more mask."""
    mask = allowed if call.mask is None else call.mask & allowed
    return replace(call, mask=mask)


def _rows_of(call: Call, rows: tuple[int, ...]) -> Call:
    """The call restricted to these queries."""
    _, _, _, k = call.sizes
    terms: list[Tensor | None] = []
    for block in (call.mask_block, call.bias_block):
        found = [block(slice(row, row + 1), slice(0, k)) for row in rows]
        parts = [
            part.expand(np.broadcast_shapes(part.shape, (1, 1, 1, k)))  # all axes, all keys
            for part in found
            if part is not None
        ]
        terms.append(torch.cat(parts, 2) if parts else None)
    mask, bias = terms
    return replace(
        call,
        q=call.q[:, :, list(rows)],
        mask=None if mask is None else Dense(mask),
        bias=bias if bias is None or isinstance(call.bias, Tensor) else bias.to(call.work),
    )
