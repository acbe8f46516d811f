"""Sentence pairs: cleaned, counted, encoded and kept in a folder."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import FileError, OptionError
from regard.text import Cleaning, EncodedPairs, Report, Tokenizer, read_lines, read_pairs
from regard.text._encoded import CHUNK, _Seen

DATA = Path(__file__).parents[3] / "shared" / "data" / "multi30k"

TOKENIZER = Tokenizer.train(
    ["a b c d e f g h i j k l m n o p q r s t u v w x y z 0 1 2 3 4"] * 3, 68
)
"""Each letter is a word and a piece."""


def build(tmp_path: Path, pairs: Iterable[tuple[str, str]], **options: object) -> EncodedPairs:
    cleaning = Cleaning(**options)  # type: ignore[arg-type]
    return EncodedPairs.build(pairs, TOKENIZER, tmp_path / "encoded", cleaning)


def texts(encoded: EncodedPairs) -> list[tuple[str, str]]:
    return [
        (TOKENIZER.decode(source), TOKENIZER.decode(target))
        for source, target in (encoded[i] for i in range(len(encoded)))
    ]


def test_several_corpora_follow_one_another_without_repeating_pairs(tmp_path: Path) -> None:
    corpora = [("a", "b"), ("b", "a")], [("a", "b"), ("c", "b"), ("", "")], [("a", "c"), None]
    first, *more = corpora
    built = EncodedPairs.build(first, TOKENIZER, tmp_path / "encoded", more=more)
    assert built.sizes == EncodedPairs.open(tmp_path / "encoded").sizes == (2, 1, 1)
    assert (built.report.read, built.report.duplicate, built.report.empty) == (6, 1, 1)
    assert len(built) == 4


def test_what_is_kept_and_what_is_left_out(tmp_path: Path) -> None:
    pairs = [
        ("a b c", "d e"),  # 1
        ("", "d"),  # 2: empty
        ("a", " \t"),  # 3: empty
        ("a b c", "d e"),  # 4: there before
        (" a b c", "d e\r"),  # 5: there before, but for spaces
        ("a b c", "d f"),  # 6
        ("a " * 12, "b " * 2),  # 7: 6 times as long
        ("a " * 10, "b"),  # 8: 10 times as long, but short
        ("a " * 21, "b " * 20),  # 9: too long
        ("a " * 20, "b " * 30),  # 10: too long
        ("d e", "a b c"),  # 11: the other way round
    ]
    encoded = build(tmp_path, pairs, max_length=20)
    assert texts(encoded) == [
        ("a b c", "d e"),
        ("a b c", "d f"),
        ("a a a a a a a a a a", "b"),
        ("d e", "a b c"),
    ]
    assert encoded.report == Report(
        read=11,
        kept=4,
        empty=2,
        duplicate=2,
        unequal=1,
        too_long=2,
        too_long_lines=(9, 10),
        longest=30,
        source_tokens=18,
        target_tokens=8,
        unknown_tokens=0,
    )
    assert str(encoded.report) == (
        "11 pairs read, 4 kept\n"
        "2 left out: empty on one side\n"
        "2 left out: duplicate\n"
        "1 left out: lengths too different\n"
        "2 left out: too long, up to 30 tokens (lines 9, 10)\n"
        "18 source tokens, 8 target tokens"
    )
    assert encoded.source_lengths.tolist() == [3, 3, 10, 2]
    assert encoded.target_lengths.tolist() == [2, 2, 1, 3]
    assert repr(encoded) == "EncodedPairs(4 pairs, 26 tokens)"


def test_the_limits_themselves_are_kept(tmp_path: Path) -> None:
    pairs = [("a " * 20, "b " * 5), ("a " * 20, "b " * 4), ("a " * 10, "b"), ("a " * 11, "b")]
    report = build(tmp_path, pairs, max_length=20).report
    assert (report.kept, report.unequal) == (2, 2)
    report = build(tmp_path, pairs, max_length=19, max_ratio=20.0).report
    assert (report.kept, report.too_long, report.too_long_lines) == (2, 2, (1, 2))


def test_duplicates_may_be_kept(tmp_path: Path) -> None:
    encoded = build(tmp_path, [("a", "b")] * 5, drop_duplicates=False)
    assert (encoded.report.kept, encoded.report.duplicate) == (5, 0)


def test_lines_that_are_not_read_are_counted_as_lines(tmp_path: Path) -> None:
    long = ("a " * 30, "b " * 30)
    pairs = [None, ("a b", "c d"), None, long, ("c", "d")]
    tokenizer = Tokenizer.train(["a b c d"] * 3, size=9)
    report = EncodedPairs.build(pairs, tokenizer, tmp_path / "data", Cleaning(20)).report
    assert (report.read, report.kept, report.too_long_lines) == (3, 2, (4,))


def test_only_the_first_few_that_are_too_long_are_named(tmp_path: Path) -> None:
    pairs = [("a", "b"), *(("a " * 9, f"b {i}") for i in range(7))]
    report = build(tmp_path, pairs, max_length=8, max_ratio=99.0).report
    assert report.too_long_lines == (2, 3, 4, 5, 6)
    line = "7 left out: too long, up to 9 tokens (lines 2, 3, 4, 5, 6, …)"
    assert line in str(report).splitlines()
    one = dataclasses.replace(report, too_long=1, too_long_lines=(2_000,))
    assert "1 left out: too long, up to 9 tokens (line 2,000)" in str(one).splitlines()


def test_unknown_tokens_are_counted(tmp_path: Path) -> None:
    report = build(tmp_path, [("a 猫 b", "猫猫 ö")]).report
    assert report.unknown_tokens == 3
    assert str(report).endswith("\n3 tokens are unknown to the tokenizer")


def test_nothing_left(tmp_path: Path) -> None:
    for pairs, counts in (
        ([], "0 pairs read, 0 kept"),
        ([("", "a"), ("", "b")], "2 pairs read, 0 kept; 2 left out: empty on one side"),
    ):
        with pytest.raises(FileError) as caught:
            build(tmp_path, pairs)
        assert str(caught.value) == f"{tmp_path / 'encoded'}: no pairs left: {counts}"
    assert list(tmp_path.iterdir()) == []


letters = st.text(alphabet="abcdefgh ", max_size=20)


@settings(max_examples=30, deadline=None)
@given(pairs=st.lists(st.tuples(letters, letters), max_size=40))
def test_every_pair_is_kept_or_counted(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    pairs = [*pairs, ("x", "y")]
    encoded = build(tmp_path_factory.getbasetemp(), iter(pairs), max_length=7, max_ratio=99.0)
    fresh = dict.fromkeys((one.strip(), other.strip()) for one, other in pairs)
    kept = [
        pair
        for pair in fresh
        if all(pair) and all(len(TOKENIZER.encode(side)) <= 7 for side in pair)
    ]
    assert texts(encoded) == [(" ".join(o.split()), " ".join(t.split())) for o, t in kept]
    report = encoded.report
    assert report.read == len(pairs)
    assert report.kept == len(encoded) == len(kept)
    assert report.empty == sum(not (one.strip() and other.strip()) for one, other in pairs)
    left_out = report.empty + report.duplicate + report.unequal + report.too_long
    assert report.read == report.kept + left_out


def numbered(count: int) -> Iterator[tuple[str, str]]:
    """Pairs of which each comes twice, far apart."""
    for i in [*range(count), *range(count)]:
        yield " ".join(np.base_repr(i, 26).lower()), "a"


def test_duplicates_are_found_across_chunks(tmp_path: Path) -> None:
    count = CHUNK + 17
    told: list[int] = []
    encoded = EncodedPairs.build(
        numbered(count), TOKENIZER, tmp_path / "encoded", progress=told.append
    )
    assert encoded.report.duplicate == count
    assert len(encoded) == count
    assert told == [CHUNK, 2 * CHUNK, 2 * count]
    plain = EncodedPairs.build(
        list(numbered(count))[:count], TOKENIZER, tmp_path / "plain", Cleaning()
    )
    assert np.array_equal(plain.tokens, encoded.tokens)
    assert plain.fingerprint == encoded.fingerprint


@settings(deadline=None)
@given(chunks=st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=12))
def test_seen_is_a_set(chunks: list[list[int]]) -> None:
    seen, known = _Seen(), set[int]()
    for chunk in chunks:
        expected = []
        for number in chunk:
            expected.append(number not in known)
            known.add(number)
        assert seen.add(chunk).tolist() == expected
    sizes = [len(run) for run in seen._runs]
    assert sum(sizes) == len(known)
    assert all(long >= 2 * short for long, short in pairwise(sizes))


def test_opened_again(tmp_path: Path) -> None:
    built = build(tmp_path, [("a b", "c"), ("d", "e f g")], max_length=9)
    opened = EncodedPairs.open(tmp_path / "encoded")
    assert texts(opened) == [("a b", "c"), ("d", "e f g")]
    assert opened.report == built.report
    assert opened.cleaning == Cleaning(max_length=9)
    assert opened.fingerprint == built.fingerprint
    assert opened.tokenizer == TOKENIZER.fingerprint
    assert opened.tokens.dtype == np.uint16
    assert isinstance(opened.tokens, np.memmap)
    assert [number.tolist() for number in opened[-1]] == [number.tolist() for number in opened[1]]
    for i in (2, -3):
        with pytest.raises(IndexError, match=f"pair {i} asked for, but there are 2"):
            opened[i]


def test_another_tokenizer_has_another_fingerprint(tmp_path: Path) -> None:
    other = Tokenizer.train(["a b c d e f g h"] * 3, 20)
    first = EncodedPairs.build([("a", "b")], TOKENIZER, tmp_path / "first")
    second = EncodedPairs.build([("a", "b")], other, tmp_path / "second")
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize("file", ["tokens.bin", "lengths.npy", "report.json"])
@pytest.mark.parametrize("harm", ["cut", "longer", "changed", "missing"])
def test_damage_is_noticed(tmp_path: Path, file: str, harm: str) -> None:
    build(tmp_path, [("a b", "c"), ("d", "e f g")])
    path = tmp_path / "encoded" / file
    content = path.read_bytes()
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(
            {
                "cut": content[:-3],
                "longer": content + b"\0\0\0\0",
                "changed": content[:-4] + bytes(255 - byte for byte in content[-4:]),
            }[harm]
        )
    with pytest.raises(FileError) as caught:
        EncodedPairs.open(tmp_path / "encoded")
    expected = (
        f"{tmp_path / 'encoded'}: not a folder of encoded pairs: it has no report.json"
        if (file, harm) == ("report.json", "missing")
        else f"{tmp_path / 'encoded'}: the encoded pairs are damaged ("
    )
    assert str(caught.value).startswith(expected)


def test_other_versions_and_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "encoded"
    with pytest.raises(FileError, match=f"^{re.escape(str(folder))}: no such folder of encoded"):
        EncodedPairs.open(folder)
    build(tmp_path, [("a", "b")])
    about = json.loads((folder / "report.json").read_text())
    (folder / "report.json").write_text(json.dumps({**about, "format": 7}))
    with pytest.raises(FileError, match=r"written in format 7, expected 1; build it again$"):
        EncodedPairs.open(folder)
    (folder / "report.json").write_text(json.dumps({**about, "tokenizer": "another"}))
    with pytest.raises(FileError, match=r"the encoded pairs are damaged \(fingerprint "):
        EncodedPairs.open(folder)
    for content in ("[]", "{}", '{"format": 1, "report": {}}'):
        (folder / "report.json").write_text(content)
        with pytest.raises(FileError, match=r"the encoded pairs are damaged \(report\.json: "):
            EncodedPairs.open(folder)


def test_building_again_replaces_what_was_built(tmp_path: Path) -> None:
    build(tmp_path, [("a", "b")])
    build(tmp_path, [("c", "d")])
    assert texts(EncodedPairs.open(tmp_path / "encoded")) == [("c", "d")]
    assert [path.name for path in tmp_path.iterdir()] == ["encoded"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    build(tmp_path, [("a", "b")])

    def broken() -> Iterator[tuple[str, str]]:
        yield "c", "d"
        raise FileError("a.en, line 2: no")

    with pytest.raises(FileError, match=r"a\.en, line 2: no"):
        build(tmp_path, broken())
    with pytest.raises(FileError, match="no pairs left"):
        build(tmp_path, [("", "")])
    assert texts(EncodedPairs.open(tmp_path / "encoded")) == [("a", "b")]
    assert [path.name for path in tmp_path.iterdir()] == ["encoded"]


def test_nothing_else_is_destroyed(tmp_path: Path) -> None:
    folder = tmp_path / "encoded"
    folder.write_text("mine")
    with pytest.raises(FileError, match=r"a file of this name exists, expected a folder$"):
        build(tmp_path, [("a", "b")])
    folder.unlink()
    folder.mkdir()
    assert len(build(tmp_path, [("a", "b")])) == 1  # an empty folder is no loss
    (folder / "report.json").unlink()
    with pytest.raises(FileError, match=r"the folder exists and holds other files; name another$"):
        build(tmp_path, [("a", "b")])
    with pytest.raises(FileError, match="cannot be written: "):
        EncodedPairs.build([("a", "b")], TOKENIZER, folder / "tokens.bin" / "no" / "encoded")


def test_folders_above_are_made(tmp_path: Path) -> None:
    assert len(EncodedPairs.build([("a", "b")], TOKENIZER, tmp_path / "run" / "data" / "train"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 0}, "Cleaning: max_length=0, expected 1 or more"),
        ({"max_ratio": 0.5}, "Cleaning: max_ratio=0.5, expected 1 or more"),
        ({"max_ratio": float("nan")}, "Cleaning: max_ratio=nan, expected 1 or more"),
    ],
)
def test_impossible_cleaning(options: dict[str, float], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        Cleaning(**options)  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.skipif(not DATA.is_dir(), reason="Multi30k is not beside the repository")
def test_multi30k(tmp_path: Path) -> None:
    files = DATA / "val.en", DATA / "val.de"
    tokenizer = Tokenizer.train((line for file in files for line in read_lines(file)), 1500)
    encoded = EncodedPairs.build(read_pairs(*files), tokenizer, tmp_path / "encoded")
    assert encoded.report.read == 1014
    assert encoded.report.kept == len(encoded) > 1000
    pairs = list(read_pairs(*files))
    for i in range(0, len(encoded), 97):
        source, target = encoded[i]
        pair = tokenizer.decode(source), tokenizer.decode(target)
        assert pair in [(" ".join(a.split()), " ".join(b.split())) for a, b in pairs]
