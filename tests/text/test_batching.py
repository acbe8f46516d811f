"""Batches: every pair once, within the budget, little padding, and the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import OptionError
from regard.text import (
    Batch,
    Batches,
    Cleaning,
    EncodedPairs,
    Tokenizer,
    padded,
    read_lines,
    read_pairs,
)

DATA = Path(__file__).parents[3] / "shared" / "data" / "multi30k"

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
TOKENIZER = Tokenizer.train([" ".join(ALPHABET)] * 3, 57)
"""Each letter is a word and a piece."""

Make = Callable[[list[tuple[int, int]]], EncodedPairs]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Pairs of sentences with so many tokens, in which the number of the pair is written."""
    folder = tmp_path_factory.mktemp("pairs") / "encoded"

    def made(lengths: list[tuple[int, int]]) -> EncodedPairs:
        everything = Cleaning(max_length=10_000, max_ratio=10_000.0, drop_duplicates=False)
        pairs = ((sentence(i, s), sentence(i + 1, t)) for i, (s, t) in enumerate(lengths))
        return EncodedPairs.build(pairs, TOKENIZER, folder, everything)

    return made


@pytest.fixture(scope="module")
def many(make: Make) -> EncodedPairs:
    """Some thousand pairs of lifelike lengths."""
    return make(lifelike(6000))


def sentence(number: int, length: int) -> str:
    return " ".join(ALPHABET[(number * 7 + place) % 26] for place in range(length))


def lifelike(count: int, mean: float = 12.0) -> list[tuple[int, int]]:
    """Lengths as sentences have them, and their translations."""
    rng = np.random.default_rng(0)
    source = np.clip(rng.lognormal(np.log(mean), 0.5, count), 1, 100)
    target = np.clip(source * rng.lognormal(0.05, 0.2, count), 1, 100)
    return list(zip(source.astype(int).tolist(), target.astype(int).tolist(), strict=True))


lengths = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=60)


def rows(batch: Batch) -> list[tuple[list[int], list[int], list[int]]]:
    """What stands in each row of a batch before the padding."""
    return [
        (source[:s].tolist(), target[:t].tolist(), expected[:t].tolist())
        for source, s, target, expected, t in zip(
            batch.source,
            batch.source_lengths,
            batch.target,
            batch.expected,
            batch.target_lengths,
            strict=True,
        )
    ]


def same(one: Batch, other: Batch) -> bool:
    return one.tokens == other.tokens and all(
        torch.equal(getattr(one, name), getattr(other, name))
        for name in ("source", "source_lengths", "target", "expected", "target_lengths")
    )


# ---------------------------------------------------------------------------------------- a batch


def test_a_batch_by_hand() -> None:
    batch = Batch.of([[7, 8, 9], [5]], [[4, 6], [10, 11, 12, 13]])
    assert batch.source.tolist() == [[7, 8, 9, 2], [5, 2, 0, 0]]
    assert batch.source_lengths.tolist() == [4, 2]
    assert batch.target.tolist() == [[1, 4, 6, 0, 0], [1, 10, 11, 12, 13]]
    assert batch.expected.tolist() == [[4, 6, 2, 0, 0], [10, 11, 12, 13, 2]]
    assert batch.target_lengths.tolist() == [3, 5]
    assert batch.tokens == 8
    assert len(batch) == 2
    assert batch.source.dtype == batch.expected.dtype == torch.int64


def test_the_masks_of_a_batch() -> None:
    batch = Batch.of([[7, 8, 9], [5]], [[4, 6], [10, 11, 12, 13]])
    assert batch.source_mask.tensor(1, 4).squeeze().int().tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert torch.equal(batch.source_mask.tensor(1, 4).squeeze(), batch.source != Tokenizer.pad)
    assert torch.equal(batch.target_mask.tensor(1, 5).squeeze(), batch.expected != Tokenizer.pad)


def test_sentences_without_a_word_have_an_end() -> None:
    batch = Batch.of([[], [5]], [[6], []])
    assert batch.source.tolist() == [[2, 0], [5, 2]]
    assert batch.target.tolist() == [[1, 6], [1, 0]]
    assert batch.expected.tolist() == [[6, 2], [2, 0]]


def test_a_batch_of_unequal_sides() -> None:
    with pytest.raises(OptionError) as caught:
        Batch.of([[5], [6]], [[5]])
    assert str(caught.value) == "Batch.of: 2 sources but 1 targets, expected as many"


def test_a_batch_goes_to_a_device() -> None:
    batch = Batch.of([[7, 8, 9], [5]], [[4, 6], [10]]).to("meta")
    assert {
        getattr(batch, name).device.type
        for name in ("source", "source_lengths", "target", "expected", "target_lengths")
    } == {"meta"}
    assert batch.tokens == 5


numbers = st.lists(st.integers(4, 99), max_size=9)


@settings(deadline=None)
@given(pairs=st.lists(st.tuples(numbers, numbers), max_size=9), of=st.integers(1, 5))
def test_the_parts_are_the_whole(pairs: list[tuple[list[int], list[int]]], of: int) -> None:
    batch = Batch.of([source for source, _ in pairs], [target for _, target in pairs])
    assert rows(batch) == [([*s, 2], [1, *t], [*t, 2]) for s, t in pairs]
    parts = [batch.part(rank, of) for rank in range(of)]
    assert sum(part.tokens for part in parts) == batch.tokens
    for rank, part in enumerate(parts):
        assert rows(part) == rows(batch)[rank::of]
        assert same(part, Batch.of(*_unzipped(pairs[rank::of])))  # no wider than need be


def _unzipped(pairs: list[tuple[list[int], list[int]]]) -> tuple[list[list[int]], list[list[int]]]:
    return [source for source, _ in pairs], [target for _, target in pairs]


def test_a_part_without_sentences() -> None:
    part = Batch.of([[7]], [[4]]).part(1, 2)
    assert (len(part), part.tokens) == (0, 0)
    assert part.source.shape == part.target.shape == part.expected.shape == (0, 0)
    assert part.source_lengths.shape == part.target_lengths.shape == (0,)


def test_repeats_say_how_often_an_epoch_has_each_sentence(tmp_path: Path) -> None:
    corpora = [[(ALPHABET[i], ALPHABET[(i + shift) % 26]) for i in range(26)] for shift in range(3)]
    first, *more = corpora
    pairs = EncodedPairs.build(first, TOKENIZER, tmp_path / "encoded", more=more)
    batches = Batches(pairs, 20, seed=3, repeats=(1, 2.5, 0.25))
    epochs = [np.bincount(np.concatenate(batches.sentences(e)), minlength=78) for e in range(40)]
    assert all((counts[:26] == 1).all() for counts in epochs)
    assert all(set(counts[26:52]) <= {2, 3} for counts in epochs)
    assert all(set(counts[52:]) <= {0, 1} for counts in epochs)
    mean = np.mean(epochs, 0)
    assert abs(mean[26:52].mean() - 2.5) < 0.05
    assert abs(mean[52:].mean() - 0.25) < 0.05
    assert any((a != b).any() for a, b in pairwise(epochs))
    again = Batches(pairs, 20, seed=3, repeats=(1, 2.5, 0.25))
    assert all(
        (a == b).all() for a, b in zip(batches.sentences(7), again.sentences(7), strict=True)
    )


def test_an_epoch_is_never_empty(make: Make) -> None:
    assert Batches(make([(2, 2)] * 3), 20, repeats=[1e-9]).count(0) == 1


def test_bad_repeats(make: Make) -> None:
    pairs = make([(1, 1)] * 3)
    with pytest.raises(OptionError, match="2 repeats, but the pairs have 1 corpus; give one for"):
        Batches(pairs, 10, repeats=[1, 2])
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(OptionError, match="expected numbers above 0"):
            Batches(pairs, 10, repeats=[wrong])


@pytest.mark.parametrize(("rank", "of"), [(2, 2), (-1, 2), (0, 0)])
def test_a_part_that_there_is_not(rank: int, of: int) -> None:
    with pytest.raises(OptionError, match=f"Batch.part: rank={rank} of {of}, expected 0 to"):
        Batch.of([[7]], [[4]]).part(rank, of)


def test_padded() -> None:
    grid, lengths = padded([[5, 6, 7], [], [8]], pad=9)
    assert grid.tolist() == [[5, 6, 7], [9, 9, 9], [8, 9, 9]]
    assert lengths.tolist() == [3, 0, 1]
    assert [x.shape for x in padded([])] == [(0, 0), (0,)]
    assert [x.shape for x in padded([[], []])] == [(2, 0), (2,)]


# --------------------------------------------------------------------------------------- an epoch


@settings(deadline=None, max_examples=30)
@given(lengths=lengths, budget=st.integers(1, 80), seed=st.integers(0, 3))
def test_every_pair_once_and_the_budget_kept(
    make: Make, lengths: list[tuple[int, int]], budget: int, seed: int
) -> None:
    pairs = make(lengths)
    batches = Batches(pairs, budget, seed)
    for epoch in (0, 1):
        found = list(batches.epoch(epoch))
        assert len(found) == batches.count(epoch)
        for batch in found:
            cost = len(batch) * max(batch.source.shape[1], batch.target.shape[1])
            assert len(batch) == 1 or (len(batch) > 0 and cost <= budget)
            assert batch.tokens == int((batch.expected != Tokenizer.pad).sum())
        expected = [(s.tolist(), t.tolist()) for s, t in (pairs[i] for i in range(len(pairs)))]
        assert sorted(row for batch in found for row in rows(batch)) == sorted(
            ([*s, 2], [1, *t], [*t, 2]) for s, t in expected
        )
        chosen = np.concatenate(batches.sentences(epoch))
        assert sorted(chosen.tolist()) == list(range(len(lengths)))


@settings(deadline=None, max_examples=30)
@given(lengths=lengths, start=st.integers(0, 60))
def test_resumed_in_the_middle(make: Make, lengths: list[tuple[int, int]], start: int) -> None:
    pairs = make(lengths)
    whole = list(Batches(pairs, 40, seed=5).epoch(3))
    start = min(start, len(whole))
    tail = list(Batches(pairs, 40, seed=5).epoch(3, start))
    assert len(tail) == len(whole) - start
    assert all(same(one, other) for one, other in zip(tail, whole[start:], strict=True))


def order(batches: Batches, epoch: int) -> list[list[int]]:
    return [chosen.tolist() for chosen in batches.sentences(epoch)]


def test_the_seed_alone_decides(make: Make) -> None:
    pairs = make(lifelike(300))
    torch.manual_seed(1)
    np.random.seed(1)
    first = order(Batches(pairs, 200, seed=1), 2)
    torch.manual_seed(2)
    np.random.seed(2)
    batches = Batches(pairs, 200, seed=1)
    batches.count(7)
    assert order(batches, 2) == first
    assert order(batches, 3) != first
    assert order(Batches(pairs, 200, seed=2), 2) != first


def test_epochs_mix_the_sentences(many: EncodedPairs) -> None:
    batches = Batches(many, 512)
    first, second = ([set(batch) for batch in order(batches, epoch)] for epoch in (0, 1))
    assert not [batch for batch in first if len(batch) > 5 and batch in second]
    together = {frozenset((a, b)) for batch in first for a in batch for b in batch if a < b}
    again = {frozenset((a, b)) for batch in second for a in batch for b in batch if a < b}
    assert len(together & again) < 0.3 * len(together)


def test_long_and_short_batches_come_mixed(many: EncodedPairs) -> None:
    batches = Batches(many, 512)
    widths = np.array([batch.target.shape[1] for batch in batches.epoch(0)])
    assert abs(np.corrcoef(widths, np.arange(len(widths)))[0, 1]) < 0.3


def places(batches: Batches, epoch: int) -> tuple[int, int]:
    """How many places all batches have, and how many of them are padding."""
    total = filled = 0
    for batch in batches.epoch(epoch):
        total += batch.source.numel() + batch.target.numel()
        filled += int(batch.source_lengths.sum() + batch.target_lengths.sum())
    return total, total - filled


@pytest.mark.parametrize(("mean", "budget"), [(4.0, 512), (12.0, 1024), (30.0, 2048)])
def test_little_is_padding(make: Make, many: EncodedPairs, mean: float, budget: int) -> None:
    batches = Batches(many if mean == 12.0 else make(lifelike(4000, mean)), budget)
    total, empty = places(batches, 0)
    assert empty / total < 0.08
    assert batches.padding == pytest.approx(empty / total)
    total, empty = places(batches, 1)
    assert empty / total < 0.08


@pytest.mark.parametrize(("count", "budget"), [(1000, 512), (8000, 4096)])
def test_fewer_sentences_are_cut_where_least_is_padding(
    make: Make, count: int, budget: int
) -> None:
    batches = Batches(make(lifelike(count)), budget)
    total, empty = places(batches, 0)
    assert empty / total < 0.08
    sizes = [(len(b), max(b.source.shape[1], b.target.shape[1])) for b in batches.epoch(0)]
    assert sum(many * wide < budget / 2 for many, wide in sizes) <= 1


def test_very_few_sentences_are_full_batches_all_the_same(make: Make) -> None:
    batches = Batches(make(lifelike(500)), 4096)
    assert batches.padding > 0.08
    assert batches.count(0) == 4


def test_batches_are_full(many: EncodedPairs) -> None:
    costs = [
        len(batch) * max(batch.source.shape[1], batch.target.shape[1])
        for batch in Batches(many, 1024).epoch(0)
    ]
    assert sum(cost < 512 for cost in costs) <= 1  # only what is left at the end may be little
    assert np.mean(costs) > 0.9 * 1024


def test_a_sentence_over_the_budget_is_alone(make: Make) -> None:
    batches = Batches(make([(3, 3), (50, 2), (2, 40), (3, 4)]), 20)
    found = sorted((len(b), b.source.shape[1], b.target.shape[1]) for b in batches.epoch(0))
    assert found == [(1, 3, 41), (1, 51, 3), (2, 4, 5)]


def test_the_plan_of_an_epoch_does_not_disturb_another(make: Make) -> None:
    batches = Batches(make(lifelike(100)), 60)
    running = batches.epoch(0)
    first = [next(running) for _ in range(3)]
    batches.count(1)
    assert batches.padding < 1
    first += list(running)
    assert all(same(a, b) for a, b in zip(first, batches.epoch(0), strict=True))


def test_bad_numbers(make: Make) -> None:
    pairs = make([(3, 3), (3, 3)])
    for wrong, message in (
        (lambda: Batches(pairs, 0), "Batches: budget=0, expected 1 token or more"),
        (lambda: Batches(pairs, 10, -1), "Batches: seed=-1, expected 0 or more"),
        (lambda: Batches(pairs, 10).epoch(-1), "Batches: epoch -1, expected 0 or more"),
        (
            lambda: Batches(pairs, 10).epoch(0, 3),
            "Batches.epoch: start=3, but epoch 0 has 1 batch",
        ),
        (
            lambda: Batches(pairs, 10).epoch(0, -1),
            "Batches.epoch: start=-1, but epoch 0 has 1 batch",
        ),
    ):
        with pytest.raises(OptionError) as caught:
            wrong()
        assert str(caught.value) == message


def test_some_of_what_the_decoder_reads_is_unknown() -> None:
    torch.manual_seed(0)
    batch = Batch.of([[7, 8]] * 500, [[5, 6, 9, 4]] * 500)
    found = batch.with_unknown(0.25)
    hidden = found.target == Tokenizer.unknown
    assert not hidden[:, 0].any()
    assert torch.equal(found.target[~hidden], batch.target[~hidden])
    assert hidden[:, 1:].double().mean(0).tolist() == pytest.approx([0.25] * 4, abs=0.06)
    assert torch.equal(found.expected, batch.expected)
    assert torch.equal(found.source, batch.source)


@pytest.mark.skipif(not DATA.is_dir(), reason="Multi30k is not beside the repository")
def test_multi30k(tmp_path: Path) -> None:
    files = DATA / "train.en", DATA / "train.de"
    few = (line for file in (DATA / "val.en", DATA / "val.de") for line in read_lines(file))
    tokenizer = Tokenizer.train(few, 2500)
    pairs = EncodedPairs.build(read_pairs(*files), tokenizer, tmp_path / "encoded")
    batches = Batches(pairs, 4096)
    assert batches.padding < 0.08
    total, empty = places(batches, 1)
    assert empty / total < 0.08
    found = list(batches.epoch(1))
    assert sum(batch.tokens for batch in found) == pairs.report.target_tokens + len(pairs)
    assert all(same(a, b) for a, b in zip(batches.epoch(1, 100), found[100:], strict=True))
