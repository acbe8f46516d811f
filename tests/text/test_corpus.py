"""Files of lines and of sentence pairs, good and bad."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import FileError, OptionError
from regard.text import read_lines, read_pairs


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


# ---------------------------------------------------------------------------------------- lines


@pytest.mark.parametrize("name", ["text.en", "text.en.gz"])
def test_lines_end_with_a_line_feed_and_nothing_else(tmp_path: Path, name: str) -> None:
    text = "one\r\ntwo\n\nthree\u2028still\x85three\x0c\x1d\x00\rfour\n \tfive \nlast"
    path = write(tmp_path / name, text.encode())
    assert list(read_lines(path)) == [
        "one",
        "two",
        "",
        "three\u2028still\x85three\x0c\x1d\x00\rfour",
        " \tfive ",
        "last",
    ]


def test_a_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "\ufeffone\n\ufefftwo\n".encode())
    assert list(read_lines(path)) == ["one", "\ufefftwo"]


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    assert list(read_lines(write(tmp_path / "a", b""))) == []
    assert list(read_lines(write(tmp_path / "a", b"\n"))) == [""]


@settings(deadline=None)
@given(lines=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\ufeff"))))
def test_lines_come_back(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "lines.txt"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    assert list(read_lines(path)) == lines


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"one\ntwo\nth\xffree\n", "line 3: byte 0xff is not UTF-8 (invalid start byte)"),
        (b"\xef\xbb\xbfa\xfe\n", "line 1: byte 0xfe is not UTF-8 (invalid start byte)"),
        ("größe\n".encode("latin-1"), "line 1: byte 0xf6 is not UTF-8 (invalid start byte)"),
        (b"one\n\xc3", "line 2: byte 0xc3 is not UTF-8 (unexpected end of data)"),
    ],
)
@pytest.mark.parametrize("name", ["text.en", "text.en.gz"])
def test_bytes_that_are_not_utf8(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(FileError) as caught:
        list(read_lines(path))
    assert str(caught.value) == f"{path}, {message}; convert the file to UTF-8"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"no\.en: cannot be read: No such file or directory$"):
        list(read_lines(tmp_path / "no.en"))
    with pytest.raises(FileError, match=r"cannot be read: Is a directory$"):
        list(read_lines(tmp_path))
    plain = tmp_path / "plain.gz"
    plain.write_bytes(b"not compressed at all")
    with pytest.raises(FileError, match=r"plain\.gz: cannot be read: Not a gzipped file"):
        list(read_lines(plain))
    whole = gzip.compress(b"".join(b"line %d\n" % i for i in range(20_000)))
    cut = tmp_path / "cut.gz"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileError) as caught:
        list(read_lines(cut))
    assert str(caught.value) == f"{cut}: the compressed file ends too early; fetch it again"
    cut.write_bytes(whole[:100] + bytes(100) + whole[200:])
    with pytest.raises(FileError, match=r"cut\.gz: cannot be read: "):
        list(read_lines(cut))


# ---------------------------------------------------------------------------------------- pairs


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_pairs_of_two_files(tmp_path: Path, ending: str) -> None:
    source = write(tmp_path / f"a.en{ending}", b"one\ntwo\n\n")
    target = write(tmp_path / f"a.de{ending}", b"eins\nzwei\ndrei")
    assert list(read_pairs(source, target)) == [("one", "eins"), ("two", "zwei"), ("", "drei")]


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_pairs_of_one_file(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, b"one\teins\ntwo\tzwei\tmore\tand more\n\n\tdrei\nfour\t\n")
    assert list(read_pairs(path)) == [
        ("one", "eins"),
        ("two", "zwei"),
        ("", ""),
        ("", "drei"),
        ("four", ""),
    ]


def test_context_columns_are_put_before_the_pair(tmp_path: Path) -> None:
    lines = b"It is.\tEr ist.\tA dog.\tEin Hund.\nOne\teins\ntwo\tzwei\tBefore.\nb\tc\t\td.\te\n"
    path = write(tmp_path / "a.tsv", lines)
    assert list(read_pairs(path, context=True)) == [
        ("A dog. It is.", "Ein Hund. Er ist."),
        ("One", "eins"),
        ("Before. two", "zwei"),
        ("b", "d. c"),
    ]
    assert next(read_pairs(path)) == ("It is.", "Er ist.")


def test_a_line_without_a_tab(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", b"one\teins\ntwo zwei\n")
    pairs = read_pairs(path)
    assert next(pairs) == ("one", "eins")
    with pytest.raises(FileError) as caught:
        next(pairs)
    assert str(caught.value) == (
        f"{path}, line 2: no tab, expected a sentence, a tab and its translation"
    )


@pytest.mark.parametrize(("lines", "others"), [(3, 5), (5, 3), (0, 2), (2, 1)])
def test_files_of_different_length(tmp_path: Path, lines: int, others: int) -> None:
    source = write(tmp_path / "a.en", b"word\n" * lines)
    target = write(tmp_path / "a.de", b"Wort\n" * others)
    with pytest.raises(FileError) as caught:
        list(read_pairs(source, target))
    assert str(caught.value) == (
        f"{source} has {lines} lines but {target} has {others}; line n of one must be the "
        "translation of line n of the other"
    )


def test_one_file_that_is_no_tsv(tmp_path: Path) -> None:
    with pytest.raises(OptionError) as caught:
        read_pairs("a.en")
    assert str(caught.value) == (
        "read_pairs: a.en alone, expected a second file with the translations, or one file of two "
        "columns whose name ends in .tsv or .tsv.gz"
    )


@pytest.mark.parametrize("files", [("a.tsv", "b.de"), ("b.en", "a.tsv.gz")])
def test_a_tsv_file_holds_both_sides(files: tuple[str, str]) -> None:
    with pytest.raises(
        OptionError, match=r"read_pairs: a\.tsv\S* and another file, but a \.tsv file"
    ):
        read_pairs(*files)


def test_files_are_not_read_further_than_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", b"one\teins\n" * 100_000 + b"\xff")
    pairs = read_pairs(path)
    assert [next(pairs) for _ in range(10)] == [("one", "eins")] * 10
