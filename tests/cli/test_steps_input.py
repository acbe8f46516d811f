"""``regard steps``: vectors and matrices from files, and files that it cannot read."""

from __future__ import annotations

import gzip
import json
import pickle
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.walkthrough import steps
from tests.cli.result import Run
from tests.cli.step_cases import KEYS, assert_fails, files, numbers, strict_json

GLOVE = "the 0.5 -1 2\ncat 0.25 1 -0.5\nsat 1 2 3\n"


@pytest.fixture
def run(program: Run) -> Run:
    """``regard steps …``."""
    return partial(program, "steps")


# Vectors


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("v.txt", GLOVE.encode()),
        ("v.vec", f"3 3\n{GLOVE}".encode()),
        ("v.txt.gz", gzip.compress(GLOVE.encode())),
        ("v.txt", f"the 0.5 -1 2\n. . . 9 9 9\n{GLOVE}".encode()),
    ],
    ids=["glove", "word2vec", "gz", "word-with-spaces"],
)
def test_vectors_from_a_file(run: Run, name: str, content: bytes) -> None:
    Path(name).write_bytes(content)
    told = numbers(run, "The cat", "--vectors", name)
    assert told["x"] == told["q"] == [[0.5, -1.0, 2.0], [0.25, 1.0, -0.5]]
    assert told["words"] == ["The", "cat"]
    text = run("The cat", "--vectors", name).out
    assert f"Vectors from {name}. No weights" in text
    assert "made up" not in text


def test_vectors_take_heads_masks_and_scores(run: Run) -> None:
    Path("v.txt").write_text("a 1 2 3 4\nb 0 1 0 1\nc 2 0 1 0\n")
    told = numbers(
        run, "a b c", "--vectors", "v.txt", "--heads", "2", "--causal", "--score", "scaled_dot"
    )
    assert np.shape(told["weights"]) == (2, 3, 3)
    assert told["weights"][0][0] == [1.0, 0.0, 0.0]
    assert told["scaled"][0][0][0] == pytest.approx(5 / 2**0.5)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"the 1 2 3\n", ("'cat'", "v.txt")),
        (b"the 1 2 3\ncat 4 5\n", ("v.txt: line 2: ", "expected 3")),
        (b"the 1 2 3\ncat 4 five 6\n", ("v.txt: line 2: ", "'five'")),
        (b"the 1 2 3\ncat 4 nan 6\n", ("v.txt: line 2: ", "not finite")),
        (b"the 1 2 3\ncat 4 1e39 6\n", ("v.txt: line 2: ", "not finite")),
        (b"", ("v.txt: ", "empty")),
        (bytes(range(256)), ("v.txt: line 1: ",)),
        (b"\xff\xfe\x00junk", ("v.txt: line 1: ", "UTF-8")),
        (b"2 2\nthe \x80\xff\x00\n", ("v.txt: line 2: ", "UTF-8")),
        (b"the\t1\t2\n", ("v.txt: line 1: ",)),
    ],
    ids=["missing", "short", "text", "nan", "huge", "empty", "bytes", "junk", "binary", "tabs"],
)
def test_a_bad_vectors_file(run: Run, content: bytes, says: tuple[str, ...]) -> None:
    Path("v.txt").write_bytes(content)
    assert_fails(run("the cat", "--vectors", "v.txt", "--html", "a.html"), *says)
    assert files() == ["v.txt"]


def test_words_without_a_vector_are_named_in_good_english(run: Run) -> None:
    Path("v.txt").write_text(GLOVE)
    assert_fails(run("the dog", "--vectors", "v.txt"), "'dog' has no vector in v.txt")
    assert_fails(run("a dog a", "--vectors", "v.txt"), "'a', 'dog' have no vector in v.txt")


def test_a_vectors_file_that_is_not_there(run: Run) -> None:
    assert_fails(run("the cat", "--vectors", "none.txt"), "none.txt", "No such file")
    assert_fails(run("the cat", "--vectors", "."), "Is a directory")
    damaged = bytearray(gzip.compress(GLOVE.encode() * 500, mtime=0))
    damaged[20] ^= 255
    Path("v.gz").write_bytes(damaged)
    assert_fails(run("dog", "--vectors", "v.gz"), "v.gz: ")


# Matrices


X = [[1.0, 0.5, 0.25], [0.1, 2.0, -1.0]]
W = [[1.0, 0.2], [0.0, 1.0], [0.5, -0.3]]
WHOLE = {"words": ["the", "cat"], "x": X, "w_q": W, "w_k": W[::-1], "w_v": W, "w_o": [[2.0], [1.0]]}


def write_npz(**arrays: Any) -> None:
    np.savez("m.npz", **arrays)


def test_matrices_from_json(run: Run) -> None:
    Path("m.json").write_text(json.dumps(WHOLE))
    told = numbers(run, "--matrix", "m.json")
    tensors = {
        name: torch.tensor(values, dtype=torch.float64)
        for name, values in WHOLE.items()
        if name != "words"
    }
    wanted = steps(**tensors, words=WHOLE["words"]).to_data()
    assert told["words"] == ["the", "cat"]
    for name in KEYS[1:]:
        np.testing.assert_allclose(told[name], wanted[name], rtol=1e-5, atol=1e-6)
    text = run("--matrix", "m.json", "--word", "cat").out
    assert text.startswith("cat, word 2 of 2: the cat\n\nNumbers from m.json.\n")


def test_what_is_given_comes_back_as_it_is(run: Run) -> None:
    Path("m.json").write_text(json.dumps({"x": X}))
    assert numbers(run, "--matrix", "m.json")["x"] == X
    Path("m.csv").write_text("0.1,0.2\n0.3,0.4\n")
    assert numbers(run, "--matrix", "m.csv")["x"] == [[0.1, 0.2], [0.3, 0.4]]


def test_matrices_from_npz(run: Run) -> None:
    write_npz(**{name: np.array(values) for name, values in WHOLE.items()})
    wanted = steps(**{name: np.array(v) for name, v in WHOLE.items() if name != "words"})
    told = numbers(run, "--matrix", "m.npz")
    assert told["words"] == ["the", "cat"]
    assert told["output"] == wanted.output.tolist()
    write_npz(x=np.array([[1, 0], [0, 2]]))
    assert numbers(run, "--matrix", "m.npz")["q"] == [[1.0, 0.0], [0.0, 2.0]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("1,0.5\n-2,3e1\n", ["x1", "x2"]),
        ("the,1,0.5\ncat,-2,3e1\n", ["the", "cat"]),
        ('"the", 1, 0.5\r\n"c,t", -2, 30\r\n', ["the", "c,t"]),
        ("1,0.5\n\n-2,30\n\n", ["x1", "x2"]),
        ("\ufeff1,0.5\n-2,30\n", ["x1", "x2"]),
        ("\ufeffthe,1,0.5\ncat,-2,30\n", ["the", "cat"]),
    ],
    ids=["bare", "labelled", "quoted", "blank-lines", "excel", "excel-labelled"],
)
def test_x_from_csv(run: Run, content: str, words: list[str]) -> None:
    Path("m.csv").write_bytes(content.encode())
    told = numbers(run, "--matrix", "m.csv")
    assert told["x"] == [[1.0, 0.5], [-2.0, 30.0]]
    assert told["words"] == words


def test_a_matrix_takes_heads_masks_and_scores(run: Run) -> None:
    Path("m.json").write_text(json.dumps([[1, 0, 2, 0], [0, 1, 1, 1], [1, 1, 0, 2]]))
    told = numbers(run, "--matrix", "m.json", "--heads", "2", "--causal", "--score", "cosine")
    assert np.shape(told["weights"]) == (2, 3, 3)
    assert told["weights"][1][0] == [1.0, 0.0, 0.0]
    assert told["scores"][0][0] == pytest.approx([1.0, 0.0, 0.5**0.5])


BAD_JSON: dict[str, tuple[str, tuple[str, ...]]] = {
    "ragged": ('{"x": [[1, 2], [3]]}', ("x is ragged", "row 1 has 1", "row 0 has 2")),
    "text": ('{"x": [[1, "two"]]}', ("'two'", "row 0, column 1", "expected numbers")),
    "null-inside": ('{"x": [[1, null]]}', ("None", "row 0, column 1")),
    "nan": ('{"x": [[1, 2], [NaN, 3]]}', ("nan", "row 1, column 0", "finite")),
    "infinite": ('{"x": [[1, -Infinity]]}', ("-inf", "row 0, column 1", "finite")),
    "product": (
        '{"x": [[1, 2]], "w_q": [[1, 2, 3]]}',
        ("x has d_in=2 but w_q has d_in=1", "x (1,2), w_q (1,3)"),
    ),
    "turned": (
        '{"x": [[1, 2]], "w_q": [[1, 2], [3, 4], [5, 6]]}',
        ("x has d_in=2 but w_q has d_in=3", "its transpose would fit"),
    ),
    "q-and-k": (
        '{"x": [[1, 2]], "w_q": [[1, 2], [3, 4]], "w_k": [[1], [2]]}',
        ("=1", "=2"),
    ),
    "final": ('{"x": [[1, 2]], "w_o": [[1]]}', ("d=2", "w_o has d_in=1")),
    "words": ('{"x": [[1, 2]], "words": ["a", "b"]}', ("2 words", "1 row")),
    "unknown": ('{"x": [[1, 2]], "w_p": [[1]]}', ("m.json: 'w_p' is unknown", "w_q, w_k, w_v")),
    "missing": ('{"w_q": [[1]]}', ("m.json: x is missing",)),
    "null": ('{"x": null}', ("m.json: x is missing",)),
    "vector": ('{"x": [1, 2]}', ("x has shape (2)",)),
    "empty-x": ('{"x": []}', ("x has shape (0)",)),
    "number": ("5", ("m.json: ", "expected")),
    "cut-off": ('{"x": [[1, 2],\n [3, 4]', ("m.json: line 2: ",)),
    "empty": ("", ("m.json: line 1: ",)),
    "deep": ("[" * 100_000, ("m.json: ",)),
    "long-integer": (f'{{"x": [[1{"0" * 400}]]}}', ("x",)),
    "longest-integer": (f'{{"x": [[1{"0" * 5000}]]}}', ("m.json: ",)),
    "number-for-words": ('{"x": [[1, 2]], "words": 5}', ("words",)),
    "numbers-for-words": ('{"x": [[1, 2]], "words": [5]}', ("words",)),
    "text-for-words": ('{"x": [[1], [2]], "words": "ab"}', ("words",)),
}


@pytest.mark.parametrize(("content", "says"), BAD_JSON.values(), ids=BAD_JSON.keys())
def test_a_bad_json_matrix(run: Run, content: str, says: tuple[str, ...]) -> None:
    Path("m.json").write_text(content)
    assert_fails(run("--matrix", "m.json", "--html", "a.html"), *says)
    assert files() == ["m.json"]


BAD_CSV: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "ragged": (b"1,2\n3\n", ("m.csv: line 2: 1 numbers, but 2",)),
    "text": (b"1,2\n3,four\n", ("m.csv: line 2: ", "'four'")),
    "some-words": (b"1,2\ncat,3\n", ("m.csv: line 2: some rows begin with a word",)),
    "nan": (b"1,2\n3,nan\n", ("nan", "row 1, column 1")),
    "empty": (b"", ("m.csv: ",)),
    "words-only": (b"the\ncat\n", ("m.csv: line 1: ",)),
    "semicolons": (b"1;2\n3;4\n", ("m.csv: line 1: ",)),
    "latin-1": (b"caf\xe9,1\n", ("m.csv: ", "UTF-8")),
    "endless": (b'"' + b"a" * 200_000 + b'",1\n', ("m.csv: line ",)),
}


@pytest.mark.parametrize(("content", "says"), BAD_CSV.values(), ids=BAD_CSV.keys())
def test_a_bad_csv_matrix(run: Run, content: bytes, says: tuple[str, ...]) -> None:
    Path("m.csv").write_bytes(content)
    assert_fails(run("--matrix", "m.csv"), *says)


class Mischief:
    """What a pickle may do to whoever opens it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("mischief"),))


def write_zip(name: str, content: bytes) -> None:
    with zipfile.ZipFile("m.npz", "w") as archive:
        archive.writestr(name, content)


def damage() -> None:
    write_npz(x=np.eye(3))
    content = bytearray(Path("m.npz").read_bytes())
    content[len(content) // 3] ^= 255
    Path("m.npz").write_bytes(content)


def cut_off() -> None:
    write_npz(x=np.eye(3))
    Path("m.npz").write_bytes(Path("m.npz").read_bytes()[:100])


def npy() -> None:
    np.save("m.npy", np.eye(2))
    Path("m.npy").rename("m.npz")


BAD_NPZ: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "damaged": (damage, ("m.npz: ",)),
    "cut-off": (cut_off, ("m.npz: ",)),
    "empty": (lambda: Path("m.npz").write_bytes(b""), ("m.npz: ",)),
    "junk": (lambda: Path("m.npz").write_bytes(b"junk" * 9), ("m.npz: not an .npz file",)),
    "pickle": (lambda: Path("m.npz").write_bytes(pickle.dumps(Mischief())), ("m.npz: ",)),
    "pickled-array": (
        lambda: write_npz(x=np.array([[Mischief()]], dtype=object)),
        ("m.npz: ", "pickle"),
    ),
    "npy": (npy, ("m.npz: not an .npz file",)),
    "other-zip": (lambda: write_zip("x", b"hello"), ("x",)),
    "unknown": (lambda: write_npz(x=np.eye(2), y=np.eye(2)), ("m.npz: 'y' is unknown",)),
    "missing": (lambda: write_npz(w_q=np.eye(2)), ("m.npz: x is missing",)),
    "nan": (lambda: write_npz(x=np.array([[1.0, np.nan]])), ("nan", "row 0, column 1")),
    "text": (lambda: write_npz(x=np.array([["a"]])), ("'a'", "row 0, column 0")),
    "complex": (lambda: write_npz(x=np.eye(2) + 1j), ("x", "complex")),
    "one-word": (lambda: write_npz(x=np.eye(2), words=np.array("ab")), ("words",)),
    "cube": (lambda: write_npz(x=np.zeros((2, 3, 5))), ("x has shape (2,3,5)",)),
}


@pytest.mark.parametrize(("write", "says"), BAD_NPZ.values(), ids=BAD_NPZ.keys())
def test_a_bad_npz_matrix(run: Run, write: Callable[[], Any], says: tuple[str, ...]) -> None:
    write()
    ran = run("--matrix", "m.npz")
    assert_fails(ran, *says)
    assert "unsafely" not in ran.err, "no advice to unpickle"
    assert files() == ["m.npz"], "nothing was unpickled"


def test_more_than_fits_in_memory(run: Run) -> None:
    assert_fails(run("a b", "--heads", "999999"), "not enough memory")


def test_a_matrix_file_that_is_not_there(run: Run) -> None:
    for name in ("none.json", "none.csv", "none.npz"):
        assert_fails(run("--matrix", name), f"{name}: ", "No such file")
    Path("m.txt").write_text("1 2")
    assert_fails(run("--matrix", "m.txt"), "m.txt: ", ".json", ".npz", ".csv")
    Path("b.json").write_bytes(b"\xff")
    assert_fails(run("--matrix", "b.json"), "b.json: not UTF-8 text")
    Path("d.json").mkdir()
    assert_fails(run("--matrix", "d.json"), "d.json: ", "Is a directory")


def test_options_that_a_matrix_leaves_no_room_for(run: Run) -> None:
    Path("m.json").write_text(json.dumps(WHOLE))
    Path("v.txt").write_text(GLOVE)
    assert_fails(run("--matrix", "m.json", "--vectors", "v.txt"), "--vectors")
    assert_fails(run("--matrix", "m.json", "--basic"), "--basic")


def test_numbers_too_large_to_multiply(run: Run) -> None:
    """An error or numbers, but never a JSON that is none."""
    Path("m.json").write_text("[[1e30, 1], [1, 1]]")
    ran = run("--matrix", "m.json", "--json")
    if ran.status:
        assert_fails(ran)
    else:
        strict_json(ran.out)
