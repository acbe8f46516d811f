"""Knockout: links are cut, one at a time, and what changes is measured.

In a translator a word looks at others twice: where it is read, and again where its translation is
written. What the model writes is asked with the link cut in both places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from regard.lens.adapters import Reading, TranslatorAdapter
from regard.lens.analysis import Analysis
from regard.lens.capture import Cut, cut
from regard.lens.rewriting import rewrite

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
    """The loss of log-probability of what the model writes; below 0: a gain."""


@torch.no_grad()
def knock(
    analysis: Analysis,
    links: Sequence[Link],
    said: Sequence[int] | None = None,
    progress: Progress = lambda done, of: None,
) -> Changes:
    """The changes when each link is cut by itself, many at once: each in its own row of a batch."""
    adapter, reading, whole = analysis.adapter, analysis.reading, analysis.vectors[-1]
    if said is None and adapter.kind == "causal":  # what follows a word does not change it
        end = max((max(*link.looks, *link.at) for link in links), default=0) + 1
        reading = Reading(reading.ids[:end], reading.words)
    first = min((min(link.looks) for link in links), default=0)
    past = None if analysis.past is None or not first else analysis.past.before(first)
    start = 0 if past is None else first
    likely = None if said is None else adapter.log_probability(whole, said)
    moved, unsaid = [], []
    for part in _parts(links, len(reading.ids) - start):
        with cut(adapter.model, _cuts(part, start)):
            last = adapter.layers([reading] * len(part), past)[-1]
        for vectors, link in zip(last, part, strict=True):
            here = list(link.looks)
            after = vectors[[i - start for i in here]].mean(0)
            before = whole[0, here].mean(0)
            moved.append(
                torch.linalg.vector_norm(after - before) / torch.linalg.vector_norm(before)
            )
        if likely is not None and said is not None:
            blind = _blind(analysis, part)
            with cut(adapter.model, blind) if blind else nullcontext():
                unsaid.append(likely - adapter.log_probability(last, said))
        progress(len(moved), len(links))
    return Changes(
        torch.stack(moved) if moved else whole.new_zeros(0),
        None if likely is None else torch.cat([whole.new_zeros(0), *unsaid]),
    )


@torch.no_grad()
def say_without(analysis: Analysis, links: Sequence[Link]) -> list[list[int]]:
    """What the model writes instead when each link is cut by itself."""
    adapter, reading = analysis.adapter, analysis.reading
    found: list[list[int]] = []
    for part in _parts(links, len(reading.ids) * 8):  # writing takes more than reading
        with cut(adapter.model, _cuts(part)):
            last = adapter.layers([reading] * len(part))[-1]
        instead = adapter.generate(reading, last)
        found += _or_rewritten(analysis, last, instead, [[link] for link in part])
    return found


@torch.no_grad()
def say_without_all(analysis: Analysis, links: Sequence[Link], last: Tensor) -> list[int]:
    """The same when all links are cut together; `last` ``(1, n, width)`` was read without them."""
    instead = analysis.adapter.generate(analysis.reading, last)
    return _or_rewritten(analysis, last, instead, [links])[0]


def _or_rewritten(
    analysis: Analysis, last: Tensor, instead: list[list[int]], links: Sequence[Sequence[Link]]
) -> list[list[int]]:
    """What each row writes instead; if the same, what it writes with its links cut there as well.

    From the first of the steps that write the translation at which the choice then changes.
    """
    if analysis.adapter.kind != "translator":
        return instead
    adapter, said = cast(TranslatorAdapter, analysis.adapter), analysis.written or []
    rows = [row for row, one in enumerate(instead) if one == said]
    hidden: list[dict[int, Cut]] = []
    for number, row in enumerate(rows):
        keys: dict[int, set[int]] = {}
        for link in links[row]:
            for step in analysis.steps_for(link.looks):
                keys.setdefault(step, set()).update(link.at)
        hidden.append(
            {i: Cut(i, sorted(at), row=number, kind="cross") for i, at in sorted(keys.items())}
        )
    cuts = [one for steps in hidden for one in steps.values()]
    if not cuts:
        return instead
    memory = last[rows]
    prefix = torch.tensor([[adapter.start, *said]] * len(rows), device=memory.device)
    with cut(adapter.model, cuts):
        chosen = adapter.step_logits(memory, prefix).argmax(-1).tolist()
    begun = [
        next((said[:i] for i in steps if chosen[number][i] != said[i]), [*said, adapter.end])
        for number, steps in enumerate(hidden)
    ]
    limit = adapter.longest_output(memory)
    found = rewrite(adapter, memory, begun, said, cuts, limit)
    return [found[rows.index(row)] if row in rows else one for row, one in enumerate(instead)]


def _blind(analysis: Analysis, links: Sequence[Link]) -> list[Cut]:
    """The links where the translation of the word is written, each in its own row.

    In all layers and heads: those of the decoder are others than those that a link may name.
    """
    if analysis.adapter.kind != "translator":
        return []
    steps = {looks: analysis.steps_for(looks) for looks in {one.looks for one in links}}
    return [
        Cut(tuple(steps[link.looks]), link.at, row=row, kind="cross")
        for row, link in enumerate(links)
        if steps[link.looks]
    ]


def _cuts(links: Sequence[Link], start: int = 0) -> list[Cut]:
    """The links, each in its own row, whose queries begin with the token at `start`."""
    return [
        Cut([i - start for i in link.looks], link.at, link.layer, link.head, row=row)
        for row, link in enumerate(links)
    ]


def _parts(links: Sequence[Link], tokens: int) -> Iterator[Sequence[Link]]:
    size = max(1, BATCH // max(1, tokens))
    for start in range(0, len(links), size):
        yield links[start : start + size]
