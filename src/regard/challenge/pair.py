"""A sentence, its translation, and what must be understood to translate it so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    """An English sentence and its German translation, with what decides between two readings.

    Positions are offsets of characters in the source: ``source[position:].startswith(word)``.
    They do not depend on how anybody counts words or punctuation.
    """

    source: str
    target: str
    kind: str
    """``"reference"``, ``"senses"`` or ``"cues"``."""
    word: str
    """The word in question: *it*, or the word of several senses."""
    position: int
    answer: str
    """The German word that decides, as it stands in the target."""
    wrong: tuple[str, ...]
    """The German words in its place that would show another reading."""
    frame: str
    """The name of the frame, or the context of a sense with its slots."""
    combinations: tuple[str, ...]
    """What this sentence puts together; each is in its split only. See `split_of`."""
    referent: str | None = None
    """The English noun that *it* stands for; None where the kind is senses, as below."""
    referent_position: int | None = None
    other: str | None = None
    """The other noun."""
    other_position: int | None = None
    sense: str | None = None
    """The German noun that names the sense; None where the kind is reference."""
