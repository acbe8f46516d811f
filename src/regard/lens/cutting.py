"""`cut`: a model runs with some links of its attention forbidden."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import index
from typing import SupportsIndex

import torch
from torch import Tensor, nn

from regard.attention._call import Call
from regard.attention.masks import Dense
from regard.errors import OptionError
from regard.lens._forbidden import Forbidden
from regard.lens._installing import listening
from regard.lens._listener import Listener, nothing_seen
from regard.lens._projection import Projection

Numbers = SupportsIndex | Sequence[SupportsIndex] | Tensor
KINDS = ("self", "cross")


@dataclass(frozen=True)
class Cut:
    """Links that are forbidden: from each of these queries to each of these keys.

    Args:
        query: position of the word that looks, or several; -1 is the last there is.
        key: position of the word that is looked at, or several.
        layer: the name of a module, or which of those that attend, in the order of their first
            call; all, if not said.
        heads: which, numbered from 0; all, if not said.
        row: which sequence of the batch; all, if not said.
        kind: ``"self"`` for links within a sequence, ``"cross"`` for those to another.
    """

    query: Numbers
    key: Numbers
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
        if self.query is None or self.key is None:
            raise OptionError("cut: a link needs both a query and a key, two positions")


def _numbers(value: Numbers, name: str) -> tuple[int, ...]:
    """One or several whole numbers, or an error that says what is none."""
    try:
        if isinstance(value, Tensor):
            value = value.reshape(-1).tolist()
        if isinstance(value, SupportsIndex):
            return (index(value),)
        return tuple(index(one) for one in value)
    except TypeError:
        raise OptionError(
            f"cut: {name}={value!r}, expected a whole number or several; words become positions "
            "by the tokenizer that belongs to the model"
        ) from None


@contextmanager
def cut(
    model: nn.Module,
    edges: Iterable[tuple[Numbers, Numbers] | Cut],
    layers: str | int | Sequence[str | int] | None = None,
    heads: Numbers | None = None,
    *,
    kind: str = "self",
) -> Iterator[None]:
    """A context in which the model runs without some links of its attention.

    A link that is cut is masked: its weight is 0, and the softmax gives it to the other keys. A
    query that is left with nothing to look at gets exactly 0.

    Args:
        model: any that `watch` can see.
        edges: pairs of positions, from the word that looks to the word that is looked at; of
            ``kind="cross"``, from a target to a source. Negative ones count from the end. With a
            cache, positions are those in the whole text. Or `Cut`, which says more.
        layers: the names of the modules (those of ``list(seen)``), or which of those of this kind
            that attend, in the order of their first call; all, if not said.
        heads: which, numbered from 0; all, if not said.
        kind: ``"self"`` or ``"cross"``.

    A link that never comes up while the model runs is an error in the end.

    >>> from regard.lens.watching import watch
    >>> model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(1, 3, 8)
    >>> with cut(model, [(0, 2)], heads=1), watch(model) as seen:
    ...     output, _ = model(x, x, x)
    >>> seen[""].weights()[0, :, 0, 2] > 0
    tensor([ True, False])
    """
    chosen = [layers] if isinstance(layers, str | SupportsIndex | None) else list(layers)
    cuts = []
    for edge in edges:
        if isinstance(edge, Cut):
            cuts.append(edge)
            continue
        try:
            query, key = edge
        except (TypeError, ValueError):
            raise OptionError(
                f"cut: edge {edge!r}, expected a pair (from, to) of positions"
            ) from None
        cuts += [Cut(query, key, layer, heads, kind=kind) for layer in chosen]
    knife = _Knife(model, cuts)
    with listening(knife) as session:
        before = session.functions.copy()
        yield
        if knife.ran and not knife.heard:
            missed = session.written_out.among(knife.names)
            raise OptionError(nothing_seen("cut", model, session.functions - before, missed))
        knife.check()


class _Knife(Listener):
    """Forbids links, and remembers which came up."""

    cuts = True

    def __init__(self, model: nn.Module, cuts: list[Cut]) -> None:
        super().__init__(model, "cut")
        self._cuts = cuts
        self._met: set[int] = set()
        self._order: dict[str, dict[str, tuple[int, int]]] = {kind: {} for kind in KINDS}
        """By kind and name, in the order of first calls: how many queries and keys there were."""
        self._read: dict[str, tuple[int, int]] = {}
        """By name, where the last call ended, and how many keys it had."""
        self._last = (0, 0)
        """How many queries the last call of self-attention had, and where it ended."""
        known = list(self.names.values())
        for layer in {one.layer for one in cuts if isinstance(one.layer, str)}:
            if _plain(layer) not in known:
                near = difflib.get_close_matches(layer, known, n=1)
                raise OptionError(
                    f"cut: layer {layer!r} is no module of the model"
                    + (f"; did you mean {near[0]!r}?" if near else "; list(seen) has their names")
                )

    def forbids(self, name: str, kind: str, call: Call | Projection) -> Forbidden | None:
        b, h, q, k = call.sizes
        first_query, first_key, (queries, keys) = self._place(name, kind, call)
        order = self._order[kind]
        before = order.get(name, (0, 0))
        order[name] = max(before[0], queries), max(before[1], keys)
        number = list(order).index(name)
        pairs: list[tuple[Cut, list[int], list[int]]] = []
        for i, one in enumerate(self._cuts):
            layer = _plain(one.layer) if isinstance(one.layer, str) else one.layer
            if one.kind != kind or layer not in (None, name, number):
                continue
            rows = _within(one.query, queries, first_query, q)
            cols = _within(one.key, keys, first_key, k)
            if rows and cols:
                self._met.add(i)
                pairs.append((one, rows, cols))
        if not pairs:
            return None
        by_row = any(one.row is not None for one, _, _ in pairs)
        by_head = any(one.heads is not None for one, _, _ in pairs)
        every = sorted({row for _, rows, _ in pairs for row in rows})
        places = {row: i for i, row in enumerate(every)}
        shape = (b if by_row else 1, h if by_head else 1, len(places), k)
        device = call.q.device if isinstance(call, Call) else call.tensors["query"].device
        forbidden = torch.zeros(shape, dtype=torch.bool, device=device)
        for one, rows, cols in pairs:
            entries = slice(None) if one.row is None else _one_of(one.row, b, "row", name)
            for row in rows:
                for head in _heads(one, h, name):
                    forbidden[entries, head, places[row], cols] = True
        return Forbidden(tuple(places), forbidden)

    @property
    def heard(self) -> bool:
        """Whether there was any attention."""
        return any(self._order.values())

    def check(self) -> None:
        """Raise if the model ran, but a link never came up."""
        missed = [one for i, one in enumerate(self._cuts) if i not in self._met]
        if not self.ran or not missed:
            return
        one = missed[0]
        order = self._order[one.kind]
        text = f"cut: the link {_pair(one)} never came up"
        if len(missed) > 1:
            text += f", nor did {len(missed) - 1} more"
        names = [
            name
            for i, name in enumerate(order)
            if one.layer is None or one.layer == i or _plain(str(one.layer)) == name
        ]
        if not names:
            where = "the model" if one.layer is None else f"layer {one.layer!r}"
            other = KINDS[one.kind == "self"]
            there = [
                f"{kind}-attention in {_listed(self._order[kind])}"
                for kind in KINDS
                if self._order[kind]
            ]
            raise OptionError(
                f"{text}: no {one.kind}-attention was seen in {where}; there was "
                f"{' and '.join(there)}"
                + (f" (say kind={other!r} to cut it)" if self._order[other] else "")
            )
        queries, keys = (max(order[name][i] for name in names) for i in range(2))
        raise OptionError(
            f"{text}: there were {queries} queries and {keys} keys, numbered from 0, in "
            f"{_listed(names)}"
        )

    def _place(
        self, name: str, kind: str, call: Call | Projection
    ) -> tuple[int, int, tuple[int, int]]:
        """Where in the text the first query and the first key of a call stand, and how many there
        are by then of each.

        With a cache, queries are the last of the text. One with a window has lost the first keys:
        it has no more than before, although there are new queries.
        """
        _, _, q, k = call.sizes
        if kind == "cross":
            end = self._last[1] if self._last[0] == q else q
            return end - q, 0, (end, k)
        reach = _reach(call)
        end, before = reach, self._read.get(name)
        if before is not None and q < reach and (reach <= before[1] or before[0] > before[1]):
            end = before[0] + q
        self._read[name] = end, reach
        self._last = q, end
        return end - q, end - reach, (end, end)


def _reach(call: Call | Projection) -> int:
    """How many keys a call has, without the end of a cache that nobody may look at yet."""
    _, _, q, k = call.sizes
    if q == k or isinstance(call, Projection):
        return k
    seen = torch.ones(k, dtype=torch.bool)
    if isinstance(call.mask, Dense):
        seen = call.mask.seen.reshape(-1, call.mask.seen.shape[-1]).any(0).cpu()
    elif isinstance(call.bias, Tensor):
        lowest = torch.finfo(call.bias.dtype).min / 2
        seen = (call.bias > lowest).reshape(-1, call.bias.shape[-1]).any(0).cpu()
    places = seen.expand(k).nonzero()
    return int(places[-1]) + 1 if len(places) else k


def _within(positions: Numbers, total: int, first: int, size: int) -> list[int]:
    """The positions, counted in a text of `total`, that lie in a call, counted in it."""
    assert isinstance(positions, tuple)
    counted = (p + total if p < 0 else p for p in positions)
    return [p - first for p in counted if 0 <= p - first < size]


def _heads(one: Cut, h: int, name: str) -> list[int | slice]:
    if one.heads is None:
        return [slice(None)]
    assert isinstance(one.heads, tuple)
    return [_one_of(head, h, "heads", name) for head in one.heads]


def _one_of(number: int, size: int, axis: str, name: str) -> int:
    if not -size <= number < size:
        what = {"row": "sequences in the batch", "heads": "heads"}[axis]
        raise OptionError(
            f"cut: {axis}={number}, but there are {size} {what} in {_listed([name])}, numbered "
            "from 0"
        )
    return number


def _plain(layer: str) -> str:
    """The name of a module, which `Seen` may have marked by its kind."""
    return layer.removesuffix(":self").removesuffix(":cross")


def _listed(names: Iterable[str]) -> str:
    shown = [repr(name) if name else "the model" for name in names]
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")


def _pair(one: Cut) -> str:
    def shown(positions: Numbers) -> str:
        assert isinstance(positions, tuple)
        return str(positions[0] if len(positions) == 1 else list(positions))

    return f"({shown(one.query)}, {shown(one.key)})"
