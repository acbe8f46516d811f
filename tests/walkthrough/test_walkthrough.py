"""The six steps against plain loops over Python numbers, and against `attend` bit for bit."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import regard
from regard import ALiBi, Learned, RelativeBias, Rotary, Scaled, Sinusoidal
from regard.attention import causal, dense, window
from regard.errors import OptionError, RegardError, ShapeError, WordError
from regard.walkthrough import NAMES, Steps, steps
from regard.walkthrough.worked_example import W_K, W_Q, W_V, X, worked

quick = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**31 - 1)
Rows = list[list[float]]
SCORES = ("dot", "scaled_dot", "cosine", "gaussian")


def noise(*sizes: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def weights_of(d_in: int, d: int, e: int, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    return noise(d_in, d, seed=seed), noise(d_in, d, seed=seed + 1), noise(d_in, e, seed=seed + 2)


# The oracle: plain Python numbers


def times(a: Rows, b: Rows) -> Rows:
    return [
        [math.fsum(row[i] * b[i][j] for i in range(len(b))) for j in range(len(b[0]))] for row in a
    ]


def turned(a: Rows) -> Rows:
    return [list(column) for column in zip(*a, strict=True)]


def by_loops(q: Rows, k: Rows, v: Rows, divide: bool, seen: list[list[bool]] | None = None) -> dict:
    """scores, scaled, masked, weights, weighted and heads (the sums) of one head."""
    scores = [[math.fsum(a * b for a, b in zip(one, key, strict=True)) for key in k] for one in q]
    root = math.sqrt(len(q[0])) if divide else 1.0
    scaled = [[score / root for score in row] for row in scores]
    masked = [
        [s if seen is None or seen[i][j] else -math.inf for j, s in enumerate(row)]
        for i, row in enumerate(scaled)
    ]
    powers = [[math.exp(s) for s in row] for row in masked]
    weights = [[p / math.fsum(row) if math.fsum(row) else 0.0 for p in row] for row in powers]
    weighted = [
        [[w * part for part in value] for w, value in zip(row, v, strict=True)] for row in weights
    ]
    heads = [[math.fsum(column) for column in zip(*values, strict=True)] for values in weighted]
    return {
        "scores": scores,
        "scaled": scaled,
        "masked": masked,
        "weights": weights,
        "weighted": weighted,
        "heads": heads,
    }


def assert_equal(found: Tensor, wanted: Any, what: str = "") -> None:
    wanted = torch.tensor(wanted, dtype=torch.float64)
    torch.testing.assert_close(
        found.double(), wanted, rtol=0, atol=1e-12, msg=lambda text: f"{what}: {text}"
    )


def assert_all(s: Steps, wanted: dict[str, Any]) -> None:
    for name, values in wanted.items():
        assert_equal(getattr(s, name), values, name)


# The worked example


def in_order(s: Steps) -> Rows:
    return s.output.tolist()


def test_worked_example_is_the_plain_loops() -> None:
    x, w_q, w_k, w_v = ([list(row) for row in m] for m in (X, W_Q, W_K, W_V))
    q, k, v = (times(x, turned(w)) for w in (w_q, w_k, w_v))
    wanted = by_loops(q, k, v, divide=True)
    s = worked()
    assert s.x.tolist() == x
    assert s.q.dtype == torch.float64
    assert_all(s, {"q": q, "k": k, "v": v, **wanted, "output": wanted["heads"]})


def test_worked_example_by_hand() -> None:
    # The matrices are printed with a row per output: q(x1) = x1 W_Qᵀ = (.5+.3, .1+.5, .3+.2).
    s = worked()
    assert_equal(s.q, [[0.8, 0.6, 0.5], [0.6, 1.0, 1.2], [0.7, 0.4, 0.4]])
    assert_equal(s.k, [[0.6, 0.5, 0.4], [0.8, 1.0, 1.2], [0.5, 0.6, 0.5]])
    assert_equal(s.v, [[0.6, 0.5, 0.4], [0.8, 1.0, 1.2], [0.5, 0.6, 0.5]])
    assert_equal(s.scores[0], [0.98, 1.84, 1.01])
    assert_equal(s.scaled[0], [0.98 / 3**0.5, 1.84 / 3**0.5, 1.01 / 3**0.5])
    assert s.weights[0].tolist() == pytest.approx([0.2732, 0.4488, 0.2780], abs=5e-5)
    assert s.output[0].tolist() == pytest.approx([0.6620, 0.7522, 0.7869], abs=5e-5)


def test_worked_example_is_the_one_in_the_guides() -> None:
    assert X == ((1, 0, 0, 1), (0, 2, 2, 0), (1, 1, 0, 0))
    assert W_Q == ((0.5, 0.2, 0.1, 0.3), (0.1, 0.3, 0.2, 0.5), (0.3, 0.1, 0.5, 0.2))
    assert W_K == ((0.4, 0.1, 0.3, 0.2), (0.2, 0.4, 0.1, 0.3), (0.3, 0.2, 0.4, 0.1))
    assert W_V == ((0.2, 0.3, 0.1, 0.4), (0.4, 0.2, 0.3, 0.1), (0.1, 0.4, 0.2, 0.3))


# Random cases against the loops


@pytest.mark.parametrize(("n", "d_in", "d", "e"), [(1, 1, 1, 1), (2, 3, 5, 7), (11, 7, 3, 5)])
@pytest.mark.parametrize("hidden", [False, True])
def test_every_intermediate_is_the_loop(n: int, d_in: int, d: int, e: int, hidden: bool) -> None:
    x, (w_q, w_k, w_v) = noise(n, d_in), weights_of(d_in, d, e)
    seen = (noise(n, n, seed=9) > -0.3) | torch.eye(n, dtype=torch.bool)
    q, k, v = (times(x.tolist(), w.tolist()) for w in (w_q, w_k, w_v))
    wanted = by_loops(q, k, v, divide=True, seen=seen.tolist() if hidden else None)
    s = steps(x, w_q, w_k, w_v, mask=dense(seen) if hidden else None)
    assert_all(s, {"q": q, "k": k, "v": v, **wanted, "output": wanted["heads"]})
    assert tuple(s.weighted.shape) == (n, n, e)


@pytest.mark.parametrize("n", [1, 5])
def test_without_weights_the_vectors_themselves_are_compared(n: int) -> None:
    x = noise(n, 3)
    wanted = by_loops(x.tolist(), x.tolist(), x.tolist(), divide=False)
    s = steps(x)
    assert_all(s, {"x": x.tolist(), "q": x.tolist(), "k": x.tolist(), "v": x.tolist(), **wanted})
    assert torch.equal(s.scaled, s.scores)


def test_a_weight_that_is_missing_leaves_x_as_it_is() -> None:
    x, w_q = noise(5, 3), noise(3, 3, seed=1)
    wanted = by_loops(times(x.tolist(), w_q.tolist()), x.tolist(), x.tolist(), divide=True)
    assert_all(steps(x, w_q), wanted)


@pytest.mark.parametrize("with_w_o", [False, True])
def test_heads_are_columns_joined_and_then_projected(with_w_o: bool) -> None:
    n, d_in, heads, d, e = 5, 7, 3, 2, 4
    x, (w_q, w_k, w_v) = noise(n, d_in), weights_of(d_in, heads * d, heads * e)
    w_o = noise(heads * e, 11, seed=7) if with_w_o else None
    q, k, v = (times(x.tolist(), w.tolist()) for w in (w_q, w_k, w_v))
    per_head = []
    for h in range(heads):
        of_q, of_k = ([row[h * d : (h + 1) * d] for row in rows] for rows in (q, k))
        per_head.append(by_loops(of_q, of_k, [row[h * e : (h + 1) * e] for row in v], divide=True))
    s = steps(x, w_q, w_k, w_v, heads=heads, w_o=w_o)
    assert_all(s, {name: [one[name] for one in per_head] for name in per_head[0]})
    joined = [[part for one in per_head for part in one["heads"][i]] for i in range(n)]
    assert_equal(s.output, joined if w_o is None else times(joined, w_o.tolist()))
    assert tuple(s.output.shape) == (n, heads * e if w_o is None else 11)


def test_one_head_with_a_final_projection() -> None:
    x, w_o = noise(5, 3), noise(3, 7, seed=1)
    s = steps(x, w_o=w_o)
    assert_equal(s.output, times(s.heads.tolist(), w_o.tolist()))
    assert tuple(s.output.shape) == (5, 7)


def test_grouped_heads_share_keys_and_values() -> None:
    n, d_in, heads, groups, d = 5, 7, 6, 2, 3
    x, w_q = noise(n, d_in), noise(d_in, heads * d, seed=1)
    w_k, w_v = noise(d_in, groups * d, seed=2), noise(d_in, groups * d, seed=3)
    s = steps(x, w_q, w_k, w_v, heads=heads)
    assert (s.q.shape[0], s.k.shape[0], s.v.shape[0]) == (heads, groups, groups)

    def repeated(w: Tensor) -> Tensor:
        columns = [w[:, g * d : (g + 1) * d] for g in range(groups) for _ in range(heads // groups)]
        return torch.cat(columns, 1)

    whole = steps(x, w_q, repeated(w_k), repeated(w_v), heads=heads)
    for name in ("scores", "scaled", "masked", "weights", "weighted", "heads", "output"):
        assert_equal(getattr(s, name), getattr(whole, name).tolist(), name)
    assert len(s.of(0).steps) == 6 * heads + 1


# Step 6 is what attend computes, bit for bit


def split(y: Tensor, heads: int) -> Tensor:
    return y.unflatten(1, (heads, -1)).transpose(0, 1).unsqueeze(0)


MASKS: dict[str, Any] = {
    "all": None,
    "causal": causal,
    "window": window(before=1, after=2),
    "both": causal & window(3),
    "tensor": torch.tensor([[(3 * i + 5 * j) % 7 > 2 for j in range(13)] for i in range(13)]),
    "nothing": torch.zeros(13, 13, dtype=torch.bool),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("score", [*SCORES, Scaled(0.3)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_one_head_is_attend_bit_for_bit(mask: Any, score: Any, dtype: torch.dtype) -> None:
    x, w = noise(13, 7, dtype=dtype), [noise(7, 5, seed=i, dtype=dtype) for i in (1, 2, 3)]
    q, k, v = (x @ one for one in w)
    s = steps(x, *w, mask=mask, score=score)
    assert torch.equal(s.output, regard.attend(q, k, v, mask=mask, score=score))
    torch.testing.assert_close(s.weighted.sum(-2), s.output)
    basic = steps(x, mask=mask, score=score)
    assert torch.equal(basic.output, regard.attend(x, x, x, mask=mask, score=score))


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_heads_are_attend_bit_for_bit(mask: Any, score: str, groups: int) -> None:
    x, w_o = noise(13, 7, dtype=torch.float32), noise(30, 11, seed=4, dtype=torch.float32)
    w = [noise(7, 5 * h, seed=h, dtype=torch.float32) for h in (6, groups, groups)]
    q, k, v = (split(x @ one, h) for one, h in zip(w, (6, groups, groups), strict=True))
    wanted = regard.attend(q, k, v, mask=mask, score=score)[0]
    s = steps(x, *w, heads=6, mask=mask, score=score)
    assert torch.equal(s.heads, wanted)
    assert torch.equal(s.output, torch.cat(list(wanted), 1))
    assert torch.equal(
        steps(x, *w, heads=6, w_o=w_o, mask=mask, score=score).output,
        torch.cat(list(wanted), 1) @ w_o,
    )


POSITIONS: dict[str, Callable[[int], Any]] = {
    "sinusoidal": lambda heads: Sinusoidal(14),
    "learned": lambda heads: Learned(17, 14),
    "rotary": lambda heads: Rotary(12 // heads),
    "alibi": ALiBi,
    "relative": lambda heads: RelativeBias(heads, buckets=6, max_distance=5),
}


@pytest.mark.parametrize("make", POSITIONS.values(), ids=POSITIONS.keys())
@pytest.mark.parametrize("heads", [1, 3])
def test_positions_are_attend_bit_for_bit(make: Callable[[int], Any], heads: int) -> None:
    x, w = noise(13, 14), [noise(14, 12, seed=i) for i in (1, 2, 3)]
    position = make(heads)
    added = position(x).detach() if isinstance(position, Sinusoidal | Learned) else x
    q, k, v = (split(added @ one, heads) for one in w)
    if isinstance(position, Rotary):
        q, k = position(q), position(k)
    bias = position if isinstance(position, ALiBi | RelativeBias) else None
    wanted = regard.attend(q, k, v, bias=bias, mask=causal)[0].detach()
    s = steps(x, *w, heads=heads, position=position, mask=causal)
    assert torch.equal(s.output, torch.cat(list(wanted), 1))
    assert torch.equal(s.x, added)
    bare = steps(x, *w, heads=heads, mask=causal)
    assert not torch.allclose(s.output, bare.output), "a position that changes nothing"


@pytest.mark.parametrize("make", POSITIONS.values(), ids=POSITIONS.keys())
def test_nothing_but_numbers_comes_out(make: Callable[[int], Any]) -> None:
    """`Look` promises that nothing but its output has a gradient; the steps promise none at all."""
    x, w = (
        noise(5, 14).requires_grad_(),
        [noise(14, 12, seed=i).requires_grad_() for i in (1, 2, 3)],
    )
    s = steps(x, *w, position=make(1), w_o=noise(12, 3).requires_grad_())
    names = (*NAMES[1:], "masked", "heads")
    assert [name for name in names if getattr(s, name).requires_grad] == []


def test_learned_scores_are_numbers_too() -> None:
    s = steps(noise(5, 3, dtype=torch.float32), score=regard.Bilinear(3))
    assert [name for name in NAMES[1:] if getattr(s, name).requires_grad] == []


# What must hold for any numbers


@quick
@given(seeds, st.integers(1, 13), st.sampled_from(SCORES), st.sampled_from([1, 2]))
def test_weights_sum_to_one(seed: int, n: int, score: str, heads: int) -> None:
    s = steps(noise(n, 6, seed=seed) * 3, heads=heads, score=score)
    assert (s.weights > 0).all()
    torch.testing.assert_close(s.weights.sum(-1), torch.ones_like(s.weights[..., 0]))


@quick
@given(seeds, st.integers(1, 11), st.randoms(use_true_random=False), st.sampled_from(SCORES))
def test_order_is_invisible(seed: int, n: int, random: Any, score: str) -> None:
    """Permute the words and the outputs permute."""
    order = list(range(n))
    random.shuffle(order)
    x, w = noise(n, 5, seed=seed), weights_of(5, 3, 7, seed=seed)
    plain, other = steps(x, *w, score=score), steps(x[order], *w, score=score)
    torch.testing.assert_close(other.output, plain.output[order], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(other.weights, plain.weights[order][:, order], rtol=1e-9, atol=1e-9)


def test_positions_make_order_visible() -> None:
    x = noise(5, 4)
    plain, turned_round = (steps(y, position=Sinusoidal(4)).output for y in (x, x.flip(0)))
    assert not torch.allclose(plain, turned_round.flip(0))


# Masks


def test_window_looks_at_the_neighbours_only() -> None:
    x = noise(7, 3)
    near = [[abs(i - j) <= 1 for j in range(7)] for i in range(7)]
    wanted = by_loops(x.tolist(), x.tolist(), x.tolist(), divide=False, seen=near)
    s = steps(x, mask=window(before=1, after=1))
    assert_all(s, wanted)
    assert ((s.weights > 0) == torch.tensor(near)).all()
    assert torch.equal(s.scaled, steps(x).scaled), "only what enters the softmax is masked"


def test_widening_the_window_changes_more_and_more_until_it_changes_nothing() -> None:
    x = noise(7, 3)
    whole = steps(x).output
    away = [
        (steps(x, mask=window(before=n, after=n)).output - whole).abs().sum().item()
        for n in range(7)
    ]
    assert min(away[:-1]) > 1e-3
    assert away[6] < 1e-12
    middle = steps(x, mask=window(before=3, after=3)).output[3]
    torch.testing.assert_close(middle, whole[3])


def test_a_masked_word_is_told_apart() -> None:
    s = steps(noise(5, 3), words=list("abcde"), mask=window(before=1, after=1))
    third = s.of("a").steps[2]
    assert third.table.columns[-1] == "bias and mask"
    told = [row[-1] for row in third.table.rows]
    assert told == ["0.0000", "0.0000", *["may not look: -∞"] * 3]
    assert third.note == "3 of 5 words may not be looked at."
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
    assert told.steps[3].formula == "there is nothing to look at, so every weight is 0"
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


# What is taken, and in which dtype


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


# Names


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


# As data


def sizes(values: Any) -> tuple[int, ...]:
    return (len(values), *sizes(values[0])) if isinstance(values, list) else ()


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


# What does not fit


BAD: dict[str, tuple[Callable[[], Steps], type[Exception], str]] = {
    "words": (
        lambda: steps(noise(3, 2), words=["a", "b"]),
        ShapeError,
        "steps: 2 words but x has 3 rows (x (3,2)); give one word per row",
    ),
    "ragged": (
        lambda: steps([[1.0, 2.0], [3.0]]),
        ShapeError,
        "steps: x is ragged: row 1 has 1 numbers and row 0 has 2; give rows of one length",
    ),
    "ragged-weights": (
        lambda: steps([[1.0, 2.0]], [[1.0], [2.0, 3.0]]),
        ShapeError,
        "steps: w_q is ragged: row 1 has 2 numbers and row 0 has 1; give rows of one length",
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
