"""The estimated effect of cutting each link, from one forward and one backward pass.

The formula is in `regard.attention.link_effects`. Here tokens become words, and of all links those
are kept that are worth cutting.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention.link_effects import grouped, link_effects
from regard.attention.record import Look
from regard.lens.predictions import Axis, Prediction, Site

LEAST = 0.02
"""Control links have at least this weight; cutting less would measure rounding."""
ELEMENTS = 2**24
"""Scores that are held at once."""
KEPT = 1024
"""Links of one module kept as candidates, strongest first, and about as many of the others."""


@dataclass(frozen=True)
class Candidate:
    """A link from a unit to a unit in one head, by number, and its estimated effect."""

    site: Site
    head: int
    query: int
    key: int
    attention: float
    effect: float


@dataclass(frozen=True)
class Candidates:
    """The links of all modules with the largest effects, and some of the others."""

    sites: list[Site]
    shapes: list[torch.Size]
    """Of the effects of each module, ``(h, queries, keys)``."""
    module: Tensor
    """The number of each link's module."""
    index: Tensor
    """The place of each link among the effects of its module."""
    attention: Tensor
    effects: Tensor
    estimated: int
    """The number of all links that have any weight."""

    def chosen(self, most: int, control: int) -> tuple[list[Candidate], list[Candidate]]:
        """The strongest links, and a random sample of the others that have some weight."""
        order = self.effects.abs().argsort(descending=True, stable=True)
        rest = order[most:]
        others: list[int] = rest[self.attention[rest] >= LEAST].tolist()
        sample = random.Random(0).sample(others, min(control, len(others)))
        return [self._at(i) for i in order[:most].tolist()], [self._at(i) for i in sample]

    def _at(self, i: int) -> Candidate:
        module, at = int(self.module[i]), int(self.index[i])
        _, n, m = self.shapes[module]
        where = (at // (n * m), at // m % n, at % m)
        return Candidate(
            self.sites[module], *where, float(self.attention[i]), float(self.effects[i])
        )


class StepLinks(NamedTuple):
    """The links from the rows of a prediction to its input units, ``(layers, heads, units)``."""

    sites: list[Site]
    attention: Tensor
    effects: Tensor


def step_links(prediction: Prediction) -> StepLinks:
    """The weight and the estimated effect of each link from the step's rows to an input unit."""
    own = [site for site in prediction.sites if site.place == prediction.place]
    rows = _own_rows(prediction)
    return _step_links(own, [_units(prediction, site, rows) for site in own])


def estimate_links(prediction: Prediction) -> tuple[Candidates, StepLinks]:
    """The links worth cutting, of all modules, and all links of the step's own rows."""
    asked = prediction.sites
    if not prediction.every_place:
        asked = [site for site in asked if site.place == prediction.place]
    shapes, parts, total = [], [], 0
    own, found = [], []
    for number, site in enumerate(asked):
        weights, effects = _units(prediction, site)
        shapes.append(effects.shape)
        visible = weights.flatten() > 0
        total += int(visible.sum())
        index = _strongest(effects.flatten(), visible)
        module = torch.full_like(index, number)
        parts.append((module, index, weights.flatten()[index], effects.flatten()[index]))
        if site.place == prediction.place:
            rows = _own_rows(prediction)
            own.append(site)
            found.append((weights[:, rows], effects[:, rows]))
    module, index, weight, effect = (torch.cat(one).cpu() for one in zip(*parts, strict=True))
    every = Candidates(asked, shapes, module, index, weight, effect, total)
    return every, _step_links(own, found)


def _own_rows(prediction: Prediction) -> list[int]:
    """The units of the step's rows, each once."""
    queries, _ = prediction.axes(prediction.place)
    return list(dict.fromkeys(queries.at(position) for position in prediction.queries))


def _step_links(sites: list[Site], found: list[tuple[Tensor, Tensor]]) -> StepLinks:
    attention = torch.stack([weights.amax(1) for weights, _ in found])
    return StepLinks(sites, attention, torch.stack([effects.sum(1) for _, effects in found]))


def _units(
    prediction: Prediction, site: Site, rows: Sequence[int] | None = None
) -> tuple[Tensor, Tensor]:
    """The weight and the estimated effect of each link between units, ``(h, queries, keys)``.

    Of all queries, or of the units in `rows`. Several tokens of an attending word have the mean
    weight and the sum of the effects. A module that runs several times, as in ALBERT, is cut in all
    its calls, so their effects are added.
    """
    queries, keys = prediction.axes(site.place)
    if rows is not None:
        queries = Axis(
            tuple(queries.names[i] for i in rows), tuple(queries.positions[i] for i in rows)
        )
    found = [
        _of_call(prediction, look, queries, keys) for look in prediction.seen.calls(site.module)
    ]
    weights, effects = found[0]
    for more, added in found[1:]:
        weights, effects = torch.maximum(weights, more), effects + added
    return weights, effects


def _of_call(
    prediction: Prediction, look: Look, queries: Axis, keys: Axis
) -> tuple[Tensor, Tensor]:
    """The same for one call of a module."""
    b, h, _, k = look.sizes
    own = sorted(position for positions in queries.positions for position in positions)
    to, of = keys.groups(k), queries.groups(look.sizes[2])[own]
    parts, q, rows = [], len(own), None if len(own) == look.sizes[2] else own
    sink = look.sink if look.sink is None or rows is None else look.sink[:, :, rows]
    step = h if b * h * q * k <= ELEMENTS else max(1, ELEMENTS // (b * q * k))
    for first in range(0, h, step):
        heads = slice(first, first + step)
        scores, gradient = look.scores(rows, heads), look.gradient_of_weights(rows, heads)
        share = None if sink is None else sink[:, heads]
        parts.append(link_effects(scores, gradient, to, len(keys), share))
    weights, effects = (torch.cat(one, 1) for one in zip(*parts, strict=True))
    weights = grouped(weights[0].mT, of, len(queries)).mT
    counts = torch.tensor([len(positions) for positions in queries.positions]).to(weights)
    return weights / counts[:, None], prediction.effects(grouped(effects.mT, of, len(queries)).mT)


def _strongest(effects: Tensor, visible: Tensor) -> Tensor:
    """The places of the largest effects of a module, and of some of the others."""
    order = effects.abs().argsort(descending=True)
    order = order[visible[order]]
    rest = order[KEPT:]
    return torch.cat([order[:KEPT], rest[:: max(1, len(rest) // KEPT)]])
