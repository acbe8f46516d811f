"""Sentences side by side: batches by token budget, in an order that the seed alone decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

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
"""The share of padding from which on a batch is rather cut at more than half of its budget."""
NOISES, ENOUGH = (0.025, 0.0125, 0.0), 0.07
"""How much padding is spent on mixing the sentences anew in every epoch, as long as the whole
stays under the second number; all are shares."""

Indices = NDArray[np.int64]


def padded(
    sequences: Sequence[Sequence[int]], pad: int = Tokenizer.pad
) -> tuple[Int[Tensor, "b n"], Int[Tensor, " b"]]:
    """Token numbers side by side, the shorter filled up with ``pad``, and how many each had.

    >>> padded([[5, 6, 7], [8]])
    (tensor([[5, 6, 7],
            [8, 0, 0]]), tensor([3, 1]))
    """
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    flat = np.fromiter((i for row in sequences for i in row), np.int64, int(lengths.sum()))
    rows = _grid(flat, np.cumsum(lengths) - lengths, lengths, pad)
    return torch.from_numpy(rows), torch.from_numpy(lengths)


def by_length(lengths: Sequence[int], budget: int, most: int | None = None) -> Iterator[list[int]]:
    """Numbers of sentences of like length, longest first: as many as the budget of tokens allows.

    Never more than `most` together.

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
    """Sentences side by side, padded: owns the shift of the target and the masks."""

    source: Int[Tensor, "b s"]
    """What the encoder reads: the source and an end."""
    source_lengths: Int[Tensor, " b"]
    target: Int[Tensor, "b t"]
    """What the decoder reads: a start and the target."""
    expected: Int[Tensor, "b t"]
    """What the decoder must say at each place: the target and an end."""
    target_lengths: Int[Tensor, " b"]
    tokens: int
    """How many tokens are expected, padding not counted."""

    @classmethod
    def of(cls, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Batch:
        """A batch of these pairs of token numbers, given without start and end.

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
        """The places of the source that are not padding, as keys."""
        return padding(self.source_lengths)

    @property
    def target_mask(self) -> Mask:
        """The places of the target that are not padding, as keys."""
        return padding(self.target_lengths)

    def part(self, rank: int, of: int) -> Batch:
        """Every of-th sentence from rank on, no wider than its own longest.

        The parts of all ranks are the whole batch. One of fewer than ``of`` sentences has parts
        without any: their tensors have the shapes (0,) and (0,0), and ``tokens`` is 0.
        """
        if not 0 <= rank < of:
            raise OptionError(f"Batch.part: rank={rank} of {of}, expected 0 to {of - 1}")
        source_lengths, target_lengths = (
            self.source_lengths[rank::of],
            self.target_lengths[rank::of],
        )
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
        return Batch(
            self.source.to(device),
            self.source_lengths.to(device),
            self.target.to(device),
            self.expected.to(device),
            self.target_lengths.to(device),
            self.tokens,
        )

    def __len__(self) -> int:
        return len(self.source)


class Batches:
    """Which sentences go together, and in what order: decided by the seed alone.

    A batch holds so many sentences that sentences × the longest side, with its start or end, is at
    most ``budget``; a sentence longer than that is a batch of its own. Sentences of like length go
    together, so that little is padding, and in each epoch others of them.

    Less than 8 % is padding if there are enough sentences of each length to fill a batch, or half
    a batch at least; for a budget of 4096, some thousand. Of fewer the batches are as full as they
    can be, and more is padding, since long and short ones must go together: a tenth of 5,000
    sentences, a quarter of 1,000. A smaller budget helps.

    ``repeats`` says for each corpus of the pairs how often an epoch has each of its sentences:
    with 2.5, twice, and half of them once more, other ones in every epoch; with 0.1, a tenth.
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
        """The batches of an epoch from the start-th on; those before are not made."""
        plan = self._plan(number)
        if not 0 <= start <= len(plan):
            raise OptionError(
                f"Batches.epoch: start={start}, but epoch {number} has "
                f"{counted(len(plan), 'batch', 'batches')}"
            )
        return (self._make(plan.sentences(i)) for i in range(start, len(plan)))

    def sentences(self, number: int) -> list[Indices]:
        """For each batch of an epoch, the numbers of its sentences in ``pairs``."""
        plan = self._plan(number)
        return [plan.sentences(i) for i in range(len(plan))]

    def count(self, number: int) -> int:
        """How many batches an epoch has."""
        return len(self._plan(number))

    @cached_property
    def padding(self) -> float:
        """The share of all places, both sides together, that is padding; of the first epoch."""
        return self._plan(0).padding

    def _plan(self, number: int) -> _Plan:
        if number < 0:
            raise OptionError(f"Batches: epoch {number}, expected 0 or more")
        if number not in self._plans:
            rng = np.random.Generator(np.random.PCG64([self.seed, number]))
            # Only the last is kept: a training is never in two epochs at once.
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
    """Sentences, those of a batch next to each other."""
    edges: Indices
    """Where in ``order`` each batch begins, and where the last ends."""
    turns: Indices
    """The batches in the order in which they come."""
    padding: float

    def __len__(self) -> int:
        return len(self.turns)

    def sentences(self, i: int) -> Indices:
        """The sentences of the batch that comes i-th."""
        batch = self.turns[i]
        return self.order[self.edges[batch] : self.edges[batch + 1]]


def _per_sentence(
    repeats: Sequence[float | int] | None, sizes: Sequence[int]
) -> NDArray[np.float64] | None:
    """How often each sentence comes in an epoch; None: each once."""
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
    """The plan with the most noise that leaves little enough padding, else the one without.

    If that has too much still, it is cut more thriftily where this helps.
    """
    for noise in NOISES:
        order = _order(source, target, noise, rng)
        sides = source[order], target[order]
        edges = _edges(*sides, budget)
        share = _padding(*sides, edges)
        if share < ENOUGH:
            break
    if share >= LIMIT:
        more = _edges(*sides, budget, thrifty=True)
        if (less := _padding(*sides, more)) < LIMIT:
            edges, share = more, less
    return _Plan(order, edges, rng.permutation(len(edges) - 1), share)


def _padding(source: Indices, target: Indices, edges: Indices) -> float:
    """The share of padding when sentences are cut into batches at these edges."""
    longest = sum(np.maximum.reduceat(side, edges[:-1]) for side in (source, target))
    places = int((np.diff(edges) * longest).sum())
    return 1.0 - int(source.sum() + target.sum()) / places


def _order(source: Indices, target: Indices, noise: float, rng: np.random.Generator) -> Indices:
    """The sentences in an order in which neighbours have like lengths on both sides.

    By the longer side, which fills the budget, and among equals by how much longer it is; there
    and back in turn, so that the last of one length is like the first of the next. A random few
    stand among somewhat longer ones, and those of the same lengths come in random order: so the
    same sentences do not meet in every epoch.
    """
    longer = np.maximum(source, target)
    share = 1 + 2 * noise * rng.random(len(longer))
    row = (longer * share + rng.random(len(longer))).astype(np.int64)  # rounded at random
    difference = np.where(row % 2 == 0, source - target, target - source)
    shuffled = rng.permutation(len(longer))
    key = row * (2 * int(longer.max()) + 1) + difference
    return shuffled[np.argsort(key[shuffled], kind="stable")]


def _edges(source: Indices, target: Indices, budget: int, *, thrifty: bool = False) -> Indices:
    """Where to cut: as late as the budget allows, or earlier if that avoids too much padding.

    If nothing does, a thrifty cut is where the least is padding.
    """
    edges, start = [0], 0
    while start < len(source):
        # No more than this many fit beside the first, the widest of them being at least as wide.
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
        if len(good) and (thrifty or start + fitting < len(source)):
            start += int(good[-1]) + 1
        elif len(enough) and thrifty:
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
    """The batch of sentences that stand somewhere in a row of tokens."""
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


def _grid(
    tokens: Numbers,
    starts: Indices,
    lengths: Indices,
    pad: int,
    more: int = 0,
) -> Indices:
    """Pieces of a row of tokens below each other, padded to the longest and ``more``."""
    width = int(lengths.max()) + more if len(lengths) else 0
    places = np.arange(width)
    inside = places < lengths[:, None]
    grid = np.full((len(lengths), width), pad, np.int64)
    grid[inside] = tokens[(starts[:, None] + places)[inside]]
    return grid
