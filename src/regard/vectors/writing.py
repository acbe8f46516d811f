"""Writing of word vectors, atomically."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.errors import FileError, OptionError
from regard.files import replacing, why
from regard.vectors.textfile import is_number

ROWS = 2**12
"""Rows that are written at once."""


def check_path(path: Path) -> None:
    """Raise if vectors cannot be written to this path."""
    _form(path)
    if not path.parent.is_dir():
        raise FileError(f"Vectors.save: cannot write {path}: No such file or directory")
    if not os.access(path.parent, os.W_OK):
        raise FileError(f"Vectors.save: cannot write {path}: Permission denied")


def write_vectors(path: Path, words: list[str], matrix: NDArray[np.float32]) -> None:
    """Write words and rows in the format of the path's suffix."""
    binary, packs = _form(path)
    for word in words:
        _check(word, binary)
    try:
        with replacing(path) as temporary, temporary.open("wb") as raw:
            packed = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if packs else nullcontext(raw)
            with packed as file:
                file.writelines(_parts(words, matrix, binary))
    except OSError as error:
        raise FileError(f"Vectors.save: cannot write {path}: {why(error)}") from None


def _form(path: Path) -> tuple[bool, bool]:
    """Whether the suffix of the path means binary, and whether gzip."""
    packs = path.suffix.lower() == ".gz"
    ending = (path.with_suffix("") if packs else path).suffix.lower()
    if ending not in (".txt", ".vec", ".bin"):
        raise OptionError(
            f"Vectors.save: {path} ends in {path.suffix or 'nothing'!r}, expected .txt, .vec or "
            ".bin, or one of these and .gz"
        )
    return ending == ".bin", packs


def _parts(words: list[str], matrix: NDArray[np.float32], binary: bool) -> Iterator[bytes]:
    """The file in pieces: a header line with the number of words and the width, then the words."""
    yield f"{len(words)} {matrix.shape[1]}\n".encode()
    for start in range(0, len(words), ROWS):
        some, rows = words[start : start + ROWS], matrix[start : start + ROWS]
        if binary:
            little = rows.astype("<f4")
            yield b"".join(
                word.encode() + b" " + row.tobytes() + b"\n"
                for word, row in zip(some, little, strict=True)
            )
        else:
            # The shortest text that is read as the same float32.
            texts = rows.astype(str).tolist()
            yield "".join(
                f"{word} {' '.join(row)}\n" for word, row in zip(some, texts, strict=True)
            ).encode()


def _check(word: str, binary: bool) -> None:
    """Raise if this word would not be read back as it is."""
    text = word.encode(errors="replace")
    last = text.rpartition(b" ")[2]
    if binary:
        wrong = b" " in text or text.startswith(b"\n")
    else:
        wrong = not text or b"\n" in text or (last != text and is_number(last))
    if wrong or text.decode() != word:  # a character that is not Unicode was replaced
        form = "binary" if binary else "text"
        raise OptionError(f"Vectors.save: {word!r} cannot be written to a {form} file")
