"""The records that a view shows, plain data that any caller can fill.

`Text` is a text in tokens and words, `Layer` one layer of attention between two texts, `Explained`
the answers to "why this word?", `Compared` one word in two sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from regard.attention import Look
from regard.errors import OptionError, ShapeError, WordError, shape
from regard.view.numbers import Array, Numbers, array
from regard.view.svg import Number
from regard.words import find_word

KINDS = ("self", "masked", "cross")
"""Self-attention, causal self-attention, and attention to another text."""
SPECIAL = -1
"""The word number of a token that belongs to no word, such as the end of the sentence."""


@dataclass(frozen=True)
class Text:
    """A text as the model reads it (tokens) and as a person does (words).

    ``places[i]`` is the number of the word that token i is part of, or −1 for a special token.

    >>> text = Text("unhappy cats", ("un", "happy", "cats", "</s>"), ("unhappy", "cats"),
    ...             (0, 0, 1, -1))
    >>> [unit.label for unit in text.units()]
    ['unhappy', 'cats', '</s>']
    """

    text: str
    tokens: Sequence[str]
    words: Sequence[str]
    places: Sequence[int]

    def __post_init__(self) -> None:
        for name in ("tokens", "words"):
            if isinstance(getattr(self, name), str):
                raise OptionError(
                    f"Text: {name} expected a list of texts, got one text; split it first"
                )
        if not self.tokens:
            raise ShapeError("Text: tokens expected at least one, got none; give the text's tokens")
        if len(self.places) != len(self.tokens):
            raise ShapeError(
                f"Text: places has {len(self.places)} but there are {len(self.tokens)} tokens; "
                "give one word number per token, -1 for a special token"
            )
        for place in self.places:
            if not SPECIAL <= place < len(self.words):
                raise OptionError(
                    f"Text: places expected -1 … {len(self.words) - 1} (there are "
                    f"{len(self.words)} words), got {place}; number the words from 0"
                )

    @classmethod
    def of(cls, words: Sequence[str]) -> Text:
        """The text whose words are its tokens."""
        return cls(" ".join(words), tuple(words), tuple(words), tuple(range(len(words))))

    def units(self, tokens: bool = False) -> list[Unit]:
        """The units of a view: words and single special tokens; or all tokens."""
        members: dict[tuple[int, bool, int], list[int]] = {}
        for i, place in enumerate(self.places):
            alone = tokens or place == SPECIAL
            members.setdefault((place, alone, i if alone else 0), []).append(i)
        return [
            Unit(self.tokens[those[0]] if alone else self.words[place], tuple(those), place)
            for (place, alone, _), those in members.items()
        ]

    def find(self, word: str | int, where: str) -> int:
        """The index of a word, given as text (its first occurrence) or as an index."""
        return find_word(self.words, word, where=f"{where}: ")


@dataclass(frozen=True)
class Unit:
    """A word or token of a view: its label, its tokens, its word index (−1: special)."""

    label: str
    tokens: tuple[int, ...]
    place: int


@dataclass(frozen=True)
class Layer:
    """One layer of attention: the text that attends, the text attended to, and the `Look`.

    ``queries`` and ``keys`` are names of texts; ``look`` is of one text, ``(n, d)`` or
    ``(1, h, n, d)``; ``numbers`` says whether its queries, keys and values are the model's own.
    """

    name: str
    kind: str
    queries: str
    keys: str
    look: Look
    numbers: bool = True

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise OptionError(
                f"Layer: kind expected {', '.join(KINDS)}, got {self.kind!r}; choose one"
            )
        if self.look.sizes[0] != 1:
            raise ShapeError(
                f"Layer: look of {self.name!r} expected one text, (n, d) or (1, h, n, d), "
                f"got output {shape(self.look.output)}; look at the texts one at a time"
            )

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.look.sizes[1]

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of queries and of keys."""
        _, _, queries, keys = self.look.sizes
        return queries, keys

    def check(self, texts: dict[str, Text]) -> None:
        """Raise unless both texts exist and have as many tokens as the `Look`."""
        for role, name, size in zip(
            ("queries", "keys"), (self.queries, self.keys), self.sizes, strict=True
        ):
            if name not in texts:
                raise OptionError(
                    f"View: layer {self.name!r} has {role}={name!r}, expected one of the texts "
                    f"{', '.join(map(repr, texts)) or '(there are none)'}; add it to texts"
                )
            if len(texts[name].tokens) != size:
                raise ShapeError(
                    f"View: layer {self.name!r} has {size} {role} but text {name!r} has "
                    f"{len(texts[name].tokens)} tokens; give one token per position"
                )


@dataclass(frozen=True)
class Method:
    """The scores of one explanation method.

    Args:
        name: such as "attention", "norm", "rollout", "knockout".
        scores: one per word of the explained text that is looked at; nan where it is not known.
        agreement: rank correlation with knockout, −1 … 1; None for knockout itself.
        note: what the number is, in a few words.
    """

    name: str
    scores: Numbers
    agreement: Number | None = None
    note: str = ""

    def values(self, words: int) -> Array:
        """The scores as an array, checked."""
        found = array(f"Explained: scores of {self.name!r}", self.scores, "words")
        if len(found) != words:
            raise ShapeError(
                f"Explained: {self.name!r} has {len(found)} scores but the text has {words} "
                "words; give one per word"
            )
        if np.isnan(found).all():
            raise OptionError(
                f"Explained: scores of {self.name!r} expected at least one that is known, got only "
                "nan; drop it"
            )
        return _checked(f"Explained: scores of {self.name!r}", found, np.isinf(found))


@dataclass(frozen=True)
class Measures:
    """The scores of every input word for one written word, by several methods.

    Args:
        word: the written word, as the finding about it names it.
        words: the input words.
        methods: one score per word each.
    """

    word: str
    words: Sequence[str]
    methods: Sequence[Method]


@dataclass(frozen=True)
class Explained:
    """The scores of several methods that explain one word.

    Args:
        word: number of the word that is explained, in the text ``text``.
        text: name of the text it stands in.
        looked_at: name of the text whose words are scored; ``text`` itself, or the source.
        methods: the answers, side by side.
        sentence: the outcome in plain words.
    """

    word: int
    text: str
    looked_at: str
    methods: Sequence[Method]
    sentence: str = ""

    def check(self, texts: dict[str, Text]) -> None:
        """Raise unless the texts exist and every method scores every word."""
        for name in (self.text, self.looked_at):
            if name not in texts:
                raise OptionError(
                    f"Explained: {name!r} expected one of the texts "
                    f"{', '.join(map(repr, texts)) or '(there are none)'}; add it to texts"
                )
        texts[self.text].find(self.word, "Explained")
        if not self.methods:
            raise ShapeError("Explained: methods expected at least one, got none; add one")
        for method in self.methods:
            method.values(len(texts[self.looked_at].words))


@dataclass(frozen=True)
class Side:
    """A word in one of two sentences: what attracted it, its neighbours, its translation."""

    words: Sequence[str]
    place: int
    pulled: Sequence[tuple[str, Number]] = ()
    neighbours: Sequence[tuple[str, Number]] = ()
    translation: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.place < len(self.words):
            raise WordError(
                f"Side: place {self.place} asked for, but there are {len(self.words)} words, "
                "numbered from 0"
            )


@dataclass(frozen=True)
class Compared:
    """A word in two sentences, and the cosine of its vectors at the input and after each layer."""

    word: str
    one: Side
    other: Side
    cosine: Numbers
    sentence: str = ""

    def values(self) -> Array:
        """The cosines as an array, checked."""
        found = array("Compared: cosine", self.cosine, "layers")
        return _checked("Compared: cosine", found, ~np.isfinite(found))


def _checked(where: str, found: Array, wrong: npt.NDArray[np.bool_]) -> Array:
    if wrong.any():
        raise OptionError(f"{where} expected finite, got {found[wrong][0]}; drop it")
    return found
