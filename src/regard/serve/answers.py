"""Answers to questions about texts, as plain data: one method per route of the API.

Words are numbered from 0, special tokens not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from copy import copy
from typing import Any

from regard.errors import OptionError, RegardError
from regard.lens import Analysis, Lens
from regard.lens.views import compared_of, layers_of
from regard.serve.limits import Limits
from regard.serve.recent import Recent
from regard.serve.refusals import RefusedError, too_large
from regard.text.words import Words
from regard.view import View, payload

Reply = dict[str, Any]
Word = str | int | None
"""A word, by spelling or number; None is one that the lens chooses."""
EXAMPLES = (
    ("it · tired", "The animal didn't cross the street because it was too tired.", "it"),
    ("it · wide", "The animal didn't cross the street because it was too wide.", "it"),
    ("bat · ball", "He hit the ball with the bat.", "bat"),
    ("bat · mammal", "The bat is a mammal.", "bat"),
    ("dog & bone", "The dog ate the bone because it was hungry.", "it"),
)
"""Example sentences: label, text, and the word in question."""
KEPT = 2048
"""Total tokens of the texts whose translations are cached."""


class Answers:
    """Answers questions with a lens: a method for each, which takes its fields."""

    def __init__(self, lens: Lens, limits: Limits) -> None:
        self._lens = lens
        self._most = limits.tokens
        self._analyses = Recent[Analysis](KEPT, lambda one: len(one.reading.ids))

    def _analyse(self, text: str) -> Analysis:
        """The analysis of a text with its translation, which is cached.

        A copy, so that what a question computes in it is freed after the reply.
        """
        found = self._analyses.get(text)
        if found is None:
            found = self._lens.analyse(text)
            self._lens.translate_all([found])
            self._analyses.keep(text, found)
        return copy(found)

    def translate_ahead(self, texts: Iterable[str]) -> None:
        """Translate several texts at once, ahead of the questions about them."""
        new = [text for text in dict.fromkeys(texts) if self._analyses.get(text) is None]
        analyses = []
        for text in new:
            with suppress(RegardError, RefusedError):  # the question itself is refused
                self.check([text])
                analyses.append((text, self._lens.analyse(text)))
        self._lens.translate_all([one for _, one in analyses])
        for text, one in analyses:
            self._analyses.keep(text, one)

    @property
    def translates(self) -> bool:
        """Whether the model translates."""
        return self._lens.translates

    @property
    def examples(self) -> list[dict[str, str]]:
        """Example sentences; their words are English."""
        chosen = EXAMPLES if self.translates else EXAMPLES[:2]
        return [
            {"label": label, "text": text, "word": word if self.translates else ""}
            for label, text, word in chosen
        ]

    def check(self, texts: Iterable[str]) -> None:
        """Raise if one of the texts has more tokens than the limit."""
        for text in texts:
            count = len(self._lens.words(text, tokens=True))
            if count > self._most:
                raise too_large(f"the text has {count:,} tokens, but the limit is {self._most:,}")

    def words(self, text: str) -> Reply:
        """The words of a text, as the model reads it."""
        words = self._lens.words(text)
        return {"words": [words.names[i] for i in _own(words)]}

    def figure(self, text: str, word: Word = None, links: bool = False) -> Reply:
        """The page's data for a written word, with the outcome of every cut."""
        analysis = self._analyse(text)
        return self._lens.view(analysis, word, every=False, layers=False, links=links).payload()

    def attention(self, text: str, word: int | None = None) -> Reply:
        """The weights of all layers and heads, and the six steps of a word if one is given."""
        view = View(*layers_of(self._analyse(text)))
        return view.payload(None if word is None else [word])

    def measures(self, text: str, word: Word = None) -> Reply:
        """The importance of each input word for a written word, by every method."""
        return payload.measures_data(self._lens.measures(self._analyse(text), word))

    def why(self, text: str, word: Word = None, instead: str | None = None) -> Reply:
        """Why the model wrote a word, as numbers."""
        return self._lens.why(self._analyse(text), word, instead=instead).to_data()

    def explain(self, text: str, word: str | int, tokens: bool = False) -> Reply:
        """What a word of the text attends to, by four measures, as numbers."""
        number = _numbered(self._lens.words(text, tokens=tokens), word)
        return self._lens.explain(text, number, tokens=tokens).to_data()

    def steps(self, text: str, **link: Any) -> Reply:
        """The six steps of one link of a written word."""
        return self._lens.steps(text, **link).to_data()

    def translate(self, text: str) -> Reply:
        """The translation of a text."""
        if not self.translates:
            raise OptionError("translate: this model does not translate; serve one that does")
        return {"translation": self._lens.translate(text).text}

    def cut(self, text: str, links: list[list[int]]) -> Reply:
        """The output of the model with some links cut."""
        words = self._lens.words(text)
        pairs = [(_numbered(words, one), _numbered(words, other)) for one, other in links]
        found = self._lens.without(text, pairs)
        return {"before": found.before, "after": found.after, "note": found.note}

    def heads(self, text: str, tokens: bool = False) -> Reply:
        """The entropy of the heads on a text, and the words with the most attention."""
        return self._lens.summary(text, tokens=tokens).to_data()

    def compare(self, word: str, one: str, other: str) -> Reply:
        """One word in two texts, as numbers and as data for the page."""
        found = self._lens.compare(one, other, word)
        return {
            "comparison": {**found.to_data(), "conclusion": found.conclusion},
            "compared": payload.compared_data(compared_of(found)),
        }

    def page(self, word: Any = None, **texts: str) -> str:
        """A self-contained page, of a written word or of a word in two texts."""
        if "text" in texts:
            return self._lens.view(self._analyse(texts["text"]), word).html()
        return self._lens.compare(texts["one"], texts["other"], word).view().html()


def _own(words: Words) -> list[int]:
    """The indices of the words among all names, which include special tokens."""
    return [i for i, there in enumerate(words.is_word) if there]


def _numbered(words: Words, word: str | int) -> int:
    """The index of a word among all names."""
    if isinstance(word, str):
        return words.find(word)
    own = _own(words)
    if not 0 <= word < len(own):
        raise OptionError(f"word {word}, but the text has {len(own)}, numbered from 0")
    return own[word]
