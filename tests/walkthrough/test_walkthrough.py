"""The six steps are the plain loops, and `attend` bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import regard
from regard import ALiBi, Learned, RelativeBias, Rotary, Scaled, Sinusoidal, Softcap
from regard.attention import causal, dense, window
from regard.walkthrough import NAMES, Steps, steps
from regard.walkthrough.worked_example import W_K, W_Q, W_V, X, worked
from tests.walkthrough.cases import Rows, assert_equal, by_loops, noise, times, weights_of

quick = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**31 - 1)
SCORES = ("dot", "scaled_dot", "cosine", "gaussian")


def turned(a: Rows) -> Rows:
    return [list(column) for column in zip(*a, strict=True)]


def assert_all(s: Steps, wanted: dict[str, Any]) -> None:
    for name, values in wanted.items():
        assert_equal(getattr(s, name), values, name)


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


def test_a_score_that_is_no_scaled_product_is_one_step() -> None:
    s = steps(noise(5, 3), score=Softcap(2.0))
    assert torch.equal(s.scores, s.scaled)
    assert s.scores.abs().max() < 2.0


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
