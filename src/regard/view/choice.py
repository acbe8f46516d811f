"""The selection of layers that is shown: one layer, its heads, the word that attends; its weights.

A word is attended to as much as all its tokens together, and attends as its tokens do on average:
keys are summed, queries averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import numpy.typing as npt
from torch import Tensor

from regard.errors import OptionError
from regard.view.numbers import Array
from regard.view.records import Layer, Text, Unit

WHICH = ("figure", "ribbon", "head", "matrix", "overview", "explain", "compare")
FIRST_HEADS = 4
"""When no heads are named, up to this many are all drawn; of more, the first three."""
AT_ONCE = 2**22
"""Weights in memory at a time."""


class Options(TypedDict, total=False):
    """What a picture, or a text, shows of a view."""

    layer: int | str
    """Number (from 0) or name of a layer."""
    heads: int | Sequence[int] | None
    """Number or numbers (from 0); pictures of one head take the first."""
    word: str | int | None
    """The word that attends: text, or number from 0. In the figure, the input word."""
    tokens: bool
    """Tokens instead of words."""
    threshold: float
    """Links at or below are not drawn."""
    cut: bool
    """In the figure, what the model writes without the link."""
    title: str
    """The line above "ribbon", with mentioned words in asterisks."""


@dataclass(frozen=True)
class Choice:
    """One layer, some of its heads, and the words or tokens that attend and are attended to."""

    layer: Layer
    heads: tuple[int, ...]
    queries: tuple[Unit, ...]
    keys: tuple[Unit, ...]
    asking: int | None
    """The number of the query that is shown alone."""
    tokens: bool

    @property
    def title(self) -> str:
        """The layer and the heads."""
        numbers = ", ".join(map(str, self.heads))
        return f"{self.layer.name}, head{'s' * (len(self.heads) > 1)} {numbers}"

    @property
    def heading(self) -> str:
        """The title, the kind of attention, and whether rows are words or tokens."""
        unit = "tokens" if self.tokens else "words"
        return f"{self.title} ({self.layer.kind} attention, {unit})"

    def weights(self, queries: Sequence[Unit] | None = None) -> Array:
        """The exact weights of the heads between the units, ``(h, q, k)``."""
        units = self.queries if queries is None else queries
        found = self.layer.look.weights(queries=_tokens(units), heads=list(self.heads))
        return merged(headed(found, 2).astype(np.float64), units, self.keys)

    def pooled(self, side: int) -> Array:
        """The weights averaged over heads, and over blocks so that no axis is longer than ``side``.

        The whole matrix never exists: rows are computed, merged and added some at a time.
        """
        tall, wide = -(-len(self.queries) // side), -(-len(self.keys) // side)
        longest = max(len(unit.tokens) for unit in self.queries)
        step = max(1, AT_ONCE // (self.layer.sizes[1] * len(self.heads) * longest))
        columns = np.arange(0, len(self.keys), wide)
        sums = np.zeros((-(-len(self.queries) // tall), len(self.heads), len(columns)))
        for start in range(0, len(self.queries), step):
            part = self.weights(self.queries[start : start + step])
            rows = np.arange(start, start + part.shape[1]) // tall
            np.add.at(sums, rows, np.add.reduceat(part, columns, 2).swapaxes(0, 1))
        sizes = np.outer(_sizes(len(self.queries), tall), _sizes(len(self.keys), wide))
        return np.asarray(sums.mean(1) / sizes)

    def masked(self) -> npt.NDArray[np.bool_]:
        """Where no token of one unit may attend to any token of the other."""
        scores = self.layer.look.scores(queries=_tokens(self.queries), heads=list(self.heads))
        seen = np.isfinite(headed(scores, 2)).max(0, keepdims=True).astype(np.float64)
        return np.asarray(merged(seen, self.queries, self.keys)[0] == 0)


def headed(x: Tensor, rank: int) -> npt.NDArray[np.float32]:
    """A result of a `Look` with exactly a head axis before its last ``rank`` axes.

    The entropy has rank 1 (queries), the weights 2 (queries, keys); keys and values may have fewer
    heads than queries.
    """
    x = x.detach().float().cpu()
    return np.asarray(x.reshape(-1, *x.shape[x.dim() - rank :]).numpy(), dtype=np.float32)


def merged(weights: Array, queries: Sequence[Unit], keys: Sequence[Unit]) -> Array:
    """Weights ``(h, q, k)`` between tokens as weights between units.

    The rows are those of the tokens of the queries, in their order.

    >>> both = Unit("unhappy", (0, 1), 0)
    >>> merged(np.array([[[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]]]), [both], [both]).tolist()
    [[[0.625]]]
    """
    summed = np.add.reduceat(weights.take(_tokens(keys), 2), _starts(keys), 2)
    counts = np.array([len(unit.tokens) for unit in queries])
    return np.asarray(np.add.reduceat(summed, _starts(queries), 1) / counts[:, None])


def _tokens(units: Sequence[Unit]) -> list[int]:
    return [token for unit in units for token in unit.tokens]


def _starts(units: Sequence[Unit]) -> npt.NDArray[np.int64]:
    """Where the tokens of each unit begin among those of all."""
    return np.cumsum([0, *(len(unit.tokens) for unit in units)])[:-1]


def _sizes(count: int, block: int) -> npt.NDArray[np.int64]:
    """How many there are in each block."""
    return np.minimum(block, count - np.arange(0, count, block))


def chosen(
    texts: Mapping[str, Text], layers: Sequence[Layer], where: str, options: Options
) -> Choice:
    """The choice that the options make; raises for a layer, head or word that does not exist."""
    layer = _layer(layers, options.get("layer", 0), where)
    asking, tokens = texts[layer.queries], options.get("tokens", False)
    queries, keys = (tuple(text.units(tokens)) for text in (asking, texts[layer.keys]))
    token = _token(asking, options.get("word"), where)
    number = next((i for i, unit in enumerate(queries) if token in unit.tokens), None)
    return Choice(layer, _heads(layer, options.get("heads"), where), queries, keys, number, tokens)


def _layer(layers: Sequence[Layer], layer: int | str, where: str) -> Layer:
    names = [one.name for one in layers]
    if isinstance(layer, str):
        if layer not in names:
            raise OptionError(
                f"{where}: layer expected one of {', '.join(map(repr, names))}, got {layer!r}; "
                "or its number"
            )
        return layers[names.index(layer)]
    if not -len(layers) <= layer < len(layers):
        raise OptionError(
            f"{where}: layer {layer} asked for, but there are {len(layers)}, numbered from 0"
        )
    return layers[layer]


def _heads(layer: Layer, heads: int | Sequence[int] | None, where: str) -> tuple[int, ...]:
    if heads is None:
        return tuple(range(layer.heads if layer.heads <= FIRST_HEADS else 3))
    found = (heads,) if isinstance(heads, int) else tuple(heads)
    for head in found:
        if not 0 <= head < layer.heads:
            raise OptionError(
                f"{where}: head {head} asked for, but {layer.name!r} has {layer.heads}, "
                "numbered from 0"
            )
    if not found:
        raise OptionError(f"{where}: heads expected at least one, got none; or None for the first")
    return found


def _token(text: Text, word: str | int | None, where: str) -> int | None:
    if word is None:
        return None
    number = text.find(word, where)
    if number not in text.places:
        raise OptionError(
            f"{where}: word {text.words[number]!r} expected to have a token, got none; "
            "choose another word"
        )
    return list(text.places).index(number)
