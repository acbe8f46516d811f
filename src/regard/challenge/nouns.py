"""The nouns of the reference grammar, read from ``tables/nouns.txt``."""

from __future__ import annotations

from regard.challenge.german import Noun
from regard.challenge.table_files import GENDER, rows


def _read() -> dict[str, Noun]:
    nouns = {}
    for common, line in rows("nouns"):
        english, der, german, *tags = line.split()
        german, _, oblique = german.partition("/")
        every = frozenset((*common.split(), *tags))
        nouns[english] = Noun(english, german, GENDER[der], oblique or german, every)
    return nouns


NOUNS = _read()
"""All nouns by their English name."""
