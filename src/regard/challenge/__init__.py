"""The built-in English–German sentences with known answers."""

from regard.challenge.frames import FRAMES
from regard.challenge.nouns import NOUNS
from regard.challenge.pair import Pair
from regard.challenge.predicates import ADJECTIVES, EVENTS
from regard.challenge.senses import SENSES, WORDS, wrong_forms
from regard.challenge.sentences import KINDS, generate, judge, nearest, size, split_of
from regard.challenge.split import SPLITS

__all__ = [
    "ADJECTIVES",
    "EVENTS",
    "FRAMES",
    "KINDS",
    "NOUNS",
    "SENSES",
    "SPLITS",
    "WORDS",
    "Pair",
    "generate",
    "judge",
    "nearest",
    "size",
    "split_of",
    "wrong_forms",
]
