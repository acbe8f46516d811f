"""What the lens found, as views: plain records for `regard.view`, which knows no model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from regard.errors import OptionError
from regard.lens.capture import Seen
from regard.lens.explanation import METHODS, Explanation
from regard.text.words import Words
from regard.view import Compared, Explained, Layer, Method, Side, Text, View

if TYPE_CHECKING:
    from regard.lens.comparing import Comparison
    from regard.lens.comparing import Side as ComparedSide
    from regard.lens.lens import Lens

Answers = Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]
"""What a view can be asked, by the kind of question."""
SOURCE, TARGET = "text", "translation"
TITLE = 160
"""Characters of a title."""
NOTES = {
    "attention": "the weights, on average",
    "norm": "weight × length of what is passed on",
    "rollout": "through all layers, with the residual",
    "knockout": "how far the vector moves without the link",
}
WRITTEN = "loss of log p; heads estimated"
ESTIMATED = "; in single heads the strongest are cut, the others estimated"


def text_of(words: Words) -> Text:
    """The words as a view wants them: those of the text, and for each token which it is in."""
    number, real = -1, []
    for there in words.is_word:
        number += there
        real.append(number if there else -1)
    names = [name for name, there in zip(words.names, words.is_word, strict=True) if there]
    return Text(words.text, words.tokens, tuple(names), tuple(real[i] for i in words.places))


def layers_of_text(explanation: Explanation) -> list[Layer]:
    """The layers by which a text was read."""
    kind = "masked" if explanation.causal else "self"
    return [
        Layer(name, kind, SOURCE, SOURCE, look)
        for name, look in zip(
            _named("encoder" if explanation.translates else "layer", len(explanation.looks)),
            explanation.looks.values(),
            strict=True,
        )
    ]


def layers_of_decoder(seen: Seen) -> list[Layer]:
    """The decoder's attention to what it has written, and to the source."""
    found = []
    counted: Counter[str] = Counter()
    for name in seen:
        cross = seen.kind(name) == "cross"
        part = "cross" if cross else "decoder"
        place = ("cross", TARGET, SOURCE) if cross else ("masked", TARGET, TARGET)
        found.append(Layer(f"{part} {counted[part]}", *place, seen[name]))
        counted[part] += 1
    return found


def _named(part: str, count: int) -> list[str]:
    return [f"{part} {i}" for i in range(count)]


def explained(explanation: Explanation) -> Explained:
    """The four answers for one word."""
    own = [i for i, there in enumerate(explanation.words.is_word) if there]
    text, read, part = SOURCE, explanation.words, "encoder" if explanation.translates else "layer"
    if explanation.writes is not None and explanation.target is not None:
        text, read, part = TARGET, explanation.target, "cross"
    if not read.is_word[explanation.word]:
        raise OptionError(f"view: {explanation.looker!r} is a special token, not a word")
    methods = []
    for name in METHODS:
        heads = explanation.of_heads(name)
        agrees = explanation.agreement.get(name)
        methods.append(
            Method(
                name,
                explanation.scores(name)[own].double().cpu().numpy(),
                None if heads is None else heads[..., own].double().cpu().numpy(),
                None if agrees is None or math.isnan(agrees) else agrees,
                _note(explanation, name),
            )
        )
    return Explained(
        sum(read.is_word[: explanation.word]),
        text,
        SOURCE,
        methods,
        explanation.conclusion,
        _named(part, len(explanation.layers)),
    )


def _note(explanation: Explanation, name: str) -> str:
    """What the numbers of a method are."""
    if name != "knockout":
        return NOTES[name]
    if explanation.writes is not None:
        return WRITTEN
    guessed = explanation.heads_estimated
    return NOTES[name] + (ESTIMATED if guessed is not None and bool(guessed.any()) else "")


def view_of(explanation: Explanation, answers: Answers | None = None) -> View:
    """Everything about a text and one of its words; with its translation, if there is one."""
    text = explanation.words.text
    texts = {SOURCE: text_of(explanation.words)}
    layers = layers_of_text(explanation)
    if explanation.target is not None and explanation.written is not None:
        texts[TARGET] = text_of(explanation.target)
        layers += layers_of_decoder(explanation.written)
    return View(
        texts,
        layers,
        explained=explained(explanation),
        title=text if len(text) <= TITLE else f"{text[:TITLE]}…",
        answers=dict(answers or {}),
    )


def live_view_of(lens: Lens, explanation: Explanation) -> View:
    """The same, with links that can be cut as long as the lens is there."""
    words = explanation.words
    apart = words == words.as_tokens()
    return view_of(
        explanation,
        {"cut": lambda asked: answer_cut(lens, words.text, asked, tokens=apart)},
    )


def answer_cut(
    lens: Lens, text: str, asked: dict[str, Any], *, tokens: bool = False
) -> dict[str, Any]:
    """What happens without links between words, which the viewer numbers without special tokens."""
    links = asked.get("links")
    words = lens.words(text, tokens=tokens)
    own = [i for i, there in enumerate(words.is_word) if there]
    try:
        pairs = [(own[looks], own[at]) for looks, at in links or ()]
    except (TypeError, ValueError, IndexError):
        raise OptionError(
            f"cut: links {links!r}, expected pairs of word numbers from 0 to {len(own) - 1}"
        ) from None
    if asked.get("queries", SOURCE) != SOURCE or asked.get("keys", SOURCE) != SOURCE:
        raise OptionError("cut: only links within the text can be cut")
    found = lens.without(text, pairs, tokens=tokens)
    return {"before": found.before, "after": found.after, "note": found.note}


def view_of_comparison(comparison: Comparison) -> View:
    """One word in two texts."""
    one, other = (_side(side) for side in comparison.sides)
    return View(
        {},
        (),
        compared=Compared(
            comparison.word, one, other, comparison.cosine.double().numpy(), comparison.conclusion
        ),
        title=comparison.word,
    )


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
