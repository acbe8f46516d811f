"""What context does to static vectors: self-attention over them, without a single parameter."""

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
from regard.vectors.vectors import Neighbour, Vectors
from regard.vectors.words import words_of

if TYPE_CHECKING:
    from regard.walkthrough import Steps


@dataclass(frozen=True)
class Pull:
    """Where one word looked, and how near it is to every word, before and after.

    Cosines are with the static vectors of the words. Prints as a table.
    """

    word: str
    position: int
    words: tuple[str, ...]
    weights: tuple[float, ...]
    """How much of each word's vector is in the new one; they sum to 1."""
    before: tuple[float, ...]
    after: tuple[float, ...]

    def to_data(self) -> dict[str, Any]:
        """All of it as plain data."""
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
    """Those that have a vector, in their order."""
    skipped: tuple[str, ...]
    """Those that have none and were left out."""
    steps: Steps
    """Every number on the way: ``print(context.steps.of("bat"))`` writes them out."""
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
        """The contextual vector of a word, or of the word at a place."""
        return np.array(self.after[self.steps.find(word)])

    def __len__(self) -> int:
        return len(self.words)

    def pull(self, word: str | int, occurrence: int = 1) -> Pull:
        """Which words pulled this one, and where to."""
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
        """The n words of all vectors that the contextual vector of this word is nearest to."""
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
    """The words of a text with vectors that know of each other: self-attention, nothing learned.

    Every word's new vector is softmax(x·xᵀ / √width)·x, an average of all static vectors, weighted
    by how well they fit its own. So *bat* beside *ball* is pulled towards *ball*.

    Args:
        text: or a list of words.
        score: how two vectors are compared; with ``"dot"``, which is not divided by √width, long
            vectors hardly look at any but themselves.
        mask: who may look at whom, such as ``window(3)``.
        unknown: what is done about words without a vector, as in `Vectors.lookup`.

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
