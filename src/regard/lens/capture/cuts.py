"""`cut`: a model runs with some links of its attention forbidden."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import index
from typing import SupportsIndex, cast

import numpy as np
import torch
from torch import Tensor, nn

from regard.errors import OptionError
from regard.lens.capture.forbidden import Forbidden
from regard.lens.capture.inputs import Inputs
from regard.lens.capture.positions import Progress
from regard.lens.capture.session import Listener, capturing
from regard.lens.capture.unseen import check_seen

Numbers = SupportsIndex | Sequence[SupportsIndex] | Tensor
Layers = str | SupportsIndex | Iterable[str | SupportsIndex] | None
KINDS = ("self", "cross")


@dataclass(frozen=True)
class Cut:
    """Links that are forbidden: from each of these queries to each of these keys.

    Args:
        query: position of the attending word, or several; -1 is the last. None, with `key` None as
            well: all of them, and so whole heads.
        key: position of the word attended to, or several.
        layer: the name of a module, or its number among those that attend, in the order of their
            first call; all if not given.
        heads: numbered from 0; all if not given.
        row: which sequence of the batch; all if not given.
        kind: ``"self"`` for links within a sequence, ``"cross"`` for those to another.
    """

    query: Numbers | None
    key: Numbers | None
    layer: str | int | None = None
    heads: Numbers | None = None
    row: int | None = None
    kind: str = "self"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise OptionError(f"cut: kind={self.kind!r}, expected 'self' or 'cross'")
        for name in ("query", "key", "heads"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else _numbers(value, name))
        if (self.query is None) is not (self.key is None):
            raise OptionError("cut: a link needs both a query and a key, two positions")

    @property
    def first(self) -> int:
        """The first position whose links are cut; 0 for whole heads."""
        return min(cast(tuple[int, ...], self.query or (0,)))

    def behind(self, tokens: int) -> Cut:
        """The same cut in a call that has no queries for so many first tokens."""
        query = cast(tuple[int, ...] | None, self.query)
        return replace(self, query=None if query is None else [i - tokens for i in query])


def _numbers(value: Numbers, name: str) -> tuple[int, ...]:
    """The value as a tuple of whole numbers; raises if it is something else."""
    try:
        if isinstance(value, Tensor):
            value = value.reshape(-1).tolist()
        several = value if isinstance(value, Iterable) else (value,)
        return tuple(index(one) for one in several)
    except TypeError:
        raise OptionError(
            f"cut: {name}={value!r}, expected a whole number or several; words become positions "
            "by the tokenizer that belongs to the model"
        ) from None


@contextmanager
def cut(
    model: nn.Module,
    edges: Iterable[tuple[Numbers, Numbers] | Cut] | None = None,
    layers: Layers = None,
    heads: Numbers | Iterable[tuple[str | int, int]] | None = None,
    *,
    kind: str = "self",
) -> Iterator[None]:
    """A context in which the model runs without some links of its attention.

    A cut link is masked: its weight is 0, and the softmax distributes it over the other keys. A
    query with no key left has an output of exactly 0.

    Args:
        model: any that `watch` can see.
        edges: (query, key) pairs of positions; of ``kind="cross"``, from a target to a source.
            Positions are those of `watch`: negative ones count from the end, and with a cache they
            count in the whole text. Or `Cut` records, which can also name layers, heads and rows.
        layers: the names of the modules (those of ``list(seen)``), or their numbers among those of
            this kind, in the order of their first call; all if not given.
        heads: the heads in which edges are cut, numbered from 0; all if not given. Where `edges` is
            not given, whole heads, as pairs of layer and head and without `layers`:
            ``heads=[(3, 5)]``.
        kind: ``"self"`` or ``"cross"``.

    A link that does not occur while the model runs raises an error when the context ends.

    >>> from regard.lens.capture import watch
    >>> model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(1, 3, 8)
    >>> with cut(model, [(0, 2)], heads=1), watch(model) as seen:
    ...     output, _ = model(x, x, x)
    >>> seen[""].weights()[0, :, 0, 2] > 0
    tensor([ True, False])
    >>> with cut(model, heads=[(0, 1)]), watch(model) as seen:
    ...     output, _ = model(x, x, x)
    >>> seen[""].weights().sum(-1).flatten(0, 1).round()
    tensor([[1., 1., 1.],
            [0., 0., 0.]])
    """
    cutter = _Cutter(model, _cuts(edges, layers, heads, kind))
    with capturing(cutter) as session:
        before = session.operators.copy()
        yield
        check_seen(cutter, bool(cutter.order), session, session.operators - before)
        cutter.check()


def _cuts(
    edges: Iterable[tuple[Numbers, Numbers] | Cut] | None,
    layers: Layers,
    heads: Numbers | Iterable[tuple[str | int, int]] | None,
    kind: str,
) -> list[Cut]:
    """The arguments of `cut` as records."""
    if edges is not None and not isinstance(edges, Iterable):
        raise OptionError(f"cut: edges={edges!r}, expected pairs (from, to) of positions")
    given = [] if edges is None else list(edges)
    if isinstance(heads, Tensor):
        heads = heads.tolist()
    elif isinstance(heads, Iterable) and not isinstance(heads, str):
        heads = list(heads)
    pairs = isinstance(heads, list) and any(isinstance(one, Collection) for one in heads)
    if edges is None or (pairs and not given):
        return _whole_heads(layers, heads, kind)
    if pairs:
        raise OptionError(
            "cut: heads are pairs of layer and head, which cut whole heads; with edges give "
            "their numbers, and layers="
        )
    chosen = _layers(layers)
    cuts = []
    for edge in given:
        if isinstance(edge, Cut):
            cuts.append(edge)
            continue
        try:
            query, key = edge
        except (TypeError, ValueError):
            raise OptionError(
                f"cut: edge {edge!r}, expected a pair (from, to) of positions"
            ) from None
        if query is None or key is None:
            raise OptionError("cut: a link needs both a query and a key, two positions")
        cuts += [Cut(query, key, layer, heads, kind=kind) for layer in chosen]
    return cuts


def _whole_heads(layers: Layers, heads: object, kind: str) -> list[Cut]:
    """The pairs of layer and head that `cut` is given without edges, as records."""
    expected = "expected pairs of layer and head, such as heads=[(3, 5)]"
    if layers is not None:
        raise OptionError(f"cut: layers={layers!r} without edges; for whole heads, {expected}")
    if heads is None:
        return []
    try:
        pairs = [(layer, head) for layer, head in heads]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise OptionError(f"cut: heads={heads!r} without edges, {expected}") from None
    return [
        Cut(None, None, one, head, kind=kind) for layer, head in pairs for one in _layers(layer)
    ]


def _layers(layers: Layers) -> list[str | int | None]:
    """Names and numbers of modules as a list, [None] for all; raises if one is something else."""
    if layers is None:
        return [None]
    if isinstance(layers, Tensor):
        layers = layers.reshape(-1).tolist()
    several = layers if isinstance(layers, Iterable) and not isinstance(layers, str) else [layers]
    try:
        return [one if isinstance(one, str) else index(one) for one in several]
    except TypeError:
        raise OptionError(
            f"cut: layers={layers!r}, expected the name or the number of a module, or several"
        ) from None


class _Cutter(Listener):
    """Listener that forbids links and notes which of them occurred."""

    cuts = True

    def __init__(self, model: nn.Module, cuts: list[Cut]) -> None:
        super().__init__(model, "cut")
        self._cuts = cuts
        self._met: set[int] = set()
        self._progress = Progress()
        self._cuts_of: dict[tuple[str, str], list[tuple[int, Cut]]] = {}
        self.order: dict[str, dict[str, tuple[int, int]]] = {}
        """The numbers of queries and keys, by kind and name, in the order of first calls."""
        known = list(self.names.values())
        for layer in {one.layer for one in cuts if isinstance(one.layer, str)}:
            if _plain(layer) not in known:
                near = difflib.get_close_matches(layer, known, n=1)
                raise OptionError(
                    f"cut: layer {layer!r} is not a module of the model"
                    + (f"; did you mean {near[0]!r}?" if near else "; list(seen) gives their names")
                )

    def forbidden(self, name: str, kind: str, inputs: Inputs) -> Forbidden | None:
        b, h, q, k = inputs.sizes
        position = self._progress.place(name, kind, q, inputs.in_use())
        order = self.order.setdefault(kind, {})
        before = order.get(name, (0, 0))
        order[name] = max(before[0], position.queries), max(before[1], position.keys)
        cuts = self._of(name, kind)
        found = []
        for i, one in cuts:
            _check_numbers(one, b, h, name)
            queries = _inside(one.query, position.query, position.queries, q)
            keys = _inside(one.key, position.key, position.keys, k)
            if one.query is None or (queries and keys and one.heads != ()):
                self._met.add(i)
                found.append((one, queries, keys))
        if not found:
            return None
        rows = np.unique(np.concatenate([queries for _, queries, _ in found]))
        by_row = any(one.row is not None for _, one in cuts)
        by_head = any(one.heads is not None for _, one in cuts)
        pairs = np.zeros((b if by_row else 1, h if by_head else 1, len(rows), k), dtype=bool)
        for one, queries, keys in found:
            row = slice(None) if one.row is None else one.row
            for head in (slice(None),) if one.heads is None else _tuple(one.heads):
                if one.query is None:
                    pairs[row, head] = True
                else:
                    pairs[row, head, np.searchsorted(rows, queries)[:, None], keys] = True
        return Forbidden(tuple(rows.tolist()), torch.from_numpy(pairs))

    def _of(self, name: str, kind: str) -> list[tuple[int, Cut]]:
        """The cuts in a module, by its name or its number among those of its kind."""
        if (name, kind) not in self._cuts_of:
            number = list(self.order[kind]).index(name)
            self._cuts_of[name, kind] = [
                (i, one)
                for i, one in enumerate(self._cuts)
                if one.kind == kind and _is_in(one, number, name)
            ]
        return self._cuts_of[name, kind]

    def check(self) -> None:
        """Raise if the model ran, but a link did not occur."""
        missed = [one for i, one in enumerate(self._cuts) if i not in self._met]
        if not self.ran or not missed:
            return
        one = missed[0]
        order = self.order.get(one.kind, {})
        text = f"cut: the link {_pair(one)} never occurred"
        if len(missed) > 1:
            text += f", nor did {len(missed) - 1} more"
        names = [name for i, name in enumerate(order) if _is_in(one, i, name)]
        if not names:
            where = "the model" if one.layer is None else f"layer {one.layer!r}"
            other = KINDS[one.kind == "self"]
            there = [
                f"{kind}-attention in {_listed(self.order[kind])}"
                for kind in KINDS
                if self.order.get(kind)
            ]
            raise OptionError(
                f"{text}: no {one.kind}-attention was seen in {where}; there was "
                f"{' and '.join(there)}"
                + (f" (give kind={other!r} to cut it)" if self.order.get(other) else "")
            )
        queries, keys = (max(order[name][i] for name in names) for i in range(2))
        raise OptionError(
            f"{text}: there were {queries} queries and {keys} keys, numbered from 0, in "
            f"{_listed(names)}"
        )


def _tuple(numbers: Numbers | None) -> tuple[int, ...]:
    """The numbers of a `Cut`, which holds tuples; none if they are not given."""
    return cast(tuple[int, ...], numbers or ())


def _inside(positions: Numbers | None, first: int, end: int, size: int) -> list[int]:
    """Positions in a text that ends at `end`, counted in a call that begins at `first`.

    Those outside of the call are left out; all of it if none are given.
    """
    if positions is None:
        return list(range(size))
    places = (i + (end if i < 0 else 0) - first for i in _tuple(positions))
    return [place for place in places if 0 <= place < size]


def _check_numbers(one: Cut, b: int, h: int, name: str) -> None:
    """Raise if a head or the sequence of the batch does not exist."""
    rows = () if one.row is None else (one.row,)
    for axis, size, what, numbers in (
        ("heads", h, "heads", _tuple(one.heads)),
        ("row", b, "sequences in the batch", rows),
    ):
        for number in numbers:
            if not -size <= number < size:
                raise OptionError(
                    f"cut: {axis}={number}, but there are {size} {what} in {_listed([name])}, "
                    "numbered from 0"
                )


def _is_in(one: Cut, number: int, name: str) -> bool:
    """Whether a cut is in this module, by its number or its name."""
    return one.layer is None or one.layer == number or _plain(str(one.layer)) == name


def _plain(layer: str) -> str:
    """The name of a module, without the kind that `Seen` may have added."""
    return layer.removesuffix(":self").removesuffix(":cross")


def _listed(names: Iterable[str]) -> str:
    shown = [repr(name) if name else "the model" for name in names]
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")


def _pair(one: Cut) -> str:
    def shown(positions: Numbers | None) -> str:
        if positions is None:
            return "all"
        assert isinstance(positions, tuple)
        return str(positions[0] if len(positions) == 1 else list(positions))

    return f"({shown(one.query)}, {shown(one.key)})"
