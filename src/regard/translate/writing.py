"""A model in the middle of writing: what it has read, and what it would say next.

Keys and values are kept: those of the source are computed once per sentence and shared by all its
sequences, those of the words written so far grow by one with each step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention import Mask, dense, padding
from regard.nn import Transformer
from regard.text import Tokenizer, padded


class Writer:
    """A model in the middle of writing: for each of b sentences, k sequences side by side."""

    def __init__(
        self, model: Transformer, sources: Sequence[Sequence[int]], limits: list[int]
    ) -> None:
        self._model = model
        device = model.output.device
        tokens, self._lengths = padded([[*source, Tokenizer.end] for source in sources])
        self._width = tokens.shape[1]
        self._mask = self._source_mask()
        self._memory = model.encode(tokens.to(device), source_mask=self._mask)
        self._cache = model.cache()
        self._side_by_side = 1
        self._room: Tensor | None = None
        self.limits = torch.tensor(limits, device=device)

    def logits(self, tokens: Int[Tensor, "b k"]) -> Float[Tensor, "bk vocabulary"]:
        """How well each word fits after these, which are written down."""
        self._side_by_side = tokens.shape[1]
        hidden = self._model.decode(
            tokens.view(-1, 1), self._memory, source_mask=self._mask, cache=self._cache
        )
        return self._scored(hidden[:, -1])

    def _scored(self, hidden: Float[Tensor, "bk width"]) -> Float[Tensor, "bk vocabulary"]:
        """The logits, always in the same memory."""
        rows, model = len(hidden), self._model
        if self._room is None or len(self._room) < rows:
            self._room = hidden.new_empty(rows, len(model.output))
        return model.logits(hidden, room=self._room[:rows])

    def go_on(self, parents: Int[Tensor, "b k"] | None, stay: Int[Tensor, "b"] | None) -> None:
        """Write on with these of the sequences of each sentence, or with all of them.

        If `stay` is given, only these sentences stay, and `parents` are theirs.
        """
        b, k = len(self._memory), self._side_by_side
        if stay is not None:
            self._leave(stay)
        if parents is None and stay is None:
            return
        first = torch.arange(b, device=self.limits.device) if stay is None else stay
        places = torch.arange(k, device=first.device) if parents is None else parents
        self._cache.select((first[:, None] * k + places).flatten())

    def _leave(self, stay: Int[Tensor, "b"]) -> None:
        self._lengths = self._lengths[stay.cpu()]
        self._mask = self._source_mask()
        self._cache.select_memory(stay)
        # Only its shape is looked at from now on: its keys and values are in the cache.
        self._memory = self._memory[: len(stay)]
        self.limits = self.limits[stay]

    def _source_mask(self) -> Mask | None:
        """None when no sentence is padded, which is the fastest."""
        filled = bool((self._lengths == self._width).all())
        return None if filled else padding(self._lengths)


class Tree(Writer):
    """The same, without ever moving keys and values about.

    The beginnings of a sentence are a tree. All its words stay where they were written, k more with
    each step, and a mask tells which of them a sequence consists of. This wants order to be told by
    vectors that are added to the words, since the words of a step all have the same position.
    """

    def __init__(
        self, model: Transformer, sources: Sequence[Sequence[int]], limits: list[int]
    ) -> None:
        super().__init__(model, sources, limits)
        self._steps = 0
        b, device = len(sources), model.output.device
        self._path = torch.empty(b, 1, 0, dtype=torch.bool, device=device)
        """Which of all the words of its sentence each sequence consists of ``(b, k, words)``."""

    def logits(self, tokens: Int[Tensor, "b k"]) -> Float[Tensor, "bk vocabulary"]:
        b, k = tokens.shape
        x = self._model.target(tokens.view(-1, 1), self._steps).view(b, k, -1)
        own = torch.eye(k, dtype=torch.bool, device=tokens.device).expand(b, k, k)
        self._path = torch.cat((self._path, own), 2)
        hidden = self._model.decoder(
            x,
            self._memory,
            mask=dense(self._path.unsqueeze(1)),
            memory_mask=self._mask,
            cache=self._cache,
        )
        self._steps += 1
        return self._scored(hidden.flatten(0, 1))

    def go_on(self, parents: Int[Tensor, "b k"] | None, stay: Int[Tensor, "b"] | None) -> None:
        if stay is not None:
            self._leave(stay)
            self._cache.select(stay)
            self._path = self._path[stay]
        if parents is not None:
            places = parents[..., None].expand(-1, -1, self._path.shape[2])
            self._path = self._path.gather(1, places)
