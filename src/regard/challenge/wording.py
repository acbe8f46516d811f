"""The wordings of the reference grammar: every sentence of a topic."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from math import prod

from regard.challenge.draw import digits
from regard.challenge.frames import Frame
from regard.challenge.german import (
    CASES,
    Noun,
    agreed,
    capital,
    case_slot,
    contracted,
    english_determiner,
    fill,
    german_phrase,
    pronoun,
)
from regard.challenge.pair import Pair
from regard.challenge.reference import Topic, of_nouns

PEOPLE = (("I", "ich"), ("we", "wir"), *((name, name) for name in ("Tom", "Anna", "Paul", "Lisa")))
OTHERS = tuple((name, name) for name in ("Emma", "Peter", "Max"))
NO_NAMES = (("", ""),)
_SHORT = {
    "did not": "didn't",
    "does not": "doesn't",
    "could not": "couldn't",
    "cannot": "can't",
    "has not": "hasn't",
}


@dataclass(frozen=True)
class Clause:
    """A main clause with its adverb, and the tense of the clause after it."""

    english: str
    german: str
    tense: str
    plain: bool
    """Whether it has no adverb."""


@cache
def clauses(frame: Frame) -> tuple[Clause, ...]:
    """The main clauses of a frame, with and without contractions, first those without an adverb."""
    found = []
    for main in frame.mains:
        subject, verb, rest = (part.strip() for part in main.german.split("|"))
        for english in dict.fromkeys((main.english, _shortened(main.english))):
            found.append(Clause(english, f"{subject} {verb} {rest}", main.tense, True))
            for adverb, german in main.adverbs:
                inverted = f"{german} {verb} {subject} {rest}"
                found.append(Clause(f"{adverb} {english}", inverted, main.tense, False))
    return tuple(sorted(found, key=lambda clause: not clause.plain))


def _shortened(english: str) -> str:
    for whole, short in _SHORT.items():
        english = english.replace(whole, short)
    return english


@cache
def determiners(frame: Frame, a: Noun, b: Noun) -> tuple[tuple[str, str], ...]:
    """The determiners that the two nouns can have; at least one is *the*."""
    negated = bool(re.search(r"\b(nicht|keinen)\b", frame.mains[0].german))
    return (
        ("the", "the"),
        *((word, "the") for word in _beside_the(a, negated)),
        *(("the", word) for word in _beside_the(b, negated)),
    )


@cache
def _beside_the(noun: Noun, negated: bool) -> tuple[str, ...]:
    """The determiners of a noun besides *the*: no *a hay*, *my river*, *my lion* or *nicht ein*."""
    wild = "animal" in noun.tags and not noun.tags & {"pet", "draught"}
    indefinite = () if negated or "mass" in noun.tags else ("a",)
    owned = () if wild or noun.tags & {"land", "public"} else ("my", "our")
    return ("this", "that", *indefinite, *owned)


class Wording:
    """The numbered wordings of a topic, for any two nouns that fit.

    The lowest numbers are the common wordings: *the* twice, the first link of the frame (such as
    *because*) and no adverb.
    """

    def __init__(self, topic: Topic) -> None:
        frame = topic.frame
        self.topic = topic
        self._clauses = clauses(frame)
        said = topic.said.said(self._clauses[0].tense, frame.links[0].last, frame.degrees)
        self._people = PEOPLE if "{who}" in self._clauses[0].english else NO_NAMES
        self._others = OTHERS if "{other}" in said[0][0] else NO_NAMES
        self._sizes = (
            len(said),
            len(self._people),
            len(self._others),
            len(self._clauses),
            len(frame.links),
        )
        plain = sum(clause.plain for clause in self._clauses)
        self.common = prod(self._sizes[:3]) * plain
        """The number of common wordings."""

    def count(self, a: Noun, b: Noun) -> int:
        """The number of wordings."""
        return prod(self._sizes) * len(determiners(self.topic.frame, a, b))

    def write(self, number: int, a: Noun, b: Noun) -> Pair:
        """The sentence of a number below `count`."""
        (degree, person, other, main, joint), number = digits(number, self._sizes)
        frame, first, clause = self.topic.frame, self.topic.first, self._clauses[main]
        link = frame.links[joint]
        it, es = self.topic.said.said(clause.tense, link.last, frame.degrees)[degree]
        english = f"{clause.english}{link.english}{it}."
        german = f"{clause.german}{link.german}{es}."
        who, whom = self._people[person], self._others[other]
        source_values, target_values = ({"who": who[i], "other": whom[i]} for i in range(2))
        before = {}
        determined = zip("ab", (a, b), determiners(frame, a, b)[number], strict=True)
        for slot, noun, determiner in determined:
            word = english_determiner(determiner, noun.english)
            before[slot] = len(word) + 1
            source_values[slot] = f"{word} {noun.english}"
            for case in CASES:
                target_values[case_slot(slot, case)] = german_phrase(determiner, noun, case)
        referent, rival = (a, b) if first else (b, a)
        begins = link.english == ". "
        source_values["it"] = "It" if begins else "it"
        for case in ("nom", "acc"):
            stands = pronoun(referent, case)
            target_values[case_slot("it", case)] = capital(stands) if begins else stands
        source, places = fill(english, source_values)
        target, _ = fill(agreed(german, plural=who[0] == "we"), target_values)
        starts = [places[slot] + before[slot] for slot in "ab"]
        case = "acc" if "{it.acc}" in german else "nom"
        answer, wrong = pronoun(referent, case), pronoun(rival, case)
        return Pair(
            source=capital(source),
            target=capital(contracted(target)),
            kind="reference",
            word="it",
            position=places["it"],
            answer=answer,
            wrong=(wrong,) if wrong != answer else (),
            frame=frame.name,
            combinations=(of_nouns(a, b), self.topic.combination),
            referent=referent.english,
            referent_position=starts[0 if first else 1],
            other=rival.english,
            other_position=starts[1 if first else 0],
        )
