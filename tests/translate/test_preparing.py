"""From files to numbers: what is left out is named by its lines, and bad files are refused."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

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


def test_a_stream_is_refused(config: RunConfig, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for field in ("source", "target", "valid_source", "valid_target"):
        with pytest.raises(FileError, match=r"pipe is no file but a stream.*to a file first"):
            check_files(replace(config.data, **{field: tmp_path / "pipe"}))


def test_pairs_too_long_to_validate_on_are_named_by_their_lines(tmp_path: Path) -> None:
    lines = [f"{i % 10} {i // 10 % 10}" for i in range(100)]
    (tmp_path / "a.en").write_text("\n".join(lines))
    data = DataConfig(tmp_path / "a.en", tmp_path / "a.en", longest=20)
    prepared(data, tmp_path / "before", 20)
    held = open_prepared(tmp_path / "before").valid_sources
    long = [i + 1 for i, line in enumerate(lines) if line in held][1:3]
    for line in long:
        lines[line - 1] += " 7" * 40
    (tmp_path / "a.en").write_text("\n".join(lines))
    told = prepared(data, tmp_path / "after", 20)
    assert "5 of the 100 pairs are split off" in told
    assert "Of the validation part, for its loss: 5 pairs read, 3 kept" in told
    assert f"2 left out: too long, up to 43 tokens (lines {long[0]}, {long[1]})" in told


def test_validating_on_all_that_is_trained_on_is_refused(config: RunConfig, tmp_path: Path) -> None:
    data = config.data
    same = replace(data, valid_source=data.source, valid_target=data.target)
    with pytest.raises(FileError, match=r"all pairs of \S*train\.en are in the validation part"):
        prepared(same, tmp_path / "run")


def test_another_tokenizer_is_noticed(config: RunConfig, tmp_path: Path) -> None:
    prepared(config.data, tmp_path / "one")
    prepared(config.data, tmp_path / "other", 45)
    own = tmp_path / "one" / "tokenizer.json"
    shutil.copy(tmp_path / "other" / "tokenizer.json", own)
    with pytest.raises(FileError, match=r"tokenizer\.json: not the tokenizer that cut the sent"):
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
    with pytest.raises(OptionError, match="1 pair is too few to split a validation part off"):
        prepared(data, tmp_path / "run", 12)
    (tmp_path / "v.en").write_text("b a c\n")
    data = replace(data, valid_source=tmp_path / "v.en", valid_target=tmp_path / "v.en")
    told = prepared(data, tmp_path / "other", 12)
    assert "from 1 pair …" in told
    assert "1 pair read, 1 kept" in told
