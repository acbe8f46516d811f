"""The words of a finding: sentences with mentioned words set apart, and labels by kind of model.

A sentence is a list of spans, (text, role), where the role says what a mentioned word is:
``"look"`` for one that is attended to or written, ``"cut"`` after a cut, else ``""``. The page is
given the templates of `PAGE` and fills them in the same way.
"""

from __future__ import annotations

import re
from string import Formatter

from regard.view.svg import Number

Span = tuple[str, str]

MARKS = ".,;:!?…\u3002\u3001\uff0c\uff01\uff1f"
_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069\u2028\u2029]")

_LABELS = {
    "reads": "it reads",
    "writes": "it writes",
    "query": "q, where {word} is written",
    "choices": "The next word it would write",
    "before": "",
    "matters": "What if it could not look there?",
    "each": "one word cut at a time, all heads",
    "looked": "looked at (strongest head)",
    "lost": "matters: points that “{word}” loses",
    "hidden": "one word cut at a time; how likely “{word}” is then",
    "metric": "log p({word}) − log p({instead})",
}
_KINDS = {
    "next": {"writes": "it writes next", "before": "after the text"},
    "choice": {
        "writes": "it chooses",
        "query": "q, of the first row that {word} is read from",
        "choices": "What it would choose",
    },
    "vector": {
        "writes": "the word whose vector is explained",
        "query": "q, of {word}",
        "choices": "How close its vector stays",
        "lost": "matters: movement of the vector",
        "hidden": "one word cut at a time; the cosine of “{word}” to what it was",
        "metric": "the cosine",
    },
    "attention": {
        "reads": "it reads · click a word to see what it attends to",
        "writes": "",
        "query": "q, of the word that attends",
        "matters": "Where does it look?",
        "each": "the strongest head of all layers",
        "looked": "attention (strongest head)",
        "lost": "",
    },
}

PAGE = {
    "attends": "{word:look} attends to {key:look} with at most {weight} (layer {layer}, head "
    "{head}).",
    "attends most": "{word:look} attends most to {key:look} ({weight}, layer {layer}, head "
    "{head}).",
    "attends to itself": "{word:look} attends most to itself, then to {key:look} ({weight}, layer "
    "{layer}, head {head}).",
    "weights": "These are the weights that the model computed. Whether a link matters is another "
    "question.",
    "head": "Layer {layer}, head {head}: weight {weight}. Colour: weight.",
    "measured": "Layer {layer}, head {head}: weight {weight}. Cut in this head alone, {metric} "
    "changes by {effect} (measured). Colour: weight; bar: that change.",
    "estimated": "Layer {layer}, head {head}: weight {weight}. Cut in this head alone, {metric} "
    "changes by about {effect} (estimated). Colour: weight; bar: that change.",
    "circuit": "The {count} links of all layers and heads whose cut changes {metric} most. Blue: "
    "the link speaks for the word; orange: against it. Solid: really cut; dotted: estimated. "
    "Point at a line for its head.",
    "layers": "The weight of the strongest head of each layer, from the selected word.",
    "six steps": "{word} → {key} in layer {layer}, head {head}, in six steps, with the real "
    "numbers",
    "last subword": "last of {count} subwords; the word's mean is {mean}",
    "strongest pair": "strongest of {count} pairs of subwords; the words' weight is {mean}",
    "no steps": "This page lacks the numbers of this link; lens.steps(…) has them.",
    "before the cut": "The query and the score are those before the cut; in later layers they "
    "change, too.",
    "product": "q · k, {width} products added up",
    "scale": "{scaling}, nothing masked",
    "scale, masked": "{scaling}, then masked: this word may not be attended to",
    "scale, cut": "{scaling}, then the link is masked: this is what “cut” means",
    "sum": "over {count} words: what the head hands on",
}
"""Sentences of the page about what is selected there."""


def labels(kind: str, **words: str) -> dict[str, str]:
    """The labels of a figure, which depend on the kind of model.

    >>> labels("vector", word="it", instead="")["query"]
    'q, of it'
    """
    return {name: told.format(**words) for name, told in (_LABELS | _KINDS.get(kind, {})).items()}


def said(template: str, **words: str) -> list[Span]:
    """A sentence from a template in which ``{name:role}`` is a mentioned word.

    >>> said("It {verb} {word:look}.", verb="writes", word="es")
    [('It writes ', ''), ('es', 'look'), ('.', '')]
    """
    found: list[Span] = []
    for text, name, role, _ in Formatter().parse(template):
        found += [(text, ""), (words[name], role or "")] if name else [(text, "")]
    return joined(found)


def joined(spans: list[Span]) -> list[Span]:
    """The same sentence, with neighbours of one role as one span."""
    found: list[Span] = []
    for text, role in spans:
        if found and found[-1][1] == role:
            found[-1] = (found[-1][0] + text, role)
        elif text:
            found.append((text, role))
    return found


def spans(told: str) -> list[Span]:
    """A sentence in which mentioned words stand in asterisks.

    >>> spans("It writes *es*.")
    [('It writes ', ''), ('es', 'look'), ('.', '')]
    """
    parts = told.split("*")
    return [(plain(one), "look") if i % 2 else (one, "") for i, one in enumerate(parts) if one]


def plain(word: str) -> str:
    """A word without the punctuation behind it.

    >>> plain("tired."), plain("...")
    ('tired', '...')
    """
    return word.rstrip(MARKS) or word


def clean(text: str) -> str:
    """Text without characters that would turn or break the lines around it.

    >>> clean("a\\u202eb")
    'a\\ufffdb'
    """
    return _TURNING.sub("\ufffd", text)


def percent(share: Number, space: str = "\xa0") -> str:
    """A probability as people read it, by default with a space that does not break.

    >>> [percent(share, " ") for share in (0.9208, 0.0042, 0.0003)]
    ['92 %', '0.4 %', '0 %']
    """
    places = 1 if 0.0005 <= share < 0.01 else 0
    return f"{100 * share:.{places}f}{space}%"
