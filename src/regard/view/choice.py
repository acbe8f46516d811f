"""What of the layers of a view is shown: layer, heads, the word that attends."""

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
    """One layer, some of its heads, and the words or tokens that attend and are attended to."""

    layer: Layer
    heads: tuple[int, ...]
    queries: tuple[Unit, ...]
    keys: tuple[Unit, ...]
    asking: int | None
    """The number of the query that is looked at alone."""
    tokens: bool

    @property
    def title(self) -> str:
        """The layer and the heads."""
        numbers = ", ".join(map(str, self.heads))
        heads = f"head {numbers}" if len(self.heads) == 1 else f"heads {numbers}"
        return f"{self.layer.name}, {heads}"

    @property
    def heading(self) -> str:
        """The title, the kind of attention, and whether rows are words or tokens."""
        unit = "tokens" if self.tokens else "words"
        return f"{self.title} ({self.layer.kind} attention, {unit})"

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
    tokens: bool,
) -> Choice:
    """The choice, checked against what there is."""
    one = _layer(layers, layer, where)
    asking, looked_at = texts[one.queries], texts[one.keys]
    queries = tuple(asking.units(tokens))
    token = _token(asking, word, where)
    number = next((i for i, unit in enumerate(queries) if token in unit.tokens), None)
    keys = tuple(looked_at.units(tokens))
    return Choice(one, _heads(one, heads, where), queries, keys, number, tokens)


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
