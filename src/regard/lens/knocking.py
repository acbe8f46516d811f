"""Knockout: links are cut, one at a time, and what changes is measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.lens._subjects import Reading, Subject
from regard.lens.cutting import Cut, cut

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
    subject: Subject, reading: Reading, links: Sequence[Link], said: Sequence[int] | None = None
) -> Changes:
    """The changes when each link is cut by itself, many at once: each in its own row of a batch."""
    whole = subject.layers([reading])[-1]
    likely = None if said is None else subject.log_probability(whole, said)
    moved, unsaid = [], []
    for part in _parts(links, len(reading.ids)):
        with cut(subject.model, _cuts(part)):
            last = subject.layers([reading] * len(part))[-1]
        for vectors, link in zip(last, part, strict=True):
            here = list(link.looks)
            before, after = whole[0, here].mean(0), vectors[here].mean(0)
            moved.append(
                torch.linalg.vector_norm(after - before) / torch.linalg.vector_norm(before)
            )
        if likely is not None and said is not None:
            unsaid.append(likely - subject.log_probability(last, said))
    return Changes(
        torch.stack(moved) if moved else whole.new_zeros(0),
        None if likely is None else torch.cat([whole.new_zeros(0), *unsaid]),
    )


@torch.no_grad()
def say_without(subject: Subject, reading: Reading, links: Sequence[Link]) -> list[list[int]]:
    """What the model says when it has read the text with each link cut by itself."""
    found: list[list[int]] = []
    for part in _parts(links, len(reading.ids) * 8):  # writing takes more than reading
        with cut(subject.model, _cuts(part)):
            last = subject.layers([reading] * len(part))[-1]
        found += subject.say(reading, last)
    return found


def _cuts(links: Sequence[Link]) -> list[Cut]:
    return [
        Cut(link.looks, link.at, link.layer, link.head, row=row) for row, link in enumerate(links)
    ]


def _parts(links: Sequence[Link], tokens: int) -> Iterator[Sequence[Link]]:
    size = max(1, BATCH // max(1, tokens))
    for start in range(0, len(links), size):
        yield links[start : start + size]
