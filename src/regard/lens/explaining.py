"""How an explanation comes about: what was seen is measured, then links are cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from regard.lens._numbers import whole
from regard.lens.ablation import Link, Progress, knock, say_without
from regard.lens.adapters.adapter import ModelAdapter, Reading, speaks
from regard.lens.explanation import Effect, Explanation, shared
from regard.lens.measures import Feeds, foremost, measure
from regard.lens.watching import watch

MOST = 64
"""Links of a word that are cut, at most, if nothing else is said."""
SINGLE = 40_000
"""Tokens that are read, at most, to cut links in single heads."""
TRIED = 3
"""Links that are cut to see what the model says then."""


def explained(
    adapter: ModelAdapter,
    reading: Reading,
    word: int,
    most: int,
    also: Sequence[int] = (),
    progress: Progress = lambda done, of: None,
) -> Explanation:
    """The explanation of a word, given by its number; see `Lens.explain`.

    The links to the words in `also` are cut in any case.
    """
    most, words = whole("explain: most", most), reading.words
    here = tuple(words.tokens_of(word))
    with watch(adapter.model) as seen, Feeds(adapter.model) as feeds:
        last = adapter.layers([reading])[-1]
    looks = seen.layers()
    found = measure(looks, feeds.outputs(looks), words, here)
    said = adapter.generate(reading, last)[0] if speaks(adapter, reading) else None
    ranked = [found.attention.mean((0, 1)), found.norm_of_layers.mean(0), found.rollout]
    tried = sorted({*foremost(ranked, range(len(words)), most), *also})
    links = {i: Link(here, tuple(words.tokens_of(i))) for i in tried}
    changes = knock(adapter, reading, list(links.values()), said, progress)
    there = {i: link for i, link in links.items() if found.attention[..., i].max() > 0}
    probability = None if changes.said is None else _spread(changes.said, links, len(words))
    return Explanation(
        words=words,
        word=word,
        layers=tuple(looks),
        attention=found.attention,
        norm=found.norm,
        norm_of_layers=found.norm_of_layers,
        rollout=found.rollout,
        knockout=_spread(changes.vector, links, len(words)),
        knockout_of_heads=_knock_heads(adapter, reading, links, found.attention.shape, looks),
        probability=probability,
        said=None if said is None else adapter.detokenize(said),
        effects=_effects(adapter, reading, word, there, probability, said),
        looks=looks,
        translates=adapter.translates,
    )


def _knock_heads(
    adapter: ModelAdapter,
    reading: Reading,
    links: dict[int, Link],
    shape: Sequence[int],
    names: Iterable[str],
) -> Tensor | None:
    """How far the word moves with a link cut in a single head, ``(layers, heads, names)``.

    None if that is too much to try, or if layers share a module, so that it is cut in all of them.
    """
    layers, heads = shape[:2]
    if shared(names) or layers * heads * len(links) * len(reading.ids) > SINGLE:
        return None
    alone = [
        Link(link.looks, link.at, layer, head)
        for layer in range(layers)
        for head in range(heads)
        for link in links.values()
    ]
    vector = knock(adapter, reading, alone).vector.reshape(layers, heads, len(links))
    return _spread(vector, links, len(reading.words))


def _effects(
    adapter: ModelAdapter,
    reading: Reading,
    word: int,
    links: dict[int, Link],
    probability: Tensor | None,
    said: Sequence[int] | None,
) -> tuple[Effect, ...]:
    """What the model says without the links that make its words likeliest.

    Those that change it; if none does, the first, which does not. Of words in one subword, such as
    *wide* and its full stop, the first stands for all.
    """
    if probability is None or said is None:
        return ()
    real = reading.words.is_word
    own = {link.at: i for i, link in reversed(links.items()) if real[i] and i != word}
    order = sorted(own.values(), key=lambda i: -float(probability[i]))[:TRIED]
    if not order:
        return ()
    instead = say_without(adapter, reading, [links[i] for i in order], said)
    effects = [
        Effect(i, adapter.detokenize(found)) for i, found in zip(order, instead, strict=True)
    ]
    before = adapter.detokenize(said)
    return tuple([one for one in effects if one.text != before] or effects[:1])


def _spread(values: Tensor, places: Iterable[int], size: int) -> Tensor:
    """The values at their places along the last axis; nan elsewhere."""
    out = values.new_full((*values.shape[:-1], size), torch.nan)
    out[..., list(places)] = values
    return out
