"""Words of two senses with different German words, and contexts that decide between them.

They are read from ``tables/senses.txt``, ``tables/contexts.txt`` and ``tables/cues.txt``. Some
contexts are held out. Cues are for training only: the words that decide a sense, in other contexts.
They have a table of their own, so that they do not affect the split of contexts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import prod
from random import Random

from regard.challenge.draw import Draw, digits
from regard.challenge.frames import PAST_ADVERBS
from regard.challenge.german import (
    CASES,
    Noun,
    capital,
    case_slot,
    contracted,
    english_determiner,
    fill,
    german_phrase,
)
from regard.challenge.pair import Pair
from regard.challenge.split import held_out, vocabulary
from regard.challenge.table_files import GENDER, rows

CONTEXTS_HELD_OUT = 0.2
"""Held-out share of the contexts of each sense."""

PEOPLE = (
    ("I", "ich"),
    ("he", "er"),
    ("she", "sie"),
    ("Tom", "Tom"),
    ("Anna", "Anna"),
    ("my father", "mein Vater"),
    ("my sister", "meine Schwester"),
    ("the woman", "die Frau"),
)
DETERMINERS = {
    "x": ("the", "this", "that", "a"),
    "the": ("the",),
    "a": ("a",),
    "my": ("my", "your", "his", "her"),
}
"""Determiners by slot."""


@dataclass(frozen=True, eq=False)
class Sense:
    """One sense of an English word: the German noun, and its recognised forms."""

    noun: Noun
    forms: tuple[str, ...]
    """The noun, its other forms, and synonyms."""

    @property
    def word(self) -> str:
        """The English word."""
        return self.noun.english

    @property
    def name(self) -> str:
        """The German noun."""
        return self.noun.german


def _read() -> dict[str, Sense]:
    senses = {}
    for _, line in rows("senses"):
        word, der, german, *forms = line.split()
        german, _, oblique = german.partition("/")
        noun = Noun(word, german, GENDER[der], oblique or german, frozenset())
        every = tuple(dict.fromkeys((german, oblique or german, *forms)))
        senses[german] = Sense(noun, every)
    return senses


SENSES = _read()
"""All senses by their German noun."""
WORDS = {
    word: tuple(sense for sense in SENSES.values() if sense.word == word)
    for word in dict.fromkeys(sense.word for sense in SENSES.values())
}
"""The senses of each English word."""


@cache
def wrong_forms(sense: Sense) -> tuple[str, ...]:
    """The forms of the other senses of the word that exclude this one.

    A short form may be of both senses: *Maus* is either mouse, *Computermaus* is one.
    """
    return tuple(
        form
        for other in WORDS[sense.word]
        if other is not sense
        for form in other.forms
        if not any(own.lower().endswith(form.lower()) for own in sense.forms)
    )


@dataclass(frozen=True, eq=False)
class Context:
    """A sentence that decides the sense of a word, with slots for the word and for people."""

    sense: Sense
    kind: str
    """``"senses"``, or ``"cues"`` if it is for training only."""
    name: str
    """The English with its slots; several senses may share it."""
    english: str
    german: str

    @property
    def combination(self) -> str:
        """Word, sense and sentence, which are in one split only."""
        return f"{self.sense.word} + {self.sense.name} + {self.english}"

    @property
    def _slot(self) -> str:
        """The slot of the word."""
        return next(slot for slot in DETERMINERS if f"{{{slot}}}" in self.english)

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return (
            len(DETERMINERS[self._slot]),
            len(PEOPLE) if "{who}" in self.english else 1,
            1 + len(PAST_ADVERBS) if "|" in self.german else 1,
        )

    @property
    def count(self) -> int:
        """The number of its sentences."""
        return prod(self._sizes)

    def write(self, number: int) -> Pair:
        """The sentence of a number below `count`."""
        (first, person, adverb), _ = digits(number, self._sizes)
        who, noun, slot = PEOPLE[person], self.sense.noun, self._slot
        determiner = DETERMINERS[slot][first]
        before = f"{english_determiner(determiner, noun.english)} "
        english, german = self._worded(adverb)
        source, places = fill(english, {"who": who[0], slot: before + noun.english})
        cases = {case_slot(slot, case): german_phrase(determiner, noun, case) for case in CASES}
        target, _ = fill(german, {"who": who[1], **cases})
        return Pair(
            source=capital(source) + ".",
            target=contracted(capital(target)) + ".",
            kind=self.kind,
            word=noun.english,
            position=places[slot] + len(before),
            answer=noun.form("nom" if f"{{{slot}}}" in german else "acc"),
            wrong=wrong_forms(self.sense),
            frame=self.name,
            combinations=(self.combination,),
            sense=noun.german,
        )

    def _worded(self, adverb: int) -> tuple[str, str]:
        """The templates, with an adverb first unless its number is 0."""
        if "|" not in self.german:
            return self.english, self.german
        subject, verb, rest = (part.strip() for part in self.german.split("|"))
        if not adverb:
            return self.english, f"{subject} {verb} {rest}".strip()
        when, wann = PAST_ADVERBS[adverb - 1]
        return f"{when} {self.english}", f"{wann} {verb} {subject} {rest}".strip()


def _expanded(english: str, german: str) -> Iterator[tuple[str, str]]:
    """The sentence once for each of its fillers ``[dog/fox]``."""
    pattern = re.compile(r"\[([^\]]*)\]")
    fillers = [pattern.findall(text)[0].split("/") for text in (english, german) if "[" in text]
    if not fillers:
        yield english, german
        return
    for one, other in zip(*fillers, strict=True):
        yield pattern.sub(one, english), pattern.sub(other, german)


TABLES = {"senses": "contexts", "cues": "cues"}
"""The table of each kind."""
GROUPS = "groups of senses"
"""The heading of named groups of senses."""


@cache
def contexts(kind: str = "senses") -> tuple[Context, ...]:
    """All contexts of all senses."""
    found: list[Context] = []
    for heading, line in rows(TABLES[kind]):
        if heading == GROUPS:
            continue
        names, _, text = line.partition(": ")
        template, german = text.split(" / ")
        senses = [name for one in names.split() for name in _groups().get(one, one).split()]
        found += [
            Context(SENSES[name], kind, template, english, other)
            for name in senses
            for english, other in _expanded(template, german)
        ]
    return tuple(found)


@cache
def _groups() -> dict[str, str]:
    """Senses that share contexts, by the name of their group."""
    lines = (line for heading, line in rows(TABLES["senses"]) if heading == GROUPS)
    return {name: senses for name, _, senses in (line.partition(": ") for line in lines)}


@cache
def every_context() -> frozenset[str]:
    """All combinations of a sense with a context."""
    return frozenset(context.combination for kind in TABLES for context in contexts(kind))


@cache
def contexts_held_out() -> frozenset[str]:
    """The combinations of a sense with a context that are held out.

    A context of a single sense and form is for training, and so is one with a word that occurs
    nowhere else.
    """
    groups: dict[str, list[str]] = {}
    for context in contexts():
        groups.setdefault(context.sense.name, []).append(context.combination)
    needs = {
        context.combination: {context.name, *vocabulary(context.english, context.german)}
        for context in contexts()
    }
    return held_out(groups.values(), CONTEXTS_HELD_OUT, needs)


def _of_split(kind: str, split: str) -> dict[str, list[list[Context]]]:
    """The contexts of a split, by word and sense."""
    return {
        word: [
            [
                context
                for context in contexts(kind)
                if context.sense is sense
                and (context.combination in contexts_held_out()) == (split == "test")
            ]
            for sense in senses
        ]
        for word, senses in WORDS.items()
    }


@cache
def size(kind: str, split: str) -> int:
    """The number of different sentences."""
    counts = {
        context.combination: context.count  # a table may have a line twice
        for senses in _of_split(kind, split).values()
        for of_sense in senses
        for context in of_sense
    }
    return sum(counts.values())


def draw(kind: str, split: str, seed: int) -> Iterator[Pair]:
    """All sentences, each once, in an order determined by the seed.

    Words and contexts are drawn uniformly, the senses of a word in turn.
    """
    random = Random(f"{kind} {split} {seed}")
    words = [
        [[(context, Draw(context.count, random)) for context in of_sense] for of_sense in senses]
        for senses in _of_split(kind, split).values()
    ]
    turns: list[list[int]] = [[] for _ in words]
    drawn: set[str] = set()
    while words:
        place = random.randrange(len(words))
        senses = words[place]
        turns[place] = turns[place] or random.sample(range(len(senses)), len(senses))
        of_sense = senses[turns[place].pop()]
        if of_sense:
            number = random.randrange(len(of_sense))
            context, left = of_sense[number]
            pair = context.write(left.next())
            if not left.left:
                del of_sense[number]
            if pair.source not in drawn:
                drawn.add(pair.source)
                yield pair
        elif not any(senses):
            del words[place], turns[place]
