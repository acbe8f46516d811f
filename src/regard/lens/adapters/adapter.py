"""What the lens needs of a model: to read texts, to write, and to compute its logits again.

A `ModelAdapter` hides how a model is called. It reads a batch of texts with the part of the model
that sees them whole (the encoder of a translator, all of a language model) and returns their
vectors layer by layer. `TranslatorAdapter` and `StackAdapter` add what `Lens.why` needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.errors import OptionError
from regard.lens.adapters.past import Past
from regard.lens.capture import Seen
from regard.text.words import Words

BEAM = 5


@dataclass(frozen=True, eq=False)
class Reading:
    """A text as a model reads it: the ids of its tokens, and its words."""

    ids: list[int]
    words: Words


class ModelAdapter(ABC):
    """A model and its tokenizer, run in one way whatever the model."""

    model: nn.Module
    kind: str
    """``"translator"``, ``"causal"``, ``"masked"``, ``"classifier"`` or ``"encoder"``."""
    embeddings: Sequence[nn.Module]
    """The modules whose outputs the model computes everything else from."""
    limit: int | None
    """The number of tokens it can read, if limited."""
    longest: int | None = None
    """The longest text, in tokens, that it can write something for; None without a limit."""
    writes: bool
    """Whether it writes something: a translation, or the next token."""
    unknown_id: int | None = None
    """The token that stands for every word outside the vocabulary, if there is one."""

    @property
    def translates(self) -> bool:
        return self.kind == "translator"

    @property
    def vocabulary(self) -> int | None:
        """The number of tokens in its vocabulary, if known."""
        return len(self.table())

    @abstractmethod
    def read(self, text: str) -> Reading: ...

    def in_vocabulary(self, word: str, tokens: list[int]) -> list[int]:
        """The tokens of a word that is asked about; raises if one stands for any unknown word."""
        if self.unknown_id in tokens:
            raise OptionError(
                f"why: {word!r} is not in the model's vocabulary, its tokenizer reads an unknown "
                "word; name another word"
            )
        return tokens

    @abstractmethod
    def layers(self, readings: Sequence[Reading], past: Past | None = None) -> list[Tensor]:
        """The vectors ``(b, n, width)`` before the first block and after each one in turn.

        With `past`, of the tokens behind it, in rows of the same text.
        """

    def past(self, reading: Reading) -> Past | None:
        """The key-value cache of a text; None if the model is not causal, or has none."""
        return None

    @abstractmethod
    def generate(self, reading: Reading, last: Tensor) -> list[list[int]]:
        """The tokens that the model writes, given the last vectors of the text.

        `last` ``(b, n, width)``: b rows for one text, for example with different links cut.
        """

    @abstractmethod
    def log_probability(self, last: Tensor, written: Sequence[int]) -> Tensor:
        """``(b,)``: of writing this, given the last vectors of b unpadded rows of one length."""

    @abstractmethod
    def detokenize(self, tokens: Sequence[int]) -> str:
        """Tokens as text. A next token without a spelling is shown by its name."""

    @abstractmethod
    def spell_choice(self, token: int) -> str:
        """One token as text, or its name if it spells nothing."""

    @abstractmethod
    def table(self) -> Tensor:
        """The static vector of each token, ``(vocabulary, width)``."""


Resumed = Callable[[Tensor, int], Tensor]
"""The logits after each of some tokens ``(rows, t)``, from the given one on."""


class TranslatorAdapter(ModelAdapter):
    """A model with an encoder and a decoder."""

    kind = "translator"
    writes = True

    @property
    @abstractmethod
    def start(self) -> int: ...

    @property
    @abstractmethod
    def end(self) -> int:
        """The token that ends a translation; -1 if there is none."""

    @property
    @abstractmethod
    def end_name(self) -> str:
        """The name of the token that ends a translation."""

    @abstractmethod
    def encode(self, reading: Reading, rows: int = 1) -> Tensor:
        """The encoder's output for so many equal rows of a text, ``(rows, n, width)``."""

    @abstractmethod
    def step_logits(self, memory: Tensor, prefix: Tensor, first: int = 0) -> Tensor:
        """The logits after each token of a prefix ``(rows, t)``, from step `first` on.

        ``(rows, t − first, vocabulary)``; with ``first=-1``, only those after the last token.
        """

    @abstractmethod
    def teacher_force(self, readings: Sequence[Reading], written: Sequence[Sequence[int]]) -> None:
        """Runs the model over texts and their translations, padded into one batch."""

    @abstractmethod
    def is_encoder(self, module: str) -> bool:
        """Whether a module is part of the encoder."""

    @abstractmethod
    def longest_output(self, length: int) -> int:
        """The number of tokens at which the translation of so many tokens is cut off."""

    @abstractmethod
    def encode_target(self, text: str) -> list[int]:
        """The tokens of a translation."""

    @abstractmethod
    def target_words(self, tokens: Sequence[int]) -> Words:
        """The words of a translation, behind its start token."""

    def resumed(self, seen: Seen, memory: Tensor, length: int) -> Resumed | None:
        """A function that decodes tokens behind the first `length` of a prefix.

        From the keys and values that the decoder was seen to have. None where it cannot resume.
        """
        return None

    def translate_all(self, readings: Sequence[Reading]) -> list[tuple[list[int], Tensor]]:
        """The translations of texts, as tokens, and the encoder's output ``(1, n, width)``."""
        read = [self.encode(one) for one in readings]
        return [(self.generate(one, x)[0], x) for one, x in zip(readings, read, strict=True)]

    def log_probability(self, last: Tensor, written: Sequence[int]) -> Tensor:
        targets = [*written, self.end] if self.end >= 0 else list(written)
        prefix = torch.tensor([[self.start, *written][: len(targets)]], device=last.device)
        return sequence_log_probability(
            self.step_logits(last, prefix.expand(len(last), -1)), targets
        )


class StackAdapter(ModelAdapter):
    """A model with a single stack."""

    mask_token: str
    mask_id: int
    """The token of a mask, in a masked language model; -1 if there is none."""

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @property
    @abstractmethod
    def labels(self) -> list[str]:
        """The names of the classes of a classifier."""

    @property
    @abstractmethod
    def special_ids(self) -> set[int]:
        """Tokens that stand for no text."""

    @abstractmethod
    def predict(self, ids: Tensor, position: int | None = None, past: Past | None = None) -> Tensor:
        """The logits for ids ``(rows, n)``: of the token at a position, or of the classes.

        With `past`, which equal rows begin with, only the tokens behind it are run.
        """

    @abstractmethod
    def next_logits(self, last: Tensor) -> Tensor:
        """The logits of the next token, ``(b, vocabulary)``, given the last vectors of b rows."""

    @abstractmethod
    def token_names(self, ids: Sequence[int]) -> list[str]: ...

    def generate(self, reading: Reading, last: Tensor) -> list[list[int]]:
        return [[int(i)] for i in self.next_logits(last).argmax(-1)]

    def log_probability(self, last: Tensor, written: Sequence[int]) -> Tensor:
        return sequence_log_probability(self.next_logits(last).unsqueeze(1), written)


def writes_for(adapter: ModelAdapter, reading: Reading) -> bool:
    """Whether the model writes something for this text."""
    within = adapter.longest is None or len(reading.ids) <= adapter.longest
    return adapter.writes and within


def or_named(text: str, names: Sequence[str]) -> str:
    """What tokens spell; their names if that is nothing, or not even whole characters.

    >>> or_named("it", ["▁it"]), or_named("", ["</s>"]), or_named("\ufffd", ["<0xC3>"])
    ('it', '</s>', '<0xC3>')
    """
    return text if text and "\ufffd" not in text else " ".join(names)


def sequence_log_probability(logits: Tensor, tokens: Sequence[int]) -> Tensor:
    """The log-probability of a whole sequence, ``(b,)``, from logits ``(b, t, vocabulary)``."""
    chosen = torch.tensor(list(tokens), device=logits.device).expand(len(logits), -1)
    return logits.float().log_softmax(-1).gather(-1, chosen.unsqueeze(-1)).sum((1, 2))
