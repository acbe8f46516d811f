"""Incremental decoding: a model with its cached keys and values, one token per step.

Keys and values of the source are computed once per sentence and shared by all its sequences; those
of the target grow by one with each step.

Under bfloat16's autocast, the encoder, the output projection and a decoder that is compiled (of the
paper's kind: layer norm, relu, positions added to embeddings) are in bfloat16. Other decoders stay
float32, and so does a search with more sequences per sentence than are compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard import native
from regard.attention import Mask, causal, dense, padding
from regard.attention.call import autocast_disabled, product_dtype
from regard.nn import Transformer
from regard.nn.stepping import Stepper
from regard.text import Tokenizer, padded

LOGITS = 2**22
"""Logits that are held at once, 16 MB; fewer would read the weights more often."""


class Writer:
    """Incremental decoding of k sequences for each of b sentences.

    Args:
        model: the model.
        sources: token ids, without start and end.
        limits: maximum length of each translation.
        memory: the encoder's output for the sources and their ends, if known.
    """

    def __init__(
        self,
        model: Transformer,
        sources: Sequence[Sequence[int]],
        limits: list[int],
        memory: Float[Tensor, "b s width"] | None = None,
    ) -> None:
        self.model = model
        device = model.output.device
        tokens, self._lengths = padded([[*source, Tokenizer.end] for source in sources])
        self._width = tokens.shape[1]
        self._mask = self._source_mask()
        if memory is None:
            memory = model.encode(tokens.to(device), source_mask=self._mask)
        self._memory = memory.to(model.output.dtype)
        self._cache = model.cache()
        products = product_dtype(model.output)
        with autocast_disabled(device):
            self._stepper = Stepper(model.decoder, products)
        self._sequences = 1
        self._words = _Words(model, products)
        self.limits = torch.tensor(limits, device=device)

    def logits(self, tokens: Int[Tensor, "b k"]) -> Iterator[Float[Tensor, "rows vocabulary"]]:
        """The logits of the next token after these, which are appended to the sequences.

        For some of the b sentences at a time, in order, which bounds the memory they need.
        """
        hidden, k = self._written(tokens), tokens.shape[1]
        rows = max(1, LOGITS // len(self.model.output) // k) * k
        return map(self._words, torch.split(hidden, rows))

    def _written(self, tokens: Int[Tensor, "b k"]) -> Float[Tensor, "bk width"]:
        """The decoder's output for these tokens."""
        self._sequences = tokens.shape[1]
        x = self.model.target(tokens.view(-1, 1), self._cache.length)
        return self._step(x, causal)[:, -1]

    def _step(self, x: Tensor, mask: Mask) -> Tensor:
        return self._stepper(x, self._memory, mask=mask, memory_mask=self._mask, cache=self._cache)

    def advance(self, parents: Int[Tensor, "b k"] | None, stay: Int[Tensor, "b"] | None) -> None:
        """Continue with these sequences of each sentence, or with all of them.

        If `stay` is given, only these sentences are kept, and `parents` are theirs.
        """
        b, k = len(self._memory), self._sequences
        if stay is not None:
            self._leave(stay)
            self._cache.select_memory(stay)
        if parents is None and stay is None:
            return
        first = torch.arange(b, device=self.limits.device) if stay is None else stay
        places = torch.arange(k, device=first.device) if parents is None else parents
        self._cache.select((first[:, None] * k + places).flatten())

    def _leave(self, stay: Int[Tensor, "b"]) -> None:
        self._lengths = self._lengths[stay.cpu()]
        self._mask = self._source_mask()
        # Only its shape is used from now on: its keys and values are in the cache.
        self._memory = self._memory[: len(stay)]
        self.limits = self.limits[stay]

    def _source_mask(self) -> Mask | None:
        """The padding mask of the sources; None, which is fastest, if none is padded."""
        filled = bool((self._lengths == self._width).all())
        return None if filled else padding(self._lengths)


class _Words:
    """The output projection: logits over the vocabulary."""

    def __init__(self, model: Transformer, products: torch.dtype) -> None:
        self._weight, self._bias, self._products = model.output.T, model.output_bias, products
        weight = self._weight
        self._int8 = isinstance(weight, native.Int8Matrix) and weight.multiplies
        self._width = len(model.output)

    def __call__(self, hidden: Float[Tensor, "rows width"]) -> Float[Tensor, "rows vocabulary"]:
        """The logits."""
        if self._int8:
            return native.Int8Product.apply(hidden, self._weight, self._bias)  # type: ignore[no-any-return, no-untyped-call]
        with native.products_in(self._products):
            fits = native.fits(hidden.numel() * self._width, hidden)
        if self._panels is not None and fits:
            return torch.ops.regard.affine_panels(  # type: ignore[no-any-return]
                hidden.contiguous(), self._panels, self._bias, self._width
            )
        logits = torch.mm(hidden, self._contiguous)
        return logits if self._bias is None else logits.add_(self._bias)

    @cached_property
    def _panels(self) -> Float[Tensor, "numbers"] | None:
        fits = (
            self._width % 16 == 0
            and (self._products == torch.float32 or len(self._weight) % 2 == 0)
            and self._weight.dtype == torch.float32
            and self._weight.device.type == "cpu"
            and native.loaded()
        )
        return native.panels(self._weight, self._products) if fits else None

    @cached_property
    def _contiguous(self) -> Float[Tensor, "width vocabulary"]:
        """The weight in contiguous memory, which multiplies faster."""
        return self._weight.contiguous()


class Tree(Writer):
    """A `Writer` that never moves keys and values.

    The sequences of a sentence form a tree. All its tokens stay where they were appended, k more
    with each step, and a mask selects those of a sequence. Requires positions that are added to the
    embeddings, since the tokens of a step share one position.
    """

    _steps = 0
    _path: Bool[Tensor, "b k words"] | None = None
    """The mask that selects the tokens of each sequence."""

    def _written(self, tokens: Int[Tensor, "b k"]) -> Float[Tensor, "bk width"]:
        b, k = tokens.shape
        x = self.model.target(tokens.view(-1, 1), self._steps).view(b, k, -1)
        own = torch.eye(k, dtype=torch.bool, device=tokens.device).expand(b, k, k)
        self._path = own if self._path is None else torch.cat((self._path, own), 2)
        hidden = self._step(x, dense(self._path.unsqueeze(1)))
        self._steps += 1
        return hidden.flatten(0, 1)

    def advance(self, parents: Int[Tensor, "b k"] | None, stay: Int[Tensor, "b"] | None) -> None:
        if stay is not None:
            self._leave(stay)
            moved = (stay != torch.arange(len(stay), device=stay.device)).nonzero()[:, 0]
            self._cache.move(stay[moved], moved, len(stay))
            self._path = None if self._path is None else self._path[stay]
        if parents is not None and self._path is not None:
            places = parents[..., None].expand(-1, -1, self._path.shape[2])
            self._path = self._path.gather(1, places)
