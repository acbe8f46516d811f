"""What of a view is shown: layer, heads, the word that asks, the one that is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regard.errors import OptionError
from regard.view import _grids
from regard.view._data import Array
from regard.view.records import Layer, Text, Unit

WHICH = ("figure", "ribbon", "head", "matrix", "overview", "explain", "compare")
FIRST_HEADS = 4
"""Heads up to which all are drawn when none are named; of more, the first three."""


@dataclass(frozen=True)
class Choice:
    """One layer, some of its heads, words or tokens; ``query`` and ``key`` are tokens or None."""

    layer: Layer
    heads: tuple[int, ...]
    queries: tuple[Unit, ...]
    keys: tuple[Unit, ...]
    query: int | None
    key: int | None
    tokens: bool

    @property
    def head(self) -> int:
        """The first of the heads, for views of one."""
        return self.heads[0]

    @property
    def asking(self) -> int | None:
        """The unit that the query token is part of."""
        return _unit(self.queries, self.query)

    @property
    def looked_at(self) -> int | None:
        """The unit that the key token is part of."""
        return _unit(self.keys, self.key)

    def weights(self, queries: Sequence[Unit] | None = None) -> Array:
        """Exactly the weights of the heads between the units, ``(h, q, k)``."""
        asking = list(self.queries if queries is None else queries)
        found = _grids.weights(self.layer, self.heads, asking)
        order = {token: i for i, token in enumerate(t for unit in asking for t in unit.tokens)}
        local = [Unit(u.label, tuple(order[t] for t in u.tokens), u.place) for u in asking]
        return _grids.merged(found, local, self.keys)


def chosen(
    texts: Mapping[str, Text],
    layers: Sequence[Layer],
    where: str,
    *,
    layer: int | str,
    heads: int | Sequence[int] | None,
    word: str | int | None,
    key: str | int | None,
    tokens: bool,
) -> Choice:
    """The choice, checked against what there is."""
    one = _layer(layers, layer, where)
    asking, looked_at = texts[one.queries], texts[one.keys]
    return Choice(
        one,
        _heads(one, heads, where),
        tuple(asking.units(tokens)),
        tuple(looked_at.units(tokens)),
        _token(asking, word, where),
        _token(looked_at, key, where),
        tokens,
    )


def _layer(layers: Sequence[Layer], layer: int | str, where: str) -> Layer:
    names = [one.name for one in layers]
    if not layers:
        raise OptionError(f"{where}: expected a view with layers, got none; give layers to View")
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


def _unit(units: Sequence[Unit], token: int | None) -> int | None:
    if token is None:
        return None
    return next(i for i, unit in enumerate(units) if token in unit.tokens)
