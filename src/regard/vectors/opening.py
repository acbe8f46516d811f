"""Opening of a file of word vectors, gzipped or not, with errors that name the byte."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase, BufferedReader, RawIOBase
from pathlib import Path
from typing import Any

from regard.errors import FileError

GZIP = b"\x1f\x8b"
BUFFER = 2**20
"""Bytes that are read or decompressed at once."""
MOST = 300
"""Maximum compression ratio; that of numbers is about 3."""


class _Unpacked(RawIOBase):
    """The content of a gzipped file; raises if its compression ratio is implausible."""

    def __init__(self, path: Path, unpacked: gzip.GzipFile, packed: BufferedReader) -> None:
        self._path, self._unpacked, self._packed = path, unpacked, packed
        self._size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._unpacked.readinto(buffer)
        self._size += size
        if self._size > BUFFER + MOST * self._packed.tell():
            raise FileError(
                f"{self._path}: unpacks to more than {MOST} times its size; it is not a file of "
                "word vectors"
            )
        return size


@contextmanager
def opened(path: Path) -> Iterator[BufferedIOBase]:
    """The bytes of a file, decompressed if it is gzipped; errors name the file."""
    try:
        with open(path, "rb") as raw:
            if raw.peek(len(GZIP))[: len(GZIP)] != GZIP:
                yield raw
                return
            try:
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield BufferedReader(_Unpacked(path, unpacked, raw), BUFFER)
            except EOFError:
                raise FileError(
                    f"{path}: byte {raw.tell()}: the gzipped file ends too early; fetch it again"
                ) from None
            except (gzip.BadGzipFile, zlib.error) as error:
                raise FileError(
                    f"{path}: the gzipped file is damaged before byte {raw.tell()} ({error}); "
                    "fetch it again"
                ) from None
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None
