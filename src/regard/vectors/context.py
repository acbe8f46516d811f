"""Contextualised word vectors: self-attention over static vectors, without parameters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float32
from numpy.typing import NDArray
from torch import Tensor

from regard.attention.masks import Mask
from regard.attention.scores import Score
from regard.errors import OptionError, WordError
from regard.vectors.vectors import Neighbour, Vectors, check_vectors
from regard.vectors.words import words_of

if TYPE_CHECKING:
    from regard.walkthrough import Steps


@dataclass(frozen=True)
class Pull:
    """The attention of one word, and its cosine with every word, before and after.

    Cosines are with the static vectors of the words. Prints as a table.
    """

    word: str
    position: int
    words: tuple[str, ...]
    weights: tuple[float, ...]
    """Attention weights; they sum to 1."""
    before: tuple[float, ...]
    after: tuple[float, ...]

    def to_data(self) -> dict[str, Any]:
        """All fields as plain data."""
        rows = zip(self.words, self.weights, self.before, self.after, strict=True)
        names = ("word", "weight", "before", "after")
        return {
            "word": self.word,
            "position": self.position,
            "pulled_by": [dict(zip(names, row, strict=True)) for row in rows],
        }

    def __str__(self) -> str:
        width = max(map(len, (*self.words, self.word)))
        lines = [f"{self.word:{width}}  weight  cosine before    after"]
        for i, word in enumerate(self.words):
            mark = " ←" if i == self.position else ""
            lines.append(
                f"{word:{width}}  {self.weights[i]:6.4f}  {self.before[i]:13.4f}  "
                f"{self.after[i]:7.4f}{mark}"
            )
        return "\n".join(lines)


class Context:
    """The vectors of a sentence before and after attention, as `contextualise` makes them."""

    words: tuple[str, ...]
    """The words with a vector, in order."""
    skipped: tuple[str, ...]
    """The words without a vector, which were left out."""
    steps: Steps
    """Every intermediate: ``print(context.steps.of("bat"))``."""
    before: NDArray[np.float32]
    """The static vectors ``(words, width)``."""
    after: NDArray[np.float32]
    """The contextual ones: averages of the static ones, weighted by attention."""

    def __init__(self, vectors: Vectors, taken: Steps, skipped: Iterable[str] = ()) -> None:
        self.vectors = vectors
        self.steps = taken
        self.words = taken.words
        self.skipped = tuple(skipped)
        self.before = taken.x.numpy()
        self.after = taken.output.numpy()

    def __getitem__(self, word: str | int) -> Float32[np.ndarray, "width"]:
        """The contextual vector of a word, given as text or position."""
        return np.array(self.after[self.steps.find(word)])

    def __len__(self) -> int:
        return len(self.words)

    def pull(self, word: str | int, occurrence: int = 1) -> Pull:
        """The attention of this word, and what it changes."""
        i = self.steps.find(word, occurrence)
        return Pull(
            self.words[i],
            i,
            self.words,
            tuple(self.steps.weights[i].tolist()),
            tuple(_cosines(self.before[i], self.before)),
            tuple(_cosines(self.after[i], self.before)),
        )

    def nearest(self, word: str | int, occurrence: int = 1, n: int = 10) -> list[Neighbour]:
        """The n nearest words, of all vectors, to the contextual vector of this word."""
        return self.vectors.nearest(self.after[self.steps.find(word, occurrence)], n)

    def sentence(self) -> Float32[np.ndarray, "width"]:
        """The average of the contextual vectors: the sentence as one vector."""
        return np.array(self.after.mean(0, dtype=np.float64), np.float32)

    def to_data(self) -> dict[str, Any]:
        """Words, vectors, and the pull on each word, as plain data."""
        return {
            "words": list(self.words),
            "skipped": list(self.skipped),
            "before": self.before.tolist(),
            "after": self.after.tolist(),
            "pulls": [self.pull(i).to_data() for i in range(len(self))],
        }

    def __str__(self) -> str:
        return "\n\n".join(str(self.pull(i)) for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Context({' '.join(self.words)!r})"


def contextualise(
    vectors: Vectors,
    text: str | Iterable[str],
    *,
    score: str | Score = "scaled_dot",
    mask: Mask | Tensor | str | None = None,
    unknown: str = "skip",
) -> Context:
    """Contextual vectors of the words of a text, by self-attention without parameters.

    The vectors x become softmax(x·xᵀ / √width)·x, an average of all static vectors, weighted by
    their similarity. So *bat* near *ball* moves towards *ball*.

    Args:
        text: or a list of words.
        score: how two vectors are compared; with ``"dot"``, which is not divided by √width, long
            vectors attend mostly to themselves.
        mask: which words may attend to which, such as ``window(3)``.
        unknown: how to treat words without a vector, as in `Vectors.lookup`.

    >>> v = Vectors(["ball", "bat", "mammal"], [[2.0, 0.0], [1.5, 1.5], [0.0, 2.0]])
    >>> c = contextualise(v, "the ball the bat")
    >>> c.skipped
    ('the',)
    >>> print(c.pull("bat"))
    bat   weight  cosine before    after
    ball  0.2572         0.7071   0.8253
    bat   0.7428         1.0000   0.9829 ←
    """
    from regard.walkthrough import steps

    check_vectors("contextualise", vectors)
    words = words_of(text, "contextualise")
    if not words:
        raise OptionError("contextualise: the text has no words")
    rows = vectors.lookup(words, unknown)
    if not len(rows):
        raise WordError("contextualise: none of the words has a vector")
    skipped = vectors.skipped(words) if unknown == "skip" else []
    kept = [word for word in words if unknown != "skip" or word in vectors]
    taken = steps(torch.from_numpy(rows), words=kept, score=score, mask=mask)
    return Context(vectors, taken, skipped)


def _cosines(vector: NDArray[np.float32], rows: NDArray[np.float32]) -> list[float]:
    """The cosine of a vector with each row; 0 where one of them is zero."""
    x, y = vector.astype(np.float64), rows.astype(np.float64)
    lengths = np.linalg.norm(x) * np.linalg.norm(y, axis=1)
    products = y @ x
    return np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0).tolist()  # type: ignore[no-any-return]
