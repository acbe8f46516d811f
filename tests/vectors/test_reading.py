"""Files of word vectors: every form is recognised, and what is bad is named, with line or byte."""

from __future__ import annotations

import gzip
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import FileError
from regard.vectors import Vectors, binaryfile, chunk, read_words, reading, textfile

GLOVE = "the 0.5 -1 2\ncat 1e-3 0.25 -7.5\nsat 1 2 3\n"
WORDS = ["the", "cat", "sat"]
ROWS = [[0.5, -1.0, 2.0], [np.float32(1e-3), 0.25, -7.5], [1.0, 2.0, 3.0]]


def packed(words: list[str], rows: list[list[float]], end: bytes = b"\n") -> bytes:
    """As word2vec's C program writes them."""
    body = [
        word.encode() + b" " + struct.pack(f"<{len(row)}f", *row) + end
        for word, row in zip(words, rows, strict=True)
    ]
    return f"{len(words)} {len(rows[0])}\n".encode() + b"".join(body)


BINARY = packed(WORDS, ROWS)


def load(folder: Path, content: str | bytes, name: str = "vectors.any") -> Vectors:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Vectors.load(path)


# What is read


@pytest.mark.parametrize(
    "content",
    [
        GLOVE,
        f"3 3\n{GLOVE}",
        GLOVE.replace("\n", " \n"),
        GLOVE.replace("\n", "\r\n"),
        f"3 3\r\n{GLOVE}".replace("\n", " \n"),
        GLOVE.rstrip("\n"),
        f"{GLOVE}\n\n",
        GLOVE.replace("\n", "\n\n"),
        f"\ufeff{GLOVE}",
        f"\ufeff3 3\n{GLOVE}",
        BINARY,
        packed(WORDS, ROWS, b""),
        BINARY.rstrip(b"\n"),
    ],
    ids=[
        "glove",
        "word2vec",
        "fasttext",
        "windows",
        "header-and-spaces",
        "no-last-newline",
        "blank-last-lines",
        "blank-lines",
        "byte-order-mark",
        "byte-order-mark-and-header",
        "binary",
        "binary-without-newlines",
        "binary-without-last",
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_every_form_is_recognised(
    tmp_path: Path, content: str | bytes, pack: Callable[[bytes], bytes]
) -> None:
    data = content.encode() if isinstance(content, str) else content
    v = load(tmp_path, pack(data))
    assert v.words == WORDS
    assert v.matrix.tolist() == ROWS
    assert v.matrix.dtype == np.float32


@pytest.mark.parametrize("block", [1, 7, 64])
@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_blocks_make_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, binary: bool
) -> None:
    """Words and numbers go over the edges of what is read at once."""
    monkeypatch.setattr(reading, "HEAD", 64 + block)
    monkeypatch.setattr(chunk, "ROWS", block)
    monkeypatch.setattr(binaryfile, "BLOCK", block)
    words = [f"wörd{i}" for i in range(40)]
    rows = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    text = "\n".join(f"{w} {' '.join(r.astype(str))}" for w, r in zip(words, rows, strict=True))
    v = load(tmp_path, packed(words, rows.tolist()) if binary else text)
    assert v.words == words
    assert np.array_equal(v.matrix, rows)


def test_words_with_spaces(tmp_path: Path) -> None:
    v = load(tmp_path, "the 1 2 3\n. . . 4 5 6\nNew York 7 8 9\nat name@domain.com 1 1 1\n")
    assert v.words == ["the", ". . .", "New York", "at name@domain.com"]
    assert v.matrix.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 1, 1]]


def test_the_first_word_may_have_spaces_or_be_a_number(tmp_path: Path) -> None:
    assert load(tmp_path, "New York 7 8 9\nthe 1 2 3\n").words == ["New York", "the"]
    assert load(tmp_path, "7 7 8 9\nthe 1 2 3\n").words == ["7", "the"]
    assert load(tmp_path, "the 1 2 3\n2019 1 2 3\n1e5 1 2 3\n").words == ["the", "2019", "1e5"]


def test_spaces_that_are_not_the_space_belong_to_the_word(tmp_path: Path) -> None:
    v = load(tmp_path, "a\u00a0b 1 2\nc\u2028d 3 4\ne\x85f 5 6\n\x85 7 8\n")
    assert v.words == ["a\u00a0b", "c\u2028d", "e\x85f", "\x85"]


def test_a_header_is_told_from_a_vector_of_one_number(tmp_path: Path) -> None:
    assert load(tmp_path, "a 5\nb 6\n").words == ["a", "b"]
    assert load(tmp_path, "2 1\na 5\n2 6\n").words == ["a", "2"]


def test_raw_numbers_that_look_like_text(tmp_path: Path) -> None:
    """No control character, and a line feed among the numbers."""
    letters = [struct.unpack("<f", four)[0] for four in (b"abcd", b"e\nfg", b"\xe4hij")]
    v = load(tmp_path, packed(["x", "y", "z"], [[one] for one in letters]))
    assert v.words == ["x", "y", "z"]
    assert v.matrix[:, 0].tolist() == letters


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_as_gensim_reads_and_writes(tmp_path: Path, binary: bool) -> None:
    theirs = KeyedVectors(7)
    words = [f"w{i}" for i in range(50)]
    theirs.add_vectors(words, np.random.default_rng(1).normal(size=(50, 7)).astype(np.float32))
    path = tmp_path / "theirs"
    theirs.save_word2vec_format(str(path), binary=binary)
    ours = Vectors.load(path)
    assert ours.words == words
    assert np.array_equal(ours.matrix, theirs.vectors)


@settings(max_examples=60, deadline=None)
@given(
    table=st.dictionaries(
        st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=7).filter(
            lambda word: not word.startswith("\ufeff")
        ),
        st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3,
                 max_size=3),
        min_size=1, max_size=7,
    ),
    header=st.booleans(),
)  # fmt: skip
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, table: dict[str, list[float]], header: bool
) -> None:
    lines = [f"{word} {' '.join(map(repr, vector))}" for word, vector in table.items()]
    text = "\n".join([*([f"{len(table)} 3"] if header else []), *lines]) + "\n"
    v = load(tmp_path_factory.mktemp("v"), text)
    assert dict(zip(v.words, v.matrix.tolist(), strict=True)) == table


# What is not


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        ("0 3\n", "the file is empty"),
        (
            "the 1 2 3\ncat 4 5\n",
            "line 2: 2 numbers after the word, expected 3; is it a file of word vectors?",
        ),
        ("the 1 2 3\ncat 4 5 6 7\n", "line 2: more than 3 numbers after the word"),
        (
            "2 4\nthe 1 2 3\ncat 1 2 3\n",
            "line 2: 3 numbers after the word, expected 4; is it a file of word vectors?",
        ),
        (
            "the\t1\t2\n",
            "line 1: 0 numbers after the word, expected 1; is it a file of word vectors?",
        ),
        ("the 1 2\ndog 1 2\ncat 4 five\n", "line 3: 'five' is not a number"),
        ("the 1 x 3\ndog 1 2 3\ncat 1 2 3\n", "line 1: 'x' is not a number"),
        ("the 1 2\ndog 1  2\n", "line 2: '' is not a number"),
        ("the 1\ndog \t\n", "line 2: '\\t' is not a number"),
        ("the 1 2\ndog 1\t2 3\n", "line 2: '1\\t2' is not a number"),
        ("the 1 2\nNew York 1\n", "line 2: 'York' is not a number"),
        ("the 1 2\n\ncat 4 nan\n", "line 3: the vector of 'cat' has nan, expected finite numbers"),
        ("the 1 2\ncat -inf 1\n", "line 2: the vector of 'cat' has -inf, expected finite numbers"),
        ("the 1 2\ncat 1e39 1\n", "line 2: the vector of 'cat' has inf, expected finite numbers"),
        (
            "2 2\nthe 1 2\n\nthe 3 4\n",
            "line 4: 'the' is repeated: it already has a vector on line 2; remove one of them",
        ),
        (
            "3 2\nthe 1 2\ncat 3 4\n",
            "line 1 counts 3 words, but 2 follow; the file is cut off, or the count is wrong",
        ),
        (
            "1 2\nthe 1 2\ncat 3 4\n",
            "line 1 counts 1 words, but 2 follow; the file is cut off, or the count is wrong",
        ),
        ("3 0\nthe\n", "line 1 gives a width of 0, expected 1 or more"),
        ("the 1 2\ncaf\xe9s 3 4\n".encode("latin-1"),
         "line 2: not UTF-8 text (invalid continuation byte)"),
        ("2 2\ncaf\xe9s 3 4\n".encode("latin-1"),
         "line 2: not UTF-8 text (invalid continuation byte)"),
        (BINARY[:-20],
         "byte 35: the file ends within the vector of 'cat', word 2 of 3: 10 of 12 bytes; "
         "fetch it again"),
        (BINARY[:-17], "byte 38: the file ends after 2 of the 3 words that line 1 counts; "
                       "fetch it again"),
        (BINARY[:21], "byte 21: the file ends after 1 of the 3 words that line 1 counts; "
                      "fetch it again"),
        (BINARY + b"x", "byte 55: the file continues after the 3 words that line 1 counts; "
                        "the count is wrong"),
        (packed(["a", "b", "a"], ROWS),
         "byte 34: 'a' is repeated: it already has a vector on byte 4; remove one of them"),
        (packed(["a", "b"], [[1.0, 2.0], [float("nan"), 1.0]]),
         "byte 15: the vector of 'b' has nan, expected finite numbers"),
        (packed(["a", "b"], [[1.0, 2.0], [3.0, 1.0]]).replace(b"b ", b"\xff "),
         "byte 15: the word is not UTF-8 text (invalid start byte)"),
        (b"1 1\n" + b"\0" * 20_000, "byte 4: word 1 has no end"),
        (b"\xba\x16\x4f\x2f" + bytes(50),
         "not a file of word vectors, but a fastText model; write its vectors as a .vec file"),
        (b"\x80\x04" + bytes(50),
         "not a file of word vectors, but a Python pickle, which may run any code; use gensim's "
         "save_word2vec_format"),
    ],
)  # fmt: skip
def test_bad_files_are_named(tmp_path: Path, content: str | bytes, text: str) -> None:
    path = tmp_path / "vectors.any"
    with pytest.raises(FileError, match=f"^{re.escape(f'{path}: {text}')}$"):
        load(tmp_path, content)
    assert [one.name for one in tmp_path.iterdir()] == ["vectors.any"]


def test_a_bad_line_far_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "HEAD", 100)
    monkeypatch.setattr(chunk, "ROWS", 10)
    lines = [f"w{i} {i} 2" for i in range(5000)]
    for number, bad, text in (
        (2, "x 1", "1 numbers after"),
        (777, "y 1 z", "'z' is not a number"),
        (5000, "w3 1 2", "'w3' is repeated: it already has a vector on line 4"),
        (3000, "w998 1 2", "'w998' is repeated: it already has a vector on line 999"),
    ):
        changed = [*lines]
        changed[number - 1] = bad
        with pytest.raises(FileError, match=f": line {number}: {text}"):
            load(tmp_path, "\n".join(changed))


def test_a_bad_byte_far_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "HEAD", 100)
    monkeypatch.setattr(binaryfile, "BLOCK", 1000)
    words = [f"w{i:03}" for i in range(900)]
    words[700] = words[300]  # a word takes four bytes, a space, four for its number and a line feed
    with pytest.raises(FileError) as error:
        load(tmp_path, packed(words, [[float(i)] for i in range(900)]))
    assert str(error.value).endswith(
        "byte 7006: 'w300' is repeated: it already has a vector on byte 3006; remove one of them"
    )


def test_errors_that_would_cancel_out(tmp_path: Path) -> None:
    """A number too many on one line, one too few on the next, in white space that numpy skips."""
    with pytest.raises(FileError, match=r": line 1: '1\\t2' is not a number"):
        load(tmp_path, "the 1\t2 3 4\ncat 1  2\nsat 1 2 3\non 1 2 3\n")


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_gzip_that_is_cut_off_or_damaged(tmp_path: Path, binary: bool) -> None:
    words = [f"w{i}" for i in range(500)]
    rows = np.random.default_rng(0).normal(size=(500, 2)).tolist()
    text = "".join(f"{w} {x} {y}\n" for w, (x, y) in zip(words, rows, strict=True)).encode()
    whole = gzip.compress(packed(words, rows) if binary else text, mtime=0)
    for size in (1, 9, 300, len(whole) - 9, len(whole) - 1):
        with pytest.raises(FileError) as error:
            load(tmp_path, whole[:size])
        if size > 1:  # one byte is not recognised as gzip's
            path = tmp_path / "vectors.any"
            assert str(error.value) == (
                f"{path}: byte {size}: the gzipped file ends too early; fetch it again"
            )
    damaged = bytearray(whole)
    damaged[-6] ^= 255
    with pytest.raises(FileError, match=r"the gzipped file is damaged before byte \d+ \(CRC"):
        load(tmp_path, bytes(damaged))


def test_a_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textfile, "LONGEST", 2**20)
    with pytest.raises(FileError, match="line 2 has more than 1 MiB; is it a file of word vectors"):
        load(tmp_path, "the 1 2\n" + "x" * 2**21)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for cache in (True, False):
        with pytest.raises(FileError) as error:
            Vectors.load(tmp_path / "none.txt", cache=cache)
        assert str(error.value) == (
            f"{tmp_path / 'none.txt'}: cannot be read: No such file or directory"
        )
        with pytest.raises(FileError, match="cannot be read: Is a directory"):
            Vectors.load(tmp_path, cache=cache)


@pytest.mark.parametrize(
    "unit",
    [b"\0", b"\n", b"a ", b"w" + b" 1" * 20_000 + b"\n"],
    ids=["zeros", "blank-lines", "one-line", "long-lines"],
)
def test_gzip_that_unpacks_to_far_more_than_it_is(tmp_path: Path, unit: bytes) -> None:
    path = tmp_path / "v.txt.gz"
    path.write_bytes(gzip.compress(unit * (2**25 // len(unit))))
    with pytest.raises(FileError, match="unpacks to more than 300 times its size; it is not a"):
        Vectors.load(path)
    with pytest.raises(FileError, match=r"not a file of word vectors|is it a file of word vectors"):
        read_words(path, ["zebra"])


def test_a_first_line_without_an_end_is_refused_soon(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_bytes(b"a" * (textfile.LONGEST + 2**17))
    with pytest.raises(FileError, match="line 1 has more than 64 MiB; is it a file of word"):
        Vectors.load(path)
