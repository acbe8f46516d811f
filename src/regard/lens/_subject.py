"""What the lens asks of a model, whoever made it: to read texts, and to say something.

A `Subject` hides how a model is called. It reads a batch of texts with the part of the model that
looks at them as a whole (the encoder of a translator, all of a language model) and returns their
vectors layer by layer; everything that it says follows from the last of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from regard.errors import OptionError
from regard.text.words import Words

BEAM = 5


class Reading:
    """A text as a model reads it: the numbers of its tokens, and its words."""

    def __init__(self, ids: Sequence[int], words: Words) -> None:
        self.ids, self.words = list(ids), words


@runtime_checkable
class Subject(Protocol):
    """A model that can be asked."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def limit(self) -> int | None:
        """How many tokens it can read, if there is a limit."""

    @property
    def vocabulary(self) -> int | None:
        """How many different tokens it knows; None if nobody can tell."""

    @property
    def longest(self) -> int | None:
        """To how many tokens it can say something, if there is a limit."""

    @property
    def translates(self) -> bool: ...

    @property
    def writes(self) -> bool:
        """Whether it says something: a translation, or the next word."""

    def read(self, text: str) -> Reading: ...

    def layers(self, readings: Sequence[Reading]) -> list[Tensor]:
        """The vectors ``(b, n, width)`` before the first block and after each one in turn."""

    def say(self, reading: Reading, last: Tensor) -> list[list[int]]:
        """What the model says to a text, as numbers of tokens, given the last vectors of it.

        `last` ``(b, n, width)``: b times, each with other links cut, for example.
        """

    def spell(self, said: Sequence[int]) -> str:
        """What was said, as text. A next word that has no spelling goes by its token's name."""

    def written_for(
        self, reading: Reading, said: Sequence[int], tokens: Sequence[int]
    ) -> list[int]:
        """Which of the numbers that were said stand for these tokens of the text.

        None, if it says nothing of the kind, or nobody knows.
        """

    def say_blindly(
        self, last: Tensor, said: Sequence[int], hidden: Mapping[int, Sequence[int]]
    ) -> list[int]:
        """What is said if some of it is written without looking at some tokens of the text.

        `hidden`: which tokens, by the places of what is `written_for` a word.
        """

    def log_probability(self, last: Tensor, said: Sequence[int]) -> Tensor:
        """``(b,)``: of saying this, given the last vectors of b unpadded rows of one length."""

    def table(self) -> Tensor:
        """The vector of each token before it is anywhere, ``(vocabulary, width)``."""

    def retell(self, reading: Reading, said: Sequence[int]) -> Words:
        """Run the whole model over a text and what was said to it; the words of the latter."""


class Unaligned:
    """Part of a subject: nobody knows which of the words that it says stand for which."""

    def written_for(
        self, reading: Reading, said: Sequence[int], tokens: Sequence[int]
    ) -> list[int]:
        return []

    def say_blindly(
        self, last: Tensor, said: Sequence[int], hidden: Mapping[int, Sequence[int]]
    ) -> list[int]:
        return list(said)


def speaks(subject: Subject, reading: Reading) -> bool:
    """Whether the model says something to this text."""
    within = subject.longest is None or len(reading.ids) <= subject.longest
    return subject.writes and within


def or_named(text: str, names: Sequence[str]) -> str:
    """What tokens spell; their names if that is nothing, or not even whole characters.

    >>> or_named("it", ["▁it"]), or_named("", ["</s>"]), or_named("\ufffd", ["<0xC3>"])
    ('it', '</s>', '<0xC3>')
    """
    return text if text and "\ufffd" not in text else " ".join(names)


def no_translator(model: nn.Module) -> OptionError:
    return OptionError(
        f"translate: {type(model).__name__} does not translate; it takes a Transformer of regard, "
        "or a model of transformers with an encoder and a decoder"
    )


def of_these(logits: Tensor, said: Sequence[int]) -> Tensor:
    """The log-probability of a whole sequence, ``(b,)``, from logits ``(b, t, vocabulary)``."""
    chosen = torch.tensor(list(said), device=logits.device).expand(len(logits), -1)
    return logits.float().log_softmax(-1).gather(-1, chosen.unsqueeze(-1)).sum((1, 2))
