"""`Seen`: what a watched model attended to."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from regard.attention.record import Look
from regard.errors import OptionError, WordError
from regard.lens.capture.joined import JoinedLook
from regard.lens.capture.links import Links, aligned, strongest
from regard.lens.capture.record import AttentionRecord
from regard.notebook import preformatted
from regard.view import View, attention_view

if TYPE_CHECKING:
    import pandas


class UnseenError(WordError, KeyError):
    """Raised for a module in which no attention was captured."""

    __str__ = Exception.__str__  # not KeyError's, which prints its text in quotes


class Seen(Mapping[str, Look]):
    """The captured attention: for each module that attends, by name, a `Look` at all its calls.

    Modules are in the order of their first call. If a module ran several times, its calls are
    joined: queries one after the other, and each sees the keys of its own call. Where calls
    continue one another, as in generation, they share their keys, and key j is the word at
    position j.

    A module that attends to its own sequence as well as to another is there twice, the second time
    as ``"name:cross"`` (or ``"name:self"``).
    """

    def __init__(self) -> None:
        self._records: dict[str, list[AttentionRecord]] = {}
        self._kinds: dict[str, str] = {}
        self._order: list[str] = []
        """The module of each call, in the order in which they ran."""
        self._joined: dict[str, tuple[int, Look]] = {}
        self.missed: tuple[str, ...] = ()
        """The classes of modules that attend in a way that could not be read, if there are any."""

    def __getitem__(self, name: str | int) -> Look:
        """A look at the module of that name, or at the i-th module in order."""
        if isinstance(name, int):
            if not -len(self) <= name < len(self):
                raise UnseenError(f"seen: module {name} of {len(self)}, numbered from 0")
            name = list(self._records)[name]
        calls = self.calls(name)
        if len(calls) == 1:
            return calls[0]
        if self._joined.get(name, (0,))[0] != len(calls):
            positions = [record.position for record in self._records[name]]
            self._joined[name] = len(calls), JoinedLook(name, calls, positions)
        return self._joined[name][1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, name: object) -> bool:
        return name in self._records

    def calls(self, name: str) -> tuple[Look, ...]:
        """Each call of a module by itself, in order."""
        return tuple(record.look() for record in self._of(name))

    def layers(self) -> dict[str, Look]:
        """A look at every call, in the order in which they ran, for models that ran once.

        A module that several layers share, as in ALBERT, is there as ``"name#0"``, ``"name#1"``, …
        """
        found: dict[str, Look] = {}
        so_far: Counter[str] = Counter()
        for name in self._order:
            looks = self.calls(name)
            found[name if len(looks) == 1 else f"{name}#{so_far[name]}"] = looks[so_far[name]]
            so_far[name] += 1
        return found

    def kind(self, name: str) -> str:
        """``"self"`` if the module attends to its own sequence, ``"cross"`` if to another."""
        self._of(name)
        return self._kinds[name]

    def only(self, names: Iterable[str]) -> Seen:
        """The captured attention of these modules."""
        found, kept = Seen(), set(names)
        found._records = {name: self._records[name] for name in self if name in kept}
        found._kinds = {name: self._kinds[name] for name in found}
        found._order = [name for name in self._order if name in kept]
        return found

    def links(self, most: int = 100) -> Links:
        """The links whose cut would change the metric most, of all layers and heads.

        The model must have been watched with ``gradients=True``, and the metric differentiated.
        Effects are estimates of first order (see `Look.effects`); they are computed in blocks, so
        memory is linear in the length of the text.
        """
        return strongest(self, most)

    def view(self, words: Sequence[str], keys: Sequence[str] | None = None) -> View:
        """A view of the weights of all modules that have a query for each of the words.

        `keys`: the words attended to, for attention between two texts; `words` if not given.
        """
        wanted = (len(words), len(words if keys is None else keys))
        kind = "self" if keys is None else "cross"
        found = {
            name: one
            for name, one in self.items()
            if self._kinds[name] == kind and one.sizes[2:] == wanted
        }
        if not found:
            raise OptionError(
                f"view: {wanted[0]} words and {wanted[1]} keys given, but no module attends from "
                f"so many to so many; it saw\n{self}"
            )
        return attention_view(found, words, keys)

    def to_frame(self) -> pandas.DataFrame:
        """One row for each weight of each module, see `Look.to_frame`. Needs pandas."""
        import pandas

        frames = [self[name].to_frame().assign(module=name) for name in self]
        return pandas.concat(frames, ignore_index=True)

    def __str__(self) -> str:
        """A table: the modules, and what they did."""
        if not self:
            return "nothing was seen"
        head = ("module", "kind", "calls", "batch", "heads", "queries", "keys")
        table = aligned([head, *map(self._row, self)], 2)
        return "\n".join([table, *(f"not seen: {_why(kind)}" for kind in self.missed)])

    def __repr__(self) -> str:
        return f"Seen({len(self)} modules)\n{self}"

    def _repr_html_(self) -> str:
        return preformatted(repr(self))

    def _row(self, name: str) -> tuple[str, ...]:
        sizes = [record.sizes for record in self._records[name]]
        b, h, _, _ = sizes[-1]
        queries, k = sum(size[2] for size in sizes), max(size[3] for size in sizes)
        numbers = (len(sizes), b, h, queries, k)
        return name or "(the model)", self._kinds[name], *map(str, numbers)

    def _of(self, name: str) -> list[AttentionRecord]:
        if name in self._records:
            return self._records[name]
        if not self._records:
            raise UnseenError(
                f"seen: {name!r} is not there, nothing was seen; call the model inside "
                "`with regard.watch(model) as seen:`, in the same thread"
            )
        near = difflib.get_close_matches(str(name), self._records, n=3, cutoff=0.0)
        raise UnseenError(
            f"seen: no attention was seen in {name!r}; there are {len(self)} modules, such as "
            f"{', '.join(map(repr, near))}; print(seen) lists them"
        )


def _why(kind: str) -> str:
    if "deformable" in kind.lower():
        return f"{kind} (deformable: it weights sampled points, not keys)"
    return f"{kind} (it attends in a way that cannot be read)"
