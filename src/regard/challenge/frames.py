"""The frames of the reference grammar, read from ``tables/frames.txt``.

A frame is a main clause with two nouns, and predicates of the clause after it, in which *it* refers
to one of the nouns.
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.challenge.table_files import rows


@dataclass(frozen=True)
class Link:
    """What links the main clause and the clause of *it*, in both languages."""

    english: str
    german: str
    last: bool = True
    """Whether the German verb comes last after it."""


_SENTENCE = Link(". ", ". ", last=False)
_BECAUSE = (Link(" because ", ", weil "), Link(" since ", ", da "), Link(", as ", ", da "))
LINKS = {
    "because": (*_BECAUSE, Link(", for ", ", denn ", last=False), _SENTENCE),
    "because it": _BECAUSE,
    "although": (
        Link(" although ", ", obwohl "),
        Link(" though ", ", obwohl "),
        Link(" even though ", ", obwohl "),
    ),
    "so": (Link(", so ", ", sodass "),),
    "before": (Link(" before ", ", bevor "),),
    "after": (Link(" after ", ", nachdem "),),
    "when": (Link(" when ", ", als "),),
    "so that": (Link(" so that ", ", damit "),),
    "until": (Link(" until ", ", bis "),),
    "next": (_SENTENCE,),
}
"""Links by name; the first of each is the common one."""
DEGREES = {"too": ("too", "much too", "so", "very"), "very": ("", "very", "so"), "plain": ("",)}
PAST_ADVERBS = (
    ("yesterday", "gestern"),
    ("last week", "letzte Woche"),
    ("on Monday", "am Montag"),
    ("this morning", "heute Morgen"),
    ("in the evening", "am Abend"),
)
SADLY = ("unfortunately,", "leider")


@dataclass(frozen=True)
class Main:
    """A main clause in both languages and the tense of the clause after it.

    The German is ``subject | verb | rest``, so that an adverb can come first; ``*`` marks the
    place of the plural ending.
    """

    english: str
    german: str
    tense: str
    adverbs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class Frame:
    """A main clause of two nouns, and predicates of either."""

    name: str
    roles: tuple[tuple[str, str], ...]
    """Tags that the nouns a and b must have, in pairs; ``+`` joins several."""
    mains: tuple[Main, ...]
    links: tuple[Link, ...]
    degrees: tuple[str, ...]
    about_a: tuple[str, ...]
    about_b: tuple[str, ...]
    """Names of predicates."""
    decided: frozenset[str] = frozenset()
    """Predicates that could be true of both nouns, where the main clause decides: what does not fit
    is too big, and what it does not fit into is too small."""


def _read() -> dict[str, Frame]:
    texts: dict[str, dict[str, str]] = {}
    for name, line in rows("frames"):
        fields = texts.setdefault(name, {})
        field = line[:9].strip() or next(reversed(fields))
        fields[field] = f"{fields.get(field, '')} {line[9:].strip()}".strip()
    return {name: _frame(name, fields) for name, fields in texts.items()}


def _frame(name: str, fields: dict[str, str]) -> Frame:
    """A frame from the text of its fields."""
    a, b = _names(fields["of a"]), _names(fields["of b"])
    decided = fields.get("decided", "")
    roles = [pair.split(" × ") for pair in _names(fields["nouns"])]
    return Frame(
        name=name,
        roles=tuple((first, second) for first, second in roles),
        mains=tuple(
            _main(fields[tense], tense, fields.get("says"))
            for tense in ("past", "present", "perfect")
            if tense in fields
        ),
        links=LINKS[fields["link"]],
        degrees=DEGREES[fields["degree"]],
        about_a=a,
        about_b=b,
        decided=frozenset((*a, *b) if decided == "all" else _names(decided)),
    )


def _main(both: str, tense: str, says: str | None) -> Main:
    """A main clause with the adverbs of its tense, and *unfortunately* if it is negated."""
    english, german = both.split(" / ")
    adverbs = PAST_ADVERBS if tense == "past" else ()
    if "not " in english:
        adverbs = (*adverbs, SADLY)
    return Main(english, german, says or ("past" if tense == "past" else "present"), adverbs)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


FRAMES = _read()
"""All frames by name."""
