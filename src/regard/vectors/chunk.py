"""Chunks of word vectors, as read from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from regard.errors import FileError

ROWS = 2**10
"""Rows of a chunk."""


class Chunk(NamedTuple):
    """Words, one row of numbers for each, and their places in the file."""

    words: Sequence[str]
    matrix: NDArray[np.float32]
    places: Sequence[int]
    """Line numbers of the words, or offsets of their first bytes."""
    unit: str
    """``"line"`` or ``"byte"``."""


Row = tuple[int, str, bytes]
"""The place of a word, the word, and its numbers as the file has them."""


def chunked(
    rows: Iterator[Row],
    numbers: Callable[[Sequence[int], Sequence[bytes]], NDArray[np.float32]],
    unit: str,
) -> Iterator[Chunk]:
    """The rows in chunks; `numbers` returns the matrix of some, from their places and numbers."""
    while some := list(islice(rows, ROWS)):
        places, words, values = zip(*some, strict=True)
        yield Chunk(words, numbers(places, values), places, unit)


def checked(path: Path, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """The same chunks; raises if a number is not finite or a word is repeated."""
    seen: dict[str, int] = {}
    for chunk in chunks:
        finite = np.isfinite(chunk.matrix).all(1)
        if not finite.all():
            row = int(finite.argmin())
            bad = chunk.matrix[row][~np.isfinite(chunk.matrix[row])][0]
            raise FileError(
                f"{path}: {chunk.unit} {chunk.places[row]}: the vector of {chunk.words[row]!r} "
                f"has {bad}, expected finite numbers"
            )
        for word, place in zip(chunk.words, chunk.places, strict=True):
            first = seen.setdefault(word, place)
            if first != place:
                raise FileError(
                    f"{path}: {chunk.unit} {place}: {word!r} is repeated: it already has a "
                    f"vector on {chunk.unit} {first}; remove one of them"
                )
        yield chunk


def gathered(chunks: Iterable[Chunk]) -> tuple[list[str], Float32[np.ndarray, "words width"]]:
    """The words and the matrix of all chunks."""
    words: list[str] = []
    rows = []
    for chunk in chunks:
        words += chunk.words
        rows.append(chunk.matrix)
    return words, np.concatenate(rows)
