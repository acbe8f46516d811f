"""The built-in corpus: English–German sentences with one ambiguous word and a known answer.

In **reference**, *it* refers to one of two nouns, and its predicate decides which: "The animal
didn't cross the street because it was too tired / too wide." German must use *es* or *sie*. In
**senses**, a word has two meanings with different German words, and the context decides: *bat* is
*Fledermaus* or *Schläger*. **cues** are more of these, for training only: the words that decide a
sense, in other contexts.

The grammar is in plain text files in `tables`: nouns, adjectives, events and frames; senses,
contexts and cues.

Training and test share no combination: a pair of nouns, a frame with a predicate, or a sense with a
context is in one split only, decided by a hash of its name, independent of the seed. The two
readings of a frame are drawn in turn, so that choosing the nearest noun is right half of the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from operator import index

from regard.challenge import balance, evaluation, reference, senses
from regard.challenge.nouns import NOUNS
from regard.challenge.pair import Pair
from regard.challenge.split import SPLITS
from regard.errors import OptionError

KINDS = ("reference", "senses", "cues")


def generate(
    kind: str = "reference", split: str = "train", n: int = 1000, seed: int = 0
) -> Iterator[Pair]:
    """n different pairs of a kind and a split, determined by the seed.

    ``generate(n=10)`` are the first pairs of ``generate(n=1000)``.

    >>> pair = next(generate("reference", "test"))
    >>> pair.source
    'The chick ran away from the bus when it exploded.'
    >>> pair.target
    'Das Küken lief vor dem Bus weg, als er explodierte.'
    >>> pair.referent, pair.other, pair.answer
    ('bus', 'chick', 'er')
    """
    _check("generate", kind, split)
    count = _whole("n", n)
    if not 0 <= count <= size(kind, split):
        raise OptionError(
            f"generate: n={count}, but there are {size(kind, split)} sentences of kind={kind!r} "
            f"in split={split!r}; ask for 0 to {size(kind, split)}"
        )
    number = _whole("seed", seed)
    if kind == "reference":
        return islice(balance.draw(split, number), count)
    return islice(senses.draw(kind, split, number), count)


def size(kind: str = "reference", split: str = "train") -> int:
    """The number of different pairs of a kind and a split."""
    _check("size", kind, split)
    return balance.size(split) if kind == "reference" else senses.size(kind, split)


def split_of(combination: str) -> str:
    """The split of a combination, ``"train"`` or ``"test"``: one of `Pair.combinations`.

    >>> split_of("animal + street"), split_of("cross + tired"), split_of("cross + lazy")
    ('test', 'test', 'train')
    """
    if combination in reference.every_topic():
        return "test" if combination in reference.topics_held_out() else "train"
    if combination in senses.every_context():
        return "test" if combination in senses.contexts_held_out() else "train"
    nouns = combination.split(" + ")
    if len(nouns) != 2 or not NOUNS.keys() >= set(nouns):
        raise OptionError(
            f"split_of: {combination!r} is unknown, expected two nouns, a frame and a predicate, "
            f"or word, sense and context, joined by ' + ', as in Pair.combinations"
        )
    return "test" if reference.nouns_held_out(" + ".join(sorted(nouns))) else "train"


def judge(pair: Pair, translation: str) -> bool | None:
    """Whether a German translation of the source has the right reading; None: undecided.

    Reference: the first er, ihn, sie or es after the conjunction (or, without one, after the first
    punctuation mark) must have the gender of the noun that *it* refers to; undecided if it has not
    and the translation uses another noun. Senses: the translation must have the noun of the right
    sense, or a form, synonym or compound of it, and not that of another sense; undecided if it has
    both or none, or a noun of both senses: *Maus* may be a *Computermaus*.

    >>> pair = next(generate("reference", "test"))
    >>> judge(pair, pair.target)
    True
    """
    if pair.kind == "reference":
        return evaluation.judge_reference(pair, translation)
    return evaluation.judge_sense(pair, translation)


def nearest(pair: Pair) -> str:
    """The German pronoun of the noun nearest before *it*, a baseline of 50 % accuracy."""
    if pair.referent_position is None or pair.other_position is None:
        raise OptionError(
            f"nearest: the pair has kind={pair.kind!r}, expected 'reference', which has two nouns"
        )
    if pair.referent_position > pair.other_position or not pair.wrong:
        return pair.answer
    return pair.wrong[0]


def _check(function: str, kind: str, split: str) -> None:
    for name, value, known in (("kind", kind, KINDS), ("split", split, SPLITS)):
        if value not in known:
            raise OptionError(
                f"{function}: {name}={value!r} is unknown, expected {', '.join(known[:-1])} "
                f"or {known[-1]}"
            )


def _whole(name: str, value: int) -> int:
    try:
        return index(value)
    except TypeError:
        raise OptionError(f"generate: {name}={value!r}, expected a whole number") from None
