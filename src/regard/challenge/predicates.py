"""Predicates of *it*: adjectives and events, tagged by what they can be true of.

They are read from ``tables/adjectives.txt`` and ``tables/events.txt``.
Every predicate has a name, the tags of what it can be true of, and `said`: its clauses in both
languages, with *it* as a slot, in the tense and the German word order of a frame.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.challenge.table_files import rows

DEGREES = {
    "too": "zu",
    "much too": "viel zu",
    "so": "so",
    "very": "sehr",
    "much": "viel",
    "": "",
}
_COPULA = {"past": ("was", "war"), "present": ("is", "ist")}
_BECOMING = {"past": ("became", "wurde"), "had": ("had become", "geworden war")}


@dataclass(frozen=True)
class Adjective:
    """An adjective after *it was* or *it is*, or after *it became* or *it had become*."""

    name: str
    english: str
    german: str
    scale: str
    """graded (too tired), absolute (closed) or compared (cheaper): decides about degrees."""
    true_of: frozenset[str]
    becomes: bool = False

    def said(self, tense: str, last: bool, degrees: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        """A clause for each degree that the adjective has."""
        was, war = (_BECOMING if self.becomes else _COPULA)[tense]
        clauses = []
        own = {"graded": degrees, "compared": ("", "much"), "absolute": ("",)}[self.scale]
        for degree in own:
            english = f"{degree} {self.english}".strip()
            german = f"{DEGREES[degree]} {self.german}".strip()
            ends = f"{german} {war}" if last else f"{war} {german}"
            clauses.append((f"{{it}} {was} {english}", f"{{it}} {ends}"))
        return tuple(clauses)


@dataclass(frozen=True)
class Event:
    """Something that *it* does, or that is done to it, by tense; the German verb stands last."""

    name: str
    true_of: frozenset[str]
    clauses: tuple[tuple[str, str, str], ...]
    """Tense, English, German."""

    def said(self, tense: str, last: bool, degrees: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        """The one clause in this tense."""
        return tuple((english, german) for when, english, german in self.clauses if when == tense)


Predicate = Adjective | Event


def _read_adjectives() -> dict[str, Adjective]:
    adjectives = {}
    for scale, line in rows("adjectives"):
        name, german, *tags = (part.replace("_", " ") for part in line.split())
        name, _, english = name.partition("=")
        adjectives[name] = Adjective(name, english or name, german, scale, frozenset(tags))
    return adjectives


def _read_events() -> dict[str, Event]:
    """The events by name; a name under several tenses is one event."""
    events: dict[str, Event] = {}
    for tense, line in rows("events"):
        name, tags, english, german = (part.strip() for part in line.split("|"))
        known = events.get(name, Event(name, frozenset(), ()))
        events[name] = Event(
            name, known.true_of | set(tags.split()), (*known.clauses, (tense, english, german))
        )
    return events


ADJECTIVES = _read_adjectives()
"""All adjectives by name."""
EVENTS = _read_events()
"""All events by name."""


def predicate(name: str) -> Predicate:
    """The predicate of this name: an adjective, an event, or *become* and an adjective."""
    if name.startswith("become "):
        return replace(ADJECTIVES[name.removeprefix("become ")], name=name, becomes=True)
    return ADJECTIVES[name] if name in ADJECTIVES else EVENTS[name]
