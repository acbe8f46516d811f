"""The Transformer: an encoder, a decoder, and the two together with their embeddings.

Vaswani et al., "Attention Is All You Need", 2017.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from regard import native
from regard.attention import Learned, Mask, Sinusoidal, causal
from regard.errors import OptionError, ShapeError, shape
from regard.nn.blocks import Block, norm
from regard.nn.cache import Cache
from regard.nn.config import TransformerConfig
from regard.nn.dropout import Dropout
from regard.nn.loss import Loss, loss_of_words
from regard.nn.native_layers import affine

BEGINS = ("▁", "Ġ")
"""The marks of pieces that begin a word, in tokenizers that have such marks."""


class Encoder(nn.Module):
    """A stack of blocks in which every word attends to every word. ``(b, n, width)`` in and out.

    >>> encoder = Encoder(TransformerConfig.preset("tiny"))
    >>> encoder(torch.zeros(2, 5, 128)).shape
    torch.Size([2, 5, 128])
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.width = config.width
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.encoder_depth))
        self.norm = norm(config) if config.ends_with_norm else nn.Identity()

    def forward(
        self, x: Tensor, *, mask: Mask | Tensor | None = None
    ) -> Float[Tensor, "b n width"]:
        """The contextual vectors of x; `mask` hides padding: ``padding(lengths)``."""
        for layer in self.layers(x, mask=mask):
            x = layer
        return x

    def layers(self, x: Tensor, *, mask: Mask | Tensor | None = None) -> Iterator[Tensor]:
        """x after each block, and finally after the last norm."""
        _check_vectors("Encoder", x, self.width)
        for block in self.blocks:
            x = block(x, mask=mask)
            yield x
        yield self.norm(x)


class Decoder(nn.Module):
    """A stack of blocks in which a word attends to itself, earlier words and an encoder's output.

    Without ``cross`` there is no encoder, as in a language model. ``(b, n, width)`` in and out.

    >>> decoder = Decoder(TransformerConfig.preset("tiny"))
    >>> decoder(torch.zeros(2, 5, 128), torch.zeros(2, 7, 128)).shape
    torch.Size([2, 5, 128])
    """

    def __init__(self, config: TransformerConfig, *, cross: bool = True) -> None:
        super().__init__()
        self.width, self.cross = config.width, cross
        self.blocks = nn.ModuleList(Block(config, cross=cross) for _ in range(config.decoder_depth))
        self.norm = norm(config) if config.ends_with_norm else nn.Identity()

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Mask | Tensor = causal,
        memory_mask: Mask | Tensor | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "b n width"]:
        """x after all blocks; with a cache, x continues where the last call ended.

        Padding at the end of x needs no mask, since the decoder is causal. x may hold several
        consecutive sequences for each sentence of the memory.
        """
        self.check(x, memory)
        for i, block in enumerate(self.blocks):
            kept = None if cache is None else cache.blocks[i]
            x = block(x, memory, mask=mask, memory_mask=memory_mask, cache=kept)
        if cache is not None:
            cache.length += x.shape[1]
        return self.norm(x)  # type: ignore[no-any-return]

    def check(self, x: Tensor, memory: Tensor | None) -> None:
        """Raise if `forward` does not accept these."""
        _check_vectors("Decoder", x, self.width)
        if self.cross and memory is None:
            raise ShapeError("Decoder: memory is missing; pass what the encoder returned")
        if memory is not None and not self.cross:
            raise ShapeError(
                "Decoder: memory is given, but with cross=False no block attends to it; "
                "use Decoder(config)"
            )
        if memory is not None and (
            memory.dim() != 3
            or memory.shape[-1] != self.width
            or len(x) % max(len(memory), 1)
            or len(memory) == 0 < len(x)
        ):
            raise ShapeError(
                f"Decoder: memory has shape {shape(memory)} beside x {shape(x)}; expected "
                "(b,s,width), where the sequences of x are b or a multiple of it"
            )


@runtime_checkable
class WordVectors(Protocol):
    """The interface of word vectors for `Embedding.from_vectors`, such as `regard.Vectors`."""

    @property
    def width(self) -> int: ...

    def __contains__(self, word: object, /) -> bool: ...

    def __getitem__(self, word: str, /) -> Any: ...


class Embedding(nn.Module):
    """Subword ids to vectors: rows of a table, times √width, plus their positions."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.scale = config.width**0.5
        self.table = nn.Parameter(torch.randn(config.vocabulary, config.width) * config.width**-0.5)
        self.position: nn.Module | None = None
        if config.position == "sinusoidal":
            self.position = Sinusoidal(config.width)
        elif config.position == "learned":
            self.position = Learned(config.max_length, config.width)
        self.dropout = Dropout(config.dropout)

    @classmethod
    def from_vectors(
        cls,
        vectors: WordVectors,
        tokenizer: Any,
        config: TransformerConfig | None = None,
        *,
        frozen: bool = False,
    ) -> Embedding:
        """An embedding initialized from word vectors, for pieces that are whole words.

        The table holds vectors / √width, so that the embedding of a word, before its position is
        added, is its vector. Other pieces are random, with the standard deviation of the vectors.

        Args:
            vectors: `regard.Vectors`, or anything with `width`, ``in`` and ``[word]``.
            tokenizer: a `regard.text.Tokenizer`, one of Hugging Face's, or a list of pieces or
                words by id. ``▁``, ``Ġ`` and ``##`` distinguish pieces that begin a word from those
                that continue one.
            config: of the model; by default one of the vectors' width.
            frozen: whether the table is excluded from training.
        """
        pieces = _pieces(tokenizer)
        if config is None:
            config = TransformerConfig(vocabulary=len(pieces), width=vectors.width, heads=1)
        if config.width != vectors.width or config.vocabulary != len(pieces):
            raise ShapeError(
                f"Embedding.from_vectors: vectors of width {vectors.width} for {len(pieces):,} "
                f"pieces do not fit config, which has width={config.width} and "
                f"vocabulary={config.vocabulary}"
            )
        spelled = _whole_words(pieces, getattr(tokenizer, "decode", None))
        found = {i: word for i, word in spelled.items() if word in vectors}
        if not found:
            raise OptionError(
                f"Embedding.from_vectors: none of the {len(pieces):,} pieces is a word that has a "
                "vector; are vectors and tokenizer of the same language?"
            )
        rows = torch.stack([torch.as_tensor(vectors[word]) for word in found.values()])
        made = cls(config)
        with torch.no_grad():
            made.table.mul_(rows.std(correction=0) / made.table.std(correction=0))
            made.table[list(found)] = rows.to(made.table.dtype)
            made.table.div_(made.scale)
        made.table.requires_grad_(not frozen)
        return made

    def forward(self, tokens: Tensor, offset: int = 0) -> Float[Tensor, "b n width"]:
        """tokens ``(b, n)``, the first of them at the position `offset`."""
        if tokens.dim() != 2 or tokens.dtype not in (torch.int64, torch.int32):
            raise ShapeError(
                f"Embedding: tokens are {tokens.dtype} {shape(tokens)}, expected whole numbers "
                "(b,n), int64 or int32"
            )
        try:
            x = F.embedding(tokens, self.table) * self.scale
        except IndexError:
            raise OptionError(
                f"Embedding: tokens have numbers from {int(tokens.min())} to {int(tokens.max())}, "
                f"but there are {len(self.table):,} subwords, 0 to {len(self.table) - 1:,}; "
                "use the tokenizer that belongs to the model"
            ) from None
        if self.position is not None:
            x = self.position(x, offset=offset)
        return self.dropout(x)  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Encoder and decoder with their embeddings: from source tokens to logits of target tokens.

    >>> model = Transformer(TransformerConfig.preset("tiny", vocabulary=50))
    >>> model(torch.tensor([[5, 6, 7]]), torch.tensor([[1, 8]])).shape
    torch.Size([1, 2, 50])
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.source = Embedding(config)
        self.encoder = Encoder(config)
        self.target = Embedding(config)
        self.decoder = Decoder(config)
        self.output, self.output_bias = output_parameters(config)
        if config.tied:
            self.target.table = self.output = self.source.table

    def forward(
        self, source: Tensor, target: Tensor, *, source_mask: Mask | Tensor | None = None
    ) -> Float[Tensor, "b t vocabulary"]:
        """The logits of the next word at each position of the target, given the source.

        source ``(b, s)``, target ``(b, t)``: subword ids, the target shifted by one (it begins with
        the start token). `source_mask` hides padding: ``padding(lengths)``.
        """
        memory = self.encode(source, source_mask=source_mask)
        return self.logits(self.decode(target, memory, source_mask=source_mask))

    def encode(
        self, source: Tensor, *, source_mask: Mask | Tensor | None = None
    ) -> Float[Tensor, "b s width"]:
        """The contextual vectors of the source."""
        return self.encoder(self.source(source), mask=source_mask)  # type: ignore[no-any-return]

    def decode(
        self,
        target: Tensor,
        memory: Tensor,
        *,
        source_mask: Mask | Tensor | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "b t width"]:
        """The decoder's vectors for the target; `logits` turns them into words."""
        x = self.target(target, 0 if cache is None else cache.length)
        return self.decoder(x, memory, memory_mask=source_mask, cache=cache)  # type: ignore[no-any-return]

    def logits(self, hidden: Tensor) -> Float[Tensor, "*b vocabulary"]:
        """The logits of the vocabulary for the decoder's vectors."""
        if isinstance(self.output, native.Int8Matrix):
            return affine(hidden, self.output.T, self.output_bias)
        return F.linear(hidden, self.output, self.output_bias)

    def loss(
        self,
        source: Tensor,
        target: Tensor,
        expected: Tensor,
        *,
        source_mask: Mask | Tensor | None = None,
        real: Tensor | None = None,
        smoothing: float | int = 0.0,
    ) -> Loss:
        """The loss summed over the expected words where `real` ``(b, t)`` is True, in chunks."""
        memory = self.encode(source, source_mask=source_mask)
        hidden = self.decode(target, memory, source_mask=source_mask)
        return loss_of_words(
            hidden, expected, real, self.output, self.output_bias, smoothing=smoothing
        )

    def cache(self, room: int = 0) -> Cache:
        """An empty cache for incremental decoding, with memory for `room` words."""
        return Cache(len(self.decoder.blocks), room)


def output_parameters(config: TransformerConfig) -> tuple[nn.Parameter, nn.Parameter | None]:
    """New weights ``(vocabulary, width)`` that turn vectors into logits, and the bias if any."""
    weight = nn.Parameter(torch.randn(config.vocabulary, config.width) * config.width**-0.5)
    return weight, nn.Parameter(torch.zeros(config.vocabulary)) if config.output_bias else None


def _pieces(tokenizer: Any) -> list[str]:
    """The pieces by id."""
    if hasattr(tokenizer, "get_vocab"):  # Hugging Face
        numbers = tokenizer.get_vocab()
        return sorted(numbers, key=lambda piece: numbers[piece])
    return list(getattr(tokenizer, "vocabulary", tokenizer))


def _whole_words(pieces: Sequence[str], decode: Any) -> dict[int, str]:
    """The pieces that are or begin a word, without marks, by id."""
    if not any(piece.startswith(BEGINS) for piece in pieces):
        return {i: piece for i, piece in enumerate(pieces) if not piece.startswith("##")}
    whole = {
        i: piece.lstrip("".join(BEGINS))
        for i, piece in enumerate(pieces)
        # Punctuation follows a word without a mark, and is a word of its own.
        if piece.startswith(BEGINS) or not any(letter.isalnum() for letter in piece)
    }
    if decode is None:
        return whole
    return {i: decode([i]).strip() for i in whole}  # decodes byte-level pieces


def _check_vectors(caller: str, x: Tensor, width: int) -> None:
    if x.dim() != 3 or x.shape[-1] != width:
        raise ShapeError(
            f"{caller}: x has shape {shape(x)}, expected (b,n,width) with width={width}"
        )
