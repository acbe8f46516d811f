"""What `Lens` answers where a few fields say all: vectors, a translation, a text without links."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from regard.lens._numbers import numbered
from regard.lens.capture import Seen
from regard.text.words import Words


@dataclass(frozen=True, eq=False)
class Embedded:
    """The vectors of the words of a text, layer by layer.

    >>> import torch
    >>> words = Words("a b", ("a", "b"), ((0, 1), (2, 3)), (False, False))
    >>> Embedded(words, torch.zeros(4, 2, 8))["b"].shape
    torch.Size([4, 8])
    """

    words: Words
    vectors: Float[Tensor, "layers names width"]
    """Before the first block, and after each; of several subwords the mean."""

    def __getitem__(self, word: str | int) -> Float[Tensor, "layers width"]:
        return self.vectors[:, self.words.find(word)]

    def sentence(self, layer: int = -1) -> Float[Tensor, " width"]:
        """The vector of the whole text: the mean of its words', special tokens apart."""
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
    """Encoder, decoder and the attention between them, while the decoder reads the whole."""

    @property
    def text(self) -> str:
        """The translation."""
        return self.target.text

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Without:
    """What a model makes of a text when some of its links are cut."""

    before: str
    """What it said with them: a translation, the next word; "" if it says nothing."""
    after: str
    moved: dict[int, float]
    """For each word that lost a link, how far its vector moved, as a share of its length."""
    note: str
    """The same in words."""
