"""Finding a word in a list of words."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Sequence

from regard.errors import WordError


def find_word(words: Sequence[str], word: str | int, occurrence: int = 1, where: str = "") -> int:
    """The position of a word, given as text or by its number; `where` begins the error.

    >>> find_word(["The", "cat", "the", "dog"], "the")
    2
    """
    if not isinstance(word, str):
        word = operator.index(word)
        if not -len(words) <= word < len(words):
            raise WordError(
                f"{where}word {word} asked for, but there are {len(words)}, numbered from 0"
            )
        return word % len(words)
    places = [i for i, other in enumerate(words) if other == word]
    places = places or [i for i, other in enumerate(words) if other.lower() == word.lower()]
    if not places:
        near = difflib.get_close_matches(word, words, n=1, cutoff=0.4)
        some = ", ".join(words[:12]) + (", …" if len(words) > 12 else "")
        meant = f"did you mean {near[0]!r}?" if near else f"there are {some}"
        raise WordError(f"{where}{word!r} is not in the text; {meant}")
    if not 1 <= occurrence <= len(places):
        often = "once" if len(places) == 1 else f"{len(places)} times"
        raise WordError(
            f"{where}{word!r} is in the text {often}; occurrence {occurrence} asked for"
        )
    return places[occurrence - 1]
