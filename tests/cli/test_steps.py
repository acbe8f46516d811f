"""``regard steps``: what it prints of a sentence, and the one line with which it fails."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.walkthrough.worked_example import worked
from tests.cli.result import Result, Run
from tests.cli.step_cases import KEYS, assert_fails, numbers, strict_json

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def run(program: Run) -> Run:
    """``regard steps …``."""
    return partial(program, "steps")


def run_process(
    *arguments: str | bytes, stdout: Any = subprocess.PIPE, **environment: str
) -> Result:
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
    return Result(done.returncode, out, err)


# The program itself


def test_the_program_prints_the_six_steps(run: Run) -> None:
    ran = run_process("steps", "the cat sat", "--word", "cat")
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


def test_the_program_prints_json(run: Run) -> None:
    ran = run("das Mädchen", "--json")
    assert (ran.status, ran.err) == (0, "")
    told = strict_json(ran.out)
    assert list(told) == KEYS
    assert told["words"] == ["das", "Mädchen"]
    assert ran.out.count("\n") == 1
    assert "Mädchen" in ran.out


@pytest.mark.parametrize("arguments", [("the cat",), (" ".join(["cat"] * 150), "--json")])
def test_a_closed_pipe_is_no_reason_to_complain(arguments: tuple[str, ...]) -> None:
    end, begin = os.pipe()
    os.close(end)
    try:
        ran = run_process("steps", *arguments, stdout=begin)
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
        assert child.stdout.readline().startswith(b"Self-attention in matrix form: cat cat")
        child.stdout.close()
        assert child.stderr.read() == b""


def test_a_terminal_that_lacks_some_characters() -> None:
    """As on Windows, where a pipe has no √ and no ←."""
    ran = run_process("steps", "the cat", "--word", "cat", PYTHONIOENCODING="cp1252")
    assert ran.err == ""
    assert ran.status == 0
    assert "cat, word 2 of 2: the cat" in ran.out
    assert "6. Sum: z(cat)" in ran.out


def test_an_argument_that_is_not_utf_8() -> None:
    ran = run_process("steps", b"caf\xe9 x", "--word", "x", PYTHONIOENCODING="utf-8:strict")
    if ran.status:
        assert_fails(ran)
    else:
        assert ran.err == ""


def test_a_typo_in_an_option(run: Run) -> None:
    assert_fails(run("the cat", "--wrod", "cat"), "--wrod", status=2)


def test_nothing_to_do(run: Run) -> None:
    ran = run()
    assert_fails(ran, "sentence", "--matrix", "--example worked", status=ran.status or 1)


def test_no_verb_is_a_question(program: Run) -> None:
    status, out, err = program()
    assert (status, err) == (0, "")
    assert "steps" in out


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
    assert ran.out.startswith(
        "Self-attention in matrix form: the cat sat\n\nVectors and weights are"
    )
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
    assert text.count("masked: -∞") == 2


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
    assert_fails(ran, "--score dott is unknown, expected dot, scaled_dot, cosine, gaussian")
