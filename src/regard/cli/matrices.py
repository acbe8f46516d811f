"""Matrices from files: x and the weights, as JSON, NumPy's .npz, or x alone as CSV."""

from __future__ import annotations

import contextlib
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.errors import FileError

NAMES = ("x", "w_q", "w_k", "w_v", "w_o")


def read_matrices(path: Path) -> dict[str, Any]:
    """The matrices and words of a file, as arguments of `regard.steps`."""
    readers = {".json": _json, ".npz": _npz, ".csv": _csv}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise FileError(f"{path}: expected a file that ends in {', '.join(readers)}")
    try:
        given = reader(path)
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not UTF-8 text ({error.reason})") from None
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None
    given = {name: values for name, values in given.items() if values is not None}
    unknown = [name for name in given if name not in (*NAMES, "words")]
    if unknown:
        raise FileError(f"{path}: {unknown[0]!r} is unknown, expected {', '.join(NAMES)} or words")
    if "x" not in given:
        raise FileError(f"{path}: x is missing, one vector per word")
    words = given.get("words", [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise FileError(f"{path}: words is not a list of strings")
    for name in NAMES:
        if isinstance(given.get(name), list):
            with contextlib.suppress(ValueError, TypeError, RuntimeError, OverflowError):
                given[name] = torch.tensor(given[name], dtype=torch.float64)
    return given


def _json(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8-sig")
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise FileError(f"{path}: line {error.lineno}: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise FileError(f"{path}: not JSON of matrices: {error}") from None
    if isinstance(given, list):
        return {"x": given}
    if not isinstance(given, dict):
        raise FileError(f"{path}: expected an object with x, w_q, w_k, w_v")
    return given


def _npz(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            if file.read(4)[:2] != b"PK":
                raise FileError(f"{path}: not an .npz file")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                given = {name: archive[name] for name in archive.files}
    except ValueError as error:
        raise FileError(f"{path}: {error}") from None
    except OSError:
        raise
    except Exception as error:  # a damaged zip raises various types
        raise FileError(f"{path}: not an .npz file ({error})") from None
    if "words" in given:
        given["words"] = given["words"].tolist()
    return given


def _csv(path: Path) -> dict[str, Any]:
    rows: list[list[float]] = []
    words: list[str] = []
    with open(path, encoding="utf-8-sig", newline="") as file:
        for number, cells in _rows(path, csv.reader(file)):
            if not any(cell.strip() for cell in cells):
                continue
            labelled = not _is_number(cells[0])
            if rows and labelled != bool(words):
                raise FileError(f"{path}: line {number}: some rows begin with a word, some do not")
            if labelled:
                words.append(cells.pop(0).strip())
            try:
                rows.append([float(cell) for cell in cells])
            except ValueError as error:
                raise FileError(f"{path}: line {number}: {error}") from None
            if not rows[-1]:
                raise FileError(f"{path}: line {number}: no numbers; separate them by commas")
            if len(rows[-1]) != len(rows[0]):
                raise FileError(
                    f"{path}: line {number}: {len(rows[-1])} numbers, but {len(rows[0])} on the "
                    "first line"
                )
    if not rows:
        raise FileError(f"{path}: the file is empty")
    return {"x": rows, "words": words} if words else {"x": rows}


def _rows(path: Path, reader: Any) -> Iterator[tuple[int, list[str]]]:
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise FileError(f"{path}: line {reader.line_num}: {error}") from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
