"""Computes an `Explanation`: measures of the captured attention, then cuts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor

from regard.lens.ablation import Link, Progress, ablate_links, generate_without
from regard.lens.analysis import Analysis
from regard.lens.arguments import whole
from regard.lens.estimation import step_links
from regard.lens.explanation import Effect, Explanation
from regard.lens.measures import measure, top_ranked
from regard.lens.methods import score
from regard.lens.methods.norm import of_heads, of_layers
from regard.lens.predictions.stack import VectorPrediction
from regard.lens.predictions.translation import TranslationPrediction

MOST = 64
"""The default for the number of links cut."""
VERIFIED = 24
"""The number of links cut in single heads, strongest first, if there are more than twice as many;
the others keep their estimate."""
TRIED = 3
"""The number of links cut to see what the model writes then."""


def explain_read(
    analysis: Analysis,
    word: int,
    most: int,
    only: Sequence[int] | None = None,
    progress: Progress = lambda done, of: None,
) -> Explanation:
    """The explanation of a word, given by its number; see `Lens.explain`.

    `only`: the words whose links are cut, instead of the strongest.
    """
    adapter, reading = analysis.adapter, analysis.reading
    most, words = whole("explain: most", most), reading.words
    here = tuple(words.tokens_of(word))
    found = measure(analysis.looks, analysis.outputs, words, here)
    said = analysis.written
    ranked = [found.attention.mean((0, 1)), found.norm_of_layers.mean(0), found.rollout]
    tried = top_ranked(ranked, range(len(words)), most) if only is None else only
    links = {i: Link(here, tuple(words.tokens_of(i))) for i in tried}
    changes = ablate_links(analysis, list(links.values()), said, progress)
    there = {i: link for i, link in links.items() if found.attention[..., i].max() > 0}
    probability = None if changes.written is None else _spread(changes.written, links, len(words))
    told = analysis.translated if adapter.translates and said is not None else None
    of_heads, estimated = _ablate_heads(analysis, word, links, found.attention)
    return Explanation(
        words=words,
        word=word,
        layers=tuple(analysis.looks),
        attention=found.attention,
        norm=found.norm,
        norm_of_layers=found.norm_of_layers,
        rollout=found.rollout,
        knockout=_spread(changes.vector, links, len(words)),
        knockout_of_heads=of_heads,
        heads_estimated=estimated,
        probability=probability,
        said=None if said is None else adapter.detokenize(said),
        effects=() if only is not None else _effects(analysis, word, there, probability),
        looks=analysis.looks,
        translates=adapter.translates,
        causal=adapter.kind == "causal",
        target=None if told is None else told.read,
        target_rows=None if told is None else told.written,
        written=None if told is None else told.seen,
    )


def explain_written(analysis: Analysis, word: str | int) -> Explanation:
    """The explanation of a word that a translator wrote, by its cross-attention."""
    prediction = cast(TranslationPrediction, analysis.prediction(word, None))
    translated, words = prediction.translated, analysis.reading.words
    sites, attention, effects = step_links(prediction)
    before = prediction.probability(prediction.baseline).log()
    chosen = prediction.chosen(prediction.without_word)
    knockout = score("knockout", prediction)
    changed = [i for i in range(len(words)) if chosen[i] != prediction.token]
    changed = sorted(changed, key=lambda i: -float(knockout[i]))[:TRIED]
    texts = prediction.text_with(
        [prediction.word_cuts[i] for i in changed], [chosen[i] for i in changed]
    )
    return Explanation(
        words=words,
        word=translated.read.places[prediction.step + 1],
        layers=tuple(site.module for site in sites),
        attention=attention,
        norm=of_heads(prediction),
        norm_of_layers=of_layers(prediction),
        rollout=score("rollout", prediction),
        knockout=knockout,
        knockout_of_heads=-effects,
        heads_estimated=torch.ones(effects.shape, dtype=torch.bool),
        probability=before - prediction.probability(prediction.without_word).log(),
        said=analysis.adapter.detokenize(translated.tokens),
        effects=tuple(Effect(i, text) for i, text in zip(changed, texts, strict=True)),
        looks=analysis.looks,
        writes=prediction.word,
        translates=True,
        target=translated.read,
        target_rows=translated.written,
        written=translated.seen,
    )


def _ablate_heads(
    analysis: Analysis, word: int, links: dict[int, Link], attention: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """How far the word's vector moves with a link cut in one head, ``(layers, heads, names)``.

    One backward pass estimates it for every link and head, and the strongest are then cut. The
    second result is True where there is only the estimate. None if layers share a module, which
    would be cut in all of them.
    """
    names = list(analysis.looks)
    if any("#" in name for name in names):  # layers that share a module, see `Seen.layers`
        return None, None
    layers, heads = attention.shape[:2]
    cells = [(n, h, i) for n in range(layers) for h in range(heads) for i in links]
    found = attention.new_full(attention.shape, torch.nan)
    estimated = torch.zeros(attention.shape, dtype=torch.bool)
    if len(cells) > 2 * VERIFIED:
        found[..., list(links)] = _estimated(analysis, word)[..., list(links)]
        estimated[..., list(links)] = True
        cells = sorted(cells, key=lambda cell: -float(found[cell]))[:VERIFIED]
    alone = [Link(links[i].query, links[i].key, names[n], h) for n, h, i in cells]
    for cell, moved in zip(cells, ablate_links(analysis, alone).vector.tolist(), strict=True):
        found[cell], estimated[cell] = moved, False
    return found, estimated


def _estimated(analysis: Analysis, word: int) -> Tensor:
    """The movement of a word's vector, as a share of its length, for each link and head."""
    prediction = VectorPrediction(analysis.adapter, analysis.reading, word)
    return (-2 * step_links(prediction).effects).clamp(min=0).sqrt()


def _effects(
    analysis: Analysis, word: int, links: dict[int, Link], probability: Tensor | None
) -> tuple[Effect, ...]:
    """What the model writes without each of the links that its output depends on most.

    Only those that change it; if none does, the first.
    """
    if probability is None or analysis.written is None:
        return ()
    real, spell = analysis.reading.words.is_word, analysis.adapter.detokenize
    own = [i for i in links if real[i] and i != word]
    order = sorted(own, key=lambda i: -float(probability[i]))[:TRIED]
    if not order:
        return ()
    instead = generate_without(analysis, [links[i] for i in order])
    effects = [Effect(i, spell(found)) for i, found in zip(order, instead, strict=True)]
    before = spell(analysis.written)
    return tuple([one for one in effects if one.text != before] or effects[:1])


def _spread(values: Tensor, places: Iterable[int], size: int) -> Tensor:
    """The values at their places on the last axis; nan elsewhere."""
    out = values.new_full((*values.shape[:-1], size), torch.nan)
    out[..., list(places)] = values
    return out
