"""Opening a file of word vectors: unpacked if it is gzipped, with errors that name the byte."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

from regard.errors import FileError

GZIP = b"\x1f\x8b"


@contextmanager
def opened(path: Path) -> Iterator[BufferedIOBase]:
    """The bytes of a file, unpacked if they begin as gzip's do.

    What goes wrong while they are read is an error that names the file.
    """
    at = 0
    try:
        with open(path, "rb") as raw:
            if raw.peek(len(GZIP))[: len(GZIP)] != GZIP:
                yield raw
                return
            try:
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield unpacked
            except (EOFError, zlib.error, gzip.BadGzipFile):
                at = raw.tell()
                raise
    except FileError:
        raise
    except EOFError:
        raise FileError(
            f"{path}: byte {at}: the gzipped file ends too early; fetch it again"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise FileError(
            f"{path}: the gzipped file is damaged before byte {at} ({error}); fetch it again"
        ) from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None
