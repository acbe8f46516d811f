"""Which links a prediction depends on: every link estimated, the strongest really cut.

One forward and one backward pass estimate the effect of cutting every link of every head
(`regard.attention.link_effects`). The estimate is of first order, so the strongest links are then
cut, one each, together with a random sample of the others as a control.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.link_effects import grouped, link_effects
from regard.lens.capture import Cut
from regard.lens.link_steps import link_steps, row_steps
from regard.lens.measures import agreement
from regard.lens.predictions.prediction import Axis, Prediction, Site
from regard.lens.why import Flip, LinkEffect, Why, WordEffect

CUT, CONTROL = 32, 16
"""Links that are really cut if nothing else is said: the strongest, and others at random."""
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of links that are cut together to find those that change the choice."""
WORDS = 64
"""Input words whose links are really cut; of a longer text, those with the largest estimates."""
LEAST = 0.02
"""Control links have at least this weight; cutting less would measure rounding."""
ALTERNATIVES = 4
"""Choices whose probabilities are reported for every cut."""
NUMBERS = 2**18
"""Numbers of keys and values that are kept for the six steps."""
ELEMENTS = 2**24
"""Scores that are held at once."""
KEPT = 1024
"""Links of one module that are kept as candidates, strongest first, and at random."""


@dataclass(frozen=True)
class _Candidate:
    """A link between units, by positions."""

    site: Site
    head: int
    query: int
    key: int
    attention: float
    effect: float


@dataclass(frozen=True)
class _Found:
    """The links of all modules with the largest effects, and some of the others at random."""

    sites: list[Site]
    shapes: list[torch.Size]
    """Of the effects of each module, ``(h, queries, keys)``."""
    module: Tensor
    """The number of the module of each link."""
    index: Tensor
    """The place of each link among the effects of its module."""
    attention: Tensor
    effects: Tensor
    estimated: int
    """All links that have any weight."""

    def chosen(
        self, most: int, control: int, seed: int
    ) -> tuple[list[_Candidate], list[_Candidate]]:
        """The strongest links, and a random sample of the others that have some weight."""
        order = self.effects.abs().argsort(descending=True, stable=True)
        rest = order[most:]
        others: list[int] = rest[self.attention[rest] >= LEAST].tolist()
        sample = random.Random(seed).sample(others, min(control, len(others)))
        return [self._at(i) for i in order[:most].tolist()], [self._at(i) for i in sample]

    def _at(self, i: int) -> _Candidate:
        module, at = int(self.module[i]), int(self.index[i])
        _, n, m = self.shapes[module]
        where = (at // (n * m), at // m % n, at % m)
        return _Candidate(
            self.sites[module], *where, float(self.attention[i]), float(self.effects[i])
        )


def why(prediction: Prediction, *, most: int, control: int, seed: int = 0) -> Why:
    """Everything that `Lens.why` reports about a prediction."""
    prediction.every_place = most + control > 0
    found, step = _estimate(prediction)
    strongest, sample = found.chosen(most, control, seed)
    tried = [*strongest, *sample]
    measured = _measure(prediction, tried)
    links = [_link(prediction, one, m) for one, m in zip(tried, measured, strict=True)]
    units, logits = without_words(prediction, step.attention, step.effects)
    alternatives = _alternatives(prediction, logits)
    words, flip = _continued(
        prediction,
        _words(prediction, step, units, logits, list(alternatives)),
        dict(zip(units, prediction.chosen(logits), strict=True)),
        _flip(prediction, strongest, measured[: len(strongest)]),
    )
    before = prediction.baseline
    real = [i for i, one in enumerate(words) if not one.special] or range(len(words))
    looked = max(real, key=lambda i: words[i].looked)
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
            (name, float(before.softmax(-1)[token])) for token, name in alternatives.items()
        ),
        links=tuple(sorted(links[: len(strongest)], key=lambda one: -abs(one.cut or 0.0))),
        control=tuple(links[len(strongest) :]),
        words=words,
        flip=flip,
        agreement=agreement([one.effect for one in links], [one.cut or 0.0 for one in links]),
        estimated=found.estimated,
        place=prediction.place,
        attention=step.attention,
        effects=step.effects,
        steps=link_steps(prediction, looked, None, *where, None),
        row=row_steps(prediction, _prominent(words), NUMBERS),
        note=" ".join(filter(None, (prediction.note, _left_out(len(units), len(words))))),
    )


def _left_out(cut: int, words: int) -> str:
    """What a reader has to know of a text that is too long to cut every word."""
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
    real = torch.tensor([prediction.is_word(i) for i in range(count)])
    looked = attention.amax((0, 1)).cpu() * real
    estimated[looked.argmax()] = torch.inf
    units = sorted(estimated.topk(WORDS).indices.tolist())
    return units, prediction.cut_logits([prediction.word_cuts[i] for i in units])


def step_links(prediction: Prediction) -> tuple[list[Site], Tensor, Tensor]:
    """The modules of the step's place, and for each link of its rows the weight and the effect.

    ``(layers, heads, input units)`` each.
    """
    _, step = _estimate(prediction)
    return step.sites, step.attention, step.effects


def head_norms(prediction: Prediction, site: Site) -> Float[Tensor, "heads units"]:
    """Weight × length of the value of each link from the step's rows to an input unit."""
    _, keys = prediction.axes(site.place)
    look = prediction.seen.calls(site.module)[-1]
    norms = look.contributions(queries=list(prediction.queries))[0].mean(1)
    return grouped(norms, keys.groups(norms.shape[-1]), len(keys))


@dataclass(frozen=True)
class _Step:
    """The rows of the step itself: what they attend to, head by head."""

    sites: list[Site]
    attention: Tensor
    """``(layers, heads, input units)``."""
    effects: Tensor


def _estimate(prediction: Prediction) -> tuple[_Found, _Step]:
    """Candidates for links that matter, and all links of the step's own rows."""
    asked = [
        site
        for site in prediction.sites
        if prediction.every_place or site.place == prediction.place
    ]
    shapes, parts, total = [], [], 0
    sites, attention, effects = [], [], []
    for number, site in enumerate(asked):
        queries, keys = prediction.axes(site.place)
        weights, estimated = _units(prediction, site, queries, keys)
        shapes.append(estimated.shape)
        visible = weights.flatten() > 0
        total += int(visible.sum())
        index = _foremost(estimated.flatten(), visible)
        parts.append(
            (
                torch.full_like(index, number),
                index,
                weights.flatten()[index],
                estimated.flatten()[index],
            )
        )
        if site.place == prediction.place:
            rows = [queries.at(position) for position in prediction.queries]
            sites.append(site)
            attention.append(weights[:, rows].amax(1))
            effects.append(estimated[:, rows].sum(1))
    module, index, weight, effect = (torch.cat(one).cpu() for one in zip(*parts, strict=True))
    found = _Found(asked, shapes, module, index, weight, effect, total)
    return found, _Step(sites, torch.stack(attention), torch.stack(effects))


def step_effects(prediction: Prediction) -> Float[Tensor, "layers heads units"]:
    """The estimated effect of cutting each link from the step's own rows to an input unit."""
    queries, keys = prediction.axes(prediction.place)
    rows = [queries.at(position) for position in prediction.queries]
    sites = [site for site in prediction.sites if site.place == prediction.place]
    found = [_units(prediction, site, queries, keys)[1][:, rows].sum(1) for site in sites]
    return torch.stack(found)


def _units(prediction: Prediction, site: Site, queries: Axis, keys: Axis) -> tuple[Tensor, Tensor]:
    """The weight and the estimated effect of each link between units, ``(h, queries, keys)``.

    Several tokens of a word that attends have the mean weight and the sum of the effects. A module
    that runs several times, as in ALBERT, is cut in all its calls, so their effects are added.
    """
    weights: Tensor | None = None
    effects: Tensor | None = None
    for look in prediction.seen.calls(site.module):
        b, h, q, _ = look.output.shape
        k = look.sizes[3]
        to, of = keys.groups(k), queries.groups(q)
        parts = []
        step = h if b * h * q * k <= ELEMENTS else max(1, ELEMENTS // (b * q * k))
        for first in range(0, h, step):
            heads = slice(first, first + step)
            scores, gradient = look.scores(heads=heads), look.gradient_of_weights(heads=heads)
            parts.append(link_effects(scores, gradient, to, len(keys)))
        rows, moved = (torch.cat(one, 1) for one in zip(*parts, strict=True))
        rows = grouped(rows[0].mT, of, len(queries)).mT
        moved = prediction.effects(grouped(moved.mT, of, len(queries)).mT)
        counts = torch.tensor([len(positions) for positions in queries.positions]).to(rows)
        rows = rows / counts[:, None]
        weights = rows if weights is None else torch.maximum(weights, rows)
        effects = moved if effects is None else effects + moved
    assert weights is not None
    assert effects is not None
    return weights, effects


def _foremost(effects: Tensor, visible: Tensor) -> Tensor:
    """Which links of a module have the largest effects, and some of the others."""
    order = effects.abs().argsort(descending=True)
    order = order[visible[order]]
    rest = order[KEPT:]
    return torch.cat([order[:KEPT], rest[:: max(1, len(rest) // KEPT)]])


def _cut(prediction: Prediction, one: _Candidate) -> Cut:
    queries, keys = prediction.axes(one.site.place)
    where = (queries.positions[one.query], keys.positions[one.key])
    return Cut(*where, layer=one.site.module, heads=one.head, kind=one.site.kind)


def _measure(prediction: Prediction, links: Sequence[_Candidate]) -> list[float]:
    """The change of the metric when each link is really cut."""
    if not links:
        return []
    after = prediction.metric(prediction.cut_logits([[_cut(prediction, one)] for one in links]))
    found: list[float] = (after - prediction.metric(prediction.baseline)).tolist()
    return found


def _link(prediction: Prediction, one: _Candidate, measured: float | None) -> LinkEffect:
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


def _alternatives(prediction: Prediction, without: Tensor) -> dict[int, str]:
    """The word, its alternative, and the likeliest others, with all links or without one word."""
    if not prediction.choices():
        return {}
    names = {prediction.token: prediction.word, prediction.instead: prediction.word_instead}
    rows = torch.cat([prediction.baseline.unsqueeze(0), without])
    largest = rows.softmax(-1).amax(0)
    for token in largest.argsort(descending=True)[: 4 * ALTERNATIVES].tolist():
        name = prediction.spell(token).strip()
        likely = len(names) < 3 or float(largest[token]) >= LEAST / 2
        if name and likely and len(names) < ALTERNATIVES and name not in names.values():
            names[token] = name
    return names


def _prominent(words: Sequence[WordEffect]) -> list[int]:
    """The words by how much they are looked at or matter, special tokens last."""
    return sorted(
        range(len(words)),
        key=lambda i: (words[i].special, -max(words[i].looked, words[i].matters)),
    )


def _words(
    prediction: Prediction,
    step: _Step,
    units: Sequence[int],
    logits: Tensor,
    alternatives: Sequence[int],
) -> tuple[WordEffect, ...]:
    """For each input unit, how much it is looked at and what is lost without it.

    A unit that was not cut counts as if nothing changed.
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
    return tuple(
        WordEffect(
            word=name,
            looked=float(best[i]),
            layer=step.sites[int(at[i]) // heads].layer,
            head=int(at[i]) % heads,
            probability=probabilities[i],
            matters=before - probabilities[i],
            writes=prediction.spell(chosen[i]),
            text=None if i not in row or chosen[i] == prediction.token else "",
            special=not prediction.is_word(i),
            probabilities=tuple(shares[i]),
            measured=i in row,
        )
        for i, name in enumerate(keys.names)
    )


def _flip(
    prediction: Prediction, links: Sequence[_Candidate], measured: Sequence[float]
) -> tuple[Flip, int] | None:
    """The smallest set of links found whose joint cut changes the choice, and the choice then.

    More and more links are cut, in the order of their measured effects, until the choice changes;
    then those that turn out not to be needed are taken out again.
    """
    if prediction.chosen(prediction.baseline.unsqueeze(0)) != [prediction.token]:
        return None
    order = sorted(range(len(links)), key=lambda i: measured[i])
    order = [i for i in order if measured[i] < 0]
    cuts = {i: _cut(prediction, links[i]) for i in order}
    growing = [order[:n] for n in SIZES if n <= len(order)]
    found = _first_flip(prediction, growing, cuts)
    while found is not None and len(found[0]) > 1:
        smaller = [[i for i in found[0] if i != left] for left in reversed(found[0])]
        fewer = _first_flip(prediction, smaller, cuts)
        if fewer is None:
            break
        found = fewer
    if found is None:
        return None
    chosen, token, probability = found
    flip = Flip(
        links=tuple(_link(prediction, links[i], measured[i]) for i in chosen),
        word=prediction.spell(token),
        text="",
        probability=probability,
    )
    return flip, token


def _first_flip(
    prediction: Prediction, sets: Sequence[list[int]], cuts: dict[int, Cut]
) -> tuple[list[int], int, float] | None:
    """The first set of links without which the model chooses something else: what, how likely."""
    if not sets:
        return None
    logits = prediction.cut_logits([[cuts[i] for i in one] for one in sets])
    for one, row, token in zip(sets, logits, prediction.chosen(logits), strict=True):
        if token != prediction.token:
            return one, token, float(row.softmax(-1)[token])
    return None


def _continued(
    prediction: Prediction,
    words: Sequence[WordEffect],
    chosen: Mapping[int, int],
    flipped: tuple[Flip, int] | None,
) -> tuple[tuple[WordEffect, ...], Flip | None]:
    """The same with what is written after each cut that changes the choice, in one batch."""
    changed = [i for i, one in enumerate(words) if one.text is not None]
    rows = [prediction.word_cuts[i] for i in changed]
    first = [chosen[i] for i in changed]
    if flipped is not None:
        rows.append([one.as_cut() for one in flipped[0].links])
        first.append(flipped[1])
    texts = prediction.text_with(rows, first)
    told = dict(zip(changed, texts, strict=False))
    return (
        tuple(replace(one, text=told.get(i)) for i, one in enumerate(words)),
        None if flipped is None else replace(flipped[0], text=texts[-1]),
    )
