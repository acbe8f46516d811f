"""`LinkSteps`: how a head computed the weight of one word for another, in six steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import OptionError, WordError
from regard.lens.arguments import numbered
from regard.lens.predictions.prediction import Axis, Prediction, Site

SHOWN, KEYS = 6, 5
"""Numbers of a vector, and words of a softmax, that are printed."""


@dataclass(frozen=True, eq=False)
class LinkSteps:
    """The six steps of one link in one head, with the numbers that the model computed."""

    query: str
    key: str
    place: str
    layer: int
    head: int
    q: Float[Tensor, " d"]
    """Step 1: the query of the attending word …"""
    k: Float[Tensor, " d"]
    """… the key …"""
    v: Float[Tensor, " e"]
    """… and the value of the word attended to."""
    product: float
    """Step 2: q · k."""
    scaled: float
    """Step 3: the score scaled (see `scaling`), with biases added."""
    scaling: str
    """How step 3 scales, such as ``÷ √64``; see `Look.scaling`."""
    weight: float
    """Step 4: softmax over all words."""
    weights: tuple[tuple[str, float], ...]
    """The weights of all words, the largest first."""
    output: Float[Tensor, " e"]
    """Step 6: the sum of all values times their weights."""

    @property
    def weighted(self) -> Float[Tensor, " e"]:
        """Step 5: the value times its weight."""
        return self.weight * self.v

    def to_data(self) -> dict[str, Any]:
        """Everything as plain lists and numbers."""
        vectors = {name: getattr(self, name).tolist() for name in ("q", "k", "v", "output")}
        plain = {name: one for name, one in vars(self).items() if name not in vectors}
        return {**plain, **vectors, "weighted": self.weighted.tolist()}

    def __repr__(self) -> str:
        link = f"{self.query!r} → {self.key!r}, {self.place} layer {self.layer} head {self.head}"
        return f"LinkSteps({link}: weight {self.weight:.3f})"

    def __str__(self) -> str:
        most = ", ".join(f"{word} {weight:.3f}" for word, weight in self.weights[:KEYS])
        rest = ", …" if len(self.weights) > KEYS else ""
        return "\n".join(
            (
                f"{self.query} → {self.key}, {self.place} layer {self.layer} head {self.head}",
                "",
                f"1. Query and key   q({self.query}) = {_vector(self.q)}",
                f"                   k({self.key}) = {_vector(self.k)}",
                f"2. Score           q · k = {self.product:.4f}",
                f"3. Scale           {self.scaling} = {self.scaled:.4f}",
                f"4. Softmax         {self.weight:.4f}   ({most}{rest})",
                f"5. Weight × value  {self.weight:.4f} × v({self.key}) = {_vector(self.weighted)}",
                f"6. Sum             over {len(self.weights)} words = {_vector(self.output)}",
            )
        )


@dataclass(frozen=True, eq=False)
class RowSteps:
    """The six steps from the row of a prediction to its input words, in every layer and head."""

    words: tuple[int, ...]
    """The input words that are included, by number."""
    q: Float[Tensor, "layers heads d"]
    k: Float[Tensor, "layers heads words d"]
    """The key of each word; of several tokens, the one with the largest weight."""
    v: Float[Tensor, "layers heads words e"]
    """The value of each word; of several tokens, the mean by their weights."""
    product: Float[Tensor, "layers heads words"]
    scaled: Float[Tensor, "layers heads words"]
    scaling: tuple[str, ...]
    """How each layer scales, such as ``÷ √64``."""
    weight: Float[Tensor, "layers heads words"]
    """The sum over the tokens of the word."""
    output: Float[Tensor, "layers heads e"]
    subwords: int
    """Of the attending word; the row is that of the last of them."""


def row_steps(prediction: Prediction, order: Sequence[int], numbers: int) -> RowSteps:
    """The steps from the row of a prediction to as many words, in order, as fit into `numbers`."""
    sites = [one for one in prediction.sites if one.place == prediction.place]
    looks = [prediction.seen.calls(one.module)[-1] for one in sites]
    queries, keys = prediction.axes(prediction.place)
    unit = queries.at(prediction.queries[0])
    row = _last(queries, unit)
    heads, d, e = looks[0].q.shape[1], looks[0].q.shape[-1], looks[0].v.shape[-1]
    room = numbers // (len(looks) * heads * (d + e)) - 1
    words = sorted(order[: max(1, room)])
    parts = []
    for look in looks:
        group = look.q.shape[1] // look.k.shape[1]
        k, v = (one[0].float().repeat_interleave(group, 0) for one in (look.k, look.v))
        product, scaled, weight = (
            of(queries=row)[0, :, 0].float() for of in (look.compared, look.scores, look.weights)
        )
        parts.append(_by_word(k, v, product, scaled, weight, keys, words))
    k, v, product, scaled, weight = (torch.stack(values) for values in zip(*parts, strict=True))
    q = torch.stack([look.q[0, :, row].float() for look in looks])
    output = torch.stack([look.output[0, :, row].float() for look in looks])
    scaling = tuple(look.scaling for look in looks)
    subwords = len(queries.positions[unit])
    return RowSteps(tuple(words), q, k, v, product, scaled, scaling, weight, output, subwords)


def _by_word(
    k: Tensor,
    v: Tensor,
    product: Tensor,
    scaled: Tensor,
    weight: Tensor,
    keys: Axis,
    words: Sequence[int],
) -> list[Tensor]:
    """Keys and values ``(h, n, d)`` and numbers ``(h, n)`` of tokens as those of words."""
    places = [keys.positions[word] for word in words]
    longest = max(map(len, places))
    at = torch.tensor([[*one, *one[:1] * (longest - len(one))] for one in places], device=k.device)
    there = torch.tensor([len(one) for one in places], device=k.device)
    there = torch.arange(longest, device=k.device) < there[:, None]
    own = weight[:, at] * there
    total = own.sum(-1)
    shares = own / total.clamp_min(torch.finfo(own.dtype).tiny).unsqueeze(-1)
    best = at.expand(len(own), -1, -1).gather(-1, own.argmax(-1, keepdim=True))[..., 0]
    return [
        k.take_along_dim(best.unsqueeze(-1), 1),
        (shares.unsqueeze(-1) * v[:, at]).sum(2),
        product.gather(1, best),
        scaled.gather(1, best),
        total,
    ]


def link_steps(
    prediction: Prediction,
    key: str | int,
    query: str | int | None,
    layer: int | None,
    head: int | None,
    place: str | None,
) -> LinkSteps:
    """The steps of a link at a prediction; the strongest head, if none is named."""
    sites = [one for one in prediction.sites if one.place == (place or prediction.place)]
    if not sites:
        places = ", ".join(dict.fromkeys(one.place for one in prediction.sites))
        raise OptionError(f"steps: place {place!r}, but the model has {places}")
    queries, keys = prediction.axes(sites[0].place)
    at = _find(keys, key, "attended to")
    row = queries.at(prediction.queries[0]) if query is None else _find(queries, query, "attending")
    if layer is not None:
        sites = [sites[numbered("steps: layer", layer, len(sites))]]
    chosen = max(
        (
            (
                float(look.weights(queries=_last(queries, row))[0, i, 0, keys.positions[at]].sum()),
                i,
                n,
            )
            for n, site in enumerate(sites)
            for look in [prediction.seen.calls(site.module)[-1]]
            for i in range(look.sizes[1])
            if head is None or i == numbered("steps: head", head, look.sizes[1])
        ),
    )
    return _taken(prediction, sites[chosen[2]], queries, keys, row, at, chosen[1])


def _taken(
    prediction: Prediction, site: Site, queries: Axis, keys: Axis, row: int, at: int, head: int
) -> LinkSteps:
    look = prediction.seen.calls(site.module)[-1]
    q = _last(queries, row)
    weights = look.weights(queries=q, heads=head)[0, 0, 0]
    k = max(keys.positions[at], key=lambda position: float(weights[position]))
    group = look.q.shape[1] // look.k.shape[1]
    totals = [
        (name, float(weights[list(positions)].sum()))
        for name, positions in zip(keys.names, keys.positions, strict=True)
    ]
    return LinkSteps(
        query=queries.names[row],
        key=keys.names[at],
        place=site.place,
        layer=site.layer,
        head=head,
        q=look.q[0, head, q].detach().float(),
        k=look.k[0, head // group, k].detach().float(),
        v=look.v[0, head // group, k].detach().float(),
        product=float(look.compared(queries=q, heads=head)[0, 0, 0, k]),
        scaled=float(look.scores(queries=q, heads=head)[0, 0, 0, k]),
        scaling=look.scaling,
        weight=float(weights[k]),
        weights=tuple(sorted(totals, key=lambda one: -one[1])),
        output=look.output[0, head, q].detach().float(),
    )


def _last(axis: Axis, unit: int) -> int:
    """The last token of a unit, whose row has seen all of it."""
    return axis.positions[unit][-1]


def _find(axis: Axis, word: str | int, role: str) -> int:
    if isinstance(word, int):
        return numbered(f"steps: word {role}", word, len(axis))
    plain = [name.rstrip(".,;:!?") for name in axis.names]
    for names in (axis.names, plain, [name.partition("#")[0] for name in plain]):
        if word in names:
            return list(names).index(word)
    raise WordError(f"steps: no word {role} is {word!r}; there are {', '.join(axis.names)}")


def _vector(x: Tensor) -> str:
    shown = " ".join(f"{value:.2f}" for value in x[:SHOWN].tolist())
    return f"[{shown}{' …' if len(x) > SHOWN else ''}]"
