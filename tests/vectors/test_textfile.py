"""Word vectors from text files, good ones and bad ones."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import FileError
from regard.vectors import read_words

GLOVE = "the 0.5 -1 2\ncat 1e-3 0.25 -7.5\nsat 1 2 3\n"
CAT = [1e-3, 0.25, -7.5]


def written(folder: Path, content: str | bytes, name: str = "vectors.txt") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def plain(found: dict[str, np.ndarray]) -> dict[str, list[float]]:
    return {word: vector.tolist() for word, vector in found.items()}


# What is read


@pytest.mark.parametrize(
    "content",
    [
        GLOVE,
        f"3 3\n{GLOVE}",
        GLOVE.replace("\n", " \n"),
        GLOVE.replace("\n", "\r\n"),
        GLOVE.rstrip("\n"),
        f"3 3\r\n{GLOVE}".replace("\n", " \n"),
        f"{GLOVE}\n",
        f"\ufeff{GLOVE}",
        f"\ufeff3 3\n{GLOVE}",
    ],
    ids=[
        "glove",
        "word2vec",
        "fasttext",
        "windows",
        "no-last-newline",
        "header-and-spaces",
        "blank-last-line",
        "byte-order-mark",
        "byte-order-mark-and-header",
    ],
)
def test_every_way_of_writing_them(tmp_path: Path, content: str) -> None:
    found = read_words(written(tmp_path, content), ["cat", "the", "dog"])
    assert sorted(found) == ["cat", "the"]
    assert found["the"].tolist() == [0.5, -1.0, 2.0]
    assert found["cat"].tolist() == pytest.approx(CAT, rel=1e-6)
    assert {vector.dtype for vector in found.values()} == {np.dtype(np.float32)}


def test_gzipped(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(f"3 3\n{GLOVE}".encode()), "vectors.txt.gz")
    assert plain(read_words(path, ["sat"])) == {"sat": [1.0, 2.0, 3.0]}
    assert plain(read_words(str(path), ["sat"])) == {"sat": [1.0, 2.0, 3.0]}


def test_words_with_spaces(tmp_path: Path) -> None:
    path = written(tmp_path, "the 1 2 3\n. . . 4 5 6\nNew York 7 8 9\n")
    found = read_words(path, [". . .", "New York", "the", ".", "York"])
    assert plain(found) == {
        "the": [1.0, 2.0, 3.0],
        ". . .": [4.0, 5.0, 6.0],
        "New York": [7.0, 8.0, 9.0],
    }


def test_spaces_that_are_not_the_space_belong_to_the_word(tmp_path: Path) -> None:
    path = written(tmp_path, "a\u00a0b 1 2\nc\u2028d 3 4\ne\x85f 5 6\n")
    found = plain(read_words(path, ["a\u00a0b", "c\u2028d", "e\x85f"]))
    assert list(found.values()) != []
    assert found == {"a\u00a0b": [1.0, 2.0], "c\u2028d": [3.0, 4.0], "e\x85f": [5.0, 6.0]}


def test_a_header_is_told_from_a_vector_of_one_number(tmp_path: Path) -> None:
    assert plain(read_words(written(tmp_path, "a 5\nb 6\n"), ["a", "b"])) == {
        "a": [5.0],
        "b": [6.0],
    }
    assert plain(read_words(written(tmp_path, "2 1\na 5\n2 6\n"), ["a", "2"])) == {
        "a": [5.0],
        "2": [6.0],
    }


def test_lower_case_is_the_way_out(tmp_path: Path) -> None:
    path = written(tmp_path, "the 1\nparis 2\nParis 3\nBerlin 4\n")
    found = read_words(path, ["The", "THE", "the", "Paris", "PARIS", "berlin"])
    assert plain(found) == {
        "The": [1.0],
        "THE": [1.0],
        "the": [1.0],
        "Paris": [3.0],
        "PARIS": [2.0],
    }


def test_the_first_of_two_lines_counts(tmp_path: Path) -> None:
    path = written(tmp_path, "cat 1\ncat 2\nsat 3\n")
    assert plain(read_words(path, ["cat", "sat"])) == {"cat": [1.0], "sat": [3.0]}


def test_reading_stops_when_all_are_found(tmp_path: Path) -> None:
    path = written(tmp_path, "the 1 2\ncat 3 4\nbroken\n")
    assert plain(read_words(path, ["cat", "the"])) == {"the": [1.0, 2.0], "cat": [3.0, 4.0]}
    with pytest.raises(FileError, match="line 3"):
        read_words(path, ["cat", "the", "sat"])


def test_no_words_are_no_vectors(tmp_path: Path) -> None:
    assert read_words(written(tmp_path, GLOVE), []) == {}


words = st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=7).filter(
    lambda word: word.strip() == word and not word.startswith("\ufeff")
)
values = st.lists(
    st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3
)


@settings(max_examples=50, deadline=None)
@given(table=st.dictionaries(words, values, min_size=1, max_size=7), header=st.booleans())
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, table: dict[str, list[float]], header: bool
) -> None:
    lines = [f"{word} {' '.join(map(repr, vector))}" for word, vector in table.items()]
    text = "\n".join([*([f"{len(table)} 3"] if header else []), *lines]) + "\n"
    path = written(tmp_path_factory.mktemp("v"), text)
    assert plain(read_words(path, table)) == table


# What is not


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            "the 1 2 3\ncat 4 5\n",
            "line 2: 2 numbers after the word, expected 3; is it a file of word vectors?",
        ),
        (
            "2 4\nthe 1 2 3\n",
            "line 2: 3 numbers after the word, expected 4; is it a file of word vectors?",
        ),
        (
            "the\t1\t2\n",
            "line 1: 0 numbers after the word, expected 1; is it a file of word vectors?",
        ),
        ("the 1 2\ndog 1 2\ncat 4 five\n", "line 3: 'five' is not a number"),
        ("the 1 2\ndog 1 2\ncat 4 1_0\n", "line 3: '1_0' is not a number"),
        ("the 1 2\ncat 4 nan\n", "line 2: the vector is not finite"),
        ("the 1 2\ncat inf 1\n", "line 2: the vector is not finite"),
        ("the 1 2\ncat 1e39 1\n", "line 2: the vector is not finite"),
        ("", "the file is empty"),
    ],
    ids=["short", "header", "tabs", "text", "underscore", "nan", "inf", "too-large", "empty"],
)
def test_a_bad_file_and_its_line(tmp_path: Path, content: str, text: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(FileError, match=f"^{re.escape(f'{path}: {text}')}$"):
        read_words(path, ["cat"])


def test_a_bad_line_of_a_word_that_nobody_wants_is_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path, "the 1 x\ncat 3 4\n")
    assert plain(read_words(path, ["cat"])) == {"cat": [3.0, 4.0]}


def test_a_line_with_a_number_too_many_is_not_another_word(tmp_path: Path) -> None:
    """``cat 4 5 6 7`` among vectors of 3 is no word "cat 4": the line is named."""
    path = written(tmp_path, "the 1 2 3\ncat 4 5 6 7\nsat 1 2 3\n")
    with pytest.raises(FileError, match="line 2"):
        read_words(path, ["cat"])


LATIN = "the 1 2\ncaf\xe9 3 4\ncat 5 6\n".encode("latin-1")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (LATIN, 2),
        (b"\x80\x81\xff\x00junk", 1),
        (b"3 2\nthe " + bytes(range(128, 144)) + b"\n", 2),
        (b"".join(b"word%d 1 2\n" % i for i in range(5000)) + b"caf\xe9 1 2\n", 5001),
    ],
    ids=["latin-1", "junk", "word2vec-binary", "far-down"],
)
def test_what_is_not_utf_8_and_its_line(tmp_path: Path, content: bytes, line: int) -> None:
    path = written(tmp_path, content)
    with pytest.raises(FileError) as error:
        read_words(path, ["nowhere"])
    assert str(error.value).startswith(f"{path}: line {line}: not UTF-8 text")


def packed() -> bytes:
    return gzip.compress("".join(f"w{i} {i} 2\n" for i in range(500)).encode(), mtime=0)


def damaged() -> bytes:
    content = bytearray(packed())
    content[20] ^= 255
    return bytes(content)


@pytest.mark.parametrize(
    "content",
    [packed()[:400], damaged(), packed()[:-8] + bytes(8)],
    ids=["cut-off", "damaged", "checksum"],
)
def test_a_gzipped_file_that_is_none(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path, content, "vectors.gz")
    with pytest.raises(FileError) as error:
        read_words(path, ["nowhere"])
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_the_name_does_not_decide(tmp_path: Path) -> None:
    assert plain(read_words(written(tmp_path, GLOVE, "vectors.gz"), ["sat"])) == {
        "sat": [1.0, 2.0, 3.0]
    }
    path = written(tmp_path, gzip.compress(GLOVE.encode()), "vectors.txt")
    assert plain(read_words(path, ["sat"])) == {"sat": [1.0, 2.0, 3.0]}


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileError) as error:
        read_words(tmp_path / "none.txt", ["cat"])
    assert str(error.value) == f"{tmp_path / 'none.txt'}: cannot be read: No such file or directory"
    with pytest.raises(FileError) as error:
        read_words(tmp_path, ["cat"])
    assert str(error.value) == f"{tmp_path}: cannot be read: Is a directory"
