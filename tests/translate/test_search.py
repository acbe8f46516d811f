"""Searches find what a plain loop finds, what an exhaustive search finds, and what peers find."""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.attention import padding
from regard.errors import OptionError, RegardError
from regard.nn import Transformer, TransformerConfig
from regard.text import Tokenizer, padded
from regard.translate import search as module
from regard.translate import writing
from regard.translate.search import Hypothesis, _sampled, best_words, longest, search
from regard.translate.strategies import Beam, Greedy, Sampling

START, END = Tokenizer.start, Tokenizer.end
CONFIG = TransformerConfig(
    vocabulary=19, width=12, encoder_depth=1, decoder_depth=2, heads=3, feed_forward=20,
    output_bias=True, max_length=64,
)  # fmt: skip
POSITIONS = ["sinusoidal", "learned", "rotary", "alibi"]


def sharp(config: TransformerConfig = CONFIG, *, seed: int = 0, end: float = 1.0) -> Transformer:
    """A model in float64 with strong opinions, which says the end now and then."""
    torch.manual_seed(seed)
    model = Transformer(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(1.7)
        assert model.output_bias is not None
        model.output_bias[END] = end
    return model


def sources(
    count: int, *, vocabulary: int = 19, seed: int = 0, longest: int = 7
) -> list[list[int]]:
    chance = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=chance).tolist()
    return [torch.randint(4, vocabulary, (n,), generator=chance).tolist() for n in lengths]


Words = tuple[int, ...]
MOST = 9
"""Subwords at most, where a plain loop is to finish soon."""


@torch.no_grad()
def log_p(model: Transformer, source: list[int], beginnings: list[Words]) -> list[list[float]]:
    """Of every next word after each of these, which are equally long; without a cache."""
    target = torch.tensor([[START, *words] for words in beginnings])
    logits = model(torch.tensor([[*source, END]] * len(target)), target)
    return torch.log_softmax(logits[:, -1], -1).tolist()


@torch.no_grad()
def probabilities(model: Transformer, source: list[int], found: list[Hypothesis]) -> list[float]:
    """log p of each translation, by one pass over all of it."""
    said = [(*one.tokens, END) if one.ended else one.tokens for one in found]
    target, lengths = padded([[START, *words[:-1]] for words in said])
    logits = model(torch.tensor([[*source, END]] * len(said)), target)
    each = torch.log_softmax(logits, -1).gather(2, padded(said)[0][..., None])[..., 0]
    return [row[:n].sum().item() for row, n in zip(each, lengths.tolist(), strict=True)]


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
@pytest.mark.parametrize("share", [0.0, 0.4, 2.0])
def test_when_finished_sentences_leave_is_a_matter_of_speed_alone(
    share: float, position: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = sharp(replace(CONFIG, position=position), end=2.0)
    texts = sources(12)
    wanted = search(model, texts, Beam(3), n_best=3, most=2 * MOST)
    monkeypatch.setattr(module, "FINISHED_SHARE", share)
    found = search(model, texts, Beam(3), n_best=3, most=2 * MOST)
    assert [[one.tokens for one in ranked] for ranked in found] == [
        [one.tokens for one in ranked] for ranked in wanted
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


# ── the same as Hugging Face's ────────────────────────────────────────────────────────────────


def huggingface() -> ModuleType:
    """The conversion that the benchmark of decoding uses."""
    pytest.importorskip("transformers")
    path = Path(__file__).parents[2] / "benchmarks" / "huggingface.py"
    spec = importlib.util.spec_from_file_location("huggingface", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture(scope="module", params=["after", "before"])
def peer(request: pytest.FixtureRequest) -> tuple[Transformer, object]:
    """A model and its like: Marian, or Pegasus with its norms before."""
    config = replace(CONFIG, width=24, vocabulary=60, norm_place=request.param)
    model = sharp(config, end=3.0, seed=4).float()
    return model, huggingface().to_huggingface(model)


def test_the_peer_has_the_same_logits(peer: tuple[Transformer, object]) -> None:
    model, theirs = peer
    source, target = torch.tensor([[5, 6, 7, END]]), torch.tensor([[START, 8, 9]])
    with torch.no_grad():
        wanted = theirs(input_ids=source, decoder_input_ids=target).logits  # type: ignore[operator]
        assert torch.allclose(model(source, target), wanted, atol=1e-4)


@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize("penalty", [1.0, 0.5, 0.0])
def test_beams_are_those_of_transformers(
    peer: tuple[Transformer, object], penalty: float, patient: bool
) -> None:
    model, theirs = peer
    chance = torch.Generator().manual_seed(1)
    source = torch.randint(4, 60, (40, 6), generator=chance)
    found = search(model, source.tolist(), Beam(4, penalty, patient), n_best=2)
    given = torch.cat((source, torch.full((40, 1), END)), 1)
    with torch.no_grad():
        wanted = theirs.generate(  # type: ignore[attr-defined]
            input_ids=given, attention_mask=torch.ones_like(given), num_beams=4, do_sample=False,
            num_return_sequences=2, length_penalty=penalty, early_stopping=not patient,
            max_length=1 + longest(6), return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
    assert {one.ended for ranked in found for one in ranked} >= {True}
    sequences = [row[1:] for row in wanted.sequences.tolist()]
    theirs_said = [tuple(row[: row.index(END)] if END in row else row) for row in sequences]
    ours_said = [
        tuple(one.tokens) + (0,) * (max(map(len, sequences)) - len(one.tokens)) * (not one.ended)
        for ranked in found
        for one in ranked
    ]
    assert ours_said == theirs_said
    scores = [one.score for ranked in found for one in ranked]
    assert scores == pytest.approx(wanted.sequences_scores.tolist(), abs=1e-4)


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


# ── what cannot be asked for ──────────────────────────────────────────────────────────────────


def test_nothing_to_translate() -> None:
    assert search(sharp(), [], Beam(3)) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Beam(0), r"Beam: size=0, expected 1 or more"),
        (lambda: Beam(2, math.inf), r"Beam: length_penalty=inf, expected a finite number"),
        (
            lambda: Beam(2, 1e9),
            r"length_penalty=1000000000\.0, expected a finite number from -10 to 10",
        ),
        (lambda: Beam(2, math.nan), r"length_penalty=nan, expected a finite number from -10 to 10"),
        (lambda: Beam(100_000), r"Beam: size=100000, expected 1,000 or less"),
        (lambda: Sampling(0.0), r"temperature=0\.0, expected more than 0; .* use Greedy\(\)"),
        (lambda: Sampling(top_k=0), r"Sampling: top_k=0, expected 1 or more"),
        (lambda: Sampling(top_p=0.0), r"Sampling: top_p=0\.0, expected more than 0, at most 1"),
        (lambda: Sampling(top_p=1.5), r"Sampling: top_p=1\.5, expected more than 0, at most 1"),
        (lambda: Sampling(seed=-1), r"Sampling: seed=-1, expected 0 or more"),
        (lambda: search(sharp(), [[4]], Beam(2), n_best=3), r"n_best=3 of a beam of 2; use a beam"),
        (lambda: search(sharp(), [[4]], Greedy(), n_best=2), r"Greedy finds one; use Beam or"),
        (lambda: search(sharp(), [[4]], Beam(2), n_best=0), r"n_best=0, expected 1 or more"),
        (lambda: search(sharp(), [[4]], Beam(2), most=0), r"most=0, expected 1 or more"),
        (
            lambda: search(sharp(), [[4]], Sampling(), n_best=2000),
            r"n_best=2000, expected 1,000 or",
        ),
    ],
)
def test_errors(make: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Beam(2.5), r"Beam: size=2\.5, expected a whole number"),
        (lambda: Beam("5"), r"Beam: size='5', expected a whole number"),
        (lambda: Beam(True), r"Beam: size=True, expected a whole number"),
        (lambda: Beam(None), r"Beam: size=None, expected a whole number"),
        (lambda: Beam(2, "1"), r"Beam: length_penalty='1', expected a number"),
        (lambda: Beam(2, True), r"Beam: length_penalty=True, expected a number"),
        (lambda: Beam(2, 1.0, "no"), r"Beam: patient='no', expected True or False"),
        (lambda: Sampling("hot"), r"Sampling: temperature='hot', expected a number"),
        (lambda: Sampling(10**400), r"Sampling: temperature=1000.*, expected more than 0"),
        (lambda: Sampling(top_k=2.5), r"Sampling: top_k=2\.5, expected a whole number"),
        (lambda: Sampling(top_p="1"), r"Sampling: top_p='1', expected a number"),
        (lambda: Sampling(seed=1.5), r"Sampling: seed=1\.5, expected a whole number"),
        (lambda: search(sharp(), [[4]], Beam(2), n_best=1.5), r"n_best=1\.5, expected a whole"),
        (lambda: search(sharp(), [[4]], Beam(2), most="9"), r"most='9', expected a whole number"),
    ],
)
@pytest.mark.usefixtures("as_users_run")
def test_wrong_types(make: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make()  # type: ignore[operator]


@pytest.mark.usefixtures("as_users_run")
def test_numbers_of_numpy_are_numbers() -> None:
    text = [[4, 5]]
    wanted = search(sharp(), text, Beam(3, 0.5), n_best=2)
    found = search(sharp(), text, Beam(np.int64(3), np.float32(0.5)), n_best=np.int32(2))
    assert [one.tokens for one in found[0]] == [one.tokens for one in wanted[0]]


@pytest.mark.parametrize("penalty", [10, -10])
def test_the_largest_penalties_leave_numbers(penalty: float) -> None:
    for ranked in search(sharp(end=2.0).float(), sources(4), Beam(3, penalty), n_best=3):
        assert all(-math.inf < one.score < 0 for one in ranked)


def test_wide_beams_find_the_same_in_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = search(sharp(end=2.0), sources(5), Beam(4), n_best=4)
    monkeypatch.setattr(module, "WIDEST_TREE", 3)
    monkeypatch.setattr(module, "Tree", None)
    found = search(sharp(end=2.0), sources(5), Beam(4), n_best=4)
    assert [[one.tokens for one in ranked] for ranked in found] == [
        [one.tokens for one in ranked] for ranked in wanted
    ]


@pytest.mark.parametrize("how", [Greedy(), Beam(1), Beam(3), Sampling()])
def test_a_model_that_is_no_model_is_told(how: Beam | Greedy | Sampling) -> None:
    model = sharp()
    with torch.no_grad():
        model.output.mul_(torch.nan)
    with pytest.raises(
        RegardError, match=r"search: the model's probabilities are not numbers; its"
    ):
        search(model, sources(3), how, most=MOST)
