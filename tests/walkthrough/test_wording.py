"""The six steps in words: what is printed, and that its numbers are those of the steps."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard import Rotary, Scaled
from regard.walkthrough import steps
from regard.walkthrough.worked_example import W_K, W_Q, W_V, X

quick = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**31 - 1)


def noise(*sizes: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def weights_of(d_in: int, d: int, e: int, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    return noise(d_in, d, seed=seed), noise(d_in, d, seed=seed + 1), noise(d_in, e, seed=seed + 2)


GOLDEN = """\
cat, word 2 of 3: the cat sat

1. Query, keys and values: q(cat) = x W_Q = [0.6 1 1.2]; k = x W_K and v = x W_V
   word               k              v
   the    [0.6 0.5 0.4]  [0.6 0.5 0.4]
   cat ←    [0.8 1 1.2]    [0.8 1 1.2]
   sat    [0.5 0.6 0.5]  [0.5 0.6 0.5]
   x(cat) = [0 2 2 0]

2. Scores: q(cat) · k(each word)
   word                         q·k       =
   the    0.6×0.6 + 1×0.5 + 1.2×0.4  1.3400
   cat ←    0.6×0.8 + 1×1 + 1.2×1.2  2.9200
   sat    0.6×0.5 + 1×0.6 + 1.2×0.5  1.5000

3. Scaling: divided by √d_k = √3 = 1.7321
   word    score  scaled
   the    1.3400  0.7736
   cat ←  2.9200  1.6859
   sat    1.5000  0.8660

4. Softmax: e^scaled over their sum, 9.9422
   word   scaled  e^scaled  weight
   the    0.7736    2.1677  0.2180
   cat ←  1.6859    5.3971  0.5428
   sat    0.8660    2.3774  0.2391
   They are positive and sum to 1.0000.

5. Values times weights: each value times its weight; small weights contribute little
   word   weight          value          weight × value
   the    0.2180  [0.6 0.5 0.4]   [0.1308 0.109 0.0872]
   cat ←  0.5428    [0.8 1 1.2]  [0.4343 0.5428 0.6514]
   sat    0.2391  [0.5 0.6 0.5]  [0.1196 0.1435 0.1196]

6. Sum: z(cat) = Σ weight × value
   word                       z
   cat   [0.6847 0.7953 0.8582]
   This is passed on to the next layer."""


def test_the_account_of_a_word_to_the_letter() -> None:
    x, *w = (torch.tensor(m, dtype=torch.float64) for m in (X, W_Q, W_K, W_V))
    s = steps(x, *(one.T for one in w), words=["the", "cat", "sat"])
    assert str(s.of("cat")) == GOLDEN


NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?"


def numbers(text: str) -> list[float]:
    return [float(found) for found in re.findall(NUMBER, text)]


def assert_printed(printed: list[float], exact: list[float]) -> None:
    """Four decimals, or three digits where there is an exponent."""
    assert len(printed) == len(exact)
    for shown, value in zip(printed, exact, strict=True):
        assert shown == pytest.approx(value, abs=5.1e-5, rel=5.1e-3 if abs(value) > 9e3 else 0)


@quick
@given(seeds, st.sampled_from([1.0, 30.0, 0.01]))
def test_the_printed_numbers_are_the_tensors(seed: int, size: float) -> None:
    x, w = noise(5, 7, seed=seed) * size, weights_of(7, 3, 5, seed=seed)
    s = steps(x, *w, words=["ant", "bee", "cow", "dog", "eel"])
    one, two, three, four, five, six = (
        [line for line in part.splitlines()[2:] if line.startswith("   ")]
        for part in str(s.of("cow")).split("\n\n")[1:]
    )
    for j in range(5):
        assert_printed(numbers(one[j]), s.k[j].tolist() + s.v[j].tolist())
        pairs = torch.stack([s.q[2], s.k[j]], 1).flatten().tolist()
        assert_printed(numbers(two[j]), [*pairs, s.scores[2, j].item()])
        assert_printed(numbers(three[j]), [s.scores[2, j].item(), s.scaled[2, j].item()])
        shown = numbers(four[j])
        assert_printed([shown[0], shown[2]], [s.scaled[2, j].item(), s.weights[2, j].item()])
        exact = [s.weights[2, j].item(), *s.v[j].tolist(), *s.weighted[2, j].tolist()]
        assert_printed(numbers(five[j]), exact)
    assert_printed(numbers(six[0]), s.output[2].tolist())
    assert f"√3 = {3**0.5:.4f}" in str(s.of("cow"))


def test_long_vectors_say_how_long_they_are() -> None:
    s = steps(noise(3, 64), words=["the", "cat", "sat"])
    first = s.of("cat").steps[0].table.rows[0][1]
    assert len(first) == 64, "the account keeps all of them"
    for text in (str(s), str(s.of("cat")), s.of("cat").html()):
        vectors = re.findall(r"\[([^\]]*)\]", text)
        assert len(vectors) >= 7
        for vector in vectors:
            assert re.fullmatch(rf"(?:{NUMBER} ){{6}}… 64 numbers", vector)
    assert r"\dots{} 64 numbers" in s.of("cat").latex()
    shown = " ".join(f"{value:.4f}".rstrip("0").rstrip(".") for value in first[:6])
    assert f"[{shown} … 64 numbers]" in str(s.of("cat"))


def test_vectors_of_six_are_whole_and_of_seven_are_not() -> None:
    assert "…" not in str(steps(noise(3, 6)))
    assert "… 7 numbers]" in str(steps(noise(3, 7)))


def test_score_none_means_dot_without_weights_and_scaled_dot_with_them() -> None:
    x, w = noise(5, 3), weights_of(3, 3, 3)
    assert torch.equal(steps(x).weights, steps(x, score="dot").weights)
    assert torch.equal(steps(x, *w).weights, steps(x, *w, score="scaled_dot").weights)
    assert not torch.allclose(steps(x).weights, steps(x, score="scaled_dot").weights)
    assert not torch.allclose(steps(x, *w).weights, steps(x, *w, score="dot").weights)


def test_the_page_says_which_form_it_is() -> None:
    x, w = noise(5, 3), weights_of(3, 3, 3)
    said = "No weights: the vectors themselves are compared and summed."
    basic, projected = steps(x), steps(x, *w)
    for told in (basic, basic.of(0)):
        assert said in str(told)
        assert said in told.html()
        assert said in told.latex()
        assert said in told._repr_html_()
    for told in (projected, projected.of(0)):
        assert said not in str(told) + told.html() + told.latex()
    assert basic.of(0).steps[0].formula == "q = k = v = x"
    assert basic.of(0).steps[2].formula == "none, the score is used as it is"
    assert projected.of(0).steps[2].formula == "divided by √d_k = √3 = 1.7321"
    assert "W_" not in str(basic) + str(basic.of(0))
    assert "Q = X W_Q (5 × 3)" in str(projected)
    assert "Q Kᵀ / √3 (5 × 5)" in str(projected)
    assert "√" not in str(basic)


def test_a_factor_of_ones_own_is_said() -> None:
    s = steps(noise(3, 2), score=Scaled(0.25))
    torch.testing.assert_close(s.scaled, s.scores * 0.25)
    assert s.of(0).steps[2].formula == "times 0.2500"


@pytest.mark.parametrize("score", ["cosine", "gaussian"])
def test_other_scores_are_named(score: str) -> None:
    s = steps(noise(3, 2), score=score)
    assert score in s.of(0).steps[1].formula
    assert s.factor is None
    assert torch.equal(s.scores, s.masked)


def test_a_missing_weight_is_not_claimed() -> None:
    s = steps(noise(3, 2), noise(2, 2, seed=1))
    for told in (str(s), str(s.of(0))):
        assert "W_Q" in told
        assert "W_K" not in told
        assert "W_V" not in told


def test_turned_vectors_are_not_shown_as_if_they_were_not() -> None:
    """With `Rotary` queries and keys are no longer x: step 1 must show what step 2 compares."""
    s = steps(torch.ones(3, 2, dtype=torch.float64), position=Rotary(2))
    assert not torch.allclose(s.k[2], s.v[2])
    first = next(part for part in str(s.of(2)).split("\n\n") if part.startswith("1. "))
    assert "q = k = v = x" not in first
    for vector in ("[-1.3254 0.4932]", "[-0.3012 1.3818]"):  # k of the words 3 and 2
        assert vector in first


def test_the_final_projection_is_named() -> None:
    x = noise(3, 4)
    assert "W_O" in str(steps(x, w_o=noise(4, 2)))
    assert "W_O" in str(steps(x, heads=2, w_o=noise(4, 2)))
    assert "W_O" in str(steps(x, heads=2, w_o=noise(4, 2)).of(0))
    assert "W_O" in str(steps(x, w_o=noise(4, 2)).of(0))
    assert "W_O" not in str(steps(x, heads=2).of(0))


def test_several_heads_are_told_one_after_the_other() -> None:
    s = steps(noise(3, 4), heads=2, w_o=noise(4, 3, seed=1), words=["the", "cat", "sat"])
    told = s.of("cat")
    assert [step.part for step in told.steps] == ["Head 0"] * 6 + ["Head 1"] * 6 + ["All heads"]
    for h in (0, 1):
        six = told.steps[6 * h + 5]
        assert six.table.rows == (("cat", tuple(s.heads[h, 1].tolist())),)
        assert six.note == "", "only what is joined goes on to the next layer"
    rows = dict(told.steps[-1].table.rows)
    assert rows["head 0"] == tuple(s.heads[0, 1].tolist())
    assert rows["side by side"] == rows["head 0"] + rows["head 1"]
    assert rows["times W_O"] == tuple(s.output[1].tolist())
    text = str(told)
    places = [text.index(part) for part in ("Head 0\n", "1. Query", "6. Sum", "Head 1\n")]
    assert places == sorted(places)
    assert text.count("\n1. Query") == text.count("\n6. Sum") == 2
    assert "\n7. " not in text


def test_many_words_do_not_make_a_table_of_many_columns() -> None:
    text = str(steps(noise(13, 2)))
    assert max(map(len, text.splitlines())) < 100
    assert text.count("… 13 numbers]") == 26, "scores and weights of 13 words"
    assert "… 12 numbers" not in str(steps(noise(12, 2)))


@pytest.mark.parametrize(
    ("options", "titles"),
    [
        ({"score": "dot"}, []),
        ({"score": "scaled_dot"}, ["Scaled"]),
        ({"score": "dot", "mask": "causal"}, ["Masked"]),
        ({"score": "scaled_dot", "mask": "causal"}, ["Scaled and masked"]),
    ],
)
def test_matrices_name_what_is_done_to_the_scores(options: Any, titles: list[str]) -> None:
    told = steps(noise(3, 2), **options).matrices()
    own = ["Queries", "Keys", "Values", "Scores", *titles, "Weights", "Output"]
    assert [step.title for step in told.steps] == own
    assert told.title == "Self-attention in matrix form: x1 x2 x3"


def test_repr_is_short() -> None:
    assert repr(steps(noise(3, 4), heads=2)) == "Steps(3 words, 2 heads)"


# The softmax that is shown is one that gives the weights


SHIFTS = {
    "1e3": ([1000.0, 999.0, 998.5], torch.float64),
    "-1e3": ([-1000.0, -999.0, -998.5], torch.float64),
    "1e3-float32": ([1000.0, 999.0, 998.5], torch.float32),
    "overflow-float32": ([89.0, 88.0, 88.5], torch.float32),
    "sum-overflow": ([709.7, 709.0, 709.5], torch.float64),
    "-40": ([-40.0, -39.0, -38.5], torch.float64),
    "-103-float32": ([-103.0, -102.0, -101.5], torch.float32),
    "plain": ([1.0, 2.0, 2.5], torch.float64),
    "large": ([20.0, 19.0, 18.5], torch.float64),
}


@pytest.mark.parametrize(("wanted", "dtype"), SHIFTS.values(), ids=SHIFTS.keys())
def test_the_softmax_on_the_page_gives_the_weights(wanted: list[float], dtype: torch.dtype) -> None:
    # One query 1 and keys as large as the scores wanted.
    x = torch.eye(3, dtype=dtype)
    w_k = torch.tensor(wanted, dtype=dtype)[:, None]
    s = steps(x, torch.ones(3, 1, dtype=dtype), w_k, x, words=["the", "cat", "sat"], score="dot")
    assert s.weights[0].sum().item() == pytest.approx(1, abs=1e-6)
    text = str(s.of("the")).split("\n\n")[4]
    assert "nan" not in text
    assert "∞" not in text
    head, _, *rows, _ = text.splitlines()
    total = numbers(head.split(" over their sum, ")[1])[0]
    assert total > 0
    for row, exact in zip(rows, s.weights[0].tolist(), strict=True):
        _, power, weight = numbers(row)
        assert weight == pytest.approx(exact, abs=5.1e-5)
        assert power / total == pytest.approx(exact, abs=0.02)


def test_taking_the_largest_away_is_explained() -> None:
    s = steps([[1000.0], [1.0]])
    assert "subtracting the largest changes nothing" in str(s.of(0))
    assert "e^(scaled − largest)" in str(s.of(0))
    assert "largest" not in str(steps([[1.0], [2.0]]).of(0))
