"""The combinations of the reference grammar, and which of them are held out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from regard.challenge.frames import FRAMES, Frame
from regard.challenge.german import Noun
from regard.challenge.nouns import NOUNS
from regard.challenge.predicates import Predicate, predicate
from regard.challenge.split import held_out, place, vocabulary

NOUNS_HELD_OUT, PREDICATES_HELD_OUT = 0.2, 0.25
"""Held-out shares of noun pairs, and of each frame's predicates on either side."""


@dataclass(frozen=True, eq=False)
class Topic:
    """A frame with a predicate that decides which of its nouns *it* refers to."""

    frame: Frame
    said: Predicate
    first: bool
    """Whether *it* refers to the first noun."""

    def fits(self, a: Noun, b: Noun) -> bool:
        """Whether the predicate fits the referent and, in this frame, not the other noun."""
        referent, other = (a, b) if self.first else (b, a)
        return bool(self.said.true_of & referent.tags) and (
            self.said.name in self.frame.decided or not self.said.true_of & other.tags
        )

    @property
    def combination(self) -> str:
        """Frame and predicate, which are in one split only."""
        return f"{self.frame.name} + {self.said.name}"


@cache
def topics(frame: Frame) -> tuple[Topic, ...]:
    """All topics of a frame, of its first and of its second noun."""
    sides = ((frame.about_a, True), (frame.about_b, False))
    return tuple(Topic(frame, predicate(name), first) for names, first in sides for name in names)


@cache
def noun_pairs(frame: Frame) -> tuple[tuple[Noun, Noun], ...]:
    """All pairs of different nouns that fit the roles of a frame."""
    pairs = {
        (a, b): None
        for first, second in frame.roles
        for a in _nouns_for(first)
        for b in _nouns_for(second)
        if a.german != b.german
    }
    return tuple(pairs)


@cache
def _nouns_for(role: str) -> tuple[Noun, ...]:
    """The nouns that have all tags of a role."""
    tags = frozenset(role.split("+"))
    return tuple(noun for noun in NOUNS.values() if tags <= noun.tags)


def of_nouns(a: Noun, b: Noun) -> str:
    """The combination of two nouns, independent of their order."""
    return " + ".join(sorted((a.english, b.english)))


@cache
def nouns_held_out(combination: str) -> bool:
    """Whether a pair of nouns is held out."""
    return place(combination) < NOUNS_HELD_OUT


@cache
def topics_held_out() -> frozenset[str]:
    """The combinations of frame and predicate that are held out."""
    every = [topic for frame in FRAMES.values() for topic in topics(frame)]
    groups: dict[tuple[str, bool], list[str]] = {}
    for topic in every:
        groups.setdefault((topic.frame.name, topic.first), []).append(topic.combination)
    needs = {topic.combination: _needs(topic) for topic in every}
    return held_out(groups.values(), PREDICATES_HELD_OUT, needs)


def _needs(topic: Topic) -> set[str]:
    """What other combinations must teach: the predicate's tags and its vocabulary."""
    frame, name = topic.frame, topic.said.name.removeprefix("become ")
    clauses = topic.said.said(frame.mains[0].tense, frame.links[0].last, frame.degrees)
    referents = {pair[0 if topic.first else 1] for pair in noun_pairs(frame)}
    tags = topic.said.true_of & {tag for noun in referents for tag in noun.tags}
    return {f"{name} of {tag}" for tag in tags} | vocabulary(*clauses[0])


@cache
def every_topic() -> frozenset[str]:
    """All combinations of frame and predicate."""
    return frozenset(topic.combination for frame in FRAMES.values() for topic in topics(frame))
