"""German articles, cases and pronouns, English articles, and filling both into templates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

CASES = ("nom", "acc", "dat")
GENDERS = ("m", "f", "n")

_DER = {
    "m": ("der", "den", "dem"),
    "f": ("die", "die", "der"),
    "n": ("das", "das", "dem"),
}
_STRONG = {"m": ("er", "en", "em"), "f": ("e", "e", "er"), "n": ("es", "es", "em")}
"""The endings of dieser and jener."""
_MIXED = {"m": ("", "en", "em"), "f": ("e", "e", "er"), "n": ("", "", "em")}
"""The endings of ein, and of mein, dein and the like."""

DETERMINERS = {
    "the": "der",
    "this": "dies",
    "that": "jen",
    "a": "ein",
    "my": "mein",
    "your": "dein",
    "his": "sein",
    "her": "ihr",
    "our": "unser",
}
"""English determiners, and the German ones as stems."""

PRONOUNS = {"m": ("er", "ihn"), "f": ("sie", "sie"), "n": ("es", "es")}
"""*It* in German, nominative and accusative, by the gender of its referent."""


@dataclass(frozen=True, eq=False)
class Noun:
    """An English noun, its German noun with gender and forms, and its tags.

    There is one object for each noun; nouns are compared by identity.
    """

    english: str
    german: str
    gender: str
    oblique: str
    """The form of accusative and dative; differs from the nominative for weak nouns only."""
    tags: frozenset[str]

    def form(self, case: str) -> str:
        """The German noun in this case, without an article."""
        return self.german if case == "nom" else self.oblique


def article(determiner: str, gender: str, case: str) -> str:
    """The German determiner in gender and case.

    >>> article("the", "m", "acc"), article("this", "n", "nom"), article("our", "f", "dat")
    ('den', 'dieses', 'unserer')
    """
    place = CASES.index(case)
    if determiner == "the":
        return _DER[gender][place]
    stem = DETERMINERS[determiner]
    return stem + (_STRONG if stem in ("dies", "jen") else _MIXED)[gender][place]


@cache
def german_phrase(determiner: str, noun: Noun, case: str) -> str:
    """Determiner and noun in German.

    >>> german_phrase("a", Noun("bear", "Bär", "m", "Bären", frozenset()), "dat")
    'einem Bären'
    """
    return f"{article(determiner, noun.gender, case)} {noun.form(case)}"


def case_slot(name: str, case: str) -> str:
    """The slot of a German template for a case: ``{a}``, ``{a.acc}`` or ``{a.dat}``."""
    return name if case == "nom" else f"{name}.{case}"


def english_determiner(determiner: str, noun: str) -> str:
    """The English determiner: *an* for *a* before a vowel.

    >>> english_determiner("a", "owl"), english_determiner("a", "dog")
    ('an', 'a')
    """
    return "an" if determiner == "a" and noun[0] in "aeiou" else determiner


def pronoun(noun: Noun, case: str) -> str:
    """*It* in German for this noun, in the nominative or accusative."""
    return PRONOUNS[noun.gender][CASES.index(case)]


def agreed(template: str, plural: bool) -> str:
    """The template with its verbs, marked by ``*``, in the past of the singular or plural.

    >>> agreed("{who} goss* Wasser", plural=True), agreed("{who} konnte* gehen", plural=True)
    ('{who} gossen Wasser', '{who} konnten gehen')
    """
    if not plural:
        return template.replace("*", "")
    return re.sub(
        r"(\w)\*", lambda last: f"{last[1]}n" if last[1] == "e" else f"{last[1]}en", template
    )


_CONTRACTED = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "an das": "ans",
    "zu dem": "zum",
    "zu der": "zur",
    "von dem": "vom",
    "bei dem": "beim",
}
_LONG = re.compile(rf"\b({'|'.join(_CONTRACTED)})\b", re.IGNORECASE)


def contracted(sentence: str) -> str:
    """The sentence with prepositions and articles contracted.

    >>> contracted("Das Boot sank in dem See.")
    'Das Boot sank im See.'
    """
    return _LONG.sub(lambda match: _case_of(match[0], _CONTRACTED[match[0].lower()]), sentence)


def _case_of(model: str, word: str) -> str:
    return capital(word) if model[0].isupper() else word


def capital(text: str) -> str:
    """The text with its first letter capitalised."""
    return text[:1].upper() + text[1:]


def fill(template: str, values: Mapping[str, str]) -> tuple[str, dict[str, int]]:
    """The template with its {slots} filled, and the offset of each slot.

    >>> fill("{a} saw {b}", {"a": "the cat", "b": "the dog"})
    ('the cat saw the dog', {'a': 0, 'b': 12})
    """
    text, places = "", {}
    for literal, slot in _parts(template):
        text += literal
        if slot:
            places[slot] = len(text)
            text += values[slot]
    return text, places


@cache
def _parts(template: str) -> tuple[tuple[str, str], ...]:
    """Pairs of literal text and the slot after it; the last slot is empty."""
    pieces = re.split(r"\{([\w.]+)\}", template)
    return tuple(zip(pieces[::2], [*pieces[1::2], ""], strict=True))
