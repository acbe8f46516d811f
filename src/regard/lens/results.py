"""Small results of `Lens`: vectors, a translation, a text with links cut."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import shorten

from jaxtyping import Float
from torch import Tensor

from regard.errors import shape
from regard.lens.arguments import numbered
from regard.lens.capture import Seen
from regard.text.words import Words


@dataclass(frozen=True, eq=False)
class Embedded:
    """The contextual vectors of the words of a text, layer by layer.

    >>> import torch
    >>> words = Words("a b", ("a", "b"), ((0, 1), (2, 3)), (False, False))
    >>> Embedded(words, torch.zeros(4, 2, 8))["b"].shape
    torch.Size([4, 8])
    """

    words: Words
    vectors: Float[Tensor, "layers names width"]
    """Before the first block and after each; the mean over the tokens of a word."""

    def __getitem__(self, word: str | int) -> Float[Tensor, "layers width"]:
        return self.vectors[:, self.words.find(word)]

    def __repr__(self) -> str:
        return f"Embedded({sum(self.words.is_word)} words, vectors {shape(self.vectors)})"

    def sentence(self, layer: int = -1) -> Float[Tensor, " width"]:
        """The vector of the text: the mean over its words, without special tokens."""
        own = [i for i, there in enumerate(self.words.is_word) if there]
        return self._of_layer("sentence", layer)[own].mean(0)

    def _of_layer(self, function: str, layer: int) -> Float[Tensor, "names width"]:
        size = len(self.vectors)
        return self.vectors[numbered(f"{function}: layer", layer, size, backwards=True)]


@dataclass(frozen=True, eq=False)
class WatchedTranslation:
    """A translation, and the attention that produced it."""

    source: Words
    target: Words
    seen: Seen
    """The attention of encoder and decoder over text and translation."""

    @property
    def text(self) -> str:
        """The translation."""
        return self.target.text

    def __repr__(self) -> str:
        text = shorten(self.text, 60, placeholder="…")
        return f"WatchedTranslation({text!r}, attention of {len(self.seen)} modules)"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Without:
    """What a model writes, and how its vectors move, when links are cut."""

    before: str
    """What it writes with all links: a translation or the next word; "" if nothing."""
    after: str
    """What it writes with the links cut."""
    moved: dict[int, float]
    """How far the vector of each word that lost a link moved, as a share of its length."""
    note: str
    """`moved` in words."""
