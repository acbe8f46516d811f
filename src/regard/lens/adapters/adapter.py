"""What the lens needs of a model: to read texts, to write, and to compute its logits again.

A `ModelAdapter` hides how a model is called. It reads a batch of texts with the part of the model
that sees them as a whole (the encoder of a translator, all of a language model) and returns their
vectors layer by layer. `TranslatorAdapter` and `StackAdapter` add what `Lens.why` needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from regard.errors import OptionError
from regard.lens.adapters.past import Past
from regard.lens.capture import Seen
from regard.text.words import Words

BEAM = 5


class Reading:
    """A text as a model reads it: the numbers of its tokens, and its words."""

    def __init__(self, ids: Sequence[int], words: Words) -> None:
        self.ids, self.words = list(ids), words


@runtime_checkable
class ModelAdapter(Protocol):
    """A model and its tokenizer, run in one way whatever the model."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def kind(self) -> str:
        """``"translator"``, ``"causal"``, ``"masked"``, ``"classifier"`` or ``"encoder"``."""

    @property
    def embeddings(self) -> Sequence[nn.Module]:
        """The modules whose outputs the model computes everything else from."""

    @property
    def limit(self) -> int | None:
        """How many tokens it can read, if there is a limit."""

    @property
    def vocabulary(self) -> int | None:
        """The number of tokens in its vocabulary, if known."""

    @property
    def longest(self) -> int | None:
        """The longest text, in tokens, that it can write something for; None without a limit."""

    @property
    def translates(self) -> bool: ...

    @property
    def writes(self) -> bool:
        """Whether it writes something: a translation, or the next token."""

    def read(self, text: str) -> Reading: ...

    def layers(self, readings: Sequence[Reading], past: Past | None = None) -> list[Tensor]:
        """The vectors ``(b, n, width)`` before the first block and after each one in turn.

        With `past`, of the tokens behind it, in rows of the same text.
        """

    def past(self, reading: Reading) -> Past | None:
        """What a causal model keeps of a text; None if the model is another, or keeps nothing."""

    def generate(self, reading: Reading, last: Tensor) -> list[list[int]]:
        """The tokens that the model writes, given the last vectors of the text.

        `last` ``(b, n, width)``: b rows for one text, for example with different links cut.
        """

    def detokenize(self, said: Sequence[int]) -> str:
        """Tokens as text. A next token that has no spelling goes by its name."""

    def spell_choice(self, token: int) -> str:
        """One token as text, or its name if it spells nothing."""

    def log_probability(self, last: Tensor, said: Sequence[int]) -> Tensor:
        """``(b,)``: of writing this, given the last vectors of b unpadded rows of one length."""

    def table(self) -> Tensor:
        """The static vector of each token, ``(vocabulary, width)``."""

    def teacher_force(self, reading: Reading, said: Sequence[int]) -> Words:
        """Runs the whole model over a text and its translation; returns the latter's words."""


LastStep = Callable[[int], Tensor]
"""The logits of so many equal rows, ``(rows, vocabulary)``."""


@runtime_checkable
class TranslatorAdapter(ModelAdapter, Protocol):
    """A model with an encoder and a decoder."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int:
        """The token that ends a translation; -1 if there is none."""

    @property
    def end_name(self) -> str:
        """The name of the token that ends a translation."""

    def encode(self, reading: Reading, rows: int = 1) -> Tensor:
        """The encoder's output for so many equal rows of a text, ``(rows, n, width)``."""

    def step_logits(self, memory: Tensor, prefix: Tensor, first: int = 0) -> Tensor:
        """The logits after each token of a prefix ``(rows, t)``, from the first asked for on.

        ``(rows, t − first, vocabulary)``; with ``first=-1``, only those after the last token.
        """

    def last_step(self, seen: Seen, memory: Tensor, prefix: Sequence[int]) -> LastStep | None:
        """Computes the logits after a prefix again, from what the decoder was seen to read.

        Only its last token is read again, so links can be cut in that row alone. None where the
        decoder cannot continue from there.
        """

    def translate_all(self, readings: Sequence[Reading]) -> list[list[int]]:
        """The translations of texts, as tokens."""

    def teacher_force_all(
        self, readings: Sequence[Reading], written: Sequence[Sequence[int]]
    ) -> None:
        """Runs the model over texts and their translations, padded into one batch."""

    def is_encoder(self, module: str) -> bool:
        """Whether a module is part of the encoder."""

    def longest_output(self, memory: Tensor) -> int:
        """The number of tokens at which a translation is cut off."""

    def encode_target(self, text: str) -> list[int]:
        """The tokens of a translation."""

    def target_words(self, tokens: Sequence[int]) -> Words:
        """The words of a translation, behind its start token."""


@runtime_checkable
class StackAdapter(ModelAdapter, Protocol):
    """A model with a single stack."""

    @property
    def device(self) -> torch.device: ...

    @property
    def labels(self) -> list[str]:
        """The names of the classes of a classifier."""

    @property
    def mask_token(self) -> str: ...

    @property
    def mask_id(self) -> int:
        """The token of a mask, in a masked language model; -1 if there is none."""

    @property
    def special_ids(self) -> set[int]:
        """Tokens that stand for no text."""

    def predict(self, ids: Tensor, position: int | None = None, past: Past | None = None) -> Tensor:
        """The logits for ids ``(rows, n)``: of the token at a position, or of the classes.

        With `past`, which equal rows begin with, only the tokens behind it are run.
        """

    def token_names(self, ids: Sequence[int]) -> list[str]: ...


def speaks(adapter: ModelAdapter, reading: Reading) -> bool:
    """Whether the model writes something for this text."""
    within = adapter.longest is None or len(reading.ids) <= adapter.longest
    return adapter.writes and within


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
