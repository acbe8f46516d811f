"""Word vectors as word2vec's C program writes them: a header line, then words and raw numbers.

After ``words width`` and a line feed, each word is followed by a space and its numbers as
little-endian float32; most programs add a line feed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.errors import FileError
from regard.vectors.chunk import Chunk, Row, chunked

BLOCK = 2**22
LONGEST = 2**14
"""Maximum bytes of a word."""


def binary_chunks(
    path: Path, file: BufferedIOBase, head: bytes, counted: int, width: int
) -> Iterator[Chunk]:
    """The vectors of a file whose `head`, with the header line, has been read already."""

    def numbers(_: Sequence[int], rows: Sequence[bytes]) -> NDArray[np.float32]:
        matrix = np.frombuffer(b"".join(rows), "<f4").reshape(-1, width)
        return matrix.astype(np.float32, copy=False)

    return chunked(_rows(path, file, head, counted, 4 * width), numbers, "byte")


def _rows(path: Path, file: BufferedIOBase, head: bytes, counted: int, size: int) -> Iterator[Row]:
    """Offset, word and numbers of each word; the numbers have `size` bytes."""
    data, at = head, head.index(b"\n") + 1
    start = 0  # offset of data in the file
    done = 0
    while done < counted:
        space = data.find(b" ", at, at + LONGEST)
        if space < 0 and len(data) - at >= LONGEST:
            raise FileError(f"{path}: byte {start + at}: word {done + 1:,} has no end")
        if space < 0 or len(data) < space + 1 + size:
            more = file.read(BLOCK)
            if not more:
                where = f"{path}: byte {start + len(data)}: the file ends"
                if space < 0:
                    raise FileError(
                        f"{where} after {done:,} of the {counted:,} words that line 1 counts; "
                        "fetch it again"
                    )
                word = data[at:space].lstrip(b"\n").decode(errors="replace")
                raise FileError(
                    f"{where} within the vector of {word!r}, word {done + 1:,} of {counted:,}: "
                    f"{len(data) - space - 1:,} of {size:,} bytes; fetch it again"
                )
            data, at, start = data[at:] + more, 0, start + at
            continue
        while data[at : at + 1] == b"\n":
            at += 1
        end = space + 1 + size
        yield start + at, _text(path, start + at, data[at:space]), data[space + 1 : end]
        at = end
        done += 1
    rest = data[at:] + file.read(2)
    if more := rest.lstrip(b"\n"):
        place = start + at + len(rest) - len(more)
        raise FileError(
            f"{path}: byte {place}: the file continues after the {counted:,} words that line 1 "
            "counts; the count is wrong"
        )


def _text(path: Path, place: int, word: bytes) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError as error:
        raise FileError(
            f"{path}: byte {place}: the word is not UTF-8 text ({error.reason})"
        ) from None
