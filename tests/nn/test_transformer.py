"""The Transformer: what it may see, and that it is one function however it is asked."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.attention import padding, window
from regard.errors import OptionError, ShapeError
from regard.nn import Decoder, Embedding, Encoder, Transformer
from regard.nn.config import NORM_PLACES, POSITIONS
from tests.nn.transformer_cases import VOCABULARY, close, config_of, model_of, words

KINDS = [
    (position, place, (1, 2, 4)[(i + 2 * j) % 3])
    for i, position in enumerate(POSITIONS)
    for j, place in enumerate(NORM_PLACES)
]
every_kind = pytest.mark.parametrize(("position", "norm_place", "kv_heads"), KINDS)


# Word by word as all at once


@every_kind
def test_cached_decoding_is_full_decoding(position: str, norm_place: str, kv_heads: int) -> None:
    model = model_of(position=position, norm_place=norm_place, kv_heads=kv_heads)
    source, target, mask = words(3, 7), words(3, 6), padding([7, 2, 5])
    full = model(source, target, source_mask=mask)
    memory = model.encode(source, source_mask=mask)
    for part in ([1] * 6, [3, 2, 1]):
        cache = model.cache()
        found = [
            model.decode(piece, memory, source_mask=mask, cache=cache)
            for piece in target.split(part, 1)
        ]
        close(model.logits(torch.cat(found, 1)), full)
        assert cache.length == 6


@every_kind
def test_beams_are_multiples_of_the_memory(position: str, norm_place: str, kv_heads: int) -> None:
    model = model_of(position=position, norm_place=norm_place, kv_heads=kv_heads)
    source, mask = words(2, 6), padding([6, 3])
    target = words(6, 5)  # three for each sentence
    memory = model.encode(source, source_mask=mask)
    wanted = model(source.repeat_interleave(3, 0), target,
                   source_mask=padding([6, 6, 6, 3, 3, 3]))  # fmt: skip
    close(model.logits(model.decode(target, memory, source_mask=mask)), wanted)
    cache = model.cache()
    steps = [model.decode(x, memory, source_mask=mask, cache=cache) for x in target.split(1, 1)]
    close(model.logits(torch.cat(steps, 1)), wanted)


@given(
    position=st.sampled_from(POSITIONS),
    kv_heads=st.sampled_from([1, 4]),
    picks=st.lists(
        st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=1, max_size=5
    ),
    seed=st.integers(0, 2**31),
)  # fmt: skip
@settings(max_examples=10, deadline=None)
def test_a_beam_that_changes_its_rows(
    position: str, kv_heads: int, picks: list[list[int]], seed: int
) -> None:
    torch.manual_seed(seed)
    model = model_of(position=position, kv_heads=kv_heads)
    source, mask = words(2, 6), padding([6, 3])
    memory, cache = model.encode(source, source_mask=mask), model.cache()
    history = torch.empty(6, 0, dtype=torch.int64)
    for pick in picks:
        # Rows are picked within each sentence: 0 to 2 of the first, 3 to 5 of the second.
        rows = torch.tensor([*pick, *(3 + row for row in pick)])
        cache.select(rows)
        new = words(6, 1)
        history = torch.cat((history[rows], new), 1)
        step = model.decode(new, memory, source_mask=mask, cache=cache)
        full = model.decode(history, memory, source_mask=mask)
        close(step, full[:, -1:])


def test_sentences_that_are_done_leave_the_memory() -> None:
    model = model_of()
    lengths = torch.tensor([6, 3, 5])
    source, target = words(3, 6), words(6, 4)
    memory, cache = model.encode(source, source_mask=padding(lengths)), model.cache()
    model.decode(target[:, :2], memory, source_mask=padding(lengths), cache=cache)
    stay, rows = torch.tensor([0, 2]), torch.tensor([0, 1, 4, 5])
    cache.select(rows)
    cache.select_memory(stay)
    found = model.decode(
        target[rows, 2:], memory[stay], source_mask=padding(lengths[stay]), cache=cache
    )
    full = model.decode(target, memory, source_mask=padding(lengths))
    close(found, full[rows, 2:])


def test_a_decoder_without_blocks_still_counts_its_words() -> None:
    model = model_of(decoder_depth=0, norm_place="before")
    source, target = words(2, 3), words(2, 5)
    memory, cache = model.encode(source), model.cache()
    steps = [model.decode(x, memory, cache=cache) for x in target.split(1, 1)]
    close(torch.cat(steps, 1), model.decode(target, memory))
    assert cache.length == 5


# What may be seen


@every_kind
def test_later_words_change_nothing_before_them(
    position: str, norm_place: str, kv_heads: int
) -> None:
    model = model_of(position=position, norm_place=norm_place, kv_heads=kv_heads)
    source, target = words(2, 5), words(2, 8)
    before = model(source, target)
    for place in (1, 4, 7):
        changed = target.clone()
        changed[:, place] = (changed[:, place] + 1) % VOCABULARY
        after = model(source, changed)
        assert torch.equal(after[:, :place], before[:, :place])
        assert (after[:, place:] - before[:, place:]).abs().amax((0, 2)).min() > 1e-9
    close(model(source, target[:, :3]), before[:, :3])


@every_kind
def test_padding_of_the_source_never_leaks(position: str, norm_place: str, kv_heads: int) -> None:
    model = model_of(position=position, norm_place=norm_place, kv_heads=kv_heads)
    lengths = torch.tensor([7, 1, 4])
    source, target = words(3, 7), words(3, 5)
    found = model(source, target, source_mask=padding(lengths))
    other = torch.where(torch.arange(7) < lengths[:, None], source, 3)
    assert torch.equal(model(other, target, source_mask=padding(lengths)), found)
    for i, length in enumerate(lengths):
        close(found[i : i + 1], model(source[i : i + 1, :length], target[i : i + 1]))
    # With float32, as people run it.
    single = model.float()
    longer = torch.cat((source, words(3, 9)), 1)
    close(single(longer, target, source_mask=padding(lengths)).double(), found, 1e-5)


def test_padding_of_the_target_never_leaks() -> None:
    model, source, target = model_of(), words(2, 5), words(2, 6)
    longer = torch.cat((target, words(2, 4)), 1)
    close(model(source, longer)[:, :6], model(source, target))


def test_every_word_of_the_source_is_seen() -> None:
    model, source, target = model_of(), words(1, 6), words(1, 3)
    before = model(source, target)
    for place in range(6):
        changed = source.clone()
        changed[0, place] = (changed[0, place] + 1) % VOCABULARY
        assert (model(changed, target) - before).abs().amax(-1).min() > 1e-9


@pytest.mark.parametrize("position", POSITIONS)
def test_a_batch_may_be_in_any_order(position: str) -> None:
    model, lengths = model_of(position=position), torch.tensor([7, 1, 4, 6])
    source, target, order = words(4, 7), words(4, 5), torch.tensor([2, 0, 3, 1])
    found = model(source, target, source_mask=padding(lengths))
    again = model(source[order], target[order], source_mask=padding(lengths[order]))
    close(again, found[order])


@pytest.mark.parametrize("position", POSITIONS)
def test_the_order_of_words_counts(position: str) -> None:
    model, source, target = model_of(position=position), words(1, 6), words(1, 4)
    assert (model(source.flip(1), target) - model(source, target)).abs().max() > 1e-6
    swapped = target[:, [1, 0, 2, 3]]
    assert (model(source, swapped) - model(source, target))[:, -1].abs().max() > 1e-6


def test_masks_of_ones_own() -> None:
    config = config_of()
    decoder, x, memory = Decoder(config).double(), torch.randn(1, 9, 24), torch.randn(1, 4, 24)
    x, memory = x.double(), memory.double()
    before = decoder(x, memory, mask=window(before=1, after=0))
    changed = x.clone()
    changed[:, 0] += 1
    after = decoder(changed, memory, mask=window(before=1, after=0))
    # Two blocks that look one word back reach two words back.
    assert torch.equal(after[:, 3:], before[:, 3:])
    assert not torch.equal(after[:, 2], before[:, 2])


@pytest.mark.parametrize("position", ["sinusoidal", "rotary", "alibi", "learned"])
def test_a_batch_of_nothing(position: str) -> None:
    model, source, target = model_of(position=position), words(2, 5)[:0], words(2, 4)[:0]
    logits = model(source, target)
    assert logits.shape == (0, 4, 37)
    logits.sum().backward()


# Parts


def test_the_paper_s_steps_one_by_one() -> None:
    model, source, target = model_of(), words(2, 5), words(2, 3)
    x = model.source.table[source] * 24**0.5
    assert model.source.position is not None
    x = model.source.position(x)
    close(model.source(source), x)
    for block in model.encoder.blocks:
        x = block(x)
    close(model.encode(source), x)
    y = model.target(target)
    hidden = model.decoder(y, x)
    close(model.decode(target, x), hidden)
    close(model(source, target), hidden @ model.output.T)
    close(model.logits(hidden[0, 0]), model.output @ hidden[0, 0])


def test_positions_go_on_at_an_offset() -> None:
    for position in POSITIONS:
        embedding = Embedding(config_of(position=position)).double()
        tokens = words(2, 9)
        close(embedding(tokens[:, 4:], 4), embedding(tokens)[:, 4:])


def test_dropout_is_on_the_embeddings_too() -> None:
    embedding, tokens = Embedding(config_of(dropout=0.5)), words(3, 50)
    found, whole = embedding(tokens), embedding.eval()(tokens)
    kept = found != 0
    assert 0.4 < kept.double().mean() < 0.6
    assert torch.equal(found[kept], 2 * whole[kept])


def test_layers_end_with_what_forward_gives() -> None:
    for place in NORM_PLACES:
        encoder, x = Encoder(config_of(norm_place=place)), torch.randn(2, 5, 24)
        layers = list(encoder.layers(x))
        assert len(layers) == 3
        assert torch.equal(layers[-1], encoder(x))
        assert torch.equal(layers[-1], layers[-2]) == (place == "after")


@pytest.mark.parametrize("final_norm", [None, False, True])
@pytest.mark.parametrize("norm_place", NORM_PLACES)
def test_final_norms(norm_place: str, final_norm: bool | None) -> None:
    config = config_of(norm_place=norm_place, final_norm=final_norm)
    wanted = final_norm if final_norm is not None else norm_place == "before"
    for stack in (Encoder(config), Decoder(config), Decoder(config, cross=False)):
        assert isinstance(stack.norm, nn.LayerNorm if wanted else nn.Identity)


def test_an_encoder_without_blocks_is_the_embedding() -> None:
    model, source = model_of(encoder_depth=0), words(2, 5)
    assert torch.equal(model.encode(source), model.source(source))


# Bad calls


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda m: m(torch.tensor([[0, 37]]), words(1, 2)),
            OptionError,
            "Embedding: tokens have numbers from 0 to 37, but there are 37 subwords, 0 to 36; use "
            "the tokenizer that belongs to the model",
        ),
        (
            lambda m: m(words(1, 2), torch.tensor([[-1, 3]])),
            OptionError,
            "Embedding: tokens have numbers from -1 to 3, but there are 37 subwords",
        ),
        (
            lambda m: m(words(2), words(1, 2)),
            ShapeError,
            "Embedding: tokens are torch.int64 (2), expected whole numbers (b,n), int64 or int32",
        ),
        (
            lambda m: m(torch.rand(1, 2), words(1, 2)),
            ShapeError,
            "Embedding: tokens are torch.float32 (1,2), expected whole numbers (b,n)",
        ),
        (
            lambda m: m(words(1, 2) > 3, words(1, 2)),
            ShapeError,
            "Embedding: tokens are torch.bool (1,2), expected whole numbers (b,n)",
        ),
        (
            lambda m: m.encoder(torch.rand(2, 3, 25)),
            ShapeError,
            "Encoder: x has shape (2,3,25), expected (b,n,width) with width=24",
        ),
        (
            lambda m: m.encoder(torch.rand(3, 24)),
            ShapeError,
            "Encoder: x has shape (3,24), expected (b,n,width) with width=24",
        ),
        (
            lambda m: m.decoder(torch.rand(3, 24), torch.rand(1, 2, 24)),
            ShapeError,
            "Decoder: x has shape (3,24), expected (b,n,width) with width=24",
        ),
        (
            lambda m: m.decoder(torch.rand(2, 3, 24)),
            ShapeError,
            "Decoder: memory is missing; pass what the encoder returned",
        ),
        (
            lambda m: m.decoder(torch.rand(3, 3, 24), torch.rand(2, 5, 24)),
            ShapeError,
            "Decoder: memory has shape (2,5,24) beside x (3,3,24); expected (b,s,width), where "
            "the sequences of x are b or a multiple of it",
        ),
        (
            lambda m: m.decoder(torch.rand(3, 3, 24), torch.rand(3, 5, 20)),
            ShapeError,
            "Decoder: memory has shape (3,5,20) beside x (3,3,24)",
        ),
        (
            lambda m: m.decoder(torch.rand(3, 3, 24), torch.rand(0, 5, 24)),
            ShapeError,
            "Decoder: memory has shape (0,5,24) beside x (3,3,24)",
        ),
        (
            lambda m: Decoder(m.config, cross=False)(torch.rand(3, 3, 24), torch.rand(3, 5, 24)),
            ShapeError,
            "Decoder: memory is given, but with cross=False no block attends to it; use",
        ),
        (
            lambda m: Embedding(config_of(position="learned"))(words(1, 65)),
            ShapeError,
            "Learned: positions 0…64 asked for, but the table has length 64",
        ),
        (
            lambda m: m(words(3, 4), words(3, 2), source_mask=padding([4, 4])),
            ShapeError,
            "attend: mask",
        ),
    ],
)
def test_bad_calls(call: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call(Transformer(config_of()))


def test_int32_words_are_words() -> None:
    model, source, target = model_of(), words(2, 5), words(2, 4)
    assert torch.equal(model(source.int(), target.int()), model(source, target))
