"""What a layer has read already: keys and values, kept while a text is written word by word."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ShapeError


class KeyValues:
    """The keys and values of the words so far, of one attention layer; `append` adds new ones.

    There is room for so many words from the start, if it is said; after that memory grows by
    doubling, so that a word costs a copy of itself and not of all before it. What has been appended
    is written over: a cache is for reading on, not for gradients.
    """

    def __init__(self, room: int = 0) -> None:
        self.length = 0
        self._room = room
        self._k: Tensor | None = None
        self._v: Tensor | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values ``(b, h, length, d)``, the new ones last."""
        length = self.length + k.shape[2]
        if (self._k is None or self._v is None) and length >= self._room:
            # In one piece: the keys of an encoder are multiplied at every word that is written.
            self._k, self._v = k.contiguous(), v.contiguous()
        else:
            if self._k is None or self._v is None:
                self._k, self._v = (self._grown(x, self._room) for x in (k, v))
            self._check(len(k))
            if length > self._k.shape[2]:
                self._k, self._v = (self._grown(x, 2 * length) for x in (self._k, self._v))
            self._k[:, :, self.length : length] = k
            self._v[:, :, self.length : length] = v
        self.length = length
        return self.known()

    def extend(self, like: Float[Tensor, "b _ d"], heads: int) -> tuple[Tensor, Tensor]:
        """All keys and values ``(b, heads, room, d)``, with room for those of some more words.

        As many sequences and words as `like` has. The caller writes them into it right away.
        """
        b, count, d = like.shape
        length = self.length + count
        if self._k is None or self._v is None:
            room = max(length, self._room)
            self._k, self._v = (like.new_empty(b, heads, room, d) for _ in range(2))
        else:
            self._check(b)
            if length > self._k.shape[2]:
                self._k, self._v = (self._grown(x, 2 * length) for x in (self._k, self._v))
        self.length = length
        return self._k, self._v

    def known(self) -> tuple[Float[Tensor, "b h k d"], Float[Tensor, "b h k d"]]:
        """The keys and values so far."""
        assert self._k is not None
        assert self._v is not None
        return self._k[:, :, : self.length], self._v[:, :, : self.length]

    def select(self, rows: Int[Tensor, "b"]) -> None:
        """Keep these sequences, in this order; one may come several times, or never."""
        if self._k is not None and self._v is not None:
            # With the room for words to come: a beam picks rows before every word.
            self._k, self._v = self._k.index_select(0, rows), self._v.index_select(0, rows)

    def move(self, rows: Int[Tensor, "m"], to: Int[Tensor, "m"], stay: int) -> None:
        """These sequences take other places, and only the first so many stay."""
        for x in (self._k, self._v):
            if x is not None:
                known = x[:, :, : self.length]
                known.index_copy_(0, to, known.index_select(0, rows))
        if self._k is not None and self._v is not None:
            self._k, self._v = self._k[:stay], self._v[:stay]

    def _check(self, count: int) -> None:
        if self._k is not None and count != len(self._k):
            raise ShapeError(
                f"KeyValues: {count} sequences are continued, but {len(self._k)} were read before; "
                "pick those to continue by select"
            )

    def _grown(self, x: Tensor, length: int) -> Tensor:
        larger = x.new_empty(*x.shape[:2], length, x.shape[3])
        larger[:, :, : self.length] = x[:, :, : self.length]
        return larger


class BlockCache:
    """What one block has read: its own words, and what the encoder made of the source."""

    def __init__(self, room: int = 0) -> None:
        self.own = KeyValues(room)
        self.memory = KeyValues()


class Cache:
    """What a decoder has read so far, block by block, while it writes word by word.

    There is room for so many words of its own from the start, if it is said.
    """

    def __init__(self, depth: int, room: int = 0) -> None:
        self.blocks = [BlockCache(room) for _ in range(depth)]
        self.length = 0
        """How many words of its own the decoder has read."""

    def select(self, rows: Int[Tensor, "b"]) -> None:
        """Keep these sequences of the decoder; one may come several times, or never."""
        for block in self.blocks:
            block.own.select(rows)

    def select_memory(self, rows: Int[Tensor, "b"]) -> None:
        """Keep these sentences of the encoder."""
        for block in self.blocks:
            block.memory.select(rows)

    def move(self, rows: Int[Tensor, "m"], to: Int[Tensor, "m"], stay: int) -> None:
        """These sentences take other places, and only the first so many stay.

        As many sequences of the decoder as of the encoder: what is left is not copied.
        """
        for block in self.blocks:
            block.own.move(rows, to, stay)
            block.memory.move(rows, to, stay)
