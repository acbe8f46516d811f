"""Lines of a file or of standard input, in chunks that never wait for more input."""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from regard.errors import FileError

SIZES = (16, 256, 4096)
"""Maximum lines of the first, the second and all later chunks: a quick start, then speed."""
PAUSE = 0.05
"""Seconds without input after which a chunk ends early."""
LONGEST = 100_000
"""Maximum characters of a line; a longer one is probably a file without line ends."""
STDIN = "standard input"


def lines(path: Path | None) -> Iterator[str]:
    """The lines of a file, or of standard input, without their line ends."""
    return chain.from_iterable(line_chunks(path))


def line_chunks(path: Path | None) -> Iterator[list[str]]:
    """The lines of a file, or of standard input, in chunks, without their line ends.

    A chunk ends early when input pauses, so that a program at the other end of a pipe gets its
    answer to one line before it writes the next; and before an error, so that the lines before an
    unreadable one are still answered.
    """
    chunk: list[str] = []
    chunks = 0
    try:
        for line in _standard_input() if path is None else _file(path):
            if line is not None:
                chunk.append(line)
            if chunk and (line is None or len(chunk) == SIZES[min(chunks, len(SIZES) - 1)]):
                yield chunk
                chunk, chunks = [], chunks + 1
    except FileError:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def _file(path: Path) -> Iterator[str]:
    from regard.text import read_lines

    for number, line in enumerate(read_lines(path), 1):
        if len(line) > LONGEST:
            raise _too_long(str(path), number)
        yield line


def _standard_input() -> Iterator[str | None]:
    """The lines of standard input; None at a pause."""
    number = 0
    for line in _pieces():
        if line is None:
            yield None
            continue
        number += 1
        text = _text(number, line)
        if len(text) > LONGEST:
            raise _too_long(STDIN, number)
        yield text


def _pieces() -> Iterator[bytes | None]:
    """The lines of standard input as bytes; None at a pause.

    Of an endless line, only enough to see that it is too long.
    """
    if sys.stdin is None:  # closed by the parent process
        return
    try:
        source = sys.stdin.fileno()
    except io.UnsupportedOperation:  # replaced by an object that is no file
        yield from sys.stdin.buffer
        return
    rest, waits = b"", os.name == "posix"  # elsewhere only sockets can be waited for
    while len(rest) <= 4 * LONGEST + 4:  # at most 4 bytes a character
        if waits and not select.select([source], [], [], PAUSE)[0]:
            yield None
            select.select([source], [], [])
        read = os.read(source, 1 << 16)
        if not read:
            break
        *whole, rest = (rest + read).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _too_long(where: str, number: int) -> FileError:
    return FileError(
        f"{where}, line {number}: more than {LONGEST:,} characters; break it into lines, one "
        "sentence or paragraph each"
    )


def _text(number: int, line: bytes) -> str:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data" and len(line) > 4 * LONGEST:
            raise _too_long(STDIN, number) from None
        wrong = error.object[error.start]
        raise FileError(
            f"{STDIN}, line {number}: byte 0x{wrong:02x} is not UTF-8 ({error.reason}); "
            "convert it to UTF-8"
        ) from None
    return text.removesuffix("\n").removesuffix("\r")
