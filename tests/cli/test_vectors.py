"""``regard vectors``: what its verbs print, and the one line with which they fail."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import typer

from regard.cli.vectors import app as vectors_app
from regard.errors import FileError, OptionError, RegardError, WordError
from regard.vectors import Vectors, similar

Run = Callable[..., list[str]]
WORDS = ["king", "man", "woman", "queen", "cat"]
ROWS = [[1.0, 1.0, 0.2], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.9, 0.0, 1.2], [0.3, 0.5, -0.4]]
V = Vectors(WORDS, ROWS)


@pytest.fixture(autouse=True)
def _file(_as_users_run: None) -> None:
    V.save("v.txt")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """``regard vectors …``: the lines that it prints."""

    def run(*arguments: str, stdin: str = "") -> list[str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        vectors_app(arguments, standalone_mode=False)
        return capsys.readouterr().out.splitlines()

    return run


def lines_of(found: list[tuple[str, float]]) -> list[str]:
    return [f"{word}\t{similarity:.4f}" for word, similarity in found]


def test_nearest(run: Run) -> None:
    assert run("nearest", "cat", "--in", "v.txt") == lines_of(V.nearest("cat"))
    assert run("nearest", "Cat", "--in", "v.txt", "-n", "2") == lines_of(V.nearest("cat", 2))
    both = ["cat", *lines_of(V.nearest("cat", 1)), "", "man", *lines_of(V.nearest("man", 1))]
    assert run("nearest", "cat", "man", "--in", "v.txt", "-n", "1") == both
    assert run("nearest", "--in", "v.txt", "-n", "1", stdin="cat\n\n man\n") == both
    [line] = run("nearest", "cat", "--in", "v.txt", "--json", "-n", "1")
    word, similarity = V.nearest("cat", 1)[0]
    assert json.loads(line) == {
        "word": "cat",
        "nearest": [{"word": word, "similarity": similarity}],
    }


def test_analogy(run: Run) -> None:
    arguments = ("analogy", "king", "man", "woman", "--in", "v.txt")
    assert run(*arguments) == lines_of(V.analogy("king", "man", "woman"))
    [line] = run(*arguments, "--json", "-n", "1")
    assert json.loads(line)["nearest"][0]["word"] == "queen"


def test_sentence(run: Run) -> None:
    [line] = run("sentence", "The king, a cat", "--in", "v.txt")
    assert np.array_equal(np.array(line.split(), np.float32), V.sentence("king cat"))
    [line] = run("sentence", "a cat", "--in", "v.txt", "--unknown", "zero")
    assert np.array_equal(np.array(line.split(), np.float32), V["cat"] / 2)
    [line] = run("sentence", "the cat", "--in", "v.txt", "--json")
    assert json.loads(line) == {
        "text": "the cat",
        "skipped": ["the"],
        "vector": V["cat"].tolist(),
    }


def test_sentences_from_standard_input(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run("sentence", "--in", "v.txt", stdin="cat\n\nnothing here\nking\n")
    assert lines[1:3] == ["", ""]
    assert np.array_equal(np.array(lines[3].split(), np.float32), V["king"])
    objects = [
        json.loads(line)
        for line in run("sentence", "--in", "v.txt", "--json", stdin="cat\n\nnothing\n")
    ]
    assert [one["vector"] is None for one in objects] == [False, True, True]
    vectors_app(["sentence", "the cat", "--in", "v.txt"], standalone_mode=False)
    assert capsys.readouterr().err == "regard: without a vector: 'the'\n"


def test_similarity(run: Run) -> None:
    found = similar("king cat", "a queen", V)
    assert run("similarity", "king cat", "a queen", "--in", "v.txt") == str(found).splitlines()
    [line] = run("similarity", "king cat", "a queen", "--in", "v.txt", "--json")
    assert json.loads(line) == found.to_data()


def test_train(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    text = "The cat sat on the mat.\nthe dog sat\n\nA cat and a dog.\n"
    Path("corpus.txt").write_text(text)
    assert run("train", "corpus.txt", "--out", "t.txt", "--width", "7", "--lowercase") == []
    wanted = Vectors.train(text.lower().splitlines(), 7)
    assert np.array_equal(Vectors.load("t.txt").matrix, wanted.matrix)
    assert Vectors.load("t.txt").words == wanted.words
    [line] = run("train", "--out", "s.bin.gz", "--width", "7", "--lowercase", "--json", stdin=text)
    assert json.loads(line) == {"out": "s.bin.gz", "words": len(wanted), "width": 7}
    assert np.array_equal(Vectors.load("s.bin.gz").matrix, wanted.matrix)
    run("train", "corpus.txt", "--out", "u.txt", "--width", "5", "--window", "2", "--min-count",
        "2", "--skipgram", "--epochs", "3", "--seed", "9")  # fmt: skip
    other = Vectors.train(text.splitlines(), 5, 2, 2, True, 9, 3)
    assert np.array_equal(Vectors.load("u.txt").matrix, other.matrix)
    vectors_app(["train", "corpus.txt", "--out", "t.vec"], standalone_mode=False)
    assert capsys.readouterr().err == "regard: wrote t.vec, 11 words\n"


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        ("nearest cat", OptionError,
         "vectors nearest: --in is missing; give a file of word vectors"),
        ("sentence cat", OptionError,
         "vectors sentence: --in is missing; give a file of word vectors"),
        ("nearest cats --in v.txt", WordError,
         "Vectors: 'cats' has no vector; did you mean 'cat'?"),
        ("nearest cat --in none.txt", FileError,
         "none.txt: cannot be read: No such file or directory"),
        ("nearest cat --in v.txt -n 0", OptionError, "Vectors.nearest: n=0, expected 1 or more"),
        ("sentence a --in v.txt", WordError,
         "Vectors.sentence: none of the words has a vector: 'a'"),
        ("sentence a --in v.txt --unknown drop", OptionError,
         "Vectors.sentence: unknown='drop', expected 'error', 'skip', 'zero' or 'mean'"),
        ("similarity cat a --in v.txt", WordError,
         "similar: none of the words of sentence b has a vector"),
        ("analogy king man womam --in v.txt", WordError,
         "Vectors: 'womam' has no vector; did you mean 'woman'?"),
        ("train v.txt", OptionError,
         "vectors train: --out is missing; name the file to write, such as v.txt"),
        ("train none.txt --out t.csv", OptionError,
         "Vectors.save: t.csv ends in '.csv', expected .txt, .vec or .bin, or one of these and "
         ".gz"),
        ("train none.txt --out none/t.txt", FileError,
         "Vectors.save: cannot write none/t.txt: No such file or directory"),
        ("train none.txt --out t.txt", FileError,
         "none.txt: cannot be read: No such file or directory"),
        ("train --out t.txt", OptionError,
         "Vectors.train: the corpus is empty: it has no words"),
    ],
)  # fmt: skip
def test_one_line_says_what_is_wrong(
    run: Run, arguments: str, kind: type[RegardError], says: str
) -> None:
    with pytest.raises(kind) as caught:
        run(*arguments.split())
    assert str(caught.value) == says
    assert [path.name for path in Path().iterdir()] == ["v.txt"]


def test_without_a_verb_it_says_what_there_is(run: Run) -> None:
    text = "\n".join(run())
    for verb in ("train", "nearest", "analogy", "sentence", "similarity"):
        assert verb in text
    with pytest.raises(typer.exceptions.TyperException):
        run("farthest")


def test_as_a_program() -> None:
    command = [sys.executable, "-m", "regard", "vectors", "analogy", "king", "man", "queem"]
    done = subprocess.run([*command, "--in", "v.txt"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == "regard: Vectors: 'queem' has no vector; did you mean 'queen'?\n"


def test_search(run: Run) -> None:
    Path("texts.txt").write_text("the queen\na cat\nnothing\n", encoding="utf-8")
    best = V.search("king", ["the queen", "a cat", "nothing"])
    lines = [f"{one.similarity:.4f}\t{one.number + 1}\t{one.text}" for one in best]
    assert run("search", "king", "texts.txt", "--in", "v.txt") == lines
    assert (
        run("search", "king", "--in", "v.txt", "-n", "1", stdin="the queen\na cat\n") == lines[:1]
    )
    (told,) = run("search", "king", "texts.txt", "--in", "v.txt", "-n", "1", "--json")
    assert json.loads(told)["line"] == best[0].number + 1
    with pytest.raises(WordError, match="none of the words has a vector"):
        run("search", "unheard", "texts.txt", "--in", "v.txt")
