"""The modules that are running, and what each of them made its tensors from.

Nothing in a call of attention says whether its keys come from the queries' own sequence or from
another. So the torch functions that a module calls are followed: what comes out of one was made
from all that went in, but what comes out of attention belongs to the queries. A tensor that a
module meets for the first time is a *source*; queries and values with a source in common belong to
one sequence.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

Sources = frozenset[int]
NOTHING: Sources = frozenset()
THE_ONE: Sources = frozenset((-1,))
"""The source of everything where all comes from the same tensor."""

_numbers = count()


class Frame:
    """One run of a module: who called it, and the sources of the tensors in it."""

    __slots__ = ("_made", "_met", "_moved", "args", "heard", "module", "named", "parent", "sealed")

    def __init__(
        self,
        module: nn.Module,
        parent: Frame | None,
        args: tuple[Any, ...] = (),
        named: Mapping[str, Any] = MappingProxyType({}),
        *,
        sealed: bool = False,
        heard: int = 0,
    ) -> None:
        self.module = module
        self.parent = parent
        self.args = args
        self.named = named
        self.sealed = sealed
        """Whether all tensors in it come from the same one, so that none has to be followed."""
        self.heard = heard
        """How many calls of attention there were before it."""
        self._made: dict[int, tuple[weakref.ref[Tensor], Sources]] = {}
        self._met: dict[int, weakref.ref[Tensor]] = {}
        """The sources themselves, by their numbers."""
        self._moved: dict[int, weakref.ref[Tensor]] = {}
        """Tensors in which a place no longer stands for the same place of the sources alone."""

    def given(self) -> list[Tensor]:
        """The tensors that the module was given."""
        return _tensors((*self.args, *self.named.values()))

    def sources(self, x: Tensor) -> Sources:
        """The sources of a tensor; one that is new here is its own."""
        if self.sealed:
            return THE_ONE
        entry = self._made.get(id(x))
        if entry is not None and entry[0]() is x:
            return entry[1]
        if type(x) is nn.Parameter or (type(x) is not Tensor and isinstance(x, nn.Parameter)):
            return NOTHING
        number = next(_numbers)
        itself = weakref.ref(x)
        self._met[number] = itself
        self._made[id(x)] = itself, frozenset((number,))
        return self._made[id(x)][1]

    def follow(self, given: Iterable[object], result: object, moved: bool = False) -> None:
        """Note that the result was made from what was given, perhaps by moving it about."""
        if self.sealed:
            return
        if isinstance(result, Tensor):
            made = [result]
        elif isinstance(result, list | tuple) and not isinstance(result, torch.Size):
            made = _tensors(result)
        else:
            return  # a shape, a dtype, a number
        found = NOTHING
        for x in given:
            if isinstance(x, Tensor):  # nearly always, and this runs at every step of a model
                sources = self.sources(x)
                found = found | sources if found else sources
            elif isinstance(x, list | tuple | dict):
                found = found.union(*(self.sources(y) for y in _tensors((x,))))
        moved = moved or bool(self._moved and any(map(self._was_moved, _tensors(given))))
        for x in made:
            self._note(x, found, moved)

    def _note(self, x: Tensor, found: Sources, moved: bool) -> None:
        itself = weakref.ref(x)
        self._made[id(x)] = itself, found
        if moved:
            self._moved[id(x)] = itself

    def _was_moved(self, x: Tensor) -> bool:
        moved = self._moved.get(id(x))
        return moved is not None and moved() is x

    def leave(self, given: Iterable[object], result: object, attended: bool) -> None:
        """Tell the caller what the result of the whole run was made from, and whether by
        attention."""
        if self.parent is None or self.parent.sealed:
            return
        if self.sealed:
            self.parent.follow(given, _tensors((result,)), moved=attended)
            return
        for x in _tensors((result,)):
            entry = self._made.get(id(x))
            if entry is not None and entry[0]() is x:
                found = self._seen_from_outside(entry[1])
            else:  # made by something that no torch function shows
                found = NOTHING.union(*(self.parent.sources(y) for y in _tensors(given)))
            self.parent._note(x, found, attended or self._was_moved(x))

    def kind(self, q: Tensor, k: Tensor, v: Tensor) -> str:
        """``"self"`` if queries and values have a source in common, else ``"cross"``.

        A module without parameters was given its queries and values ready-made; there it is its
        caller who knows.
        """
        first_new = next(_numbers)
        frame, of_q, of_v = self, self.sources(q), self.sources(v)
        while not frame.sealed and frame.parent is not None and not _has_parameters(frame.module):
            of_q, of_v = frame._seen_from_outside(of_q), frame._seen_from_outside(of_v)
            frame = frame.parent
        if of_q & of_v:
            return "self"
        if any(number < first_new for number in of_q):
            for_q, for_v = ([frame._met[number]() for number in of] for of in (of_q, of_v))
            return "self" if frame.are_forms_of_one(for_q, for_v) else "cross"
        # Queries that came about unseen: all that is left to go by are the lengths.
        known = any(number < first_new for number in of_v)
        return "self" if known or q.shape[-2] == k.shape[-2] else "cross"

    def are_forms_of_one(
        self, for_q: Iterable[Tensor | None], for_v: Iterable[Tensor | None]
    ) -> bool:
        """Whether what the module was given for queries and for values are forms of one sequence.

        As those of a layer that norms its words once for the queries and once more for the values.
        Its caller knows, or the caller's caller if that only hands on what it was given: both have
        to be made of a sequence that this one was given, as long as it, place by place.
        """
        frame, parent = self, self.parent
        while parent is not None:
            given = {id(x) for x in frame.given()}
            for_q, for_v = ([x for x in of if id(x) in given] for of in (for_q, for_v))
            if any(
                parent._forms_of(x, for_q) and parent._forms_of(x, for_v) for x in parent.given()
            ):
                return True
            frame, parent = parent, parent.parent
        return False

    def _forms_of(self, x: Tensor, tensors: Iterable[Tensor | None]) -> bool:
        """Whether one of the tensors is made of x, place by place."""
        source = self.sources(x)
        return any(
            one is not None
            and one.shape[:-1] == x.shape[:-1]
            and source & self.sources(one)
            and not self._was_moved(one)
            for one in tensors
        )

    def _sources(self, tensors: Iterable[Tensor | None]) -> Sources:
        return NOTHING.union(*(self.sources(x) for x in tensors if x is not None))

    def _seen_from_outside(self, sources: Sources) -> Sources:
        if self.parent is None:
            return NOTHING
        return self.parent._sources(self._met[number]() for number in sources)


def _has_parameters(module: nn.Module) -> bool:
    """Whether it or a module in it has any."""
    return any(one._parameters for one in module.modules())


def _tensors(values: Iterable[object]) -> list[Tensor]:
    """The tensors among values, and in the lists, tuples and dictionaries among them."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(value)
        elif isinstance(value, dict):
            found += _tensors(value.values())
    return found
