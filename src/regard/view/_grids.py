"""Weights as views need them: without batch axis, tokens merged to words, long texts pooled.

A word is looked at as much as all its tokens together, and looks as its tokens do on average:
keys are summed, queries averaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor

from regard.view._data import Array
from regard.view.records import Layer, Unit

ROWS = 2**22
"""How many weights are held at once."""


def headed(x: Tensor, rank: int) -> npt.NDArray[np.float32]:
    """A result of the look with exactly a head axis before its last ``rank`` axes.

    The entropy has rank 1 (queries), the weights 2 (queries, keys); keys and values may have fewer
    heads than queries.
    """
    x = x.detach().float().cpu()
    return np.asarray(x.reshape(-1, *x.shape[x.dim() - rank :]).numpy(), dtype=np.float32)


def merged(weights: Array, queries: Sequence[Unit], keys: Sequence[Unit]) -> Array:
    """Weights ``(h, q, k)`` of tokens as weights of units: keys summed, queries averaged.

    >>> both = Unit("unhappy", (0, 1), 0)
    >>> merged(np.array([[[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]]]), [both], [both]).tolist()
    [[[0.625]]]
    """
    summed = _added(weights, keys, 2)
    counts = np.array([len(unit.tokens) for unit in queries])
    return np.asarray(_added(summed, queries, 1) / counts[:, None])


def _added(weights: Array, units: Sequence[Unit], axis: int) -> Array:
    """The weights of the tokens of each unit, added up along an axis."""
    order = [token for unit in units for token in unit.tokens]
    starts = np.cumsum([0, *(len(unit.tokens) for unit in units)])[:-1]
    return np.asarray(np.add.reduceat(weights.take(order, axis), starts, axis))


def weights(layer: Layer, heads: Sequence[int], queries: Sequence[Unit] | None = None) -> Array:
    """Exactly the weights of these heads ``(h, q, k)``, of all queries or of those of the units."""
    lines = None if queries is None else [token for unit in queries for token in unit.tokens]
    found = layer.look.weights(queries=lines, heads=list(heads))
    return headed(found, 2).astype(np.float64)


def pooled(
    layer: Layer, head: int, queries: Sequence[Unit], keys: Sequence[Unit], side: int
) -> Array:
    """One head's weights between units, averaged over blocks so that neither side is over ``side``.

    The long matrix never exists: some rows at a time are made, merged and added up.
    """
    tall, wide = -(-len(queries) // side), -(-len(keys) // side)
    starts = np.arange(0, len(keys), wide)
    sums = np.zeros((-(-len(queries) // tall), len(starts)))
    for start, part in _parts(layer, head, queries, keys):
        narrow = np.add.reduceat(part, starts, 1)
        np.add.at(sums, np.arange(start, start + len(part)) // tall, narrow)
    sizes = np.outer(_sizes(len(queries), tall), _sizes(len(keys), wide))
    return np.asarray(sums / sizes)


def _sizes(count: int, block: int) -> npt.NDArray[np.int64]:
    """How many there are in each block."""
    return np.minimum(block, count - np.arange(0, count, block))


def _parts(
    layer: Layer, head: int, queries: Sequence[Unit], keys: Sequence[Unit]
) -> Iterator[tuple[int, Array]]:
    together = max(1, ROWS // layer.sizes[1])
    start = 0
    while start < len(queries):
        stop, lines = start, 0
        while stop < len(queries) and (
            stop == start or lines + len(queries[stop].tokens) <= together
        ):
            lines += len(queries[stop].tokens)
            stop += 1
        some = queries[start:stop]
        found = weights(layer, [head], some)
        here = [token for unit in some for token in unit.tokens]
        order = {token: i for i, token in enumerate(here)}
        local = [Unit(u.label, tuple(order[token] for token in u.tokens), u.place) for u in some]
        yield start, merged(found, local, keys)[0]
        start = stop
