"""Texts, and tokenizers trained on them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

import pytest

from regard.text import Tokenizer

ENGLISH = ["cat", "dog", "bird", "teacher", "student", "king", "queen", "farmer", "child", "horse"]
GERMAN = [
    "Katze",
    "Hund",
    "Vogel",
    "Lehrer",
    "Schüler",
    "König",
    "Bäuerin",
    "Straße",
    "Frau",
    "Größe",
]
ENDINGS = ["", "s", "ly", "ing", "chen", "lein", "en", "ung", "heit", "bar"]


def lines(count: int = 400) -> Iterator[str]:
    """Sentences with many different words, none of them drawn at random."""
    for i in range(count):
        one, two = ENGLISH[i * 3 % 10], GERMAN[(i * 7 + i // 10) % 10]
        yield f"The {one}{ENDINGS[i % 7]} sees a {two}{ENDINGS[i // 7 % 10]}, number {i % 30}."


def tidy(text: str) -> str:
    """What a unigram tokenizer takes a text for."""
    spaces = re.sub("[▁⇧]", " ", unicodedata.normalize("NFC", text))
    return " ".join(spaces.split())


def many() -> Iterator[str]:
    """Enough different words for a vocabulary with bytes: two syllables and an ending each."""
    syllables = [a + b for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "ä", "ö", "oß")]
    for i in range(5000):
        words = (
            syllables[place % 96] + syllables[place // 96 % 96] + ENDINGS[place % 10]
            for place in (i % 3500 * 7919, i % 900 * 104729, i % 130 * 1299709)
        )
        yield " ".join(words) + ", König Hund."


SMALL = Tokenizer.train(lines(), 100)
LARGE = Tokenizer.train(many(), 2000)
BYTES = Tokenizer.train(lines(), 400, kind="bytes")
ALL = pytest.mark.parametrize("tokenizer", [SMALL, LARGE, BYTES], ids=["small", "large", "bytes"])
