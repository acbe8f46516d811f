"""The answers: what a lens finds, as plain data to be sent; each for one route of the API.

Words are numbered as the viewer does: from 0, special tokens not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from regard.attention.record import Look
from regard.errors import OptionError
from regard.lens import Comparison, Explanation, Lens
from regard.lens.viewing import answer_cut, live_view_of
from regard.serve.body import Asked
from regard.serve.limits import Limits
from regard.serve.recent import Recent
from regard.serve.refusals import too_large
from regard.text.words import Words
from regard.view import View

Reply = dict[str, Any]
Work = Callable[[], Reply]
"""What computes a reply; it may take its time."""


@dataclass(frozen=True)
class Found:
    """A word of a text, explained."""

    explanation: Explanation
    view: View

    @property
    def looks(self) -> list[Look]:
        """What is held: what the text was read by, and what its translation was made by."""
        both = [*self.explanation.looks.values(), *(one.look for one in self.view.layers)]
        return list({id(look): look for look in both}.values())


class Answers:
    """Answers questions about texts with a lens; each takes what was asked and returns the work."""

    def __init__(self, lens: Lens, limits: Limits) -> None:
        self._lens = lens
        self._most = limits.tokens
        self._found = Recent[Found](limits.kept // 2, lambda found: _bytes(found.looks))
        self._compared = Recent[Comparison](
            limits.kept // 2,
            lambda found: sum(_bytes(side.explanation.looks.values()) for side in found.sides),
        )

    @property
    def translates(self) -> bool:
        """Whether the model translates."""
        return self._lens.translates

    def check(self, texts: Iterable[str]) -> None:
        """Raise if one of the texts has more tokens than are read, whatever its characters."""
        for text in texts:
            count = len(self._lens.words(text, tokens=True))
            if count > self._most:
                raise too_large(
                    f"the text has {count:,} tokens, but no more than {self._most:,} are read"
                )

    def words(self, asked: Asked) -> Work:
        """The words of a text, as the model reads it."""
        text = asked.text()
        asked.end()

        def work() -> Reply:
            words = self._lens.words(text)
            return {"words": [words.names[i] for i in _own(words)]}

        return work

    def view(self, asked: Asked) -> Work:
        """What the viewer shows of a word of a text."""
        text, word = asked.text(), asked.word()
        asked.end()

        def work() -> Reply:
            view = self._explained(text, word).view
            return {"payload": view.payload(steps=()), "live": view.live}

        return work

    def explain(self, asked: Asked) -> Work:
        """The four answers for a word of a text, as numbers."""
        text, word, tokens = asked.text(), asked.word(), asked.flag("tokens")
        asked.end()

        def work() -> Reply:
            if tokens:
                words = self._lens.words(text, tokens=True)
                return self._lens.explain(text, _numbered(words, word), tokens=True).to_data()
            return self._explained(text, word).explanation.to_data()

        return work

    def steps(self, asked: Asked) -> Work:
        """The six steps of one cell: of one query that meets one key, in one head of one layer."""
        text, word = asked.text(), asked.word(usual=0)
        cell = {name: asked.number(name) for name in ("layer", "head", "query", "key")}
        asked.end()
        return lambda: self._explained(text, word).view.answer("steps", cell)

    def translate(self, asked: Asked) -> Work:
        """The translation of a text."""
        text = asked.text()
        asked.end()

        def work() -> Reply:
            if not self.translates:
                raise OptionError("translate: this model does not translate; serve one that does")
            return {"translation": self._lens.translate(text).text}

        return work

    def cut(self, asked: Asked) -> Work:
        """What the model says of a text without some of its links."""
        text, links = asked.text(), asked.links()
        asked.end()
        return lambda: answer_cut(self._lens, text, {"links": links})

    def heads(self, asked: Asked) -> Work:
        """Which heads are sharp and which broad on a text, and what is looked at most."""
        text, tokens = asked.text(), asked.flag("tokens")
        asked.end()
        return lambda: self._lens.summary(text, tokens=tokens).to_data()

    def compare(self, asked: Asked) -> Work:
        """One word in two texts, as numbers and as the viewer shows it."""
        compared = self._comparison(asked)
        asked.end()

        def work() -> Reply:
            found = compared()
            return {
                "comparison": {**found.to_data(), "conclusion": found.conclusion},
                "payload": found.view().payload(),
                "live": [],
            }

        return work

    def page(self, asked: Asked) -> Callable[[], str]:
        """A page that needs nothing else: of a word of a text, or of a word in two."""
        if asked.has("one"):
            compared = self._comparison(asked)
            asked.end()
            return lambda: compared().view().html()
        text, word = asked.text(), asked.word()
        asked.end()
        return lambda: self._explained(text, word).view.html()

    def _comparison(self, asked: Asked) -> Callable[[], Comparison]:
        word, one, other = asked.spelled(), asked.text("one"), asked.text("other")
        return lambda: self._compared.get(
            (word, one, other), lambda: self._lens.compare(word, one, other)
        )

    def _explained(self, text: str, word: str | int) -> Found:
        number = _numbered(self._lens.words(text), word)

        def made() -> Found:
            explanation = self._lens.explain(text, number)
            return Found(explanation, live_view_of(self._lens, explanation))

        return self._found.get((text, number), made)


def _bytes(looks: Iterable[Look]) -> int:
    """How much they hold, about: their queries, keys, values and results."""
    tensors = [look.output for look in looks]
    tensors += [x for look in looks if look.has_vectors for x in (look.q, look.k, look.v)]
    return sum(x.numel() * x.element_size() for x in tensors)


def _own(words: Words) -> list[int]:
    """The places of the words among the names, which special tokens have as well."""
    return [i for i, there in enumerate(words.is_word) if there]


def _numbered(words: Words, word: str | int) -> int:
    """The place of a word among the names."""
    if isinstance(word, str):
        return words.find(word)
    own = _own(words)
    if not 0 <= word < len(own):
        raise OptionError(f"word {word}, but the text has {len(own)}, numbered from 0")
    return own[word]
