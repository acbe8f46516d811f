"""Word vectors as text: a word and its numbers on each line, as word2vec, GloVe and fastText write.

word2vec and fastText begin with a header line of the number of words and the width; GloVe does not.
Fields are separated by single spaces; a word may contain spaces, as some of GloVe's do.
"""

from __future__ import annotations

import math
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from io import BufferedIOBase, BytesIO
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.errors import FileError
from regard.vectors.chunk import Chunk, Row, chunked
from regard.vectors.opening import opened

LONGEST = 2**26
"""Maximum bytes of a line."""
FIRST = 10
"""Lines that decide the width if there is no header."""


def read_words(path: str | Path, words: Iterable[str]) -> dict[str, NDArray[np.float32]]:
    """The vectors of these words; reading stops when all are found.

    A word is looked up as it is, and then in lower case. Words without a vector are left out.
    """
    path = Path(path)
    wanted = dict.fromkeys(words)
    missing = wanted.keys() | {word.lower() for word in wanted}
    found: dict[str, NDArray[np.float32]] = {}
    with opened(path) as file:
        for number, word, values in _rows(path, file, file.readline(LONGEST)):
            if word in missing and word not in found:
                found[word] = _numbers(path, number, values)
                if wanted.keys() <= found.keys():
                    break
    spelled = ((word, word if word in found else word.lower()) for word in wanted)
    return {word: found[spelling] for word, spelling in spelled if spelling in found}


def text_chunks(path: Path, file: BufferedIOBase, head: bytes) -> Iterator[Chunk]:
    """The vectors of a text file whose `head` has been read already."""
    count = 0
    for chunk in chunked(_rows(path, file, head), partial(_matrix, path), "line"):
        count += len(chunk.words)
        yield chunk
    sizes = header(head.removeprefix(BOM_UTF8).partition(b"\n")[0])
    if sizes is not None and sizes[0] != count:
        raise FileError(
            f"{path}: line 1 counts {sizes[0]:,} words, but {count:,} follow; the file is cut off, "
            "or the count is wrong"
        )
    if not count:
        raise FileError(f"{path}: the file is empty")


def _rows(path: Path, file: BufferedIOBase, head: bytes) -> Iterator[Row]:
    """Line number, word and numbers of each line."""
    lines = _lines(path, file, head)
    first = list(islice(lines, FIRST))
    if not first:
        raise FileError(f"{path}: the file is empty")
    sizes = header(first[0][1])
    width = max(1, sizes[1]) if sizes else _usual_width([line for _, line in first])
    for number, line in chain(first[1:] if sizes else first, lines):
        if line.count(b" ") == width:
            word, _, values = line.partition(b" ")
        else:
            word, values = _split(path, number, line, width)
        yield number, _text(path, number, word), values


def _lines(path: Path, file: BufferedIOBase, head: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, by number; the `head` of the file has been read already."""
    begun = BytesIO((head + file.readline(LONGEST)).removeprefix(BOM_UTF8))
    for number, line in enumerate(chain(begun, iter(partial(file.readline, LONGEST), b"")), 1):
        if len(line) >= LONGEST:
            raise FileError(
                f"{path}: line {number} has more than {LONGEST >> 20} MiB; "
                "is it a file of word vectors?"
            )
        if line := line.rstrip(b" \r\n"):
            yield number, line


def _matrix(path: Path, numbers: Sequence[int], rows: Sequence[bytes]) -> NDArray[np.float32]:
    """The numbers of these lines; numpy parses all at once."""
    try:
        # Latin-1 decodes every byte; numbers are ASCII.
        return np.loadtxt(
            rows, np.float32, comments=None, delimiter=" ", encoding="latin-1", ndmin=2
        )
    except ValueError:
        each = zip(numbers, rows, strict=True)
        return np.stack([_numbers(path, number, row, finite=False) for number, row in each])


def _usual_width(lines: list[bytes]) -> int:
    """The most frequent number of numbers at the end of the first lines."""
    widths = []
    for line in lines:
        fields = line.split(b" ")
        width = 0
        while width < len(fields) - 1 and is_number(fields[-width - 1]):
            width += 1
        widths.append(width)
    [(usual, _)] = Counter(width for width in widths if width).most_common(1) or [(1, 0)]
    return usual


def header(line: bytes) -> tuple[int, int] | None:
    """The number of words and the width in a header line; None if it is not one."""
    fields = line.rstrip(b" \r").split(b" ")
    if len(fields) == 2 and all(field.isdigit() and len(field) < 16 for field in fields):
        return int(fields[0]), int(fields[1])
    return None


def _split(path: Path, number: int, line: bytes, width: int) -> tuple[bytes, bytes]:
    """Word and numbers of a line with another number of spaces than `width`, checked."""
    _text(path, number, line)
    word, *values = line.rsplit(b" ", width)
    if len(values) < width:
        raise FileError(
            f"{path}: line {number}: {len(values)} numbers after the word, "
            f"expected {width}; is it a file of word vectors?"
        )
    numbers = b" ".join(values)
    _numbers(path, number, numbers, finite=False)
    if is_number(word.rpartition(b" ")[2]):
        raise FileError(f"{path}: line {number}: more than {width} numbers after the word")
    return word, numbers


def _text(path: Path, number: int, word: bytes) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: line {number}: not UTF-8 text ({error.reason})") from None


def is_number(text: bytes) -> bool:
    """Whether this is a number; unlike Python, ``1_0`` is none."""
    try:
        float(text)
    except ValueError:
        return False
    return b"_" not in text


def _numbers(
    path: Path, number: int, numbers: bytes, *, finite: bool = True
) -> NDArray[np.float32]:
    values = numbers.split(b" ")
    for value in values:
        if not is_number(value):
            shown = value[:40].decode(errors="replace")
            raise FileError(f"{path}: line {number}: {shown!r} is not a number")
    with np.errstate(over="ignore"):
        vector = np.array([float(value) for value in values], np.float32)
    if finite and not all(math.isfinite(value) for value in vector):
        raise FileError(f"{path}: line {number}: the vector is not finite")
    return vector
