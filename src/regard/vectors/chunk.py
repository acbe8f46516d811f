"""Word vectors on their way from a file, many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from regard.errors import FileError


class Chunk(NamedTuple):
    """Some words, one row of numbers for each, and where in the file each of them stands."""

    words: Sequence[str]
    matrix: NDArray[np.float32]
    places: Sequence[int]
    """The number of the word's line, or of its first byte."""
    unit: str
    """``"line"`` or ``"byte"``."""

    def place(self, row: int) -> str:
        return f"{self.unit} {self.places[row]}"


def checked(path: Path, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """The same chunks, in which all numbers are finite and no word comes twice."""
    seen: dict[str, int] = {}
    places: list[Sequence[int]] = []
    for chunk in chunks:
        finite = np.isfinite(chunk.matrix).all(1)
        if not finite.all():
            row = int(finite.argmin())
            bad = chunk.matrix[row][~np.isfinite(chunk.matrix[row])][0]
            raise FileError(
                f"{path}: {chunk.place(row)}: the vector of {chunk.words[row]!r} has {bad}, "
                "expected finite numbers"
            )
        before = len(seen)
        places.append(chunk.places)
        for row, word in enumerate(chunk.words, before):
            first = seen.setdefault(word, row)
            if first != row:
                place = next(_skipping(places, first))
                raise FileError(
                    f"{path}: {chunk.place(row - before)}: {word!r} again, it has a vector on "
                    f"{chunk.unit} {place} already; remove one of them"
                )
        yield chunk


def gathered(chunks: Iterable[Chunk]) -> tuple[list[str], Float32[np.ndarray, "words width"]]:
    """All words of the chunks and their rows, in memory."""
    words: list[str] = []
    rows = []
    for chunk in chunks:
        words += chunk.words
        rows.append(chunk.matrix)
    return words, np.concatenate(rows)


def _skipping(places: Iterable[Sequence[int]], count: int) -> Iterator[int]:
    """All places but the first so many."""
    for some in places:
        yield from some[count:]
        count = max(0, count - len(some))
