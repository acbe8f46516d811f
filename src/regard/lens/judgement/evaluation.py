"""Evaluation of one item: how well the scores of every method predict the effect of cuts.

A word is *hidden* when all links to it are cut, in every layer and head: from every word of the
text, and in a translator from every word that is written. Deletion hides the words one after the
other, the one with the highest score first; insertion begins with all of them hidden, and shows
them in the same order. Special tokens are never hidden.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.errors import FileError, OptionError, WordError
from regard.lens.capture import Cut
from regard.lens.judgement.items import Item
from regard.lens.lens import Lens
from regard.lens.measures import agreement
from regard.lens.methods import Method
from regard.lens.plain_data import rounded
from regard.lens.predictions import Prediction, TranslationPrediction
from regard.translate.translator import evaluating

RANDOM = "random"
"""The name of the random baseline."""
LEAST_WORDS = 3
"""Texts of fewer words have nothing to rank."""
DIGITS = 6


def evaluate(lens: Lens, item: Item, methods: Sequence[Method]) -> dict[str, Any]:
    """The record of one item, as plain data; `skipped` is the reason if there is none."""
    with torch.inference_mode(False), torch.no_grad(), evaluating(lens.model):
        try:
            prediction = _prediction(lens, item)
            evidence, aside = (_units(prediction, one) for one in (item.evidence, item.aside))
        except (OptionError, WordError) as error:
            if item.where:
                raise FileError(f"{item.where}: {error}") from None
            return {"skipped": str(error)}
        words = [i for i in range(len(prediction.words)) if prediction.is_word(i)]
        metric = float(prediction.metric(prediction.baseline))
        if len(words) < LEAST_WORDS:
            return {"skipped": f"the text has fewer than {LEAST_WORDS} words"}
        if metric <= 0:
            return {"skipped": "the model prefers the alternative"}
        scores, refused = _scores(prediction, methods, item.text)
        found = {"text": item.text, "word": prediction.word, "instead": prediction.word_instead}
        judged = _judged(prediction, words, scores, evidence, aside)
        return {**found, "metric": round(metric, DIGITS), "methods": judged, "refused": refused}


def _prediction(lens: Lens, item: Item) -> Prediction:
    analysis = lens.analyse(item.text, target=item.target)
    word: str | int | None = item.word
    if item.position is not None:
        if analysis.translated.written.text != item.target:
            raise OptionError("the tokenizer does not spell the target as it is written")
        word = analysis.translated.written.at(item.position)
    return analysis.prediction(word, item.instead)


def _units(prediction: Prediction, given: Iterable[str | int]) -> list[int]:
    """The numbers of words that are given as written, or by their first character."""
    words = prediction.words
    return [words.find(one) if isinstance(one, str) else words.at(one) for one in given]


def _scores(
    prediction: Prediction, methods: Sequence[Method], text: str
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """The scores of every method and of the baseline, and why methods do not suit the model."""
    found, refused = {}, {}
    for method in methods:
        try:
            found[method.name] = method.score(prediction).double().tolist()
        except OptionError as error:
            refused[method.name] = str(error)
    chance = random.Random(text)
    found[RANDOM] = [chance.random() for _ in range(len(prediction.words))]
    return found, refused


def _judged(
    prediction: Prediction,
    words: Sequence[int],
    scores: dict[str, list[float]],
    evidence: Sequence[int],
    aside: Sequence[int],
) -> dict[str, dict[str, Any]]:
    """Each method's correlations, curves and the rank of the evidence."""
    ties = random.Random(0)
    place = {unit: ties.random() for unit in words}
    orders = {
        name: sorted(words, key=lambda i, one=one: (-one[i], place[i]))  # type: ignore[misc]
        for name, one in scores.items()
    }
    sets = [frozenset({i}) for i in words]
    for order in orders.values():
        sets += [frozenset(order[:k]) for k in range(1, len(order) + 1)]
        sets += [frozenset(order[k:]) for k in range(len(order))]
    before = float(prediction.metric(prediction.baseline))
    after = {frozenset(): before, **_hidden(prediction, sets)}
    without = prediction.metric(prediction.without_word).tolist()
    cuts = [before - without[i] for i in words]
    hidden = [before - after[frozenset({i})] for i in words]
    found = {}
    for name, order in orders.items():
        own = [scores[name][i] for i in words]
        ranked = [i for i in order if i not in aside]
        ranks = [ranked.index(i) + 1 for i in evidence if i in ranked]
        steps = range(len(order) + 1)
        found[name] = {
            "scores": rounded(own, DIGITS),
            "cuts": agreement(own, cuts),
            "hidden": agreement(own, hidden),
            "deletion": _shares(prediction, [after[frozenset(order[:k])] for k in steps]),
            "insertion": _shares(prediction, [after[frozenset(order[k:])] for k in steps]),
            "rank": min(ranks) if ranks else None,
        }
    return found


def _hidden(prediction: Prediction, sets: Iterable[frozenset[int]]) -> dict[frozenset[int], float]:
    """The metric with each set of words hidden."""
    distinct = list(dict.fromkeys(sets))
    metrics = prediction.metric(prediction.cut_logits([_links(prediction, s) for s in distinct]))
    return dict(zip(distinct, metrics.tolist(), strict=True))


def _links(prediction: Prediction, units: Iterable[int]) -> list[Cut]:
    """All links to some words."""
    queries, keys = prediction.axes(prediction.place)
    at = tuple(position for unit in sorted(units) for position in keys.positions[unit])
    if not isinstance(prediction, TranslationPrediction):
        return [Cut(range(prediction.length), at)]
    rows = sum(len(one) for one in queries.positions)
    columns = sum(len(one) for one in keys.positions)
    encoder = [one for one in prediction.sites if one.place == "encoder"]
    return [
        Cut(range(rows), at, kind="cross"),
        *(Cut(range(columns), at, layer=one.module) for one in encoder),
    ]


def _shares(prediction: Prediction, metrics: Sequence[float]) -> list[float]:
    """p(token) / (p(token) + p(instead)); the metric itself where nothing is written."""
    values = torch.tensor(metrics, dtype=torch.float64)
    shares: Tensor = torch.sigmoid(values) if prediction.probes == 1 else values
    found: list[float] = rounded(shares.tolist(), DIGITS)
    return found
