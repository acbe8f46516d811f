"""From files to numbers: what is left out is named by its lines, and bad files are refused."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regard.errors import FileError, OptionError
from regard.text import Tokenizer
from regard.translate import DataConfig, RunConfig
from regard.translate.preparing import check_files, open_prepared, prepare


def prepared(data: DataConfig, folder: Path, vocabulary: int = 40) -> str:
    """What is said while the data are prepared in the folder."""
    told: list[str] = []
    (folder / "data").mkdir(parents=True)
    prepare(data, vocabulary, folder, seed=1, tokenizer=None, say=told.append)
    return "\n".join(told)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"source": "a.tsv"},
            r"a\.tsv holds both sides, .* give it as --source and leave --target",
        ),
        ({"target": "a.tsv.gz"}, r"a\.tsv\.gz holds both sides, .*; give it as --source and leave"),
        ({"valid_source": "v.tsv"}, r"v\.tsv holds .* as --valid-source and leave --valid-target"),
        ({"valid_target": "v.tsv"}, r"v\.tsv holds .* as --valid-source and leave --valid-target"),
        ({"source": "a.tsv.en", "target": ""}, "--target is missing"),
        ({"valid_source": "v.tsv.en", "valid_target": ""}, "--valid-source and --valid-target go"),
    ],
)
def test_a_tsv_file_holds_both_sides(
    config: RunConfig, changes: dict[str, str], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        check_files(replace(config.data, **changes))


def test_a_tsv_file_alone_is_enough(config: RunConfig) -> None:
    check_files(replace(config.data, source="a.tsv", target="", valid_source="", valid_target=""))
    check_files(replace(config.data, valid_source="v.tsv.gz", valid_target=""))


def test_a_vocabulary_smaller_than_asked_for_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"{'a ' * i}b\tb\n" for i in range(40)))
    told: list[str] = []
    (tmp_path / "run" / "data").mkdir(parents=True)
    prepare(
        DataConfig(str(tmp_path / "a.tsv")), 1500, tmp_path / "run",
        seed=1, tokenizer=None, fit_vocabulary=True, say=told.append,
    )  # fmt: skip
    size = open_prepared(tmp_path / "run").tokenizer.size
    assert size < 20
    assert f"Learned {size} subwords: the text supports no more." in told


def test_a_mix_of_files(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a b\tb a\nb b\ta a\n" * 40)
    (tmp_path / "b.tsv").write_text("".join(f"a b\t{'b ' * i}c\tb\tc\n" for i in range(1, 9)))
    (tmp_path / "v.tsv").write_text("a\tb\tc c\tb\n")
    mix = {str(tmp_path / "a.tsv"): 0.5, str(tmp_path / "b.tsv"): 3}
    data = DataConfig(mix=mix, context=True, valid_source=tmp_path / "v.tsv")
    told = prepared(data, tmp_path / "run", 9)
    assert "88 pairs read, 10 kept" in told
    assert "a.tsv: 2 pairs, each 0.5 times an epoch" in told
    assert "b.tsv: 8 pairs, each 3 times an epoch" in told
    found = open_prepared(tmp_path / "run")
    assert found.train.sizes == (2, 8)
    assert found.valid_sources == ["c c a"]
    assert found.tokenizer.decode(found.train[2][0]) == "b a b"
    assert found.tokenizer.decode(found.train[2][1]) == "c b c"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mix": {"a.en": 1}}, "mix has a.en, expected files of two columns, .tsv or .tsv.gz"),
        ({"mix": {"a.tsv": 1}, "source": "b.en"}, "mix and source=b.en, expected one of them"),
    ],
)
def test_a_bad_mix(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=re.escape(words)):
        check_files(DataConfig(**changes))


def test_a_corpus_that_adds_nothing_to_the_mix(tmp_path: Path) -> None:
    for name in ("a.tsv", "b.tsv"):
        (tmp_path / name).write_text("a b\tb a\n" * 30)
    (tmp_path / "v.tsv").write_text("a\tb\n")
    mix = {str(tmp_path / name): 1 for name in ("a.tsv", "b.tsv")}
    with pytest.raises(FileError, match=r"no pair of \S*b\.tsv is left; leave it out of the mix"):
        prepared(DataConfig(mix=mix, valid_source=tmp_path / "v.tsv"), tmp_path / "run", 8)


def test_a_stream_is_refused(config: RunConfig, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for field in ("source", "target", "valid_source", "valid_target"):
        with pytest.raises(FileError, match=r"pipe is a stream, not a file.*to a file first"):
            check_files(replace(config.data, **{field: tmp_path / "pipe"}))


def test_pairs_too_long_to_validate_on_are_named_by_their_lines(tmp_path: Path) -> None:
    lines = [f"{i % 10} {i // 10 % 10}" for i in range(100)]
    (tmp_path / "a.en").write_text("\n".join(lines))
    data = DataConfig(tmp_path / "a.en", tmp_path / "a.en", longest=20)
    prepared(data, tmp_path / "before", 25)
    held = open_prepared(tmp_path / "before").valid_sources
    long = [i + 1 for i, line in enumerate(lines) if line in held][1:3]
    for line in long:
        lines[line - 1] += " 7" * 40
    (tmp_path / "a.en").write_text("\n".join(lines))
    told = prepared(data, tmp_path / "after", 25)
    assert "5 of the 100 pairs are held out" in told
    assert "Validation pairs, for the loss: 5 pairs read, 3 kept" in told
    assert f"2 left out: too long, up to 42 tokens (lines {long[0]}, {long[1]})" in told


def test_validating_on_all_that_is_trained_on_is_refused(config: RunConfig, tmp_path: Path) -> None:
    data = config.data
    same = replace(data, valid_source=data.source, valid_target=data.target)
    with pytest.raises(
        FileError, match=r"all pairs of \S*train\.en are also in the validation set"
    ):
        prepared(same, tmp_path / "run")


def test_another_tokenizer_is_noticed(config: RunConfig, tmp_path: Path) -> None:
    prepared(config.data, tmp_path / "one")
    prepared(config.data, tmp_path / "other", 45)
    own = tmp_path / "one" / "tokenizer.json"
    shutil.copy(tmp_path / "other" / "tokenizer.json", own)
    with pytest.raises(
        FileError, match=r"tokenizer\.json: not the tokenizer that encoded the sent"
    ):
        open_prepared(tmp_path / "one")


def test_the_same_tokenizer_written_otherwise_is_the_same(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(config.data, tmp_path / "run")
    monkeypatch.setattr(Tokenizer, "fingerprint", "of another version")
    assert len(open_prepared(tmp_path / "run").valid) == 20


def test_few_pairs_are_counted_in_words(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("a b c\n")
    data = DataConfig(tmp_path / "a.en", tmp_path / "a.en")
    with pytest.raises(OptionError, match="1 pair is too few to hold out a validation set"):
        prepared(data, tmp_path / "run", 12)
    (tmp_path / "v.en").write_text("b a c\n")
    data = replace(data, valid_source=tmp_path / "v.en", valid_target=tmp_path / "v.en")
    told = prepared(data, tmp_path / "other", 12)
    assert "from 1 pair …" in told
    assert "1 pair read, 1 kept" in told
