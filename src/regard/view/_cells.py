"""The six steps of one cell: a query that meets a key, with the real numbers of the look."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from regard.attention.scores import Scaled, ScaledDot
from regard.errors import OptionError
from regard.view._data import Array
from regard.view._grids import headed
from regard.view.records import Layer

SHOWN = 12
"""How many keys of the row are listed in the softmax, the strongest first."""


@dataclass(frozen=True)
class Cell:
    """What happened between token ``query`` and token ``key`` in one head of one layer.

    ``score`` is the product of q and k (or whatever compared them, then ``factor`` is None),
    ``scaled`` that times ``factor``, ``entered`` what entered the softmax: bias added, −inf where
    the mask forbids. ``row`` are the keys of the row that are listed, with ``row_entered`` and
    ``row_weights``. ``z`` is the sum over all keys.
    """

    head: int
    query: int
    key: int
    factor: float | None
    compared_by: str
    q: Array
    k: Array
    v: Array
    z: Array
    score: float
    scaled: float
    entered: float
    weight: float
    row: tuple[int, ...]
    row_entered: tuple[float, ...]
    row_weights: tuple[float, ...]
    logsumexp: float
    keys: int
    hidden: int
    """How many keys of the row may not be looked at."""


def factor_of(layer: Layer) -> float | None:
    """What scores are multiplied by; None if they are not products of queries and keys."""
    score = layer.look.score
    if isinstance(score, Scaled):
        return float(score.factor)
    return 1 / math.sqrt(layer.look.q.shape[-1]) if isinstance(score, ScaledDot) else None


def cell(layer: Layer, head: int, query: int, key: int) -> Cell:
    """The six steps of one cell, computed from the look."""
    sizes = {"head": (head, layer.heads)}
    sizes |= {"query": (query, layer.sizes[0]), "key": (key, layer.sizes[1])}
    for name, (given, size) in sizes.items():
        if not 0 <= given < size:
            raise OptionError(
                f"steps: {name} {given} asked for, but {layer.name!r} has {size}, numbered from 0"
            )
    look, queries, heads = layer.look, [query], [head]
    q, k, v, z = (headed(x, 2) for x in (look.q, look.k, look.v, look.output))
    group = head * len(k) // layer.heads
    score, scaled, entered, weights = (
        headed(found, 2)[0, 0].astype(np.float64)
        for found in (
            look.compared(queries, heads),
            look.compared(queries, heads, scaled=True),
            look.scores(queries, heads),
            look.weights(queries, heads),
        )
    )
    row = [int(i) for i in np.argsort(-weights, kind="stable")[:SHOWN]]
    row = row if key in row else [*row[: SHOWN - 1], key]
    return Cell(
        head=head,
        query=query,
        key=key,
        factor=factor_of(layer),
        compared_by=type(look.score).__name__.lower(),
        q=q[head, query].astype(np.float64),
        k=k[group, key].astype(np.float64),
        v=v[group, key].astype(np.float64),
        z=z[head, query].astype(np.float64),
        score=float(score[key]),
        scaled=float(scaled[key]),
        entered=float(entered[key]),
        weight=float(weights[key]),
        row=tuple(row),
        row_entered=tuple(float(entered[i]) for i in row),
        row_weights=tuple(float(weights[i]) for i in row),
        logsumexp=float(headed(look.logsumexp, 1)[head, query]),
        keys=len(weights),
        hidden=int(np.isneginf(entered).sum()),
    )


def as_data(found: Cell) -> dict[str, object]:
    """A cell as JSON: vectors as lists, −inf as None."""

    def plain(value: object) -> object:
        if isinstance(value, np.ndarray):
            return [float(np.float32(x)) for x in value]
        if isinstance(value, tuple):
            return [plain(one) for one in value]
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return value

    names = {
        "compared_by": "comparedBy", "row_entered": "rowEntered", "row_weights": "rowWeights",
    }  # fmt: skip
    return {names.get(name, name): plain(value) for name, value in vars(found).items()}
