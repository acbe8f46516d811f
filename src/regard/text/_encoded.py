"""Sentence pairs as token ids on disk, and the report of their cleaning."""

from __future__ import annotations

import dataclasses
import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import FileError, OptionError, counted
from regard.files import replacing_folder, why
from regard.text.tokenizer import Tokenizer

CHUNK = 8192
"""Pairs that are encoded at once."""
NAMED = 5
"""Number of too long pairs that the report names."""
SHORT = 10
"""Pairs whose sides have at most this many tokens are never too unequal."""
TOKENS, LENGTHS, REPORT = "tokens.bin", "lengths.npy", "report.json"
FORMAT = 1

Numbers = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Cleaning:
    """Which pairs are left out, besides empty ones.

    ``max_length``: tokens of a side. ``max_ratio``: of the longer side to the shorter, if the
    longer has more than 10 tokens. ``drop_duplicates``: repeated pairs.
    """

    max_length: int = 256
    max_ratio: float = 4.0
    drop_duplicates: bool = True

    def __post_init__(self) -> None:
        if self.max_length < 1:
            raise OptionError(f"Cleaning: max_length={self.max_length}, expected 1 or more")
        if not self.max_ratio >= 1:
            raise OptionError(f"Cleaning: max_ratio={self.max_ratio}, expected 1 or more")


@dataclass(frozen=True)
class Report:
    """Counts of pairs read, kept and left out, and of tokens kept."""

    read: int = 0
    kept: int = 0
    empty: int = 0
    duplicate: int = 0
    unequal: int = 0
    too_long: int = 0
    too_long_lines: tuple[int, ...] = ()
    """Line numbers, from 1, of the first pairs that were too long."""
    longest: int = 0
    """Maximum tokens of a side, over all pairs read."""
    source_tokens: int = 0
    target_tokens: int = 0
    unknown_tokens: int = 0

    def __str__(self) -> str:
        lines = [f"{counted(self.read, 'pair')} read, {self.kept:,} kept"]
        for count, reason in (
            (self.empty, "empty on one side"),
            (self.duplicate, "duplicate"),
            (self.unequal, "lengths too different"),
        ):
            if count:
                lines.append(f"{count:,} left out: {reason}")
        if self.too_long:
            named = ", ".join(f"{line:,}" for line in self.too_long_lines)
            more = ", …" if self.too_long > len(self.too_long_lines) else ""
            lines.append(
                f"{self.too_long:,} left out: too long, up to {self.longest:,} tokens "
                f"({'line' if self.too_long == 1 else 'lines'} {named}{more})"
            )
        sides = (self.source_tokens, "source token"), (self.target_tokens, "target token")
        lines.append(", ".join(counted(*side) for side in sides))
        if self.unknown_tokens:
            are = counted(self.unknown_tokens, "token is", "tokens are")
            lines.append(f"{are} unknown to the tokenizer")
        return "\n".join(lines)


class EncodedPairs:
    """Memory-mapped sentence pairs as token ids; only their lengths are in memory.

    Made by `build`, opened again by `open`. ``pairs[i]`` are the source and target ids of the i-th
    pair, without start and end.
    """

    report: Report
    """The report of the cleaning."""
    fingerprint: str
    """A digest of the ids and the tokenizer."""
    tokenizer: str
    """The fingerprint of the tokenizer."""
    cleaning: Cleaning
    tokens: Numbers
    """The concatenated ids of all pairs: each pair's source, then its target."""
    starts: NDArray[np.int64]
    """The offset in ``tokens`` of each pair."""
    sizes: tuple[int, ...]
    """The number of pairs of each corpus; corpora are concatenated."""
    source_lengths: NDArray[np.int32]
    target_lengths: NDArray[np.int32]

    def __init__(self, folder: str | Path) -> None:
        """The pairs in a folder; the same as `open`."""
        folder = Path(folder)
        about = _about(folder)
        try:
            lengths = np.load(folder / LENGTHS, allow_pickle=False)
            if lengths.ndim != 2 or lengths.shape[1] != 2 or lengths.dtype != np.int32:
                raise ValueError(f"{lengths.dtype} {lengths.shape}")
            ends = lengths.sum(1, dtype=np.int64).cumsum()
            self.tokens = np.memmap(folder / TOKENS, np.dtype(about["dtype"]), "r")
        except (OSError, ValueError, EOFError, TypeError) as error:
            raise _damaged(folder, str(error)) from None
        if not len(ends) or len(self.tokens) != ends[-1]:
            raise _damaged(folder, f"{len(self.tokens)} tokens, expected {ends[-1:].sum()}")
        if (found := _fingerprint(folder, about["tokenizer"])) != about["fingerprint"]:
            raise _damaged(folder, f"fingerprint {found}, expected {about['fingerprint']}")
        self.report = about["report"]
        self.sizes = tuple(about.get("sizes", (len(ends),)))
        if sum(self.sizes) != len(ends):
            raise _damaged(folder, f"{len(ends)} pairs, expected {sum(self.sizes)}")
        self.cleaning = about["cleaning"]
        self.tokenizer = about["tokenizer"]
        self.fingerprint = found
        self.starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        self.source_lengths = np.ascontiguousarray(lengths[:, 0])
        self.target_lengths = np.ascontiguousarray(lengths[:, 1])

    @classmethod
    def build(
        cls,
        pairs: Iterable[tuple[str, str] | None],
        tokenizer: Tokenizer,
        folder: str | Path,
        cleaning: Cleaning | None = None,
        progress: Callable[[int], None] | None = None,
        more: Sequence[Iterable[tuple[str, str] | None]] = (),
    ) -> EncodedPairs:
        """Clean and encode these pairs, and write them to a folder, in chunks.

        None stands for a line to skip, which only counts as a line. ``more`` corpora are appended,
        without pairs that are in an earlier one; `sizes` has the number of pairs of each.

        The folder is written atomically and replaces one of an earlier build. ``progress`` is
        called after every chunk with the number of pairs read.
        """
        folder = Path(folder)
        _check_replaceable(folder)
        writer = _Writer(tokenizer, cleaning or Cleaning())
        try:
            with replacing_folder(folder) as beside:
                writer.write([pairs, *more], beside, progress)
                if not writer.counts["kept"]:
                    raise FileError(f"{folder}: no pairs left: {_in_a_line(writer.report)}")
        except FileError:
            raise
        except OSError as error:
            raise FileError(f"{folder}: cannot be written: {why(error)}") from None
        return cls(folder)

    @classmethod
    def open(cls, folder: str | Path) -> EncodedPairs:
        """The pairs that `build` wrote, verified by their digest."""
        return cls(folder)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, i: int) -> tuple[Numbers, Numbers]:
        if not -len(self) <= i < len(self):
            raise IndexError(f"EncodedPairs: pair {i} asked for, but there are {len(self):,}")
        start, length = self.starts[i], self.source_lengths[i]
        middle, end = start + length, start + length + self.target_lengths[i]
        return np.array(self.tokens[start:middle]), np.array(self.tokens[middle:end])

    def __repr__(self) -> str:
        return f"EncodedPairs({len(self):,} pairs, {len(self.tokens):,} tokens)"


class _Writer:
    """Cleans, encodes and writes pairs."""

    def __init__(self, tokenizer: Tokenizer, cleaning: Cleaning) -> None:
        self.tokenizer = tokenizer
        self.cleaning = cleaning
        self.dtype = np.dtype("<u2" if tokenizer.size <= 2**16 else "<u4")
        self.counts: dict[str, Any] = dataclasses.asdict(Report())
        self.lines = 0
        self.lengths = array("i")
        self.seen = _Seen()

    @property
    def report(self) -> Report:
        return Report(**self.counts)

    def write(
        self,
        corpora: Iterable[Iterable[tuple[str, str] | None]],
        folder: Path,
        progress: Callable[[int], None] | None,
    ) -> None:
        sizes = []
        with open(folder / TOKENS, "wb") as file:
            for corpus in corpora:
                stream, before, self.lines = iter(corpus), self.counts["kept"], 0
                while chunk := list(islice(stream, CHUNK)):
                    self._write_chunk(chunk, file)
                    if progress is not None:
                        progress(self.counts["read"])
                sizes.append(self.counts["kept"] - before)
        lengths = np.frombuffer(self.lengths, np.int32).reshape(-1, 2)
        np.save(folder / LENGTHS, lengths)
        tokenizer = self.tokenizer.fingerprint
        about = {
            "format": FORMAT,
            "dtype": self.dtype.str,
            "tokenizer": tokenizer,
            "fingerprint": _fingerprint(folder, tokenizer),
            "cleaning": dataclasses.asdict(self.cleaning),
            "report": dataclasses.asdict(self.report),
            "sizes": sizes,
        }
        (folder / REPORT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")

    def _write_chunk(self, chunk: list[tuple[str, str] | None], file: IO[bytes]) -> None:
        given = [(line, *pair) for line, pair in enumerate(chunk, self.lines + 1) if pair]
        self.lines += len(chunk)
        self.counts["read"] += len(given)
        fresh = list(self._fresh(given))
        sides = self.tokenizer.encode_batch([text for _, *pair in fresh for text in pair])
        kept: list[int] = []
        for (line, _, _), source, target in zip(fresh, sides[::2], sides[1::2], strict=True):
            if self._keeps(line, source, target):
                kept += source
                kept += target
                self.lengths.extend((len(source), len(target)))
                self.counts["kept"] += 1
                self.counts["source_tokens"] += len(source)
                self.counts["target_tokens"] += len(target)
        numbers = np.array(kept, self.dtype)
        self.counts["unknown_tokens"] += int((numbers == Tokenizer.unknown).sum())
        file.write(numbers.tobytes())

    def _fresh(self, given: list[tuple[int, str, str]]) -> Iterator[tuple[int, str, str]]:
        """The pairs that are not blank on a side and not duplicates, with their line numbers."""
        full = [
            (line, source, target)
            for line, source, target in given
            if source.strip() and target.strip()
        ]
        self.counts["empty"] += len(given) - len(full)
        if not self.cleaning.drop_duplicates:
            yield from full
            return
        new = self.seen.add([_hash(source, target) for _, source, target in full])
        self.counts["duplicate"] += len(full) - int(new.sum())
        yield from (pair for pair, is_new in zip(full, new, strict=True) if is_new)

    def _keeps(self, line: int, source: list[int], target: list[int]) -> bool:
        shorter, longer = sorted((len(source), len(target)))
        self.counts["longest"] = max(self.counts["longest"], longer)
        if not shorter:
            self.counts["empty"] += 1
        elif longer > self.cleaning.max_length:
            self.counts["too_long"] += 1
            if len(self.counts["too_long_lines"]) < NAMED:
                self.counts["too_long_lines"] += (line,)
        elif longer > SHORT and longer > self.cleaning.max_ratio * shorter:
            self.counts["unequal"] += 1
        else:
            return True
        return False


class _Seen:
    """A set of 64-bit hashes, in 8 bytes each.

    Sorted runs, each at least twice as long as the next: few runs to search, and each hash is moved
    O(log n) times.
    """

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []

    def add(self, numbers: list[int]) -> NDArray[np.bool_]:
        """Add the hashes; returns which of them are new."""
        run, at = np.unique(np.array(numbers, np.uint64), return_index=True)
        fresh = np.ones(len(run), np.bool_)
        for old in self._runs:
            places = np.minimum(np.searchsorted(old, run), len(old) - 1)
            fresh &= old[places] != run
        new = np.zeros(len(numbers), np.bool_)
        new[at[fresh]] = True
        if len(run := run[fresh]):
            while self._runs and len(self._runs[-1]) < 2 * len(run):
                run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
            self._runs.append(run)
        return new


def _hash(source: str, target: str) -> int:
    text = f"{source.strip()}\n{target.strip()}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def _fingerprint(folder: Path, tokenizer: str) -> str:
    total = blake2b(tokenizer.encode(), digest_size=16)
    for name in (LENGTHS, TOKENS):
        with open(folder / name, "rb") as file:
            while block := file.read(2**20):
                total.update(block)
    return total.hexdigest()


def _about(folder: Path) -> dict[str, Any]:
    """The content of the report file, with the report and the cleaning as objects."""
    if not folder.is_dir():
        raise FileError(f"{folder}: no such folder of encoded pairs; make it with build")
    try:
        about = json.loads((folder / REPORT).read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise FileError(
                f"{folder}: written in format {about['format']}, expected {FORMAT}; build it again"
            )
        lines = tuple(about["report"]["too_long_lines"])
        about["report"] = Report(**{**about["report"], "too_long_lines": lines})
        about["cleaning"] = Cleaning(**about["cleaning"])
        for name in ("dtype", "tokenizer", "fingerprint"):
            if not isinstance(about[name], str):
                raise TypeError(f"{name} is no text")
    except FileError:
        raise
    except FileNotFoundError:
        raise FileError(f"{folder}: not a folder of encoded pairs: it has no {REPORT}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, f"{REPORT}: {error}") from None
    result: dict[str, Any] = about
    return result


def _damaged(folder: Path, what: str) -> FileError:
    return FileError(f"{folder}: the encoded pairs are damaged ({what}); build them again")


def _in_a_line(report: Report) -> str:
    return "; ".join(str(report).splitlines()[:-1])


def _check_replaceable(folder: Path) -> None:
    """Raise if the folder holds anything but encoded pairs."""
    if folder.exists() and not (folder / REPORT).is_file():
        if not folder.is_dir():
            raise FileError(f"{folder}: a file of this name exists, expected a folder")
        if any(folder.iterdir()):
            raise FileError(f"{folder}: the folder exists and holds other files; name another")
