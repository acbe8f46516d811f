"""The memory-mapped cache: used when it is right, made anew when it is not, never half there."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from regard import files
from regard.errors import FileError
from regard.vectors import Vectors, cache

COUNT, WIDTH = 4001, 53
NAME = ".v.txt.regard"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def path(tmp_path: Path, home: Path) -> Path:
    """A file of vectors that is large enough to have a cache."""
    path = tmp_path / "data" / "v.txt"
    path.parent.mkdir()
    return written(path)


@functools.cache
def text(seed: int) -> str:
    rows = numbers(seed)
    return "".join(f"w{i} {' '.join(row.astype(str))}\n" for i, row in enumerate(rows))


def written(path: Path, seed: int = 0) -> Path:
    path.write_text(text(seed))
    assert path.stat().st_size > cache.SMALL
    return path


def numbers(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-999, 999, (COUNT, WIDTH)).astype(np.float32)


def is_mapped(v: Vectors) -> bool:
    return isinstance(v.matrix.base, np.memmap)


def times_read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A list that grows by one whenever a file is read as text or binary."""
    from regard.vectors import vectors

    read: list[Path] = []
    real = vectors.read_chunks

    def counted(path: Path) -> object:
        read.append(path)
        return real(path)

    monkeypatch.setattr(vectors, "read_chunks", counted)
    return read


def test_read_once_then_mapped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = times_read(monkeypatch)
    first, second = Vectors.load(path), Vectors.load(str(path))
    assert len(read) == 1
    for v in (first, second):
        assert is_mapped(v)
        assert v.words == [f"w{i}" for i in range(COUNT)]
        assert np.array_equal(v.matrix, numbers())
        assert np.array_equal(v["w77"], numbers()[77])
    assert sorted(one.name for one in path.parent.iterdir()) == [NAME, "v.txt"]
    assert oct((path.parent / NAME).stat().st_mode) == oct(path.stat().st_mode)


def test_what_is_mapped_cannot_be_written_to(path: Path) -> None:
    for _ in range(2):
        v = Vectors.load(path)
        with pytest.raises(ValueError, match="read-only"):
            v.matrix[0, 0] = 1
        one = v["w0"]
        one += 1  # a copy of one's own
        assert np.array_equal(v["w0"], numbers()[0])


def test_words_of_every_script_and_with_spaces(path: Path) -> None:
    lines = path.read_text().splitlines()
    words = ["naïve", "東京", ". . .", "New York", "\x85", "\u2028x", "a\u00a0b"]
    for i, word in enumerate(words):
        lines[i] = f"{word} {lines[i].partition(' ')[2]}"
    path.write_text("\n".join(lines), encoding="utf-8")
    for _ in range(2):
        v = Vectors.load(path)
        assert v.words[: len(words)] == words
        assert np.array_equal(v["New York"], numbers()[3])


def test_a_changed_file_is_read_again(path: Path) -> None:
    """Of the same size and even of the same time, but with other content."""
    Vectors.load(path)
    about = path.stat()
    content = path.read_text()
    path.write_text(content.replace("w0 ", "x0 ", 1))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert path.stat().st_size == about.st_size
    assert Vectors.load(path).words[0] == "x0"
    os.utime(path, ns=(1, 1))
    assert Vectors.load(path).words[0] == "x0"
    path.write_text("\n".join(content.splitlines()[: COUNT - 9]))
    assert len(Vectors.load(path)) == COUNT - 9


def damaged(path: Path, how: str) -> None:
    place = path.parent / NAME
    content = bytearray(place.read_bytes())
    end = cache.PAGE + 4 * COUNT * WIDTH
    if how == "empty":
        content = bytearray()
    elif how == "cut off":
        del content[-1000:]
    elif how == "longer":
        content += b"x"
    elif how == "no header":
        content[: cache.PAGE] = bytes(cache.PAGE)
    elif how == "other header":
        content[: cache.PAGE] = b"[]".ljust(cache.PAGE)
    elif how == "format":
        content[: cache.PAGE] = content[: cache.PAGE].replace(b'"format": 1', b'"format": 0')
    elif how in ("-4001", "Infinity", "1e999", "true", "9" * 99):
        old, new = f'"words": {COUNT}'.encode(), f'"words": {how}'.encode()
        content[: cache.PAGE] = content[: cache.PAGE].replace(old, new)[: cache.PAGE]
    elif how == "nested":
        content[: cache.PAGE] = b"[" * cache.PAGE
    else:
        content[{"numbers": end // 2, "last number": end - 1, "words": end + 9}[how]] ^= 1
    place.write_bytes(content)


@pytest.mark.parametrize(
    "how",
    ["empty", "cut off", "longer", "no header", "other header", "format", "-4001", "Infinity",
     "1e999", "true", "9" * 99, "nested", "numbers", "last number", "words"],
)  # fmt: skip
def test_a_damaged_cache_is_made_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    Vectors.load(path)
    good = (path.parent / NAME).read_bytes()
    damaged(path, how)
    read = times_read(monkeypatch)
    v = Vectors.load(path)
    assert len(read) == 1
    assert v.words == [f"w{i}" for i in range(COUNT)]
    assert np.array_equal(v.matrix, numbers())
    assert (path.parent / NAME).read_bytes() == good
    Vectors.load(path)
    assert len(read) == 1


def test_numbers_beyond_the_limit_are_checked_here_and_there(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "CHECKED", 2**17)
    v = Vectors.load(path)
    step = -(-v.matrix.nbytes // 2**17)
    place = path.parent / NAME
    content = bytearray(place.read_bytes())
    content[cache.PAGE + cache.SAMPLE * step + 5] ^= 1
    place.write_bytes(content)
    read = times_read(monkeypatch)
    assert np.array_equal(Vectors.load(path).matrix, numbers())
    assert len(read) == 1


@pytest.mark.skipif(os.name != "posix", reason="folders are made read-only the POSIX way")
def test_a_folder_that_may_not_be_written_to(
    path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the cache is in the user's folder; and where that is none, in memory."""
    real = files.tempfile.mkstemp

    def refusing(**where: object) -> tuple[int, str]:  # root may write anywhere
        if where["dir"] == path.parent:
            raise PermissionError(13, "Permission denied")
        return real(**where)

    monkeypatch.setattr(files.tempfile, "mkstemp", refusing)
    read = times_read(monkeypatch)
    for _ in range(2):
        v = Vectors.load(path)
        assert is_mapped(v)
        assert np.array_equal(v.matrix, numbers())
    assert len(read) == 1
    assert [one.name for one in path.parent.iterdir()] == ["v.txt"]
    assert len(list((home / "regard" / "vectors").iterdir())) == 1
    shutil.rmtree(home)
    home.write_text("not a folder")
    v = Vectors.load(path)
    assert not is_mapped(v)
    assert np.array_equal(v.matrix, numbers())


def test_a_full_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    v = Vectors.load(path)
    assert not is_mapped(v)
    assert np.array_equal(v.matrix, numbers())
    assert [one.name for one in path.parent.iterdir()] == ["v.txt"]


def test_a_bad_file_leaves_nothing_behind(path: Path) -> None:
    Vectors.load(path)
    good = (path.parent / NAME).read_bytes()
    with path.open("a") as file:
        file.write("w5 1 2 3\n")
    with pytest.raises(FileError, match=f"line {COUNT + 1}: 3 numbers after the word"):
        Vectors.load(path)
    assert sorted(one.name for one in path.parent.iterdir()) == [NAME, "v.txt"]
    assert (path.parent / NAME).read_bytes() == good


def test_what_a_killed_process_left_is_removed(path: Path) -> None:
    old, new = path.with_name(f".{NAME}.old"), path.with_name(f".{NAME}.new")
    for one in (old, new):
        one.write_bytes(b"half")
    os.utime(old, (1e9, 1e9))
    Vectors.load(path)
    assert sorted(one.name for one in path.parent.iterdir()) == [f".{NAME}.new", NAME, "v.txt"]


def test_a_file_that_changes_while_it_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.vectors import vectors

    real = vectors.read_chunks

    def changing(one: Path) -> object:
        yield from real(one)
        with path.open("a") as file:
            file.write("late " + "1 " * WIDTH + "\n")

    monkeypatch.setattr(vectors, "read_chunks", changing)
    with pytest.raises(FileError, match=r"v.txt: the file was changed while it was read; load it"):
        Vectors.load(path)
    monkeypatch.setattr(vectors, "read_chunks", real)
    assert len(Vectors.load(path)) == COUNT + 1


def test_small_files_and_unwanted_caches(path: Path) -> None:
    assert not is_mapped(Vectors.load(path, cache=False))
    small = path.with_name("small.txt")
    small.write_text("the 1 2\n")
    assert Vectors.load(small)["the"].tolist() == [1, 2]
    assert sorted(one.name for one in path.parent.iterdir()) == ["small.txt", "v.txt"]


def test_several_processes_at_once(path: Path) -> None:
    code = (
        "import sys; from regard.vectors import Vectors\n"
        "for _ in range(3): v = Vectors.load(sys.argv[1])\n"
        "print(len(v), int(v.matrix.sum()))"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = {process.communicate()[0] for process in started}
    assert said == {f"{COUNT} {int(numbers().sum())}\n"}
    assert sorted(one.name for one in path.parent.iterdir()) == [NAME, "v.txt"]


def test_a_cache_goes_on_while_it_is_replaced(path: Path) -> None:
    """Whoever has the old one open keeps it."""
    old = Vectors.load(path)
    written(path, seed=1)
    new = Vectors.load(path)
    assert np.array_equal(old.matrix, numbers())
    assert np.array_equal(new.matrix, numbers(1))
