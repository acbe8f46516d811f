"""A file of finished items, one JSON line each, from which an interrupted run resumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

from regard.errors import FileError
from regard.files import why


class RecordFile:
    """The items that a run has finished; a line that was half written is computed again.

    The first line describes the run. A file of another run is an error.
    """

    def __init__(self, path: Path, run: dict[str, Any]) -> None:
        self._path = path
        self.records: list[dict[str, Any]] = []
        head = json.dumps(run, ensure_ascii=False)
        try:
            old = path.read_bytes() if path.exists() else b""
            lines = old.split(b"\n")[:-1]
            if lines:
                self._check(lines, head)
            self._file: IO[bytes] = path.open("r+b" if old else "wb")
            kept = sum(len(line) + 1 for line in lines)
            self._file.truncate(kept)
            self._file.seek(kept)
            if not lines:
                self._write(head)
        except FileError:
            raise
        except OSError as error:
            raise FileError(f"judge: cannot write {path}: {why(error)}") from None

    def _check(self, lines: list[bytes], head: str) -> None:
        for number, line in enumerate(lines, 1):
            try:
                data = json.loads(line)
            except ValueError:
                raise FileError(
                    f"{self._path}, line {number}: not JSON; remove the file to judge anew"
                ) from None
            if number > 1:
                self.records.append(data)
            elif data != json.loads(head):
                raise FileError(
                    f"{self._path}: belongs to a run with another model, other data or methods; "
                    "remove it, or choose another --out"
                )

    def add(self, record: dict[str, Any]) -> None:
        """Append one finished item, flushed to the file."""
        self.records.append(record)
        self._write(json.dumps(record, ensure_ascii=False))

    def _write(self, line: str) -> None:
        try:
            self._file.write(line.encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise FileError(f"judge: cannot write {self._path}: {why(error)}") from None

    def __enter__(self) -> RecordFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
