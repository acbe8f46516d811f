"""Tokenizers saved, loaded, pickled and trained again are the same; other files are refused."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers

from regard.errors import FileError, OptionError
from regard.text import Tokenizer
from tests.text.tokenizer_cases import ALL, BYTES, LARGE, SMALL, lines


@pytest.mark.parametrize("kind", ["unigram", "bytes"])
def test_saved_and_loaded(tmp_path: Path, kind: str) -> None:
    tokenizer = Tokenizer.train(lines(), 100 if kind == "unigram" else 300, kind)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (loaded.kind, loaded.vocabulary) == (kind, tokenizer.vocabulary)
    assert loaded.fingerprint == tokenizer.fingerprint
    for text in [*lines(30), "</s>", "猫"]:
        assert loaded.encode(text) == tokenizer.encode(text)
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.json", "tokenizer.json"]


@ALL
def test_the_library_reads_the_file_alike(tmp_path: Path, tokenizer: Tokenizer) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in [*lines(30), "a </s> b"]:
        assert theirs.encode(text).ids == tokenizer.encode(text)


def test_pickled() -> None:
    again = pickle.loads(pickle.dumps(LARGE))
    assert again.fingerprint == LARGE.fingerprint
    assert again.encode("König </s>") == LARGE.encode("König </s>")


ELSEWHERE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from tokenizer_cases import BYTES, LARGE, SMALL
print(SMALL.fingerprint, LARGE.fingerprint, BYTES.fingerprint, flush=True)
texts = ["The cat sees a Hund"] * 500
before = LARGE.encode_batch(texts)
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os._exit(LARGE.encode_batch(texts) != before)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_another_process_has_the_same_tokenizers_and_forks_in_silence() -> None:
    command = [sys.executable, "-W", "ignore", "-c", ELSEWHERE, str(Path(__file__).parent)]
    environment = {k: v for k, v in os.environ.items() if k != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True, env=environment
    )
    assert done.stdout.split() == [t.fingerprint for t in (SMALL, LARGE, BYTES)]
    assert done.stderr == ""


def changed(**changes: object) -> str:
    content = json.loads(SMALL._inner.to_str())
    content["model"].update(changes)
    return json.dumps(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a tokenizer.json, or damaged"),
        (b"{}", "not a tokenizer.json, or damaged"),
        (b"\xff\xfe", "not UTF-8 text, so not a tokenizer.json"),
        (SMALL._inner.to_str()[:-20].encode(), "not a tokenizer.json, or damaged"),
        (
            changed(vocab=[["<unk>", 0.0], ["a", -1.0]], unk_id=0).encode(),
            r"ids 0 to 3 are \['<unk>', 'a', None, None\], expected \['<pad>'",
        ),
        (
            tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, "a")).to_str().encode(),
            "a tokenizer of type WordLevel, expected Unigram or BPE",
        ),
    ],
)
def test_files_that_are_no_tokenizer(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(FileError, match=f"^{re.escape(str(path))}: {message}"):
        Tokenizer.load(path)


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"no\.json: cannot be read: No such file or directory"):
        Tokenizer.load(tmp_path / "no.json")
    with pytest.raises(FileError, match="cannot be read: Is a directory"):
        Tokenizer.load(tmp_path)
    with pytest.raises(FileError, match=r"Tokenizer\.save: cannot write"):
        SMALL.save(tmp_path / "no" / "tokenizer.json")
    with pytest.raises(OptionError, match=r"expected \.json"):
        SMALL.save(tmp_path / "tokenizer.txt")


def test_a_strangers_special_pieces_are_text_as_well(tmp_path: Path) -> None:
    inner = tokenizers.Tokenizer.from_str(BYTES._inner.to_str())
    inner.add_special_tokens(["</s>"])
    inner.enable_padding(length=50)
    inner.enable_truncation(3)
    assert inner.encode("</s>").ids[0] == Tokenizer.end
    inner.save(str(tmp_path / "tokenizer.json"))
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.encode("</s> The cat") == BYTES.encode("</s> The cat")
    assert pickle.loads(pickle.dumps(loaded)).encode("</s>") == BYTES.encode("</s>")
