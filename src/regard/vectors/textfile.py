"""Word vectors as text: a word and its numbers on each line, as word2vec, GloVe and fastText write.

word2vec and fastText begin with a line that counts words and numbers; GloVe does not. Both are
recognised. A file may be gzipped.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from regard.errors import FileError


def read_words(path: str | Path, words: Iterable[str]) -> dict[str, NDArray[np.float32]]:
    """The vectors of these words; the file is read only until all of them are found.

    A word that the file has only in lower case is found there. Words without a vector are left
    out.
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


def _lines(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Line number, word and the fields behind it, of lines that all have as many fields."""
    width: int | None = None
    number = 0
    try:
        with _open(path) as file:
            for number, line in enumerate(file, 1):
                fields = _text(path, number, line).rstrip().split(" ")
                if fields == [""] and width is not None:
                    continue
                if number == 1 and _is_header(fields):
                    width = int(fields[1])
                    continue
                if width is None:
                    width = len(fields) - 1
                if width < 1 or len(fields) < width + 1:
                    raise FileError(
                        f"{path}: line {number}: {len(fields) - 1} numbers behind the word, "
                        f"expected {max(width, 1)}; is it a file of word vectors?"
                    )
                if len(fields) > width + 1 and _is_number(fields[-width - 1]):
                    raise FileError(
                        f"{path}: line {number}: more than {width} numbers behind the word"
                    )
                yield number, " ".join(fields[:-width]), fields[-width:]
    except FileError:
        raise
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(f"{path}: cannot be read: {reason}") from None
    if width is None:
        raise FileError(f"{path}: the file is empty")


def _open(path: Path) -> IO[bytes] | gzip.GzipFile:
    """Bytes, so that a line that is no text still has its number."""
    return gzip.open(path) if path.suffix == ".gz" else open(path, "rb")


def _text(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: line {number}: not UTF-8 text ({error.reason})") from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_header(fields: list[str]) -> bool:
    return len(fields) == 2 and all(field.isdigit() for field in fields)


def _numbers(path: Path, number: int, values: list[str]) -> NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):
            vector = np.array([float(value) for value in values], np.float32)
    except ValueError as error:
        raise FileError(f"{path}: line {number}: {error}") from None
    if not all(math.isfinite(value) for value in vector):
        raise FileError(f"{path}: line {number}: the vector is not finite")
    return vector
