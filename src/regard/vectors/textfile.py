"""Word vectors as text: a word and its numbers on each line, as word2vec, GloVe and fastText write.

word2vec and fastText begin with a header line of the number of words and the width; GloVe does not.
Fields are separated by single spaces; a word may contain spaces, as some of GloVe's do.
"""

from __future__ import annotations

import math
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable, Iterator
from io import BufferedIOBase
from pathlib import Path

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from regard.errors import FileError
from regard.vectors.chunk import Chunk
from regard.vectors.opening import opened

BLOCK = 2**22
"""Bytes that are read at once."""
LONGEST = 2**26
"""Maximum bytes of a line."""
FIRST = 10
"""Lines that decide the width if there is no header."""


def read_words(path: str | Path, words: Iterable[str]) -> dict[str, NDArray[np.float32]]:
    """The vectors of these words; reading stops when all are found.

    A word is looked up as it is, and then in lower case. Words without a vector are left out.
    """
    wanted = dict.fromkeys(words)
    missing = wanted.keys() | {word.lower() for word in wanted}
    found: dict[str, NDArray[np.float32]] = {}
    for number, word, values in _lines(Path(path)):
        if word in missing and word not in found:
            found[word] = _numbers(Path(path), number, values)
            if wanted.keys() <= found.keys():
                break
    return {
        word: found.get(word, found.get(word.lower()))  # type: ignore[misc]
        for word in wanted
        if word in found or word.lower() in found
    }


def text_chunks(path: Path, file: BufferedIOBase, head: bytes) -> Iterator[Chunk]:
    """The vectors of a text file whose `head` has been read already."""
    rest, number, rows = head.removeprefix(BOM_UTF8), 1, 0
    counted: int | None = None
    width: int | None = None
    while True:
        block = file.read(BLOCK)
        lines = (rest + block).split(b"\n")
        rest = lines.pop() if block else b""
        if len(rest) > LONGEST:
            raise FileError(
                f"{path}: line {number + len(lines)} has more than {LONGEST >> 20} MiB; "
                "is it a file of word vectors?"
            )
        if width is None and lines:
            counted, width = header(lines[0]) or (None, _usual_width(lines))
            if counted is not None:
                del lines[0]
                number += 1
        if width is not None:
            chunk = _chunk(path, lines, number, width)
            rows += len(chunk.words)
            number += len(lines)
            if chunk.words:
                yield chunk
        if not block:
            break
    if counted is not None and counted != rows:
        raise FileError(
            f"{path}: line 1 counts {counted:,} words, but {rows:,} follow; the file is cut off, "
            "or the count is wrong"
        )
    if not rows:
        raise FileError(f"{path}: the file is empty")


def _chunk(path: Path, lines: list[bytes], first: int, width: int) -> Chunk:
    """The words and numbers of these lines; numpy parses all numbers at once."""
    words, values, places = [], [], []
    for number, line in enumerate(lines, first):
        line = line.rstrip(b" \r")
        if line.count(b" ") == width:
            word, _, rest = line.partition(b" ")
        elif line:
            fields = _split(path, number, line, width)
            word, rest = b" ".join(fields[:-width]), b" ".join(fields[-width:])
        else:
            continue
        words.append(word)
        values.append(rest)
        places.append(number)
    if not words:
        return Chunk([], np.empty((0, width), np.float32), [], "line")
    matrix = _matrix(values, width)
    if matrix is None:
        rows = [
            _numbers(path, number, rest.split(b" "), finite=False)
            for number, rest in zip(places, values, strict=True)
        ]
        matrix = np.stack(rows)
    return Chunk(_decoded(path, words, places), matrix, places, "line")


def _matrix(rows: list[bytes], width: int) -> Float32[np.ndarray, "rows width"] | None:
    """The numbers in these rows; None if they are not `width` numbers each."""
    try:
        # Latin-1 decodes every byte; numbers are ASCII.
        numbers = np.loadtxt(rows, np.float32, comments=None, delimiter=" ", encoding="latin-1")
        return numbers.reshape(len(rows), width)
    except ValueError:
        return None


def _decoded(path: Path, words: list[bytes], places: list[int]) -> list[str]:
    try:
        return b"\n".join(words).decode().split("\n")
    except UnicodeDecodeError:
        return [_text(path, *pair) for pair in zip(places, words, strict=True)]


def _usual_width(lines: list[bytes]) -> int:
    """The most frequent number of numbers at the end of the first lines."""
    widths = []
    for line in lines[:FIRST]:
        fields = line.rstrip(b" \r").split(b" ")
        width = 0
        while width < len(fields) - 1 and is_number(fields[-width - 1]):
            width += 1
        widths.append(width)
    [(usual, _)] = Counter(width for width in widths if width).most_common(1) or [(1, 0)]
    return usual


def _lines(path: Path) -> Iterator[tuple[int, str, list[bytes]]]:
    """Line number, word and numeric fields of each line; all have the same width."""
    width: int | None = None
    with opened(path) as file:
        for number, line in enumerate(file, 1):
            line = (line.removeprefix(BOM_UTF8) if number == 1 else line).rstrip(b" \r\n")
            if not line and width is not None:
                continue
            if number == 1 and (counted := header(line)):
                width = counted[1]
                continue
            if width is None:
                width = max(1, line.count(b" "))
            fields = _split(path, number, line, width)
            yield number, _text(path, number, b" ".join(fields[:-width])), fields[-width:]
    if width is None:
        raise FileError(f"{path}: the file is empty")


def header(line: bytes) -> tuple[int, int] | None:
    """The number of words and the width in a header line; None if it is not one."""
    fields = line.rstrip(b" \r").split(b" ")
    if len(fields) == 2 and all(field.isdigit() and len(field) < 16 for field in fields):
        return int(fields[0]), int(fields[1])
    return None


def _split(path: Path, number: int, line: bytes, width: int) -> list[bytes]:
    """The fields of a line, checked: only the last `width` are numbers."""
    _text(path, number, line)
    fields = line.split(b" ")
    if width < 1 or len(fields) < width + 1:
        raise FileError(
            f"{path}: line {number}: {len(fields) - 1} numbers after the word, "
            f"expected {max(width, 1)}; is it a file of word vectors?"
        )
    if len(fields) > width + 1:
        _numbers(path, number, fields[-width:], finite=False)
    if len(fields) > width + 1 and is_number(fields[-width - 1]):
        raise FileError(f"{path}: line {number}: more than {width} numbers after the word")
    return fields


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
    path: Path, number: int, values: list[bytes], *, finite: bool = True
) -> NDArray[np.float32]:
    for value in values:
        if not is_number(value):
            shown = value[:40].decode(errors="replace")
            raise FileError(f"{path}: line {number}: {shown!r} is not a number")
    with np.errstate(over="ignore"):
        vector = np.array([float(value) for value in values], np.float32)
    if finite and not all(math.isfinite(value) for value in vector):
        raise FileError(f"{path}: line {number}: the vector is not finite")
    return vector
