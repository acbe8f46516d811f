"""Key-value caches for incremental decoding."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ShapeError


class KeyValues:
    """The cached keys and values of one attention layer; `append` adds those of new words.

    Memory for `room` words is allocated at first, and doubled when it is full, so that a new word
    does not cost a copy of all before it. Memory is overwritten in place: a cache is for inference,
    not for gradients.
    """

    def __init__(self, room: int = 0) -> None:
        self.length = 0
        self._room = room
        self._kv: tuple[Tensor, Tensor] | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values ``(b, h, length, d)``, the new ones last."""
        start = self.length
        if self._kv is None and k.shape[2] >= self._room:
            # Contiguous: the keys of an encoder are multiplied at every step of decoding.
            self._kv, self.length = (k.contiguous(), v.contiguous()), k.shape[2]
        else:
            for kept, new in zip(self._reserve(k, v), (k, v), strict=True):
                kept[:, :, start : self.length] = new
        return self.known()

    def extend(self, like: Float[Tensor, "b _ d"], heads: int) -> tuple[Tensor, Tensor]:
        """All keys and values ``(b, heads, room, d)``, with room for new words of the shape `like`.

        The caller must fill in the new words.
        """
        new = like.unsqueeze(1).expand(-1, heads, -1, -1)
        return self._reserve(new, new)

    def known(self) -> tuple[Float[Tensor, "b h k d"], Float[Tensor, "b h k d"]]:
        """The keys and values so far."""
        assert self._kv is not None
        k, v = self._kv
        return k[:, :, : self.length], v[:, :, : self.length]

    def select(self, rows: Int[Tensor, "b"]) -> None:
        """Keep these sequences, in this order; one may be repeated or dropped."""
        if self._kv is not None:
            # Unused room is kept: beam search selects rows before every word.
            k, v = self._kv
            self._kv = k.index_select(0, rows), v.index_select(0, rows)

    def move(self, rows: Int[Tensor, "m"], to: Int[Tensor, "m"], stay: int) -> None:
        """Move these sequences to other rows, then keep the first `stay` rows."""
        if self._kv is not None:
            for known in self.known():
                known.index_copy_(0, to, known.index_select(0, rows))
            k, v = self._kv
            self._kv = k[:stay], v[:stay]

    def _reserve(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The memory of all keys and values, with room for k and v."""
        length = self.length + k.shape[2]
        if self._kv is None:
            self._kv = self._allocated(k, v, max(length, self._room))
        elif len(k) != len(self._kv[0]):
            raise ShapeError(
                f"KeyValues: {len(k)} sequences are continued, but {len(self._kv[0])} were read "
                "before; select those to continue with select()"
            )
        elif length > self._kv[0].shape[2]:
            larger = self._allocated(*self._kv, 2 * length)
            for new, known in zip(larger, self.known(), strict=True):
                new[:, :, : self.length] = known
            self._kv = larger
        self.length = length
        return self._kv

    @staticmethod
    def _allocated(k: Tensor, v: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Uninitialized memory for so many keys and values."""
        new_k, new_v = (x.new_empty(*x.shape[:2], length, x.shape[3]) for x in (k, v))
        return new_k, new_v


class BlockCache:
    """The keys and values of one block: of its own words, and of the encoder's output."""

    def __init__(self, room: int = 0) -> None:
        self.own = KeyValues(room)
        self.memory = KeyValues()


class Cache:
    """The keys and values of all blocks of a decoder.

    Memory for `room` words of the decoder is allocated at first.
    """

    def __init__(self, depth: int, room: int = 0) -> None:
        self.blocks = [BlockCache(room) for _ in range(depth)]
        self.length = 0
        """The number of words that the decoder has read."""

    def select(self, rows: Int[Tensor, "b"]) -> None:
        """Keep these sequences of the decoder; one may be repeated or dropped."""
        for block in self.blocks:
            block.own.select(rows)

    def select_memory(self, rows: Int[Tensor, "b"]) -> None:
        """Keep these sentences of the encoder."""
        for block in self.blocks:
            block.memory.select(rows)

    def move(self, rows: Int[Tensor, "m"], to: Int[Tensor, "m"], stay: int) -> None:
        """Move these sentences to other rows, then keep the first `stay` rows, without a copy.

        Decoder and encoder must have the same number of sequences.
        """
        for block in self.blocks:
            block.own.move(rows, to, stay)
            block.memory.move(rows, to, stay)
