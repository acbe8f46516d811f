"""Results of the lens as views: plain records for `regard.view`, which knows no model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from regard.errors import OptionError, RegardError
from regard.lens.analysis import Analysis
from regard.lens.capture import Seen
from regard.lens.estimation import step_links
from regard.lens.explanation import METHODS, Explanation
from regard.lens.measures import agreement
from regard.lens.methods import find_methods, score
from regard.lens.predictions import Prediction
from regard.lens.verification import without_words
from regard.text.words import Words
from regard.view import Compared, Explained, Layer, Measures, Method, Side, Text, View
from regard.view.figure.wording import labels

if TYPE_CHECKING:
    from regard.attention.record import Look
    from regard.lens.comparison import Comparison
    from regard.lens.comparison import Side as ComparedSide

SOURCE, TARGET, PREFIX = "text", "translation", "written so far"
TITLE = 160
"""Characters of a title."""
NOTES = {
    "attention": "the weights, on average",
    "attention-max": "the weight in the strongest head",
    "norm": "weight × length of what is passed on",
    "rollout": "through all layers, with the residual",
    "value-zeroing": "how far a layer's output turns without the word's value",
    "gradient-attention": "weight × its gradient, through all layers",
    "gradient-input": "the word's vector × its gradient",
    "alti-logit": "what attention adds to the logits, traced back to the words",
    "effects": "the effect of cutting, estimated from one gradient",
    "knockout": "how far the vector moves without the link",
}
WRITTEN = "loss of log p"
CUT = "knockout"
"""The method that the others are compared with."""
SLOW = ("integrated-gradients",)
"""Methods left out of the page, since they take many passes."""


def text_of(words: Words) -> Text:
    """The words of a text, and the word of each token, as a view takes them."""
    number, real = -1, []
    for there in words.is_word:
        number += there
        real.append(number if there else -1)
    names = [name for name, there in zip(words.names, words.is_word, strict=True) if there]
    return Text(words.text, words.tokens, tuple(names), tuple(real[i] for i in words.places))


def layers_of(analysis: Analysis) -> tuple[dict[str, Text], list[Layer]]:
    """The attention with which a text is read and its translation is written."""
    adapter, reading = analysis.adapter, analysis.reading
    writes = adapter.kind == "translator" and analysis.written is not None
    texts = {SOURCE: text_of(reading.words)}
    kind = "masked" if adapter.kind == "causal" else "self"
    layers = _layers_read(list(analysis.looks.values()), kind, "encoder" if writes else "layer")
    if writes:
        told = analysis.translated
        texts |= {TARGET: text_of(told.written), PREFIX: text_of(told.read)}
        layers += _layers_written(told.seen)
    return texts, layers


def _layers_read(looks: Sequence[Look], kind: str, name: str) -> list[Layer]:
    return [Layer(f"{name} {i}", kind, SOURCE, SOURCE, look) for i, look in enumerate(looks)]


def _layers_written(seen: Seen) -> list[Layer]:
    """The decoder's attention to what it has written, and to the source."""
    own = [seen[name] for name in seen if seen.kind(name) != "cross"]
    cross = [seen[name] for name in seen if seen.kind(name) == "cross"]
    return [
        *(Layer(f"decoder {i}", "masked", TARGET, PREFIX, one) for i, one in enumerate(own)),
        *(Layer(f"cross {i}", "cross", TARGET, SOURCE, one) for i, one in enumerate(cross)),
    ]


def measures_of(prediction: Prediction) -> Measures:
    """The score of each input word for a prediction, by every method that suits the model."""
    words = prediction.words
    real = [i for i, there in enumerate(words.is_word) if there]
    cut = _losses(prediction)[real]
    known = ~cut.isnan()
    kind = "next" if prediction.choices() else "vector"
    metric = labels(kind, word=prediction.word, instead=prediction.word_instead)["metric"]
    methods = [Method(CUT, cut.numpy(), note=f"loss of {metric}, measured by cutting")]
    for method in find_methods():
        if method.name in (*SLOW, CUT):
            continue
        try:
            scores = score(method, prediction).double().cpu()[real]
        except RegardError:
            continue
        agrees = _known(agreement(scores[known], cut[known]))
        methods.append(Method(method.name, scores.numpy(), agrees, NOTES.get(method.name, "")))
    return Measures(prediction.word, [words.called(i) for i in real], methods)


def _losses(prediction: Prediction) -> torch.Tensor:
    """The loss of the metric without each input unit; nan where it was not cut."""
    _, attention, effects = step_links(prediction)
    units, logits = without_words(prediction, attention, effects)
    losses = torch.full((effects.shape[-1],), math.nan, dtype=torch.float64)
    changes = prediction.metric(prediction.baseline) - prediction.metric(logits)
    losses[units] = changes.double().cpu()
    return losses


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def explained_of(explanation: Explanation) -> Explained:
    """The scores of the four methods for a word that is read or written."""
    own = [i for i, there in enumerate(explanation.words.is_word) if there]
    text, read = SOURCE, explanation.words
    if explanation.writes is not None and explanation.target is not None:
        text, read = TARGET, explanation.target
    if not read.is_word[explanation.word]:
        raise OptionError(f"view: {explanation.query!r} is a special token, not a word")
    methods = [
        Method(
            name,
            explanation.scores(name)[own].double().cpu().numpy(),
            _known(explanation.agreement.get(name, math.nan)),
            WRITTEN if name == "knockout" and explanation.writes is not None else NOTES[name],
        )
        for name in METHODS
    ]
    word = sum(read.is_word[: explanation.word])
    return Explained(word, text, SOURCE, methods, explanation.conclusion)


def view_of(explanation: Explanation) -> View:
    """An explanation as a view, with the translation if there is one."""
    text = explanation.words.text
    texts = {SOURCE: text_of(explanation.words)}
    layers = _layers_read(
        list(explanation.looks.values()),
        "masked" if explanation.causal else "self",
        "encoder" if explanation.translates else "layer",
    )
    if explanation.target and explanation.target_rows and explanation.written:
        texts |= {TARGET: text_of(explanation.target_rows), PREFIX: text_of(explanation.target)}
        layers += _layers_written(explanation.written)
    return View(
        texts,
        layers,
        explained=explained_of(explanation),
        title=text if len(text) <= TITLE else f"{text[:TITLE]}…",
    )


def view_of_comparison(comparison: Comparison) -> View:
    """A comparison as a view."""
    return View(compared=compared_of(comparison), title=comparison.word)


def compared_of(comparison: Comparison) -> Compared:
    """A comparison as the record that a view takes."""
    one, other = (_side(side) for side in comparison.sides)
    cosine = comparison.cosine.double().numpy()
    return Compared(comparison.word, one, other, cosine, comparison.conclusion)


def _side(side: ComparedSide) -> Side:
    words = side.explanation.words
    own = [i for i, there in enumerate(words.is_word) if there]
    return Side(
        [words.names[i] for i in own],
        own.index(side.explanation.word),
        side.pulls("knockout", 5),
        [(near.word, near.cosine) for near in side.neighbours],
        side.becomes or "",
    )
