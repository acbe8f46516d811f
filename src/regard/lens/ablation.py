"""Links are cut, one at a time or together, and what changes is measured.

In a translator a word attends to others twice: where it is read, and again where its translation is
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
from regard.lens.decoding import continue_draft, decode_without
from regard.lens.predictions.prediction import TOKENS
from regard.lens.results import Without

Progress = Callable[[int, int], object]
"""Called with the number of links cut so far, and of all."""


@dataclass(frozen=True)
class Link:
    """From a word to a word, by their tokens; in one layer and head, or in all."""

    query: tuple[int, ...]
    key: tuple[int, ...]
    layer: str | int | None = None
    head: int | None = None


@dataclass(frozen=True)
class Changes:
    """What cutting each link changed."""

    vector: Tensor
    """How far the word's vector moved, as a share of its length."""
    written: Tensor | None
    """The loss of log-probability of what the model writes; negative: a gain."""


def ablate_links(
    analysis: Analysis,
    links: Sequence[Link],
    written: Sequence[int] | None = None,
    progress: Progress = lambda done, of: None,
) -> Changes:
    """The changes when each link is cut by itself, many at once: each in its own row of a batch.

    `written`: the tokens whose log-probability is measured as well.
    """
    adapter, reading, whole = analysis.adapter, analysis.reading, analysis.vectors[-1]
    if written is None and adapter.kind == "causal":  # what follows a word does not change it
        end = max((max(*link.query, *link.key) for link in links), default=0) + 1
        reading = Reading(reading.ids[:end], reading.words)
    first = min((min(link.query) for link in links), default=0)
    past = None if analysis.past is None or not first else analysis.past.before(first)
    start = 0 if past is None else first
    before = None if written is None else adapter.log_probability(whole, written)
    moved, lost = [whole.new_zeros(0)], [whole.new_zeros(0)]
    for part in _batches(links, len(reading.ids) - start):
        with cut(adapter.model, _cuts(part, start)):
            last = adapter.layers([reading] * len(part), past)[-1]
        own = [list(link.query) for link in part]
        after = torch.stack(
            [row[[i - start for i in at]].mean(0) for row, at in zip(last, own, strict=True)]
        )
        moved.append(_movement(after, torch.stack([whole[0, at].mean(0) for at in own])))
        if before is not None and written is not None:
            hidden = _cuts_while_writing(analysis, [[link] for link in part])
            with cut(adapter.model, hidden) if hidden else nullcontext():
                lost.append(before - adapter.log_probability(last, written))
        progress(sum(map(len, moved)), len(links))
    return Changes(torch.cat(moved), None if before is None else torch.cat(lost))


def _movement(after: Tensor, before: Tensor) -> Tensor:
    """The distance of vectors from what they were, as a share of their length."""
    moved, length = (torch.linalg.vector_norm(x, dim=-1) for x in (after - before, before))
    share: Tensor = moved / length
    return share


def generate_without(analysis: Analysis, links: Sequence[Link]) -> list[list[int]]:
    """The tokens that the model writes when each link is cut by itself."""
    adapter, reading = analysis.adapter, analysis.reading
    found: list[list[int]] = []
    for part in _batches(links, len(reading.ids) * 8):  # writing takes more than reading
        with cut(adapter.model, _cuts(part)):
            last = adapter.layers([reading] * len(part))[-1]
        found += _generate(analysis, last, [[link] for link in part])
    return found


def without_links(analysis: Analysis, pairs: Sequence[tuple[int, int]]) -> Without:
    """What changes when all links from words to words, given by number, are cut together."""
    adapter, words, whole = analysis.adapter, analysis.reading.words, analysis.vectors[-1]
    links = [Link(tuple(words.tokens_of(q)), tuple(words.tokens_of(k))) for q, k in pairs]
    with cut(adapter.model, [Cut(link.query, link.key) for link in links]):
        last = adapter.layers([analysis.reading])[-1]
    before = after = ""
    if analysis.written is not None:
        before = adapter.detokenize(analysis.written)
        after = adapter.detokenize(_generate(analysis, last, [links])[0])
    apart, lengths = (
        torch.linalg.vector_norm(words.averaged(one[0]), dim=-1) for one in (last - whole, whole)
    )
    moved = {query: float(apart[query] / lengths[query]) for query, _ in pairs}
    note = ", ".join(f"{words.names[i]} moves by {share:.0%}" for i, share in moved.items())
    return Without(before, after, moved, note)


def _generate(analysis: Analysis, last: Tensor, links: Sequence[Sequence[Link]]) -> list[list[int]]:
    """What each row of `last` ``(rows, n, width)`` writes, whose links were cut as it was read.

    If that is what is written anyway: what it writes with its links cut there as well, from the
    first step of the word's translation at which the choice then changes.
    """
    adapter, written = analysis.adapter, analysis.written or []
    instead = adapter.generate(analysis.reading, last)
    if not isinstance(adapter, TranslatorAdapter):
        return instead
    rows = [row for row, one in enumerate(instead) if one == written]
    cuts = _cuts_while_writing(analysis, [links[row] for row in rows])
    if not cuts:
        return instead
    memory = last[rows]
    prefix = torch.tensor([[adapter.start, *written]] * len(rows), device=memory.device)
    with cut(adapter.model, cuts):
        chosen = adapter.step_logits(memory, prefix).argmax(-1).tolist()
    begun = []
    for row, tokens in enumerate(chosen):
        steps = {i for one in cuts if one.row == row for i in cast(tuple[int, ...], one.query)}
        changed = [i for i in sorted(steps) if tokens[i] != written[i]]
        begun.append(written[: changed[0]] if changed else [*written, adapter.end])
    limits = [adapter.longest_output(memory.shape[1])] * len(rows)
    decode = decode_without(adapter, memory, cuts)
    rewritten = continue_draft(adapter, decode, begun, written, limits)
    for row, tokens in zip(rows, rewritten, strict=True):
        instead[row] = tokens
    return instead


def _cuts_while_writing(analysis: Analysis, links: Sequence[Sequence[Link]]) -> list[Cut]:
    """The links of each row, where the translation of the word is written.

    In all layers and heads: those of the decoder are others than those that a link may name.
    """
    if analysis.adapter.kind != "translator":
        return []
    queries = {link.query for own in links for link in own}
    steps = {query: analysis.steps_for(query) for query in queries}
    return [
        Cut(tuple(steps[link.query]), link.key, row=row, kind="cross")
        for row, own in enumerate(links)
        for link in own
        if steps[link.query]
    ]


def _cuts(links: Sequence[Link], start: int = 0) -> list[Cut]:
    """The links, each in its own row, whose queries begin with the token at `start`."""
    return [
        Cut([i - start for i in link.query], link.key, link.layer, link.head, row=row)
        for row, link in enumerate(links)
    ]


def _batches(links: Sequence[Link], tokens: int) -> Iterator[Sequence[Link]]:
    """The links in batches of rows of so many tokens each."""
    size = max(1, TOKENS // max(1, tokens))
    for start in range(0, len(links), size):
        yield links[start : start + size]
