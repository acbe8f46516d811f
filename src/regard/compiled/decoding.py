"""All blocks of a decoder in one call, for a step of writing word by word."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.compiled.building import library
from regard.compiled.calling import KEYS, QUERIES, Rows, as_bytes, panels, usable

Pair = tuple[Tensor, Tensor | None]
"""A weight and a bias."""


@dataclass(frozen=True)
class Weights:
    """The weights of one block; see `regard.nn.Block`."""

    attention_norm: Pair
    projections: Pair
    combination: Pair
    cross_norm: Pair
    queries: Pair
    cross_combination: Pair
    feed_forward_norm: Pair
    inner: Pair
    outer: Pair

    def tensors(self) -> list[Tensor | None]:
        """All of them."""
        return [x for pair in self.__dict__.values() for x in pair]


class _Affine(ctypes.Structure):
    _fields_ = (("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p))


class _Block(ctypes.Structure):
    _fields_ = (
        *((name, _Affine) for name in Weights.__dataclass_fields__),
        *((name, Rows) for name in ("k", "v", "memory_k", "memory_v")),
    )


class _Decoder(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64)
          for name in ("depth", "width", "heads", "groups", "head_width", "inner", "norm_first",
                       "in_pairs")),
        ("eps", ctypes.c_float),
        ("factor", ctypes.c_float),
        ("blocks", ctypes.c_void_p),
    )  # fmt: skip


def _laid_out(x: Tensor, products: torch.dtype) -> Tensor:
    """A weight as the loop reads it."""
    return panels(x, products) if x.dim() == 2 else x.detach().contiguous()


class DecoderStep:
    """The blocks of a decoder whose norms come first, or last, and which rectifies.

    Widths are multiples of 16. The numbers are those of the single loops, bit for bit; or the
    products with weights are of bfloat16, if `products` is.
    """

    def __init__(
        self,
        blocks: Sequence[Weights],
        heads: int,
        kv_heads: int,
        norm_first: bool,
        eps: float,
        products: torch.dtype = torch.float32,
    ) -> None:
        width, self._inner = blocks[0].inner[0].shape
        self._width, self._heads, self._packed = width, heads, blocks[0].projections[0].shape[1]
        self._kept = [
            [None if x is None else _laid_out(x, products) for x in block.tensors()]
            for block in blocks
        ]
        self._blocks = (_Block * len(blocks))()
        for block, kept in zip(self._blocks, self._kept, strict=True):
            starts = [None if x is None else x.data_ptr() for x in kept]
            for name, *pair in zip(
                Weights.__dataclass_fields__, starts[::2], starts[1::2], strict=True
            ):
                setattr(block, name, _Affine(*pair))
        d = width // heads
        self._sizes = (
            len(blocks), width, heads, kv_heads, d, self._inner, norm_first,
            products == torch.bfloat16, eps, d**-0.5,
        )  # fmt: skip

    def usable(
        self, x: Float[Tensor, "b n width"], length: int, memory: Float[Tensor, "m s width"]
    ) -> bool:
        """Whether a step of x pays, and would be done by the single loops as well."""
        (b, n, _), (m, s, _) = x.shape, memory.shape
        most = max(self._packed, self._inner, 2 * (length + n), 2 * s)
        return (
            max(n, b * n // m) <= QUERIES
            and max(length + n, s) <= KEYS
            and not torch.is_grad_enabled()
            and usable(b * n * self._width * most, x)
        )

    def fits(
        self,
        x: Float[Tensor, "b n width"],
        own: Sequence[tuple[Tensor, Tensor]],
        length: int,
        read: Sequence[tuple[Tensor, Tensor]],
        memory: Float[Tensor, "m s width"],
    ) -> bool:
        """Whether the keys and values that were kept are those of x and the memory, in our form."""
        (b, n, _), (m, s, _), (groups, d) = x.shape, memory.shape, self._sizes[3:5]
        shapes = ((own, (b, groups, length, d)), (read, (m, groups, s, d)))
        return (
            m > 0
            and b * n % m == 0
            and all(
                y.shape == shape
                and y.dtype == x.dtype
                and y.device == x.device
                and y.stride(3) == 1
                for pairs, shape in shapes
                for pair in pairs
                for y in pair
            )
        )

    def __call__(
        self,
        x: Float[Tensor, "b n width"],
        own: Sequence[tuple[Tensor, Tensor]],
        length: int,
        memory: Sequence[tuple[Tensor, Tensor]],
        mask: Bool[Tensor, "..."],
        memory_mask: Bool[Tensor, "..."] | None,
    ) -> Float[Tensor, "b n width"]:
        """x after all blocks, if `fits`.

        own: keys and values ``(b, g, room, d)`` of each block, of which the first `length` words
        are there; those of x are written behind them. memory: those of the source ``(m, g, s, d)``,
        where m divides b · n.
        """
        (b, n, width), (m, _, s, _) = x.shape, memory[0][0].shape
        blocks = type(self._blocks).from_buffer_copy(self._blocks)  # of this call alone
        for block, (k, v), read in zip(blocks, own, memory, strict=True):
            block.k, block.v = Rows.of(k), Rows.of(v)
            block.memory_k, block.memory_v = map(Rows.of, read)
        x = x.clone(memory_format=torch.contiguous_format)
        scratch = x.new_empty(b * n * (2 * width + max(self._packed, self._inner)))
        seen, source = as_bytes(mask, b, self._heads, n, length + n), None
        if memory_mask is not None:
            source = as_bytes(memory_mask, m, self._heads, b * n // m, s)
        loops = library()
        assert loops is not None
        failed = loops.decode(
            ctypes.byref(_Decoder(*self._sizes, ctypes.addressof(blocks))), b, n, length, m, s,
            ctypes.byref(Rows.of(seen)), ctypes.byref(Rows.of(source)),
            x.data_ptr(), scratch.data_ptr(),
        )  # fmt: skip
        if failed:
            raise MemoryError("there is no memory left for a step of the decoder")
        return x
