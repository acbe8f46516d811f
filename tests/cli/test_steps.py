"""``regard steps``: what it prints, what it writes, and the one line with which it fails."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from regard.cli import main
from regard.walkthrough import steps
from regard.walkthrough.worked_example import worked

SOURCE = Path(__file__).parents[2] / "src"
KEYS = ["words", "x", "q", "k", "v", "scores", "scaled", "weights", "weighted", "output"]
GLOVE = "the 0.5 -1 2\ncat 0.25 1 -0.5\nsat 1 2 3\n"


class Ran(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """``regard steps …`` in this process."""

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["regard", "steps", *arguments])
        status = 0
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        return Ran(status, *capsys.readouterr())

    return run


def program(*arguments: str | bytes, stdout: Any = subprocess.PIPE, **environment: str) -> Ran:
    """``regard …`` as a process of its own, as from a shell."""
    command = [sys.executable, "-c", "from regard.cli import main; main()", *arguments]
    settings = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, env=settings, timeout=120, check=False
    )
    encoding = environment.get("PYTHONIOENCODING", "utf-8").split(":")[0]
    out, err = (
        (text or b"").decode(encoding, "surrogateescape") for text in (done.stdout, done.stderr)
    )
    return Ran(done.returncode, out, err)


def assert_fails(ran: Ran, *says: str, status: int = 1) -> None:
    assert ran.out == ""
    assert ran.err.startswith("regard: ")
    assert ran.err.endswith("\n")
    assert ran.err.count("\n") == 1, ran.err
    assert ran.status == status
    for said in says:
        assert said in ran.err


def strict(text: str) -> Any:
    """JSON as every language reads it: no NaN, no Infinity."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def numbers(run: Run, *arguments: str) -> dict[str, Any]:
    ran = run(*arguments, "--json")
    assert (ran.status, ran.err) == (0, "")
    return strict(ran.out)


def files() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


# The program itself


def test_the_program_prints_the_six_steps(run: Run) -> None:
    ran = program("steps", "the cat sat", "--word", "cat")
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "cat, word 2 of 3: the cat sat"
    assert lines[2].startswith("Vectors and weights are made up (seed 0)")
    titles = [
        "Query, keys and values",
        "Scores",
        "Scaling",
        "Softmax",
        "Values times weights",
        "Sum",
    ]
    assert [line.split(": ")[0] for line in lines if line[:1].isdigit()] == [
        f"{i}. {title}" for i, title in enumerate(titles, 1)
    ]
    assert ran == run("the cat sat", "--word", "cat"), "the same in every process"


def test_the_program_prints_json() -> None:
    ran = program("steps", "das Mädchen", "--json")
    assert (ran.status, ran.err) == (0, "")
    told = strict(ran.out)
    assert list(told) == KEYS
    assert told["words"] == ["das", "Mädchen"]
    assert ran.out.count("\n") == 1
    assert "Mädchen" in ran.out


@pytest.mark.parametrize("arguments", [("the cat",), (" ".join(["cat"] * 150), "--json")])
def test_a_closed_pipe_is_no_reason_to_complain(arguments: tuple[str, ...]) -> None:
    end, begin = os.pipe()
    os.close(end)
    try:
        ran = program("steps", *arguments, stdout=begin)
    finally:
        os.close(begin)
    assert ran.err == ""
    assert ran.status in (0, 1, 141)


def test_only_the_first_line_is_wanted() -> None:
    """``regard steps … | head -1``"""
    settings = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "from regard.cli import main; main()", "steps", "cat " * 200]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=settings
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline().startswith(b"Self-attention in six steps: cat cat")
        child.stdout.close()
        assert child.stderr.read() == b""


def test_a_terminal_that_lacks_some_characters() -> None:
    """As on Windows, where a pipe has no √ and no ←."""
    ran = program("steps", "the cat", "--word", "cat", PYTHONIOENCODING="cp1252")
    assert ran.err == ""
    assert ran.status == 0
    assert "cat, word 2 of 2: the cat" in ran.out
    assert "6. Sum: z(cat)" in ran.out


def test_an_argument_that_is_not_utf_8() -> None:
    ran = program("steps", b"caf\xe9 x", "--word", "x", PYTHONIOENCODING="utf-8:strict")
    if ran.status:
        assert_fails(ran)
    else:
        assert ran.err == ""


def test_a_typo_in_an_option() -> None:
    assert_fails(program("steps", "the cat", "--wrod", "cat"), "--wrod", status=2)


def test_nothing_to_do(run: Run) -> None:
    ran = run()
    assert_fails(ran, "sentence", "--matrix", "--example worked", status=ran.status or 1)


def test_no_verb_is_a_question(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["regard"])
    main()
    told = capsys.readouterr()
    assert told.err == ""
    assert "steps" in told.out


# Sentences


def test_json_has_the_keys_in_the_order_of_the_steps(run: Run) -> None:
    told = numbers(run, "the cat sat on")
    assert list(told) == KEYS
    assert told["words"] == ["the", "cat", "sat", "on"]
    x, q, k, v, scores, scaled, weights, weighted, output = (
        torch.tensor(told[name], dtype=torch.float64) for name in KEYS[1:]
    )
    assert x.shape == (4, 4)
    assert q.shape == k.shape == v.shape == output.shape == (4, 3)
    assert weighted.shape == (4, 4, 3)
    assert not (q == k).all()
    assert not (k == v).all()
    torch.testing.assert_close(scores, q @ k.T)
    torch.testing.assert_close(scaled, scores / 3**0.5)
    torch.testing.assert_close(weights, scaled.softmax(-1))
    torch.testing.assert_close(weighted, weights[..., None] * v)
    torch.testing.assert_close(output, weights @ v)


def test_the_matrices_are_printed_without_a_word(run: Run) -> None:
    ran = run("the cat sat")
    assert ran.out.startswith("Self-attention in six steps: the cat sat\n\nVectors and weights are")
    assert ran.out.endswith("]\n")
    for title in ("Queries", "Keys", "Values", "Scores", "Weights", "Output"):
        assert f". {title}: " in ran.out


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("the cat", ["the", "cat"]),
        ("  the\tcat\nsat ", ["the", "cat", "sat"]),
        ("It didn't cross, did it?", ["It", "didn't", "cross", ",", "did", "it", "?"]),
        ("l’été à 5°", ["l’été", "à", "5", "°"]),
        ("猫 кот", ["猫", "кот"]),
    ],
)
def test_a_sentence_falls_into_words(run: Run, sentence: str, words: list[str]) -> None:
    assert numbers(run, sentence)["words"] == words


def test_the_same_word_has_the_same_vector_everywhere(run: Run) -> None:
    one, other = numbers(run, "the cat The"), numbers(run, "a cat")
    assert one["x"][1] == other["x"][1]
    assert one["x"][0] == one["x"][2]
    assert one["x"][0] != one["x"][1]
    assert one["q"][1] == other["q"][1]


def test_the_seed_makes_the_numbers(run: Run) -> None:
    plain, again, other = (
        run("the cat sat", *seed) for seed in ((), ("--seed", "0"), ("--seed", "7"))
    )
    assert plain == again
    assert "made up (seed 7)" in other.out
    first, second = (numbers(run, "the cat sat", "--seed", seed) for seed in "07")
    assert first["x"] != second["x"]
    assert numbers(run, "the cat sat", "--seed", "7") == second
    assert numbers(run, "the cat sat", "--seed", "-1")["x"] != first["x"]


def test_basic_compares_the_vectors_themselves(run: Run) -> None:
    told = numbers(run, "the cat sat", "--basic")
    assert told["x"] == told["q"] == told["k"] == told["v"]
    assert told["scaled"] == told["scores"]
    text = run("the cat sat", "--basic").out
    assert "The vectors are made up (seed 0). No weights: the vectors themselves" in text
    assert "No weights" not in run("the cat sat").out


def seen(told: dict[str, Any]) -> list[str]:
    return ["".join("x" if weight else "." for weight in row) for row in told["weights"]]


def test_windows_and_causal(run: Run) -> None:
    sentence = "a b c d"
    assert seen(numbers(run, sentence)) == ["xxxx"] * 4
    assert seen(numbers(run, sentence, "--causal")) == ["x...", "xx..", "xxx.", "xxxx"]
    assert seen(numbers(run, sentence, "--window", "1")) == ["x...", ".x..", "..x.", "...x"]
    assert seen(numbers(run, sentence, "--window", "2")) == ["xx..", "xxx.", ".xxx", "..xx"]
    both = numbers(run, sentence, "--window", "2", "--causal")
    assert seen(both) == ["x...", "xx..", ".xx.", "..xx"]
    assert both["scaled"] == numbers(run, sentence)["scaled"]
    wide, whole = (numbers(run, sentence, *window) for window in (("--window", "4"), ()))
    np.testing.assert_allclose(wide["weights"], whole["weights"], rtol=1e-12)
    text = run(sentence, "--window", "2", "--word", "a").out
    assert text.count("may not look: -∞") == 2


def test_heads(run: Run) -> None:
    told = numbers(run, "the cat sat", "--heads", "2")
    assert np.shape(told["q"]) == (2, 3, 3)
    assert np.shape(told["weights"]) == (2, 3, 3)
    assert np.shape(told["output"]) == (3, 6)
    text = run("the cat sat", "--heads", "2", "--word", "sat").out
    assert text.count("6. Sum: z(sat)") == 2
    assert "Head 1" in text


@pytest.mark.parametrize("score", ["dot", "scaled_dot", "cosine", "gaussian"])
def test_scores(run: Run, score: str) -> None:
    told = numbers(run, "the cat sat", "--score", score)
    x = torch.tensor(told["q"], dtype=torch.float64)
    y = torch.tensor(told["k"], dtype=torch.float64)
    wanted = {
        "dot": x @ y.T,
        "scaled_dot": x @ y.T / 3**0.5,
        "cosine": torch.cosine_similarity(x[:, None], y[None], dim=-1),
        "gaussian": -torch.cdist(x, y).square() / 2,
    }[score]
    torch.testing.assert_close(torch.tensor(told["scaled"], dtype=torch.float64), wanted)


def test_the_word_in_the_spotlight(run: Run) -> None:
    sentence = "the cat saw the dog"
    assert run(sentence, "--word", "cat").out.startswith("cat, word 2 of 5")
    assert run(sentence, "--word", "CAT").out.startswith("cat, word 2 of 5")
    assert run(sentence, "--word", "the").out.startswith("the, word 1 of 5")
    twice = run(sentence, "--word", "the", "--occurrence", "2")
    assert twice.out.startswith("the, word 4 of 5")
    assert_fails(run(sentence, "--word", "cta"), "'cta' is not in the text", "mean 'cat'?")
    assert_fails(run(sentence, "--word", "xylophone"), "is not in the text", "the, cat, saw")
    assert_fails(run(sentence, "--word", "the", "--occurrence", "3"), "'the'", "2 times")
    assert_fails(run(sentence, "--word", "cat", "--occurrence", "0"), "'cat'", "once")
    assert_fails(run(sentence, "--word", "cta", "--json"), "mean 'cat'?")


def test_the_worked_example(run: Run) -> None:
    told = numbers(run, "--example", "worked")
    assert told == worked().to_data()
    assert told["scores"][0] == pytest.approx([0.98, 1.84, 1.01], abs=1e-12)
    assert told["words"] == ["x1", "x2", "x3"]
    text = run("--example", "worked", "--word", "x1").out
    assert text == f"{worked().of('x1')}\n"
    assert "0.2732" in text
    assert "made up" not in text


@pytest.mark.parametrize(
    "arguments",
    [
        ("",),
        ("  ",),
        ("the cat", "--heads", "0"),
        ("the cat", "--heads", "-1"),
        ("the cat", "--window", "0"),
        ("the cat", "--window", "-2"),
        ("the cat", "--score", "dott"),
        ("--example", "wroked"),
        ("--example", "worked", "--window", "2"),
        ("--example", "worked", "--causal"),
        ("--example", "worked", "--heads", "0"),
        ("--example", "worked", "--basic"),
        ("the cat", "--example", "worked"),
        ("the cat", "--matrix", "m.json"),
        ("--matrix", "m.json", "--example", "worked"),
    ],
    ids=str,
)
def test_what_cannot_be_done(run: Run, arguments: tuple[str, ...]) -> None:
    Path("m.json").write_text("[[1, 0], [0, 1]]")
    assert_fails(run(*arguments))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("the cat", "--heads", "two"), "--heads"),
        (("the cat", "--seed", "x"), "--seed"),
        (("the cat", "--window", "1.5"), "--window"),
        (("the", "cat"), "cat"),
        (("the cat", "--word"), "--word"),
        (("the cat", "--jsn"), "--json"),
    ],
    ids=str,
)
def test_a_wrong_use_has_status_2(run: Run, arguments: tuple[str, ...], said: str) -> None:
    assert_fails(run(*arguments), said, status=2)


def test_an_unknown_score_is_told_in_the_words_of_the_command(run: Run) -> None:
    ran = run("the cat", "--score", "dott")
    assert_fails(ran, "regard: steps: ", "'dott'", "gaussian", "did you mean 'dot'?")


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


def test_a_matrix_file_that_is_not_there(run: Run) -> None:
    for name in ("none.json", "none.csv", "none.npz"):
        assert_fails(run("--matrix", name), f"{name}: ", "No such file")
    Path("m.txt").write_text("1 2")
    assert_fails(run("--matrix", "m.txt"), "m.txt: ", ".json", ".npz", ".csv")
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
        strict(ran.out)


# Files


class Cells(HTMLParser):
    """The text of the page's tables, and its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.found.append(data)


def test_html_and_latex_are_written(run: Run) -> None:
    ran = run("the <b> cat", "--word", "cat", "--html", "a.html", "--latex", "a.tex")
    assert ran == Ran(0, "", "regard: wrote a.html\nregard: wrote a.tex\n")
    page = Path("a.html").read_text(encoding="utf-8")
    cells = Cells()
    cells.feed(page)
    assert "b" in cells.tags, "the numbers of the steps"
    assert "cat, word 5 of 5: the < b > cat" in cells.found
    assert "cat ←" in cells.found
    assert "made up (seed 0)" in page
    assert not {"script", "link", "img"} & cells.tags
    tex = Path("a.tex").read_text(encoding="utf-8")
    assert tex.startswith("\\paragraph{cat, word 5 of 5")
    assert "made up (seed 0)" in tex
    assert files() == ["a.html", "a.tex"]


def test_a_page_and_json_together(run: Run) -> None:
    ran = run("the cat", "--html", "a.html", "--json")
    assert list(strict(ran.out)) == KEYS
    assert ran.err == "regard: wrote a.html\n"
    assert files() == ["a.html"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--html", "a.htm"),
        ("--html", "a"),
        ("--html", "a.tex"),
        ("--latex", "a.html"),
        ("--latex", "a.txt"),
        ("--html", "none/a.html"),
        ("--latex", "none/a.tex"),
        ("--html", "taken.html"),
        ("--html", "a.html", "--latex", "a.txt"),
        ("--html", "a.html", "--latex", "none/a.tex"),
        ("--html", "a.html", "--word", "dog"),
        ("--html", "none/a.html", "--json"),
    ],
    ids=" ".join,
)
def test_nothing_is_half_written(run: Run, arguments: tuple[str, ...]) -> None:
    Path("taken.html").mkdir()
    assert_fails(run("the cat", *arguments))
    assert files() == ["taken.html"]
    assert list(Path("taken.html").iterdir()) == []


def test_an_ending_that_does_not_fit_is_named(run: Run) -> None:
    assert_fails(run("the cat", "--html", "a.txt"), "a.txt", ".html")
    assert_fails(run("the cat", "--latex", "a.html"), "a.html", ".tex")
    assert_fails(run("the cat", "--html", "none/a.html"), "none/a.html", "No such file")


def test_an_existing_page_survives_a_failure(run: Run) -> None:
    Path("a.html").write_text("what was there")
    assert_fails(run("the cat", "--html", "a.html", "--word", "dog"))
    assert Path("a.html").read_text() == "what was there"
    assert run("the cat", "--html", "a.html").status == 0
    assert Path("a.html").read_text(encoding="utf-8").startswith("<!doctype html>")
