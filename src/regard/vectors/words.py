"""The words of a text, and the nearest spelling of an unknown word."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from itertools import islice

from regard.errors import OptionError

ALIKE = 0.6
"""Minimum similarity of spellings, from 0 to 1."""
CANDIDATES = 2000
"""Maximum number of spellings to compare."""


def words_of(text: str | Iterable[str], caller: str) -> list[str]:
    """The words and punctuation marks of a text; a list of words is returned as it is.

    >>> words_of("He didn't hit it.", "sentence")
    ['He', "didn't", 'hit', 'it', '.']
    """
    if isinstance(text, str):
        return re.findall(r"\w+(?:['’]\w+)*|[^\w\s]", text)
    if not isinstance(text, Iterable):
        raise OptionError(f"{caller}: got {text!r}, expected a text or a list of words")
    words = list(text)
    for word in words:
        if not isinstance(word, str):
            raise OptionError(f"{caller}: words has {word!r}, expected strings; use str(word)")
    return words


def nearest_spelling(word: str, known: Sequence[str]) -> str | None:
    """The known word with the most similar spelling; None if none is similar.

    Only words of similar length that begin or end alike are compared.

    >>> nearest_spelling("kitchn", ["the", "kitten", "kitchen"])
    'kitchen'
    """
    low = word.lower()
    candidates = (
        one
        for one in known
        if abs(len(one) - len(word)) <= 2
        and (one[:1].lower() == low[:1] or one[-2:].lower() == low[-2:])
    )
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(low)

    def alike(one: str) -> float:
        matcher.set_seq1(one.lower())
        return matcher.ratio()

    found = max(islice(candidates, CANDIDATES), key=alike, default=None)
    return found if found is not None and alike(found) > ALIKE else None
