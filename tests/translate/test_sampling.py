"""The likeliest next words, and words drawn by their probability."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.translate.search import _sampled, best_words, search
from regard.translate.strategies import Greedy, Sampling
from tests.translate.search_cases import END, MOST, probabilities, sharp, sources

# ── the likeliest words ───────────────────────────────────────────────────────────────────────


@settings(max_examples=100, deadline=None)
@given(
    s=st.integers(1, 3), k=st.integers(1, 4), vocabulary=st.integers(1, 1500),
    count=st.integers(1, 8), seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.0, 1.0, 10.0, 300.0]), shift=st.sampled_from([0.0, 0.0, 1e3, -1e3]),
    dead=st.booleans(), dtype=st.sampled_from([torch.float64, torch.float32]),
)  # fmt: skip
def test_best_words_are_those_of_a_plain_top(
    s: int, k: int, vocabulary: int, count: int, seed: int, scale: float, shift: float, dead: bool,
    dtype: torch.dtype,
) -> None:  # fmt: skip
    """Compiled in float32, where it can be, and put together from torch's operations in float64."""
    chance = torch.Generator().manual_seed(seed)
    logits = torch.randn(s * k, vocabulary, generator=chance, dtype=dtype) * scale + shift
    log_p = torch.randn(s, k, generator=chance, dtype=dtype)
    if dead and k > 1:
        log_p[:, -1] = -torch.inf
    count = min(count, (k - dead) * vocabulary or 1)
    values, beginnings, words = best_words(logits.clone(), log_p, count)
    plain = torch.log_softmax(logits, -1).view(s, k, -1) + log_p[..., None]
    torch.testing.assert_close(values, plain.flatten(1).topk(count, 1).values)
    sentences = torch.arange(s)[:, None]
    torch.testing.assert_close(plain[sentences, beginnings, words], values)
    pairs = beginnings * vocabulary + words
    assert all(len(set(row)) == count for row in pairs.tolist())


@pytest.mark.parametrize("shift", [5.0, 12.0, -20.0])
def test_best_words_in_half_precision(shift: float) -> None:
    logits = torch.randn(2, 4000, generator=torch.Generator().manual_seed(0)).half() + shift
    values, _, words = best_words(logits.clone(), torch.zeros(1, 2).half(), 4)
    wanted = torch.log_softmax(logits.float(), -1).flatten().topk(4)
    torch.testing.assert_close(values[0].float(), wanted.values, atol=0.02, rtol=0.0)
    assert logits[:, words[0]].amax(0).min() >= logits.flatten().topk(8).values.min()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_word_that_cannot_be_is_never_likely(dtype: torch.dtype) -> None:
    logits = torch.full((1, 3000), -torch.inf, dtype=dtype)
    logits[0, [7, 800, 1600, 2999]] = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=dtype)
    values, _, words = best_words(logits, torch.zeros(1, 1, dtype=dtype), 5)
    assert words[0, :4].tolist() == [2999, 1600, 800, 7]
    assert values[0].isinf().tolist() == [False] * 4 + [True]


# ── drawing ───────────────────────────────────────────────────────────────────────────────────


def shares(logits: list[float], how: Sampling, count: int = 4000) -> list[float]:
    """How often each word is drawn, with chances spread evenly."""
    chances = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    words = _sampled(torch.tensor(logits).expand(count, -1), how, chances)
    return [float((words == word).double().mean()) for word in range(len(logits))]


LOGITS = [math.log(p) for p in (0.1, 0.4, 0.05, 0.3, 0.15)]


def test_words_are_drawn_by_their_probability() -> None:
    assert shares(LOGITS, Sampling()) == pytest.approx([0.1, 0.4, 0.05, 0.3, 0.15], abs=1e-3)


def test_temperature_is_a_power() -> None:
    squares = [p**2 for p in (0.1, 0.4, 0.05, 0.3, 0.15)]
    wanted = [p / sum(squares) for p in squares]
    assert shares(LOGITS, Sampling(temperature=0.5)) == pytest.approx(wanted, abs=1e-3)


def test_top_k_and_top_p() -> None:
    assert shares(LOGITS, Sampling(top_k=2)) == pytest.approx([0, 4 / 7, 0, 3 / 7, 0], abs=1e-3)
    assert shares(LOGITS, Sampling(top_p=0.7)) == pytest.approx([0, 4 / 7, 0, 3 / 7, 0], abs=1e-3)
    three = [0, 0.4 / 0.85, 0, 0.3 / 0.85, 0.15 / 0.85]
    assert shares(LOGITS, Sampling(top_p=0.71)) == pytest.approx(three, abs=1e-3)
    # The probabilities that top_p adds up are those among the top_k.
    assert shares(LOGITS, Sampling(top_k=3, top_p=0.5)) == pytest.approx(
        [0, 4 / 7, 0, 3 / 7, 0], abs=1e-3
    )
    assert shares(LOGITS, Sampling(top_k=99, top_p=1.0)) == pytest.approx(
        [0.1, 0.4, 0.05, 0.3, 0.15], abs=1e-3
    )


@pytest.mark.parametrize(
    "how", [Sampling(top_k=1), Sampling(top_p=1e-9), Sampling(1e-9), Sampling(1e-320)]
)
def test_drawing_without_a_choice_is_greedy(how: Sampling) -> None:
    model, texts = sharp(), sources(5)
    assert [one.tokens for (one,) in search(model, texts, how, most=MOST)] == [
        one.tokens for (one,) in search(model, texts, Greedy(), most=MOST)
    ]


def test_the_seed_and_the_number_decide_what_is_drawn() -> None:
    model, texts = sharp(), sources(6)

    def drawn(seed: int, numbers: list[int] | None = None) -> list[tuple[int, ...]]:
        found = search(model, texts, Sampling(seed=seed), most=MOST, numbers=numbers)
        return [one.tokens for (one,) in found]

    assert drawn(0) == drawn(0) == drawn(0, [0, 1, 2, 3, 4, 5])
    assert all(one != other for one, other in zip(drawn(0), drawn(1), strict=True))
    assert all(one != other for one, other in zip(drawn(0), drawn(0, [9] * 6), strict=True))


def test_several_are_drawn_of_each_and_ranked() -> None:
    model, texts = sharp(), sources(6)
    found = search(model, texts, Sampling(), n_best=4, most=MOST)
    for text, ranked in zip(texts, found, strict=True):
        assert len({one.tokens for one in ranked}) == 4
        assert [one.score for one in ranked] == sorted((one.score for one in ranked), reverse=True)
        for one in ranked:
            assert END not in one.tokens
        exact = probabilities(model, text, ranked)
        assert [one.log_probability for one in ranked] == pytest.approx(exact)
