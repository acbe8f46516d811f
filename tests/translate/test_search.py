"""Searches find what a plain loop finds, and what an exhaustive search finds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.attention import padding
from regard.nn import Transformer
from regard.text import padded
from regard.translate import search as module
from regard.translate import writing
from regard.translate.search import Hypothesis, longest, search
from regard.translate.strategies import Beam, Greedy, Sampling
from tests.translate.search_cases import CONFIG, END, MOST, START, probabilities, sharp, sources

POSITIONS = ["sinusoidal", "learned", "rotary", "alibi"]
Words = tuple[int, ...]


@torch.no_grad()
def log_p(model: Transformer, source: list[int], beginnings: list[Words]) -> list[list[float]]:
    """Of every next word after each of these, which are equally long; without a cache."""
    target = torch.tensor([[START, *words] for words in beginnings])
    logits = model(torch.tensor([[*source, END]] * len(target)), target)
    return torch.log_softmax(logits[:, -1], -1).tolist()


def plain_greedy(model: Transformer, source: list[int], most: int = MOST) -> Words:
    words: Words = ()
    while len(words) < most:
        (p,) = log_p(model, source, [words])
        if p.index(max(p)) == END:
            return words
        words = (*words, p.index(max(p)))
    return words


def plain_beam(model: Transformer, source: list[int], how: Beam) -> list[tuple[float, Words]]:
    """Beam search as it is defined, with lists."""
    alive: list[tuple[float, Words]] = [(0.0, ())]
    done: list[tuple[float, Words]] = []
    for length in range(1, MOST + 1):
        rows = log_p(model, source, [words for _, words in alive])
        ways = [
            (before + p, (*words, word))
            for (before, words), row in zip(alive, rows, strict=True)
            for word, p in enumerate(row)
        ]
        ways = sorted(ways, reverse=True)[: 2 * how.size]
        power = length**how.length_penalty
        done += [(p / power, w) for p, w in ways[: how.size] if w[-1] == END or length == MOST]
        done = sorted(done, reverse=True)[: how.size]
        alive = [way for way in ways if way[1][-1] != END][: how.size]
        if len(done) == how.size and not (how.patient and alive[0][0] / power > done[-1][0]):
            break
    return [(score, words[:-1] if words[-1] == END else words) for score, words in done]


@pytest.mark.parametrize("position", POSITIONS)
def test_greedy_is_a_plain_loop(position: str) -> None:
    model = sharp(replace(CONFIG, position=position), end=2.0)
    texts = sources(9)
    found = [one for (one,) in search(model, texts, Greedy(), most=MOST)]
    assert [one.tokens for one in found] == [plain_greedy(model, text) for text in texts]
    assert len({one.tokens for one in found}) > 3
    assert {one.ended for one in found} == {True, False}
    for text, one in zip(texts, found, strict=True):
        assert [one.log_probability] == pytest.approx(probabilities(model, text, [one]))
        assert one.score == pytest.approx(one.log_probability / (len(one.tokens) + one.ended))


@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize("position", POSITIONS)
def test_beam_search_is_what_it_is_defined_to_be(position: str, patient: bool) -> None:
    model = sharp(replace(CONFIG, position=position), end=2.0)
    texts = sources(5)
    how = Beam(3, length_penalty=0.8, patient=patient)
    found = search(model, texts, how, n_best=3, most=MOST)
    for text, ranked in zip(texts, found, strict=True):
        wanted = plain_beam(model, text, how)
        assert [one.tokens for one in ranked] == [words for _, words in wanted]
        assert [one.score for one in ranked] == pytest.approx([score for score, _ in wanted])
        exact = probabilities(model, text, ranked)
        assert [one.log_probability for one in ranked] == pytest.approx(exact)
    assert any(one.ended for ranked in found for one in ranked)
    first = [ranked[0].tokens for ranked in found]
    assert first != [plain_greedy(model, text) for text in texts]


@pytest.mark.parametrize("penalty", [1.0, 0.6, 0.0, -0.5, 2.0])
def test_a_beam_of_everything_is_an_exhaustive_search(penalty: float) -> None:
    model, text, last = sharp(replace(CONFIG, vocabulary=6), end=0.5), [4, 5, 4], 4
    every = []
    for length in range(1, last + 1):
        for words in itertools.product(range(6), repeat=length):
            ended = words[-1] == END
            if END not in words[:-1] and (ended or length == last):
                every.append(Hypothesis(words[:-1] if ended else words, 0.0, 0.0, ended))
    exact = probabilities(model, text, every)
    scores = [
        p / (len(one.tokens) + one.ended) ** penalty for p, one in zip(exact, every, strict=True)
    ]
    order = sorted(range(len(every)), key=lambda i: -scores[i])[:10]
    (found,) = search(model, [text], Beam(1000, penalty), n_best=10, most=last)
    assert [(one.tokens, one.ended) for one in found] == [
        (every[i].tokens, every[i].ended) for i in order
    ]
    assert [one.score for one in found] == pytest.approx([scores[i] for i in order])


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), position=st.sampled_from(POSITIONS), patient=st.booleans())
def test_a_beam_of_one_is_greedy(seed: int, position: str, patient: bool) -> None:
    model = sharp(replace(CONFIG, position=position), seed=seed)
    texts = sources(4, seed=seed)
    by_beam = search(model, texts, Beam(1, patient=patient), most=MOST)
    assert [one.tokens for (one,) in by_beam] == [
        one.tokens for (one,) in search(model, texts, Greedy(), most=MOST)
    ]


@pytest.mark.parametrize("how", [Beam(4), Greedy(), Sampling(seed=3)])
@pytest.mark.parametrize("position", ["sinusoidal", "rotary"])
def test_what_is_found_does_not_depend_on_the_batch(
    how: Beam | Greedy | Sampling, position: str
) -> None:
    model = sharp(replace(CONFIG, position=position))
    texts = sources(11)
    together = search(model, texts, how, most=MOST)
    alone = [search(model, [text], how, most=MOST, numbers=[i])[0] for i, text in enumerate(texts)]
    assert [one.tokens for (one,) in together] == [one.tokens for (one,) in alone]
    assert [one.score for (one,) in together] == pytest.approx([one.score for (one,) in alone])


@pytest.mark.parametrize("position", ["sinusoidal", "rotary"])
def test_sentences_that_finish_leave_the_others_as_they_are(position: str) -> None:
    model = sharp(replace(CONFIG, position=position), end=2.0)
    texts = sources(12)
    together = search(model, texts, Beam(3), n_best=3, most=2 * MOST)
    alone = [search(model, [text], Beam(3), n_best=3, most=2 * MOST)[0] for text in texts]
    assert len({len(ranked[0].tokens) for ranked in together}) > 1
    assert [[one.tokens for one in ranked] for ranked in together] == [
        [one.tokens for one in ranked] for ranked in alone
    ]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For how many sequences logits are computed, each time, from now on."""
    rows: list[int] = []
    logits = writing.Writer.logits

    def counting(writer: writing.Writer, tokens: Tensor) -> Iterator[Tensor]:
        for part in logits(writer, tokens):
            rows.append(len(part))
            yield part

    monkeypatch.setattr(writing.Writer, "logits", counting)
    return rows


def test_finished_sentences_are_decoded_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    model = sharp(end=2.0)
    texts = sources(40)
    rows = counted(monkeypatch)
    found = search(model, texts, Beam(3))
    assert rows[0] == 40  # one beginning each, before there is a choice
    assert rows[1] == 3 * 40
    assert rows[-1] < 3 * 4
    lengths = [len(one.tokens) + one.ended for (one,) in found]
    assert len(rows) <= max(longest(len(text)) for text in texts)
    assert sum(rows) < 0.8 * 3 * 40 * len(rows), (rows, lengths)


@pytest.mark.parametrize("how", [Beam(3), Greedy(), Sampling(seed=3)], ids=str)
def test_logits_are_held_a_few_at_a_time(
    how: Beam | Greedy | Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, texts = sharp(end=2.0), sources(12)
    wanted = search(model, texts, how)
    monkeypatch.setattr(writing, "LOGITS", 6 * CONFIG.vocabulary)
    rows = counted(monkeypatch)
    found = search(model, texts, how)
    assert max(rows) == 6
    assert [one.tokens for (one,) in found] == [one.tokens for (one,) in wanted]
    for (one,), (other,) in zip(found, wanted, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-12)


@pytest.mark.parametrize("how", [Beam(3), Greedy()], ids=str)
def test_what_the_encoder_made_of_the_sources_can_be_given(how: Beam | Greedy) -> None:
    model, texts = sharp(end=2.0), sources(5)
    ids, lengths = padded([[*text, END] for text in texts])
    with torch.no_grad():
        memory = model.encode(ids, source_mask=padding(lengths))
    assert search(model, texts, how, memory=memory) == search(model, texts, how)
    other = search(model, texts, how, memory=-memory)
    assert [one.tokens for (one,) in other] != [one.tokens for (one,) in search(model, texts, how)]


def test_keys_of_the_source_are_computed_once_per_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from regard.nn import multihead

    model = sharp(end=0.0)
    w_k = model.decoder.blocks[0].cross.w_k  # type: ignore[union-attr]
    seen: list[int] = []
    affine = multihead.affine

    def counted(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if weight is w_k:
            seen.append(len(x))
        return affine(x, weight, bias)

    monkeypatch.setattr(multihead, "affine", counted)
    search(model, sources(6), Beam(4))
    assert seen == [6]


@pytest.mark.parametrize("how", [Greedy(), Beam(3), Sampling()])
@pytest.mark.parametrize("position", ["sinusoidal", "learned"])
def test_no_search_is_endless(how: Beam | Greedy | Sampling, position: str) -> None:
    model = sharp(replace(CONFIG, position=position, max_length=23), end=-1e9)
    for text, (found,) in zip(sources(4), search(model, sources(4), how), strict=True):
        limit = 2 * len(text) + 20
        assert len(found.tokens) == (min(limit, 23) if position == "learned" else limit)
        assert not found.ended


@pytest.mark.parametrize("how", [Greedy(), Beam(3)])
@pytest.mark.parametrize("position", ["sinusoidal", "rotary"])
def test_a_decoder_without_blocks(how: Beam | Greedy, position: str) -> None:
    model = sharp(replace(CONFIG, decoder_depth=0, position=position), end=2.0)
    found = search(model, sources(4), how, most=3)
    assert [len(ranked) for ranked in found] == [1] * 4


def test_a_smaller_limit_can_be_asked_for() -> None:
    found = search(sharp(end=-1e9), sources(3), Greedy(), most=5)
    assert [len(one.tokens) for (one,) in found] == [5, 5, 5]


def test_wide_beams_find_the_same_in_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = search(sharp(end=2.0), sources(5), Beam(4), n_best=4)
    monkeypatch.setattr(module, "WIDEST_TREE", 3)
    monkeypatch.setattr(module, "Tree", None)
    found = search(sharp(end=2.0), sources(5), Beam(4), n_best=4)
    assert [[one.tokens for one in ranked] for ranked in found] == [
        [one.tokens for one in ranked] for ranked in wanted
    ]
