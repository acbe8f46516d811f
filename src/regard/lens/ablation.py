"""Knockout: links are cut, one at a time, and what changes is measured.

In a translator a word looks at others twice: where it is read, and again where its translation is
written. What the model says is asked with the link cut in both places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.lens.adapters.adapter import ModelAdapter, Reading
from regard.lens.cutting import Cut, cut

Progress = Callable[[int, int], object]
"""Called with how many links have been cut, of how many."""
BATCH = 8192
"""Tokens that the model reads at once."""


@dataclass(frozen=True)
class Link:
    """From a word to a word, by their tokens; in one layer and head, or in all."""

    looks: tuple[int, ...]
    at: tuple[int, ...]
    layer: str | int | None = None
    head: int | None = None


@dataclass(frozen=True)
class Changes:
    """What each link that was cut changed."""

    vector: Tensor
    """How far the word moved, as a share of its vector's length."""
    said: Tensor | None
    """How much less likely it got what the model says, in natural logarithms; below 0: likelier."""


@torch.no_grad()
def knock(
    adapter: ModelAdapter,
    reading: Reading,
    links: Sequence[Link],
    said: Sequence[int] | None = None,
    progress: Progress = lambda done, of: None,
) -> Changes:
    """The changes when each link is cut by itself, many at once: each in its own row of a batch."""
    whole = adapter.layers([reading])[-1]
    likely = None if said is None else adapter.log_probability(whole, said)
    moved, unsaid = [], []
    for part in _parts(links, len(reading.ids)):
        with cut(adapter.model, _cuts(part)):
            last = adapter.layers([reading] * len(part))[-1]
        for vectors, link in zip(last, part, strict=True):
            here = list(link.looks)
            before, after = whole[0, here].mean(0), vectors[here].mean(0)
            moved.append(
                torch.linalg.vector_norm(after - before) / torch.linalg.vector_norm(before)
            )
        if likely is not None and said is not None:
            blind = _blind(adapter, reading, part, said)
            with cut(adapter.model, blind) if blind else nullcontext():
                unsaid.append(likely - adapter.log_probability(last, said))
        progress(len(moved), len(links))
    return Changes(
        torch.stack(moved) if moved else whole.new_zeros(0),
        None if likely is None else torch.cat([whole.new_zeros(0), *unsaid]),
    )


@torch.no_grad()
def say_without(
    adapter: ModelAdapter, reading: Reading, links: Sequence[Link], said: Sequence[int]
) -> list[list[int]]:
    """What the model says, instead of what it `said`, when each link is cut by itself."""
    found: list[list[int]] = []
    for part in _parts(links, len(reading.ids) * 8):  # writing takes more than reading
        with cut(adapter.model, _cuts(part)):
            last = adapter.layers([reading] * len(part))[-1]
        for vectors, instead, link in zip(last, adapter.generate(reading, last), part, strict=True):
            found.append(_or_blindly(adapter, reading, vectors, instead, said, [link]))
    return found


@torch.no_grad()
def say_without_all(
    adapter: ModelAdapter,
    reading: Reading,
    links: Sequence[Link],
    last: Tensor,
    said: Sequence[int],
) -> list[int]:
    """The same when all links are cut together; `last` ``(1, n, width)`` was read without them."""
    instead = adapter.generate(reading, last)[0]
    return _or_blindly(adapter, reading, last[0], instead, said, links)


def _or_blindly(
    adapter: ModelAdapter,
    reading: Reading,
    last: Tensor,
    instead: list[int],
    said: Sequence[int],
    links: Sequence[Link],
) -> list[int]:
    """What is said instead; if it is the same, what is said without looking while writing."""
    if instead != list(said):
        return instead
    hidden: dict[int, set[int]] = {}
    for link in links:
        for place in adapter.written_for(reading, said, link.looks):
            hidden.setdefault(place, set()).update(link.at)
    if not hidden:
        return instead
    tokens = {place: sorted(keys) for place, keys in hidden.items()}
    return adapter.generate_without(last.unsqueeze(0), said, tokens)


def _blind(
    adapter: ModelAdapter, reading: Reading, links: Sequence[Link], said: Sequence[int]
) -> list[Cut]:
    """The links where the translation of the word is written, each in its own row.

    In all layers and heads, for those of the decoder are others than those that a link may name.
    """
    places = {
        looks: adapter.written_for(reading, said, looks) for looks in {one.looks for one in links}
    }
    return [
        Cut(tuple(places[link.looks]), link.at, row=row, kind="cross")
        for row, link in enumerate(links)
        if places[link.looks]
    ]


def _cuts(links: Sequence[Link]) -> list[Cut]:
    return [
        Cut(link.looks, link.at, link.layer, link.head, row=row) for row, link in enumerate(links)
    ]


def _parts(links: Sequence[Link], tokens: int) -> Iterator[Sequence[Link]]:
    size = max(1, BATCH // max(1, tokens))
    for start in range(0, len(links), size):
        yield links[start : start + size]
