"""Loops are noticed while they are written, given up by a beam, and cut where all else fails."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.nn import Transformer, TransformerConfig
from regard.text import Tokenizer
from regard.translate.repetition import PERIOD, REPEATS, Loops
from regard.translate.search import longest, search
from regard.translate.strategies import Beam, Greedy, Sampling, Strategy

CONFIG = TransformerConfig(
    vocabulary=19, width=12, encoder_depth=1, decoder_depth=2, heads=3, feed_forward=20,
    output_bias=True,
)  # fmt: skip
SOURCES = [[4, 5, 6, 7], [8, 9], [10, 11, 12, 13, 14, 15], [5, 5, 6]]


def stubborn(seed: int) -> Transformer:
    """A random model that never wants to end, and so repeats itself."""
    torch.manual_seed(seed)
    model = Transformer(CONFIG).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(2.0)
        assert model.output_bias is not None
        model.output_bias[Tokenizer.end] = -30.0
    return model


def is_loop(tokens: tuple[int, ...]) -> bool:
    """The definition, in plain words: at least four times the same."""
    return any(
        len(tokens) >= period * REPEATS
        and tokens[-period * REPEATS :] == tokens[-period:] * REPEATS
        for period in range(1, PERIOD + 1)
    )


def has_loop(tokens: tuple[int, ...]) -> bool:
    return any(is_loop(tokens[:end]) for end in range(1, len(tokens) + 1))


@pytest.mark.parametrize("how", [Greedy(), Sampling(0.05), Beam(1), Beam(2), Beam(5)], ids=str)
def test_no_translation_is_a_loop(how: Strategy) -> None:
    loops = 0
    for seed in range(3):
        model = stubborn(seed)
        exact = search(model, SOURCES, how)
        found = search(model, SOURCES, how, cut_loops=True)
        for (before,), (after,), source in zip(exact, found, SOURCES, strict=True):
            loops += has_loop(before.tokens)
            assert not has_loop(after.tokens)
            assert len(after.tokens) <= longest(len(source))
            if not isinstance(how, Beam) and not has_loop(before.tokens):
                assert after.tokens == before.tokens
            if isinstance(how, Greedy) and has_loop(before.tokens):
                assert before.tokens[: len(after.tokens)] == after.tokens
                assert not after.ended
    assert loops > 2  # there was something to do


def test_what_others_are_in_the_batch_does_not_matter() -> None:
    model = stubborn(3)
    together = search(model, SOURCES, Beam(3), cut_loops=True)
    alone = [search(model, [source], Beam(3), cut_loops=True)[0] for source in SOURCES]
    assert [[one.tokens for one in found] for found in together] == [
        [one.tokens for one in found] for found in alone
    ]


def test_a_source_that_repeats_itself_may_be_translated() -> None:
    said = (7, 7, 7, 7, 7, 7, 7, 7)
    assert Loops([[4, 5]]).cut(0, said) == (7,)
    assert Loops([[4, 5]]).cut(0, said[:4]) == (7,)
    assert Loops([[4, 5]]).cut(0, said[:3]) == said[:3]
    assert Loops([[9] * 8]).cut(0, said) == said
    assert Loops([[9] * 8]).cut(0, said * 3) == (7,)
    assert Loops([[9, 8] * 6]).cut(0, (5, 6, 7) * 6) == (5, 6, 7) * 6
    assert Loops([[9, 8, 7]]).cut(0, (4, *(5, 6, 7) * 6)) == (4, 5, 6, 7)
    assert Loops([[9, 8, 7]]).cut(0, (5, 6, 7) * 3) == (5, 6, 7) * 3


@settings(max_examples=30)
@given(st.lists(st.integers(4, 5), min_size=8, max_size=24))
def test_runs_are_what_the_definition_says(tokens: list[int]) -> None:
    loops = Loops([[17, 18]])
    written = torch.empty(1, 1, 0, dtype=torch.int64)
    nothing = torch.zeros(1, 1, dtype=torch.int64)
    for end, token in enumerate(tokens, 1):
        word = torch.tensor([[token]])
        runs = loops.runs(written, nothing, word)
        assert bool(loops.are_loops(runs)) == is_loop(tuple(tokens[:end]))
        loops.keep(runs)
        written = torch.cat((written, word[..., None]), 2)
    assert not is_loop(loops.cut(0, tokens)) or not is_loop(tuple(tokens))
