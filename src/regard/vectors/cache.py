"""Word vectors that were read once, kept as they are in memory, to be opened without reading.

One file: a line of JSON, padded to a page; the numbers, as float32 in little-endian order, which
are memory-mapped; the words, one a line. It lies beside the file of vectors, or in the user's
folder for caches where that may not be written to. It is written beside its place and renamed, so
it is there whole or not at all, also while other processes read or write it; and it is used only if
the file of vectors is the one that it was made from.
"""

from __future__ import annotations

import glob
import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from regard.errors import FileError
from regard.files import make_usual
from regard.vectors.chunk import Chunk

FORMAT = 1
PAGE = 4096
"""Bytes of the header; numbers begin on a page."""
SMALL = 2**20
"""Bytes of a file that is read as fast as its cache would be opened."""
SAMPLE = 2**16
"""Bytes that are looked at in one place."""
PLACES = 16
"""In how many places of a file of vectors it is looked at, to tell it from another."""
ABANDONED = 2 * 24 * 3600
"""Seconds after which a temporary file is taken for abandoned."""
CHECKED = 2**27
"""Bytes of numbers that are checked, in places spread evenly; up to so many, all are."""

Opened = tuple[list[str], NDArray[np.float32]]


def fingerprint(path: Path) -> dict[str, Any] | None:
    """What tells a file from what it was at another time; None if it is small or no plain file.

    Its size, its time, and a digest of pieces of it: a gigabyte is not read to open its cache.
    """
    try:
        about = os.stat(path)
        if not path.is_file() or about.st_size < SMALL:
            return None
        digest = blake2b(digest_size=16)
        with open(path, "rb") as file:
            for i in range(PLACES):
                file.seek(max(0, about.st_size - SAMPLE) * i // (PLACES - 1))
                digest.update(file.read(SAMPLE))
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None
    return {"size": about.st_size, "time": about.st_mtime_ns, "digest": digest.hexdigest()}


def open_cache(path: Path, source: dict[str, Any]) -> Opened | None:
    """Words and numbers of a file with this fingerprint, if there is a cache and it is sound."""
    for place in _places(path):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return _read(place, source)
    return None


def write_cache(path: Path, source: dict[str, Any], chunks: Iterable[Chunk]) -> Opened | None:
    """The words and numbers of the chunks, written to a cache; None where none can be written.

    Then some chunks may have been taken already. Nothing is left behind if a chunk is an error.
    """
    for place in _places(path):
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            _tidy(place)
            handle, beside = tempfile.mkstemp(dir=place.parent, prefix=f"{place.name}.")
        except OSError:
            continue
        try:
            with os.fdopen(handle, "wb") as file:
                _write(file, beside, source, chunks)
            make_usual(beside)
            os.replace(beside, place)
            return _read(place, source)
        except FileError:
            raise
        except (OSError, ValueError):
            return None
        finally:
            with suppress(OSError):
                os.unlink(beside)
    return None


def _places(path: Path) -> Iterator[Path]:
    """Where the cache of a file may be, the best place first."""
    whole = path.absolute()
    yield whole.with_name(f".{whole.name}.regard")
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    name = blake2b(os.fsencode(whole), digest_size=16).hexdigest()
    yield Path(folder) / "regard" / "vectors" / f"{name}.regard"


def _tidy(place: Path) -> None:
    """Remove what a process that was killed has left half-written, days ago."""
    for old in place.parent.glob(f"{glob.escape(place.name)}.*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > ABANDONED:
                old.unlink()


def _write(file: BinaryIO, path: str, source: dict[str, Any], chunks: Iterable[Chunk]) -> None:
    words: list[str] = []
    width = 0
    file.write(b" " * PAGE)
    for chunk in chunks:
        words += chunk.words
        width = chunk.matrix.shape[1]
        file.write(np.ascontiguousarray(chunk.matrix, "<f4").data)
    text = "\n".join(words).encode()
    file.write(text)
    file.flush()
    matrix = np.memmap(path, "<f4", "r", PAGE, (len(words), width))
    about = {
        "format": FORMAT,
        "source": source,
        "words": len(words),
        "width": width,
        "text": blake2b(text, digest_size=16).hexdigest(),
        "sum": _sum(matrix),
    }
    file.seek(0)
    file.write(json.dumps(about).encode())
    file.flush()
    os.fsync(file.fileno())


def _read(place: Path, source: dict[str, Any]) -> Opened:
    """What a cache holds; ValueError if it is of another file, or damaged."""
    with open(place, "rb") as file:
        about = json.loads(file.read(PAGE))
        if about["format"] != FORMAT or about["source"] != source:
            raise ValueError("of another file")
        words, width = about["words"], about["width"]
        if not all(type(size) is int and 0 <= size < 2**40 for size in (words, width)):
            raise ValueError("damaged header")
        file.seek(PAGE + 4 * words * width)
        text = file.read()
    if blake2b(text, digest_size=16).hexdigest() != about["text"]:
        raise ValueError("damaged words")
    matrix = np.memmap(place, "<f4", "r", PAGE, (words, width))
    if _sum(matrix) != about["sum"]:
        raise ValueError("damaged numbers")
    found = text.decode().split("\n")
    if len(found) != words:
        raise ValueError("damaged words")
    return found, matrix.view(np.ndarray)


def _sum(matrix: NDArray[np.float32]) -> int:
    """The sum of the numbers' bits, of all of them or of pieces spread evenly."""
    bits = matrix.reshape(-1).view("<u4")
    piece = SAMPLE // 4
    step = max(1, -(-matrix.nbytes // CHECKED))
    starts = [*range(0, len(bits), piece * step), max(0, len(bits) - piece)]
    return sum(int(bits[at : at + piece].sum(dtype=np.uint64)) for at in starts)
