"""Does a model translate what newcomers type? ``python acceptance.py MODEL``.

acceptance.tsv has an English sentence a line and a regular expression of the German translations
that are accepted, without the mark at the end. Each sentence is tried as it stands and without that
mark. Upper and lower case count, but for the first letter.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from regard import Translator
from regard.text import read_lines

MARKS = ".!?"


@dataclass(frozen=True)
class Tried:
    """A sentence, its translation, and whether that is accepted."""

    source: str
    text: str
    accepted: bool


def accepts(pattern: str, text: str) -> bool:
    """Whether a translation is one of those that the regular expression describes.

    >>> accepts("Die Katze (saß|sitzt)", "die Katze saß."), accepts("Die Katze", "Die Kätze")
    (True, False)
    """
    text = " ".join(text.split()).rstrip(MARKS + " ")
    either = {text, text[:1].upper() + text[1:], text[:1].lower() + text[1:]}
    return any(re.fullmatch(pattern, one) for one in either)


def try_all(translator: Translator, beam: int = 5) -> list[Tried]:
    """All sentences, first as they stand and then without the mark at the end."""
    lines = list(read_lines(Path(__file__).with_name("acceptance.tsv")))
    pairs = [line.split("\t") for line in lines]
    pairs += [(source.rstrip(MARKS), pattern) for source, pattern in pairs if source[-1] in MARKS]
    found = translator.translate([source for source, _ in pairs], beam=beam, threads=2)
    return [
        Tried(source, one.text, accepts(pattern, one.text))
        for (source, pattern), one in zip(pairs, found, strict=True)
    ]


def main(model: str) -> None:
    tried = try_all(Translator.load(model))
    for one in tried:
        if not one.accepted:
            print(f"{one.source}\n    {one.text}")
    accepted = sum(one.accepted for one in tried)
    print(f"{accepted} of {len(tried)} accepted: {accepted / len(tried):.1%}")


if __name__ == "__main__":
    main(sys.argv[1])
