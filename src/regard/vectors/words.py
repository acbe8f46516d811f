"""Words of a text, and what to say of a word that has no vector."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

from regard.errors import OptionError

ALIKE = 0.6
"""How alike two spellings must be, from 0 to 1, for one to be offered for the other."""
CANDIDATES = 2000
"""How many spellings are compared at most."""


def words_of(text: str | Iterable[str], caller: str) -> list[str]:
    """The words of a text, and its punctuation marks; of a list of words, those.

    >>> words_of("He didn't hit it.", "sentence")
    ['He', "didn't", 'hit', 'it', '.']
    """
    if isinstance(text, str):
        return re.findall(r"\w+(?:['’]\w+)*|[^\w\s]", text)
    words = list(text)
    for word in words:
        if not isinstance(word, str):
            raise OptionError(f"{caller}: words has {word!r}, expected texts; use str(word)")
    return words


def nearest_spelling(word: str, known: Sequence[str]) -> str | None:
    """The known word that is spelled most alike, the first of several; None if none is close.

    Known words are compared if they are about as long and begin or end alike.

    >>> nearest_spelling("kitchn", ["the", "kitten", "kitchen"])
    'kitchen'
    """
    low = word.lower()
    candidates = [
        one
        for one in known
        if abs(len(one) - len(word)) <= 2
        and (one[:1].lower() == low[:1] or one[-2:].lower() == low[-2:])
    ][:CANDIDATES]
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(low)
    best, found = ALIKE, None
    for one in candidates:
        matcher.set_seq1(one.lower())
        if matcher.quick_ratio() > best and (alike := matcher.ratio()) > best:
            best, found = alike, one
    return found
