"""A sentence pair with an ambiguous word, and its answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    """An English sentence and its German translation, with the answer to its ambiguity.

    Positions are offsets of characters in the source: ``source[position:].startswith(word)``.
    """

    source: str
    target: str
    kind: str
    """``"reference"``, ``"senses"`` or ``"cues"``."""
    word: str
    """The word in question: *it*, or the word of several senses."""
    position: int
    answer: str
    """The German word that shows the reading, as in the target."""
    wrong: tuple[str, ...]
    """German words that would show another reading."""
    frame: str
    """The name of the frame, or the context of a sense with its slots."""
    combinations: tuple[str, ...]
    """The combinations of this sentence, each in one split only; see `split_of`."""
    referent: str | None = None
    """The English noun that *it* refers to; like the next fields, of kind reference only."""
    referent_position: int | None = None
    other: str | None = None
    """The other noun."""
    other_position: int | None = None
    sense: str | None = None
    """The German noun that names the sense; None for kind reference."""
