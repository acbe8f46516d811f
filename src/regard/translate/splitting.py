"""A text that is too long for a model, cut where it hurts least."""

from __future__ import annotations

import re

from regard.text import Tokenizer

ENDS = (
    re.compile(r"[.!?…][\"'”’»)\]]*\s+|[。！？][」』”]*\s*|\n+"),
    re.compile(r"[,;:–—][\"'”’»)\]]*\s+|[、，；：]\s*"),
    re.compile(r"\s+"),
)
"""Where to cut: after sentences; if there are none, after clauses; if there are none, at spaces."""


def split(text: str, tokenizer: Tokenizer, longest: int) -> list[tuple[int, int]]:
    """Spans of the text, in order, each of at most `longest` subwords.

    Each span is as long as it can be when it must end where a sentence ends; only a sentence that
    is too long itself is cut inside. White space between spans belongs to none.

    >>> tokenizer = Tokenizer.train(["A cat. A dog. A bird."] * 9, size=20)
    >>> text = "A cat. A bird, a dog, a cat. A dog."
    >>> [text[a:b] for a, b in split(text, tokenizer, 12)]
    ['A cat. ', 'A bird, ', 'a dog, ', 'a cat. ', 'A dog.']
    """
    places = [start for start, _ in tokenizer.spans(text)]
    ends = [[match.end() for match in pattern.finditer(text)] for pattern in ENDS]
    spans, first = [], 0
    while first < len(places):
        start = places[first]
        last = min(first + longest, len(places))
        while True:
            stop = len(text) if last == len(places) else _cut(places[first + 1 : last + 1], ends)
            # Subwords of a part may be other ones than those of the whole, and more.
            if last == first + 1 or len(tokenizer.encode(text[start:stop])) <= longest:
                break
            last = first + max(1, (last - first) * 9 // 10)
        spans.append((start, stop))
        first = next((i for i in range(first + 1, len(places)) if places[i] >= stop), len(places))
    return spans


def _cut(places: list[int], ends: list[list[int]]) -> int:
    """The last of the best places among those where a subword begins."""
    for kind in ends:
        fitting = [end for end in kind if places[0] <= end <= places[-1]]
        if fitting:
            return fitting[-1]
    return places[-1]
