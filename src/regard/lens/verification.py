"""Which links a prediction depends on: every link estimated, the strongest cut.

One forward and one backward pass estimate the effect of cutting every link of every head
(`estimation`). The estimate is of first order, so the strongest links are then cut, one at a time,
together with a random sample of the others as a control.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.lens.capture import Cut
from regard.lens.estimation import LEAST, Candidate, StepLinks, estimate_links
from regard.lens.link_steps import link_steps, row_steps
from regard.lens.measures import agreement
from regard.lens.predictions import Prediction
from regard.lens.why import Flip, LinkEffect, Why, WordEffect, most_looked_at

CUT, CONTROL = 32, 16
"""The default numbers of links to cut: the strongest, and others at random."""
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Sizes of the sets of links that are cut together to find one that changes the choice."""
WORDS = 64
"""The number of input words whose links are cut; in a long text, those with the largest effects."""
ALTERNATIVES = 4
"""The number of choices whose probabilities are reported for every cut."""
NUMBERS = 2**18
"""The size of the keys and values kept for the six steps, in numbers."""


def why(prediction: Prediction, *, most: int, control: int, texts: bool) -> Why:
    """Everything that `Lens.why` reports about a prediction."""
    found, step = estimate_links(prediction)
    strongest, sample = found.chosen(most, control)
    tried = [*strongest, *sample]
    measured = _measure(prediction, tried)
    links = [_link(prediction, one, m) for one, m in zip(tried, measured, strict=True)]
    units, logits = without_words(prediction, step.attention, step.effects)
    before = prediction.baseline
    alternatives = _alternatives(prediction, logits)
    chosen = dict(zip(units, prediction.chosen(logits), strict=True))
    flip = _flip(prediction, strongest, measured[: len(strongest)]) if texts else None
    changed = [i for i in units if texts and chosen[i] != prediction.token]
    cuts, first = [prediction.word_cuts[i] for i in changed], [chosen[i] for i in changed]
    if flip is not None:
        cuts.append([_cut(prediction, strongest[i]) for i in flip.links])
        first.append(flip.token)
    tokens = {*alternatives, *prediction.chosen(torch.cat([logits, before[None]])), *first}
    names = {token: prediction.spell(token) for token in tokens}
    written: list[str] = []
    if texts:
        names, written = prediction.named_and_written({prediction.instead, *tokens}, cuts, first)
    names |= prediction.named((prediction.token, prediction.instead))
    words = _words(prediction, step, units, logits, alternatives, names)
    for i, text in zip(changed, written, strict=False):
        words[i] = replace(words[i], text=text)
    looked = most_looked_at(step.attention, step.effects, _real(prediction, len(words)))
    where = (words[looked].layer, words[looked].head)
    return Why(
        text=prediction.words.text,
        written=prediction.written_text,
        word=prediction.word,
        instead=prediction.word_instead,
        position=prediction.position,
        output_words=prediction.output_words,
        alignment=prediction.alignment,
        metric=float(prediction.metric(before)),
        probability=float(prediction.probability(before)),
        choices=tuple(prediction.choices()),
        alternatives=tuple(
            (names[token].strip(), float(before.softmax(-1)[token])) for token in alternatives
        ),
        links=tuple(sorted(links[: len(strongest)], key=lambda one: -abs(one.cut or 0.0))),
        control=tuple(links[len(strongest) :]),
        words=tuple(words),
        flip=None if flip is None else flip.with_names(links, names, written[-1]),
        agreement=agreement([one.effect for one in links], [one.cut or 0.0 for one in links]),
        estimated=found.estimated,
        place=prediction.place,
        attention=step.attention,
        effects=step.effects,
        steps=link_steps(prediction, looked, None, *where, None),
        row=row_steps(prediction, _prominent(words), NUMBERS),
        texts=texts,
        note=" ".join(filter(None, (prediction.note, _left_out(len(units), len(words))))),
    )


def _left_out(cut: int, words: int) -> str:
    """A note about a text that is too long to cut every word."""
    if cut == words:
        return ""
    return (
        f"Of {words:,} words, the links to the {cut} with the largest estimated effect were cut, "
        "one at a time."
    )


def without_words(
    prediction: Prediction, attention: Tensor, effects: Tensor
) -> tuple[list[int], Float[Tensor, "cuts choices"]]:
    """The input units whose links from the step were cut, and the logits without each of them.

    All units of a text of up to `WORDS`; of a longer one those with the largest estimated effects,
    and the one that is looked at most. `attention` and `effects` are ``(layers, heads, units)``.
    """
    count = effects.shape[-1]
    if count <= WORDS or prediction.place == "cross":  # where a cut runs one step of the decoder
        return list(range(count)), prediction.without_word
    estimated = effects.sum((0, 1)).abs()
    estimated[most_looked_at(attention, effects, _real(prediction, count))] = torch.inf
    units = sorted(estimated.topk(WORDS).indices.tolist())
    return units, prediction.cut_logits([prediction.word_cuts[i] for i in units])


def _real(prediction: Prediction, units: int) -> list[bool]:
    """Which input units are words of the text."""
    return [prediction.is_word(i) for i in range(units)]


def _cut(prediction: Prediction, one: Candidate) -> Cut:
    queries, keys = prediction.axes(one.site.place)
    where = (queries.positions[one.query], keys.positions[one.key])
    return Cut(*where, layer=one.site.module, heads=one.head, kind=one.site.kind)


def _measure(prediction: Prediction, links: Sequence[Candidate]) -> list[float]:
    """The measured change of the metric when each link is cut."""
    if not links:
        return []
    after = prediction.metric(prediction.cut_logits([[_cut(prediction, one)] for one in links]))
    found: list[float] = (after - prediction.metric(prediction.baseline)).tolist()
    return found


def _link(prediction: Prediction, one: Candidate, measured: float | None) -> LinkEffect:
    queries, keys = prediction.axes(one.site.place)
    return LinkEffect(
        place=one.site.place,
        layer=one.site.layer,
        head=one.head,
        query=queries.names[one.query],
        key=keys.names[one.key],
        attention=one.attention,
        effect=one.effect,
        cut=measured,
        module=one.site.module,
        query_positions=queries.positions[one.query],
        key_positions=keys.positions[one.key],
    )


def _alternatives(prediction: Prediction, without: Tensor) -> list[int]:
    """The word, its alternative, and the most probable others, with all links or without a word.

    The most probable first.
    """
    if not prediction.choices():
        return []
    names = {one: prediction.spell(one).strip() for one in (prediction.token, prediction.instead)}
    rows = torch.cat([prediction.baseline.unsqueeze(0), without])
    largest = rows.softmax(-1).amax(0)
    for token in largest.topk(min(4 * ALTERNATIVES, len(largest))).indices.tolist():
        name = prediction.spell(token).strip()
        likely = len(names) < 3 or float(largest[token]) >= LEAST / 2
        new = token not in names and name not in names.values()
        if name and likely and new and len(names) < ALTERNATIVES:
            names[token] = name
    return sorted(names, key=lambda token: -float(prediction.baseline[token]))


def _prominent(words: Sequence[WordEffect]) -> list[int]:
    """The words by attention or loss, the largest first, special tokens last."""
    return sorted(
        range(len(words)),
        key=lambda i: (words[i].special, -max(words[i].looked, words[i].matters)),
    )


def _words(
    prediction: Prediction,
    step: StepLinks,
    units: Sequence[int],
    logits: Tensor,
    alternatives: Sequence[int],
    names: Mapping[int, str],
) -> list[WordEffect]:
    """For each input unit, its attention and the loss without it; 0 if it was not cut.

    `names`: of the choices that are written.
    """
    _, keys = prediction.axes(prediction.place)
    row = {unit: i for i, unit in enumerate(units)}
    rows = torch.cat([logits, prediction.baseline.unsqueeze(0)])
    rows = rows[[row.get(i, len(units)) for i in range(len(keys))]]
    probabilities = prediction.probability(rows).tolist()
    shares = rows.softmax(-1)[:, alternatives].tolist()
    before = float(prediction.probability(prediction.baseline))
    chosen = prediction.chosen(rows)
    heads = step.attention.shape[1]
    best, at = step.attention.flatten(0, 1).max(0)
    return [
        WordEffect(
            word=name,
            looked=float(best[i]),
            layer=step.sites[int(at[i]) // heads].layer,
            head=int(at[i]) % heads,
            probability=probabilities[i],
            matters=before - probabilities[i],
            writes=names[chosen[i]],
            text=None if i not in row or chosen[i] == prediction.token else "",
            special=not prediction.is_word(i),
            probabilities=tuple(shares[i]),
            measured=i in row,
        )
        for i, name in enumerate(keys.names)
    ]


class _Flip(NamedTuple):
    """A set of links, by number, whose joint cut changes the choice."""

    links: list[int]
    token: int
    """The choice then."""
    probability: float

    def with_names(self, links: Sequence[LinkEffect], names: Mapping[int, str], text: str) -> Flip:
        """The same, with its links and the word and the text that are written."""
        return Flip(tuple(links[i] for i in self.links), names[self.token], text, self.probability)


def _flip(
    prediction: Prediction, links: Sequence[Candidate], measured: Sequence[float]
) -> _Flip | None:
    """The smallest set of links found whose joint cut changes the choice.

    Larger and larger sets are cut, in the order of measured effects, until the choice changes; then
    links that are not needed are removed from the set.
    """
    if prediction.chosen(prediction.baseline.unsqueeze(0)) != [prediction.token]:
        return None
    order = sorted(range(len(links)), key=lambda i: measured[i])
    order = [i for i in order if measured[i] < 0]
    cuts = {i: _cut(prediction, links[i]) for i in order}
    growing = [order[:n] for n in SIZES if n <= len(order)]
    found = _first_flip(prediction, growing, cuts)
    while found is not None and len(found.links) > 1:
        smaller = [[i for i in found.links if i != left] for left in reversed(found.links)]
        fewer = _first_flip(prediction, smaller, cuts)
        if fewer is None:
            break
        found = fewer
    return found


def _first_flip(
    prediction: Prediction, sets: Sequence[list[int]], cuts: dict[int, Cut]
) -> _Flip | None:
    """The first set of links whose cut changes the choice."""
    if not sets:
        return None
    logits = prediction.cut_logits([[cuts[i] for i in one] for one in sets])
    for one, row, token in zip(sets, logits, prediction.chosen(logits), strict=True):
        if token != prediction.token:
            return _Flip(one, token, float(row.softmax(-1)[token]))
    return None
