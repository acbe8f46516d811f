"""A language model writes what its probabilities say, with and without a cache."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.errors import OptionError, ShapeError
from regard.nn import LanguageModel, TransformerConfig
from regard.nn.config import POSITIONS
from regard.nn.language_model import draw

VOCABULARY = 29


def model_of(**changes: Any) -> LanguageModel:
    shape: dict[str, Any] = {
        "vocabulary": VOCABULARY, "width": 12, "decoder_depth": 2, "heads": 2, "feed_forward": 20,
        "max_length": 40, "dropout": 0.0, **changes,
    }  # fmt: skip
    return LanguageModel(TransformerConfig(**shape)).double().eval()


def words(*sizes: int) -> Tensor:
    return torch.randint(VOCABULARY, sizes)


def greedy(model: LanguageModel, tokens: Tensor, length: int) -> Tensor:
    """The likeliest words, without a cache."""
    for _ in range(length):
        tokens = torch.cat((tokens, model(tokens)[:, -1:].argmax(-1)), 1)
    return tokens


# Writing


@pytest.mark.parametrize("norm_place", ["before", "after"])
@pytest.mark.parametrize("position", POSITIONS)
def test_cold_writing_is_the_likeliest_word_each_time(position: str, norm_place: str) -> None:
    model = model_of(position=position, norm_place=norm_place, kv_heads=1)
    for start in (words(3, 4), words(1, 1)):
        found = model.generate(start, 7, temperature=0)
        assert torch.equal(found, greedy(model, start, 7))


def test_the_narrowest_choices_are_cold_writing() -> None:
    model, start = model_of(), words(3, 4)
    wanted = greedy(model, start, 7)
    assert torch.equal(model.generate(start, 7, top_k=1), wanted)
    assert torch.equal(model.generate(start, 7, top_p=1e-9), wanted)
    assert torch.equal(model.generate(start, 7, temperature=1e-30), wanted)
    assert not torch.equal(model.generate(start, 7, temperature=5.0), wanted)


def test_the_seed_decides() -> None:
    model, start = model_of(), words(3, 4)

    def written(seed: int) -> Tensor:
        return model.generate(start, 9, generator=torch.Generator().manual_seed(seed))

    assert torch.equal(written(1), written(1))
    assert not torch.equal(written(1), written(2))
    before = torch.random.get_rng_state()
    written(1)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(5)
    first = model.generate(start, 9)
    torch.manual_seed(5)
    assert torch.equal(model.generate(start, 9), first)


def test_writing_stops_at_the_end() -> None:
    model, start, end = model_of(output_bias=True), words(4, 2), 7
    assert model.output_bias is not None
    with torch.no_grad():
        model.output_bias[end] = 3.0
    ended = set()
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        found = model.generate(start, 12, end=end, generator=generator)
        assert found.shape[1] <= 14
        said = found[:, 2:] == end
        after = said.cumsum(1) > 0
        assert torch.equal(said, after)  # once said, nothing else
        if found.shape[1] < 14:
            assert said[:, -1].all()
            assert not said[:, :-1].all(0).any()
        ended.add(found.shape[1])
    assert len(ended) > 2


def test_writing_nothing_and_from_int32() -> None:
    model, start = model_of(), words(2, 3)
    assert torch.equal(model.generate(start, 0), start)
    found = model.generate(start.int(), 3, temperature=0)
    assert found.dtype == torch.int32
    assert torch.equal(found.long(), greedy(model, start, 3))


def test_writing_needs_no_gradient_and_changes_nothing() -> None:
    model, start = model_of(), words(2, 3)
    before = start.clone()
    assert not model.generate(start, 3).requires_grad
    assert torch.equal(start, before)


@pytest.mark.parametrize("position", POSITIONS)
def test_reading_with_a_cache_is_reading_at_once(position: str) -> None:
    model, tokens = model_of(position=position), words(3, 8)
    cache = model.cache()
    parts = [model(part, cache=cache) for part in tokens.split([3, 1, 4], dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), model(tokens), rtol=0, atol=1e-12)


@pytest.mark.parametrize("position", POSITIONS)
def test_later_words_change_nothing_before_them(position: str) -> None:
    model, tokens = model_of(position=position), words(2, 8)
    before = model(tokens)
    tokens[:, 5] = (tokens[:, 5] + 1) % VOCABULARY
    assert torch.equal(model(tokens)[:, :5], before[:, :5])
    assert not torch.equal(model(tokens)[:, 5:], before[:, 5:])


def test_loss_is_that_of_its_logits() -> None:
    model, tokens, expected = model_of(output_bias=True), words(3, 6), words(3, 6)
    real = torch.rand(3, 6) < 0.5
    wanted = F.cross_entropy(model(tokens)[real], expected[real], reduction="sum")
    found = model.loss(tokens, expected, real=real)
    torch.testing.assert_close(found.total, wanted)
    smooth = F.cross_entropy(
        model(tokens).flatten(0, 1), expected.flatten(), reduction="sum", label_smoothing=0.1
    )
    torch.testing.assert_close(model.loss(tokens, expected, smoothing=0.1).total, smooth)


def test_it_learns_a_rhyme_by_heart() -> None:
    torch.manual_seed(0)
    model = model_of(width=16).train()
    rhyme = torch.tensor([[1, 5, 9, 5, 11, 5, 9, 13, 2, 7, 5, 2, 3]])
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        model.loss(rhyme[:, :-1], rhyme[:, 1:]).total.backward()
        optimizer.step()
    assert torch.equal(model.eval().generate(rhyme[:, :1], 12, temperature=0), rhyme)


def test_tied_or_not_and_brought_back() -> None:
    tied, apart = model_of(), model_of(tied=False)
    assert tied.output is tied.target.table
    sizes = [sum(one.numel() for one in model.parameters()) for model in (tied, apart)]
    assert sizes[1] - sizes[0] == VOCABULARY * 12
    again = model_of()
    again.load_state_dict(tied.state_dict())
    tokens = words(2, 5)
    assert torch.equal(again(tokens), tied(tokens))


# Drawing one word


def shares(logits: Tensor, count: int = 40_000, **options: Any) -> Tensor:
    drawn = draw(logits.expand(count, -1), **options)
    return torch.bincount(drawn, minlength=len(logits)) / count


def test_words_are_drawn_by_their_probability() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -torch.inf, 0.5])
    found = shares(logits)
    torch.testing.assert_close(found, logits.softmax(0), rtol=0, atol=0.015)
    assert found[3] == 0


def test_temperature() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0])
    for temperature in (0.5, 2, 10.0):
        wanted = (logits / temperature).softmax(0)
        found = shares(logits, temperature=temperature)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0.015)
    for temperature in (0, 1e-39):  # by which 2.0 in float32 would be infinite
        assert shares(logits, temperature=temperature).tolist() == [0, 0, 1]


def test_only_the_likeliest() -> None:
    logits = torch.tensor([0.0, 3.0, 2.0, 1.0])
    wanted = torch.tensor([0.0, *torch.tensor([3.0, 2.0]).softmax(0).tolist(), 0.0])
    torch.testing.assert_close(shares(logits, top_k=2), wanted, rtol=0, atol=0.015)
    torch.testing.assert_close(shares(logits, top_k=9), logits.softmax(0), rtol=0, atol=0.015)


def test_exactly_so_many_of_equals() -> None:
    assert (shares(torch.zeros(6), top_k=3) > 0).sum() == 3


def test_the_fewest_that_have_the_share_together() -> None:
    logits = torch.tensor([0.1, 0.4, 0.2, 0.3]).log()
    for top_p, kept in ((0.05, [1]), (0.39, [1]), (0.41, [1, 3]), (0.75, [1, 3, 2]), (0.95, 4)):
        found = shares(logits, top_p=top_p)
        wanted = torch.zeros(4)
        rows = [0, 1, 2, 3] if kept == 4 else kept
        wanted[rows] = logits.exp()[rows]
        torch.testing.assert_close(found, wanted / wanted.sum(), rtol=0, atol=0.015)
    torch.testing.assert_close(shares(logits, top_p=1), logits.exp(), rtol=0, atol=0.015)


def test_both_limits_together() -> None:
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    # Of the two likeliest, the first has 4/7 of the probability: enough for 0.5.
    assert shares(logits, top_k=2, top_p=0.5).tolist() == [1, 0, 0, 0]
    found = shares(logits, top_k=2, top_p=0.6)
    torch.testing.assert_close(found, torch.tensor([4 / 7, 3 / 7, 0, 0]), rtol=0, atol=0.015)


def test_each_row_by_itself() -> None:
    logits = torch.full((3, 5), -50.0)
    logits[torch.arange(3), torch.tensor([4, 0, 2])] = 50.0
    for options in ({}, {"top_k": 2}, {"top_p": 0.9}, {"temperature": 0}):
        assert draw(logits, **options).tolist() == [4, 0, 2]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"temperature": -1.0}, "draw: temperature=-1.0, expected 0 or more"),
        ({"temperature": float("nan")}, "draw: temperature=nan, expected 0 or more"),
        ({"top_k": 0}, "draw: top_k=0, expected 1 or more; leave it out for all words"),
        ({"top_p": 0.0}, "draw: top_p=0.0, expected more than 0, up to 1"),
        ({"top_p": 1.5}, "draw: top_p=1.5, expected more than 0, up to 1"),
    ],
)
def test_impossible_choices(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=re.escape(text)):
        draw(torch.zeros(1, 5), **options)
    with pytest.raises(OptionError, match=re.escape(text)):
        model_of().generate(words(1, 2), 1, **options)


def test_bad_calls() -> None:
    model = model_of()
    with pytest.raises(ShapeError, match=r"generate: tokens have shape \(3\), expected \(b,n\) wi"):
        model.generate(words(3), 2)
    with pytest.raises(ShapeError, match=r"generate: tokens have shape \(2,0\), expected \(b,n\) "):
        model.generate(words(2, 0), 2)
    with pytest.raises(OptionError, match="generate: length=-1, expected 0 or more"):
        model.generate(words(2, 1), -1)
    with pytest.raises(OptionError, match="Embedding: tokens have numbers from 29 to 29"):
        model(torch.tensor([[VOCABULARY]]))
    with pytest.raises(ShapeError, match=r"draw: logits have shape \(5\), expected \(b,vocabulary"):
        draw(torch.zeros(5))
