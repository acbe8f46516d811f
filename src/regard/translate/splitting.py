"""Splitting of texts that are too long for a model."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

from regard.text import Tokenizer

Span = tuple[int, int]

ENDS = (
    re.compile(r"(?<=[.!?…])[\"'”’»)\]]*\s+|(?<=[。！？])[」』”]*\s*|\n+"),
    re.compile(r"(?<=[,;:–—])[\"'”’»)\]]*\s+|(?<=[、，；：])\s*"),
    re.compile(r"\s+"),
)
"""Where to split: after sentences, then after clauses, then at spaces."""


def split(text: str, tokenizer: Tokenizer, longest: int) -> list[Span]:
    """Spans of the text, in order, each of at most `longest` subwords.

    Each sentence is a span. One that is too long is split into clauses, joined as long as they
    fit. Spans exclude surrounding white space. A single character is never split.

    >>> tokenizer = Tokenizer.train(["A cat. A dog. A bird."] * 9, size=20)
    >>> text = "A cat. A bird, a dog, a cat. A dog."
    >>> [text[a:b] for a, b in split(text, tokenizer, 12)]
    ['A cat.', 'A bird, a dog,', 'a cat.', 'A dog.']
    """

    def fits(span: Span) -> bool:
        return len(tokenizer.encode(text[span[0] : span[1]])) <= longest

    return _fitting(text, (0, len(text)), fits, 0)


def _fitting(text: str, span: Span, fits: Callable[[Span], bool], level: int) -> list[Span]:
    """The span, or pieces of it that fit, split at this level of `ENDS` and the next ones."""
    span = _trimmed(text, span)
    start, stop = span
    if start == stop:
        return []
    if fits(span) or stop - start == 1:
        return [span]
    if level == len(ENDS):
        middle = (start + stop) // 2
        halves = (start, middle), (middle, stop)
        return [one for half in halves for one in _fitting(text, half, fits, level)]
    cuts = [match.end() for match in ENDS[level].finditer(text, start, stop)]
    edges = [start, *cuts, stop]
    found: list[Span] = []
    whole = False
    for piece in pairwise(edges):
        piece = _trimmed(text, piece)
        if whole and level and fits((found[-1][0], piece[1])):
            found[-1] = (found[-1][0], piece[1])
            continue
        parts = _fitting(text, piece, fits, level + 1)
        whole = len(parts) == 1
        found += parts
    return found


def _trimmed(text: str, span: Span) -> Span:
    start, stop = span
    while start < stop and text[start].isspace():
        start += 1
    while start < stop and text[stop - 1].isspace():
        stop -= 1
    return start, stop
