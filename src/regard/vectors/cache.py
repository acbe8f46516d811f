"""A memory-mapped cache of word vectors, so that a large file is parsed only once.

The cache is one file: a JSON header padded to a page, the matrix as little-endian float32, which is
memory-mapped, and the words, one a line. It lies beside the file of vectors, or in the user's cache
folder if that is not writable. It is replaced atomically, so that other processes may read and
write it at the same time, and is used only for the file with the fingerprint in its header.
"""

from __future__ import annotations

import glob
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import FileError
from regard.files import replacing
from regard.vectors.chunk import Chunk

FORMAT = 1
PAGE = 4096
"""Bytes of the header; the matrix begins on a page."""
SMALL = 2**20
"""Smaller files, in bytes, get no cache: they are parsed as fast."""
SAMPLE = 2**16
"""Bytes of one sample of a file."""
SAMPLES = 16
"""Samples, evenly spaced, that the fingerprint of a file covers."""
ABANDONED = 2 * 24 * 3600
"""Seconds after which a temporary file counts as left by a killed process."""
CHECKED = 2**27
"""Bytes of the matrix that the checksum covers, in evenly spaced pieces; all of a smaller one."""

Opened = tuple[list[str], NDArray[np.float32]]


def fingerprint(path: Path) -> dict[str, Any] | None:
    """The size, modification time and sampled digest of a file; None if it gets no cache.

    The digest covers samples only: a gigabyte is not read to open its cache.
    """
    try:
        about = os.stat(path)
        if not path.is_file() or about.st_size < SMALL:
            return None
        digest = blake2b(digest_size=16)
        with open(path, "rb") as file:
            for i in range(SAMPLES):
                file.seek(max(0, about.st_size - SAMPLE) * i // (SAMPLES - 1))
                digest.update(file.read(SAMPLE))
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None
    return {"size": about.st_size, "time": about.st_mtime_ns, "digest": digest.hexdigest()}


def open_cache(path: Path, source: dict[str, Any]) -> Opened | None:
    """The cached words and matrix of a file with this fingerprint; None without a valid cache."""
    for place in _places(path):
        with suppress(OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return _read(place, source)
    return None


def write_cache(path: Path, source: dict[str, Any], chunks: Iterable[Chunk]) -> Opened | None:
    """The words and matrix of the chunks, from a new cache; None if no cache can be written.

    Some chunks may have been consumed then. An error in a chunk leaves nothing behind.
    """
    for place in _places(path):
        started = False
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            _tidy(place)
            with replacing(place) as temporary:
                started = True
                _write(temporary, source, chunks)
            return _read(place, source)
        except FileError:
            raise
        except (OSError, ValueError):
            if started:
                return None
    return None


def _places(path: Path) -> Iterator[Path]:
    """Paths where the cache of a file may be, in order of preference."""
    whole = path.absolute()
    yield whole.with_name(f".{whole.name}.regard")
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    name = blake2b(os.fsencode(whole), digest_size=16).hexdigest()
    yield Path(folder) / "regard" / "vectors" / f"{name}.regard"


def _tidy(place: Path) -> None:
    """Remove old temporary files of killed processes."""
    for old in place.parent.glob(f".{glob.escape(place.name)}.*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > ABANDONED:
                old.unlink()


def _write(path: Path, source: dict[str, Any], chunks: Iterable[Chunk]) -> None:
    words: list[str] = []
    width = 0
    with path.open("wb") as file:
        file.write(b" " * PAGE)
        for chunk in chunks:
            words += chunk.words
            width = chunk.matrix.shape[1]
            file.write(np.ascontiguousarray(chunk.matrix, "<f4").data)
        text = "\n".join(words).encode()
        file.write(text)
    matrix = np.memmap(path, "<f4", "r", PAGE, (len(words), width))
    about = {
        "format": FORMAT,
        "source": source,
        "words": len(words),
        "width": width,
        "text": blake2b(text, digest_size=16).hexdigest(),
        "sum": _sum(matrix),
    }
    with path.open("rb+") as file:
        file.write(json.dumps(about).encode())


def _read(place: Path, source: dict[str, Any]) -> Opened:
    """The content of a cache; ValueError if it is of another file, or damaged."""
    with open(place, "rb") as file:
        about = json.loads(file.read(PAGE))
        if about["format"] != FORMAT or about["source"] != source:
            raise ValueError("of another file")
        words, width = about["words"], about["width"]
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
    """A checksum of the matrix, or of evenly spaced pieces of a large one: the sum of its bits."""
    bits = matrix.reshape(-1).view("<u4")
    piece = SAMPLE // 4
    step = max(1, -(-matrix.nbytes // CHECKED))
    starts = [*range(0, len(bits), piece * step), max(0, len(bits) - piece)]
    return sum(int(bits[at : at + piece].sum(dtype=np.uint64)) for at in starts)
