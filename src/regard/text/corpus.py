"""Sentence pairs: read from files line by line, cleaned, and stored as token ids.

No corpus is held in memory: files are streamed, and `EncodedPairs` is memory-mapped.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from regard.errors import FileError, OptionError, counted
from regard.text._encoded import Cleaning, EncodedPairs, Report

__all__ = ["Cleaning", "EncodedPairs", "Report", "is_tsv", "read_lines", "read_pairs"]


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 text file, plain or ``.gz``, without line ends.

    Lines end with LF or CRLF only: a sentence may contain other line separators of Unicode.
    """
    path = Path(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                yield _text(path, number, line.removesuffix(b"\n").removesuffix(b"\r"))
    except FileError:
        raise
    except EOFError:
        raise FileError(f"{path}: the compressed file ends too early; fetch it again") from None
    except (OSError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(f"{path}: cannot be read: {reason}") from None


def read_pairs(
    source: str | Path, target: str | Path | None = None, *, context: bool = False
) -> Iterator[tuple[str, str]]:
    """Pairs of sentences: line by line of two files, or the first two columns of one TSV file.

    The name of a TSV file ends in ``.tsv`` or ``.tsv.gz``. Blank lines are pairs too, so that the
    n-th pair is always the n-th line. With ``context``, columns 3 and 4 of a TSV file, which may be
    missing, are the sentences before source and target, and are put before them with a space.
    """
    if target is not None:
        for path in filter(is_tsv, (source, target)):
            raise OptionError(
                f"read_pairs: {path} and another file, but a .tsv file holds both sides; give it "
                "alone"
            )
        return _side_by_side(Path(source), Path(target))
    if is_tsv(source):
        return _columns(Path(source), context)
    raise OptionError(
        f"read_pairs: {source} alone, expected a second file with the translations, or one file "
        "of two columns whose name ends in .tsv or .tsv.gz"
    )


def is_tsv(path: str | Path) -> bool:
    """Whether the name of a file is that of a TSV file."""
    return Path(path).name.removesuffix(".gz").endswith(".tsv")


def _side_by_side(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    lines = zip_longest(read_lines(source), read_lines(target))
    for number, (one, other) in enumerate(lines):
        if one is None or other is None:
            most = number + 1 + sum(1 for _ in lines)
            counts = (number, most) if one is None else (most, number)
            raise FileError(
                f"{source} has {counted(counts[0], 'line')} but {target} has {counts[1]:,}; line n "
                "of one must be the translation of line n of the other"
            )
        yield one, other


def _columns(path: Path, context: bool) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), 1):
        columns = line.split("\t")
        if len(columns) == 1 and line.strip():
            raise FileError(
                f"{path}, line {number}: no tab, expected a sentence, a tab and its translation"
            )
        pair = columns[0], columns[1] if len(columns) > 1 else ""
        if context:
            before = (*columns[2:4], "", "")
            pair = f"{before[0]} {pair[0]}".strip(), f"{before[1]} {pair[1]}".strip()
        yield pair


def _text(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        # The decoder that drops a byte order mark counts without it.
        wrong = error.object[error.start]
        raise FileError(
            f"{path}, line {number}: byte 0x{wrong:02x} is not UTF-8 ({error.reason}); "
            "convert the file to UTF-8"
        ) from None
