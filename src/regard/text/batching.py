"""Batches of padded sentences, by token budget, in an order determined by the seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from regard.attention import Mask, padding
from regard.errors import OptionError, counted
from regard.text._encoded import EncodedPairs, Numbers
from regard.text.tokenizer import Tokenizer

LIMIT = 0.08
"""Share of padding above which a batch is cut earlier, at half of its budget or more."""
NOISES, ENOUGH = (0.025, 0.0125, 0.0), 0.07
"""Noise in the lengths, which mixes sentences anew in every epoch: the first of these values with
which the share of padding is below `ENOUGH`."""

Indices = NDArray[np.int64]


def padded(
    sequences: Sequence[Sequence[int]], pad: int = Tokenizer.pad
) -> tuple[Int[Tensor, "b n"], Int[Tensor, " b"]]:
    """Sequences of token ids padded to a tensor, and their lengths.

    >>> padded([[5, 6, 7], [8]])
    (tensor([[5, 6, 7],
            [8, 0, 0]]), tensor([3, 1]))
    """
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    flat = np.fromiter((i for row in sequences for i in row), np.int64, int(lengths.sum()))
    rows = _grid(flat, np.cumsum(lengths) - lengths, lengths, pad)
    return torch.from_numpy(rows), torch.from_numpy(lengths)


def by_length(lengths: Sequence[int], budget: int, most: int | None = None) -> Iterator[list[int]]:
    """Batches of item numbers of like length, longest first, within a budget of padded tokens.

    No batch has more than `most` items.

    >>> list(by_length([3, 9, 4, 8], budget=20))
    [[1, 3], [2, 0]]
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    start = 0
    while start < len(order):
        count = min(max(1, budget // lengths[order[start]]), most or len(order))
        yield order[start : start + count]
        start += count


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of padded sentence pairs, with the shifted target."""

    source: Int[Tensor, "b s"]
    """The encoder's input: source and end."""
    source_lengths: Int[Tensor, " b"]
    target: Int[Tensor, "b t"]
    """The decoder's input: start and target."""
    expected: Int[Tensor, "b t"]
    """The labels: target and end."""
    target_lengths: Int[Tensor, " b"]
    tokens: int
    """The number of labels, without padding."""

    @classmethod
    def of(cls, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Batch:
        """A batch of these pairs of token ids, given without start and end.

        >>> batch = Batch.of([[7, 8], [9]], [[5], [4, 6]])
        >>> batch.source.tolist(), batch.target.tolist(), batch.expected.tolist()
        ([[7, 8, 2], [9, 2, 0]], [[1, 5, 0], [1, 4, 6]], [[5, 2, 0], [4, 6, 2]])
        """
        if len(sources) != len(targets):
            raise OptionError(
                f"Batch.of: {len(sources)} sources but {len(targets)} targets, expected as many"
            )
        flat = [i for row in (*sources, *targets) for i in row]
        lengths = np.array([len(row) for row in (*sources, *targets)], np.int64)
        starts = np.cumsum(lengths) - lengths
        b = len(sources)
        return _batch(np.array(flat, np.int64), starts[:b], lengths[:b], starts[b:], lengths[b:])

    @property
    def source_mask(self) -> Mask:
        """The padding mask of the source."""
        return padding(self.source_lengths)

    @property
    def target_mask(self) -> Mask:
        """The padding mask of the target."""
        return padding(self.target_lengths)

    def with_unknown(self, share: float) -> Batch:
        """A copy in which a random share of the decoder's input is the unknown subword.

        The start token and the labels are unchanged.
        """
        hidden = torch.rand(self.target.shape) < share
        hidden[:, :1] = False
        return replace(self, target=self.target.masked_fill(hidden, Tokenizer.unknown))

    def part(self, rank: int, of: int) -> Batch:
        """Every of-th sentence from rank on, padded to the longest of them.

        A batch of fewer than ``of`` sentences has empty parts, of shapes (0,) and (0,0).
        """
        if not 0 <= rank < of:
            raise OptionError(f"Batch.part: rank={rank} of {of}, expected 0 to {of - 1}")
        source_lengths = self.source_lengths[rank::of]
        target_lengths = self.target_lengths[rank::of]
        s, t = (int(x.max()) if len(x) else 0 for x in (source_lengths, target_lengths))
        return Batch(
            self.source[rank::of, :s],
            source_lengths,
            self.target[rank::of, :t],
            self.expected[rank::of, :t],
            target_lengths,
            int(target_lengths.sum()),
        )

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        moved: dict[str, Any] = {
            name: value.to(device) if isinstance(value, Tensor) else value
            for name, value in vars(self).items()
        }
        return Batch(**moved)

    def __len__(self) -> int:
        return len(self.source)


class Batches:
    """The batches of every epoch, determined by the seed.

    In a batch, sentences × the longest side, with its start or end, is at most ``budget``; a longer
    sentence is a batch of its own. Batches have sentences of like length, and other ones in each
    epoch.

    Less than 8 % is padding if there are enough sentences of each length to fill half a batch; for
    a budget of 4096, some thousand. With fewer, long and short ones share a batch: a tenth is
    padding for 5,000 sentences, a quarter for 1,000. A smaller budget helps.

    ``repeats``: for each corpus of the pairs, how often an epoch has each of its sentences; with
    2.5, twice, and a random half of them once more; with 0.1, a random tenth.
    """

    def __init__(
        self,
        pairs: EncodedPairs,
        budget: int,
        seed: int = 0,
        repeats: Sequence[float | int] | None = None,
    ) -> None:
        if budget < 1:
            raise OptionError(f"Batches: budget={budget}, expected 1 token or more")
        if seed < 0:
            raise OptionError(f"Batches: seed={seed}, expected 0 or more")
        self.pairs = pairs
        self.budget = budget
        self.seed = seed
        self._source = pairs.source_lengths.astype(np.int64) + 1
        self._target = pairs.target_lengths.astype(np.int64) + 1
        self._repeats = _per_sentence(repeats, pairs.sizes)
        self._plans: dict[int, _Plan] = {}

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from number `start` on."""
        plan = self._plan(number)
        if not 0 <= start <= len(plan):
            raise OptionError(
                f"Batches.epoch: start={start}, but epoch {number} has "
                f"{counted(len(plan), 'batch', 'batches')}"
            )
        return (self._make(plan.sentences(i)) for i in range(start, len(plan)))

    def sentences(self, number: int) -> list[Indices]:
        """The indices in ``pairs`` of each batch of an epoch."""
        plan = self._plan(number)
        return [plan.sentences(i) for i in range(len(plan))]

    def count(self, number: int) -> int:
        """The number of batches of an epoch."""
        return len(self._plan(number))

    @cached_property
    def padding(self) -> float:
        """The share of padding of both sides, in the first epoch."""
        return self._plan(0).padding

    def _plan(self, number: int) -> _Plan:
        if number < 0:
            raise OptionError(f"Batches: epoch {number}, expected 0 or more")
        if number not in self._plans:
            rng = np.random.Generator(np.random.PCG64([self.seed, number]))
            # Only the last plan is kept: training is in one epoch at a time.
            self._plans = {number: self._planned(rng)}
        return self._plans[number]

    def _planned(self, rng: np.random.Generator) -> _Plan:
        if self._repeats is None:
            return _planned(self._source, self._target, self.budget, rng)
        counts = (self._repeats + rng.random(len(self._repeats))).astype(np.int64)
        if not counts.any():  # a small corpus with small repeats
            counts[int(self._repeats.argmax())] = 1
        drawn = np.repeat(np.arange(len(counts)), counts)
        plan = _planned(self._source[drawn], self._target[drawn], self.budget, rng)
        return replace(plan, order=drawn[plan.order])

    def _make(self, chosen: Indices) -> Batch:
        pairs = self.pairs
        starts, source = pairs.starts[chosen], self._source[chosen] - 1
        return _batch(pairs.tokens, starts, source, starts + source, self._target[chosen] - 1)


@dataclass(frozen=True, eq=False)
class _Plan:
    """The batches of an epoch."""

    order: Indices
    """The sentences, batch by batch."""
    edges: Indices
    """The offsets in ``order`` of each batch, and the end."""
    turns: Indices
    """The shuffled order of the batches."""
    padding: float

    def __len__(self) -> int:
        return len(self.turns)

    def sentences(self, i: int) -> Indices:
        """The sentences of the i-th batch."""
        batch = self.turns[i]
        return self.order[self.edges[batch] : self.edges[batch + 1]]


def _per_sentence(
    repeats: Sequence[float | int] | None, sizes: Sequence[int]
) -> NDArray[np.float64] | None:
    """The repeats of each sentence; None if each occurs once."""
    if repeats is None:
        return None
    if len(repeats) != len(sizes):
        raise OptionError(
            f"Batches: {len(repeats)} repeats, but the pairs have "
            f"{counted(len(sizes), 'corpus', 'corpora')}; give one for each"
        )
    for one in repeats:
        if not 0 < one < np.inf:
            raise OptionError(f"Batches: repeats has {one}, expected numbers above 0")
    return np.repeat(np.asarray(repeats, np.float64), sizes)


def _planned(source: Indices, target: Indices, budget: int, rng: np.random.Generator) -> _Plan:
    """The plan with the most noise that has little enough padding, else the one without noise.

    If that still has too much, batches are cut to minimise padding, if that is enough.
    """
    for noise in NOISES:
        order = _order(source, target, noise, rng)
        sides = source[order], target[order]
        edges = _edges(*sides, budget)
        share = _padding(*sides, edges)
        if share < ENOUGH:
            break
    if share >= LIMIT:
        more = _edges(*sides, budget, least_padding=True)
        if (less := _padding(*sides, more)) < LIMIT:
            edges, share = more, less
    return _Plan(order, edges, rng.permutation(len(edges) - 1), share)


def _padding(source: Indices, target: Indices, edges: Indices) -> float:
    """The share of padding of batches with these edges."""
    longest = sum(np.maximum.reduceat(side, edges[:-1]) for side in (source, target))
    places = int((np.diff(edges) * longest).sum())
    return 1.0 - int(source.sum() + target.sum()) / places


def _order(source: Indices, target: Indices, noise: float, rng: np.random.Generator) -> Indices:
    """The sentences in an order in which neighbours have like lengths on both sides.

    Sorted by the longer side, which fills the budget, and then by the difference, alternately
    ascending and descending. Noise in the lengths and random order among equals mix the sentences
    anew in every epoch.
    """
    longer = np.maximum(source, target)
    share = 1 + 2 * noise * rng.random(len(longer))
    row = (longer * share + rng.random(len(longer))).astype(np.int64)  # rounded at random
    difference = np.where(row % 2 == 0, source - target, target - source)
    shuffled = rng.permutation(len(longer))
    key = row * (2 * int(longer.max()) + 1) + difference
    return shuffled[np.argsort(key[shuffled], kind="stable")]


def _edges(
    source: Indices, target: Indices, budget: int, *, least_padding: bool = False
) -> Indices:
    """The edges of batches: as late as the budget allows, or earlier to avoid too much padding.

    With `least_padding`, where no edge avoids it, the one with the least padding.
    """
    edges, start = [0], 0
    while start < len(source):
        # At most this many fit, as none is padded to less than the first.
        most = max(budget // int(max(source[start], target[start])), 1)
        piece = slice(start, start + most)
        wide_source = np.maximum.accumulate(source[piece])
        wide_target = np.maximum.accumulate(target[piece])
        counts = np.arange(1, len(wide_source) + 1)
        cost = counts * np.maximum(wide_source, wide_target)
        fitting = max(int(np.searchsorted(cost, budget, "right")), 1)
        places = counts * (wide_source + wide_target)
        filled = np.cumsum(source[piece] + target[piece])
        enough = np.flatnonzero(cost[:fitting] >= budget / 2)
        good = enough[filled[enough] >= (1 - LIMIT) * places[enough]]
        if len(good) and (least_padding or start + fitting < len(source)):
            start += int(good[-1]) + 1
        elif len(enough) and least_padding:
            start += int(enough[(filled[enough] / places[enough]).argmax()]) + 1
        else:
            start += fitting
        edges.append(start)
    return np.array(edges, np.int64)


def _batch(
    tokens: Numbers,
    source_starts: Indices,
    source_lengths: Indices,
    target_starts: Indices,
    target_lengths: Indices,
) -> Batch:
    """The batch of sentences at these offsets of a row of tokens."""
    rows = np.arange(len(source_lengths))
    source = _grid(tokens, source_starts, source_lengths, Tokenizer.pad, 1)
    source[rows, source_lengths] = Tokenizer.end
    expected = _grid(tokens, target_starts, target_lengths, Tokenizer.pad, 1)
    target = np.empty_like(expected)
    target[:, 1:] = expected[:, :-1]
    target[:, :1] = Tokenizer.start
    expected[rows, target_lengths] = Tokenizer.end
    return Batch(
        torch.from_numpy(source),
        torch.from_numpy(source_lengths + 1),
        torch.from_numpy(target),
        torch.from_numpy(expected),
        torch.from_numpy(target_lengths + 1),
        int(target_lengths.sum()) + len(rows),
    )


def _grid(tokens: Numbers, starts: Indices, lengths: Indices, pad: int, more: int = 0) -> Indices:
    """Pieces of a row of tokens as rows, padded to the longest and ``more``."""
    width = int(lengths.max()) + more if len(lengths) else 0
    places = np.arange(width)
    inside = places < lengths[:, None]
    grid = np.full((len(lengths), width), pad, np.int64)
    grid[inside] = tokens[(starts[:, None] + places)[inside]]
    return grid
