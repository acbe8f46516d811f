"""Masked words, forms of numbers, words found by name, JSON, and every bad call."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from regard import ALiBi, Sinusoidal
from regard.attention import causal, dense, window
from regard.errors import OptionError, RegardError, ShapeError, WordError
from regard.walkthrough import NAMES, Steps, steps
from tests.walkthrough.cases import Rows, assert_equal, by_loops, noise, sizes, times, weights_of


def test_a_masked_word_is_told_apart() -> None:
    s = steps(noise(5, 3), words=list("abcde"), mask=window(before=1, after=1))
    third = s.of("a").steps[2]
    assert third.table.columns[-1] == "bias and mask"
    told = [row[-1] for row in third.table.rows]
    assert told == ["0.0000", "0.0000", *["masked: -∞"] * 3]
    assert third.note == "3 of 5 words are masked."
    fourth = s.of("a").steps[3]
    assert [row[1] for row in fourth.table.rows][2:] == [-math.inf] * 3
    assert "-∞" in str(s.of("a"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_without_mask_and_bias_there_is_no_column_for_them(dtype: torch.dtype) -> None:
    for seed in range(20):
        w = [noise(5, 7, seed=seed + i, dtype=dtype) for i in (1, 2, 3)]
        s = steps(noise(3, 5, seed=seed, dtype=dtype), *w)
        assert s.of(0).steps[2].table.columns == ("word", "score", "scaled")


def test_a_bias_is_told_apart() -> None:
    s = steps(noise(3, 4), position=ALiBi(1))
    third = s.of(0).steps[2]
    assert [row[-1] for row in third.table.rows] == ["0.0000", "-0.0039", "-0.0078"]
    assert third.note == ""


def test_a_word_with_nothing_to_see() -> None:
    seen = torch.ones(3, 3, dtype=torch.bool)
    seen[1] = False
    s = steps(noise(3, 2), words=["the", "cat", "sat"], mask=dense(seen))
    assert s.weights[1].tolist() == [0.0, 0.0, 0.0]
    assert s.output[1].tolist() == [0.0, 0.0]
    told = s.of("cat")
    assert told.steps[3].formula == "there is nothing to attend to, so every weight is 0"
    assert [row[1] for row in told.steps[3].table.rows] == [0.0, 0.0, 0.0]
    assert "sum to 1" not in str(told)
    assert "nan" not in str(told) + told.html() + told.latex()
    assert told.steps[5].table.rows == (("cat", (0.0, 0.0)),)
    assert "sum to 1.0000" in str(s.of("sat"))


def test_matrices_do_not_claim_a_sum_that_is_not_there() -> None:
    seen = torch.ones(3, 3, dtype=torch.bool)
    seen[1] = False
    assert "every row sums to 1 " in str(steps(noise(3, 2)))
    assert "every row sums to 1 " not in str(steps(noise(3, 2), mask=dense(seen)))


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda rows: rows, torch.float32),
        (lambda rows: [tuple(row) for row in rows], torch.float32),
        (lambda rows: np.array(rows, np.float64), torch.float64),
        (lambda rows: np.array(rows, np.float32), torch.float32),
        (lambda rows: np.array(rows, np.int32), torch.float32),
        (lambda rows: np.array(rows, np.float16), torch.float32),
        (lambda rows: [[int(value) for value in row] for row in rows], torch.float32),
        (lambda rows: torch.tensor(rows, dtype=torch.int64), torch.float32),
        (lambda rows: torch.tensor(rows, dtype=torch.bfloat16), torch.float32),
        (lambda rows: torch.tensor(rows, dtype=torch.float64), torch.float64),
        (lambda rows: np.array(rows[::-1])[::-1], torch.float64),
        (lambda rows: np.array(rows).T.copy().T, torch.float64),
        (lambda rows: [np.array(row) for row in rows], torch.float64),
        (lambda rows: [torch.tensor(row) for row in rows], torch.float32),
    ],
    ids=[
        "lists",
        "tuples",
        "float64",
        "float32",
        "int32",
        "float16",
        "ints",
        "int64-tensor",
        "bfloat16-tensor",
        "float64-tensor",
        "reversed-array",
        "turned-array",
        "list-of-arrays",
        "list-of-tensors",
    ],
)
def test_any_form_of_numbers(make: Callable[[Rows], Any], dtype: torch.dtype) -> None:
    rows = [[1.0, 0.0, 2.0], [0.0, 2.0, -1.0]]
    s = steps(make(rows), words=["the", "cat"])
    assert s.output.dtype == dtype
    assert s.x.tolist() == rows
    wanted = by_loops(rows, rows, rows, divide=False)["heads"]
    torch.testing.assert_close(s.output, torch.tensor(wanted, dtype=dtype))


def test_read_only_arrays_are_read() -> None:
    x = np.eye(3)
    x.flags.writeable = False
    assert steps(x).x.tolist() == np.eye(3).tolist()


def test_mixed_dtypes_meet_in_the_widest() -> None:
    x, w_q = [[1, 0], [2, 1]], np.array([[0.1, 0.2], [0.3, 0.4]])
    s = steps(x, w_q, torch.eye(2), torch.eye(2, dtype=torch.float16))
    assert {getattr(s, name).dtype for name in NAMES[1:]} == {torch.float64}
    assert_equal(s.q, times([[1.0, 0.0], [2.0, 1.0]], w_q.tolist()))


def test_steps_keep_their_numbers_when_an_array_is_changed_later() -> None:
    x = np.array([[1.0, 0.5], [0.0, 2.0], [1.0, 1.0]])
    s, wanted = steps(x), steps(x.copy())
    x[0] = 99.0
    for name in NAMES[1:]:
        assert torch.equal(getattr(s, name), getattr(wanted, name)), name


def sentence() -> Steps:
    return steps(noise(4, 3), words=["the", "cat", "the", "sat"])


@pytest.mark.parametrize(
    ("asked", "title"),
    [
        (("cat",), "cat, word 2 of 4"),
        (("CAT",), "cat, word 2 of 4"),
        (("the",), "the, word 1 of 4"),
        (("the", 1), "the, word 1 of 4"),
        (("the", 2), "the, word 3 of 4"),
        ((0,), "the, word 1 of 4"),
        ((3,), "sat, word 4 of 4"),
        ((-1,), "sat, word 4 of 4"),
        ((-4,), "the, word 1 of 4"),
    ],
)
def test_of_finds_the_word(asked: tuple[Any, ...], title: str) -> None:
    told = sentence().of(*asked)
    assert told.title == f"{title}: the cat the sat"
    place = int(re.search(r"word (\d)", title)[1]) - 1
    assert told.steps[5].table.rows[0][1] == tuple(sentence().output[place].tolist())
    assert [step.table.marked for step in told.steps[:5]] == [place] * 5


def test_of_prefers_the_case_that_was_asked_for() -> None:
    s = steps(noise(3, 2), words=["The", "cat", "the"])
    assert s.of("the").title.startswith("the, word 3 of 3")
    assert s.of("The").title.startswith("The, word 1 of 3")
    assert s.of("THE", 2).title.startswith("the, word 3 of 3")


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (("cta",), "'cta' is not in the text; did you mean 'cat'?"),
        (("dog",), "'dog' is not in the text; there are the, cat, the, sat"),
        (("the", 3), "'the' is in the text 2 times; occurrence 3 asked for"),
        (("the", 0), "'the' is in the text 2 times; occurrence 0 asked for"),
        (("cat", 2), "'cat' is in the text once; occurrence 2 asked for"),
        ((4,), "word 4 asked for, but there are 4, numbered from 0"),
        ((-5,), "word -5 asked for, but there are 4, numbered from 0"),
    ],
)
def test_of_a_word_that_is_not_there(asked: tuple[Any, ...], text: str) -> None:
    with pytest.raises(WordError, match=f"^{re.escape(text)}$"):
        sentence().of(*asked)


def test_a_missing_word_in_a_long_text_does_not_print_the_text() -> None:
    s = steps(noise(300, 2), words=[f"word{i}" for i in range(300)])
    with pytest.raises(WordError) as error:
        s.of("?!")
    assert len(str(error.value)) < 200


def test_words_without_names_are_numbered() -> None:
    s = steps(noise(3, 2))
    assert s.words == ("x1", "x2", "x3")
    assert s.of("x2").title == "x2, word 2 of 3: x1 x2 x3"


@pytest.mark.parametrize("heads", [1, 3])
def test_data_is_json_in_the_order_of_the_steps(heads: int) -> None:
    n, d_in, d, e = 5, 7, 2, 4
    w = weights_of(d_in, heads * d, heads * e)
    words = ["the", "cat", "sät", "</script>", '"']
    s = steps(noise(n, d_in), *w, words=words, heads=heads, mask=causal)
    told = s.to_data()
    wanted = ["words", "x", "q", "k", "v", "scores", "scaled", "weights", "weighted", "output"]
    assert list(told) == wanted == list(NAMES)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["words"] == words
    lead = () if heads == 1 else (heads,)
    assert {name: sizes(told[name]) for name in wanted[1:]} == {
        "x": (n, d_in),
        "q": (*lead, n, d),
        "k": (*lead, n, d),
        "v": (*lead, n, e),
        "scores": (*lead, n, n),
        "scaled": (*lead, n, n),
        "weights": (*lead, n, n),
        "weighted": (*lead, n, n, e),
        "output": (n, heads * e),
    }
    for name in wanted[1:]:
        assert told[name] == getattr(s, name).tolist()


BAD: dict[str, tuple[Callable[[], Steps], type[Exception], str]] = {
    "words": (
        lambda: steps(noise(3, 2), words=["a", "b"]),
        ShapeError,
        "steps: 2 words but x has 3 rows (x (3,2)); give one word per row",
    ),
    "ragged": (
        lambda: steps([[1.0, 2.0], [3.0]]),
        ShapeError,
        "steps: x is ragged: row 1 has 1 numbers and row 0 has 2; give rows of equal length",
    ),
    "ragged-weights": (
        lambda: steps([[1.0, 2.0]], [[1.0], [2.0, 3.0]]),
        ShapeError,
        "steps: w_q is ragged: row 1 has 2 numbers and row 0 has 1; give rows of equal length",
    ),
    "text": (
        lambda: steps([[1.0, "two"]]),
        ShapeError,
        "steps: x has 'two' at row 0, column 1 (numbered from 0); expected numbers",
    ),
    "none-inside": (
        lambda: steps([[1.0, 2.0]], [[1.0], [None]]),
        ShapeError,
        "steps: w_q has None at row 1, column 0 (numbered from 0); expected numbers",
    ),
    "nan": (
        lambda: steps([[1.0, 2.0], [math.nan, 0.0]]),
        OptionError,
        "steps: x has nan at row 1, column 0 (numbered from 0); expected finite numbers",
    ),
    "infinite": (
        lambda: steps([[1.0]], [[1.0]], [[-math.inf]]),
        OptionError,
        "steps: w_k has -inf at row 0, column 0 (numbered from 0); expected finite numbers",
    ),
    "vector": (
        lambda: steps([1.0, 2.0]),
        ShapeError,
        "steps: x has shape (2), expected rows and columns; one vector per word",
    ),
    "batch": (
        lambda: steps(noise(2, 3, 5)),
        ShapeError,
        "steps: x has shape (2,3,5), expected rows and columns; one vector per word",
    ),
    "weight-vector": (
        lambda: steps(noise(3, 2), noise(2)),
        ShapeError,
        "steps: w_q has shape (2), expected rows and columns; weights are (d_in,d_out)",
    ),
    "empty": (
        lambda: steps([]),
        ShapeError,
        "steps: x has shape (0), expected rows and columns; one vector per word",
    ),
    "product": (
        lambda: steps(noise(3, 2), noise(5, 7)),
        ShapeError,
        "steps: x has d_in=2 but w_q has d_in=5 (x (3,2), w_q (5,7)); weights are (d_in,d_out), "
        "used as x @ w",
    ),
    "product-turned": (
        lambda: steps(noise(3, 2), noise(2, 7), noise(2, 7), noise(5, 2)),
        ShapeError,
        "steps: x has d_in=2 but w_v has d_in=5 (x (3,2), w_v (5,2)); weights are (d_in,d_out), "
        "used as x @ w; its transpose would fit",
    ),
    "final-product": (
        lambda: steps(noise(3, 4), heads=2, w_o=noise(5, 7)),
        ShapeError,
        "steps: the heads side by side have d=4 but w_o has d_in=5 (w_o (5,7)); weights are "
        "(d_in,d_out), used as x @ w",
    ),
    "heads": (
        lambda: steps(noise(3, 4), heads=3),
        ShapeError,
        "steps: queries of width 4 do not split into heads=3; choose heads that divide 4",
    ),
    "no-heads": (
        lambda: steps(noise(3, 4), heads=0),
        OptionError,
        "steps: heads=0, expected 1 or more",
    ),
    "kv-heads": (
        lambda: steps(noise(3, 4), noise(4, 6), noise(4, 5), noise(4, 5), heads=2),
        ShapeError,
        "steps: keys of width 5 and values of width 5 do not split beside heads=2 of width 3; "
        "give w_k and w_v as many columns as w_q",
    ),
}


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(("call", "kind", "text"), BAD.values(), ids=BAD.keys())
def test_what_does_not_fit_is_said(
    call: Callable[[], Steps], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=f"^{re.escape(text)}$"):
        call()


CLUMSY: dict[str, tuple[Callable[[], Steps], str]] = {
    "no-x": (lambda: steps(None), "x"),
    "position-by-name": (lambda: steps(noise(3, 2), position="rotary"), "position"),
    "position-class": (lambda: steps(noise(3, 2), position=Sinusoidal), "position"),
    "words-of-numbers": (lambda: steps(noise(3, 2), words=[1, 2, 3]), "words"),  # type: ignore
    "words-as-one-text": (lambda: steps(noise(3, 2), words="cat"), "words"),
    "huge-integer": (lambda: steps([[10**400, 1]]), "finite"),
    "complex": (lambda: steps(torch.ones(3, 2, dtype=torch.complex64)), "complex"),
    "unequal-q-and-k": (
        lambda: steps(noise(3, 2), noise(2, 5), noise(2, 7), noise(2, 5)),
        "w_k",
    ),
    "unknown-score": (lambda: steps(noise(3, 2), score="dott"), "did you mean 'dot'?"),
}


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(("call", "named"), CLUMSY.values(), ids=CLUMSY.keys())
def test_a_bad_call_names_steps_and_what_is_wrong(call: Callable[[], Steps], named: str) -> None:
    with pytest.raises(RegardError, match=f"^steps: .*{re.escape(named)}"):
        call()


def test_numbers_too_large_to_multiply_do_not_become_nan() -> None:
    """1e30 is a finite float32, its square is not: an error, or a calculation that holds it."""
    try:
        s = steps([[1e30, 1.0], [1.0, 1.0]])
    except RegardError:
        return
    assert not s.weights.isnan().any()
