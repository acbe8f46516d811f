"""Results of the lens as views: plain records for `regard.view`, which knows no model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate, compress
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
    counts = zip(words.is_word, accumulate(words.is_word), strict=True)
    numbers = [count - 1 if there else -1 for there, count in counts]
    names = tuple(compress(words.names, words.is_word))
    return Text(words.text, words.tokens, names, tuple(numbers[i] for i in words.places))


def layers_of(analysis: Analysis) -> tuple[dict[str, Text], list[Layer]]:
    """The attention with which a text is read and its translation is written."""
    kind, written = analysis.adapter.kind, None
    if kind == "translator" and analysis.written is not None:
        told = analysis.translated
        written = told.written, told.read, told.seen
    name = "layer" if written is None else "encoder"
    return _layers(analysis.reading.words, analysis.looks, kind == "causal", name, written)


def _layers(
    words: Words,
    looks: Mapping[str, Look],
    causal: bool,
    name: str,
    written: tuple[Words, Words, Seen] | None,
) -> tuple[dict[str, Text], list[Layer]]:
    """The texts, and the layers that read the source and write the translation.

    `written`: the words of the translation by the step that writes them, the same as they are read,
    and the attention of the decoder.
    """
    texts, kind = {SOURCE: text_of(words)}, "masked" if causal else "self"
    layers = [
        Layer(f"{name} {i}", kind, SOURCE, SOURCE, look) for i, look in enumerate(looks.values())
    ]
    if written is not None:
        target, read, seen = written
        texts |= {TARGET: text_of(target), PREFIX: text_of(read)}
        own = [seen[one] for one in seen if seen.kind(one) != "cross"]
        cross = [seen[one] for one in seen if seen.kind(one) == "cross"]
        layers += [Layer(f"decoder {i}", "masked", TARGET, PREFIX, x) for i, x in enumerate(own)]
        layers += [Layer(f"cross {i}", "cross", TARGET, SOURCE, x) for i, x in enumerate(cross)]
    return texts, layers


def measures_of(prediction: Prediction) -> Measures:
    """The score of each input word for a prediction, by every method that suits the model."""
    words = prediction.words
    real = list(compress(range(len(words)), words.is_word))
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


def explained_of(e: Explanation) -> Explained:
    """The scores of the four methods for a word that is read or written."""
    own = list(compress(range(len(e.words)), e.words.is_word))
    text, read = SOURCE, e.words
    if e.writes is not None and e.target is not None:
        text, read = TARGET, e.target
    if not read.is_word[e.word]:
        raise OptionError(f"view: {e.query!r} is a special token, not a word")
    methods = [
        Method(
            name,
            e.scores(name)[own].double().cpu().numpy(),
            _known(e.agreement.get(name, math.nan)),
            WRITTEN if name == "knockout" and e.writes is not None else NOTES[name],
        )
        for name in METHODS
    ]
    return Explained(sum(read.is_word[: e.word]), text, SOURCE, methods, e.conclusion)


def view_of(e: Explanation) -> View:
    """An explanation as a view, with the translation if there is one."""
    written = None
    if e.target and e.target_rows and e.written:
        written = e.target_rows, e.target, e.written
    name = "encoder" if e.translates else "layer"
    texts, layers = _layers(e.words, e.looks, e.causal, name, written)
    title = e.words.text if len(e.words.text) <= TITLE else f"{e.words.text[:TITLE]}…"
    return View(texts, layers, explained=explained_of(e), title=title)


def compared_of(comparison: Comparison) -> Compared:
    """A comparison as the record that a view takes."""
    one, other = (_side(side) for side in comparison.sides)
    cosine = comparison.cosine.double().numpy()
    return Compared(comparison.word, one, other, cosine, comparison.conclusion)


def _side(side: ComparedSide) -> Side:
    words = side.explanation.words
    return Side(
        list(compress(words.names, words.is_word)),
        sum(words.is_word[: side.explanation.word]),
        side.pulls("knockout", 5),
        [(near.word, near.cosine) for near in side.neighbours],
        side.becomes or "",
    )
