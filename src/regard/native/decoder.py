"""`DecoderStep`: all blocks of a decoder as one operator, for incremental decoding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from regard.native.int8 import Int8Matrix
from regard.native.products import PANEL, fits

Pair = tuple[Tensor, Tensor | None]
"""A weight and a bias."""
Layers = Sequence[Pair]
"""The nine layers of a block in the order of their use: the norm, the packed projections and the
output of self-attention, the norm, the queries and the output of cross-attention, the norm, the
inner and the outer layer of the feed-forward network."""


def panels(matrix: Float[Tensor, "d n"], dtype: torch.dtype = torch.float32) -> Float[Tensor, "dn"]:
    """A copy of the matrix in the panel layout that native products read.

    32 columns of all rows, then the next 32; n is a multiple of 16. In bfloat16, where d is even,
    pairs of rows are interleaved.
    """
    (d, n), together = matrix.shape, 2 if dtype == torch.bfloat16 else 1
    found = torch.empty(d * n, dtype=dtype)
    whole = n // PANEL * PANEL
    for start, end, wide in ((0, whole, PANEL), (whole, n, n - whole)):
        if start < end:
            part = matrix.detach()[:, start:end].view(d // together, together, -1, wide)
            part = part.permute(2, 0, 3, 1)
            found[d * start : d * end].view(part.shape).copy_(part)
    return found


class DecoderStep:
    """The blocks of a decoder with ReLU feed-forward networks, as ``regard::decoder_step``.

    Widths are multiples of 16. The results are those of the single operators, bit for bit; products
    with weights are in bfloat16 if `products` is, or in int8 if the matrices are.
    """

    def __init__(
        self,
        blocks: Sequence[Layers],
        heads: int,
        kv_heads: int,
        norm_first: bool,
        eps: float,
        products: torch.dtype = torch.float32,
    ) -> None:
        layers = [layer for block in blocks for layer in block]
        matrices = [weight for weight, _ in layers if weight.dim() == 2]
        self._width, self._packed = matrices[0].shape
        self._inner = blocks[0][-1][0].shape[0]
        self._heads, self._kv_heads = heads, kv_heads
        self._panels = torch.cat(
            [w.panels if isinstance(w, Int8Matrix) else panels(w, products) for w in matrices]
        )
        scales = [w.scales for w in matrices if isinstance(w, Int8Matrix)]
        self._scales = torch.cat(scales) if scales else None
        vectors = []
        for weight, bias in layers:
            vectors += [weight] if weight.dim() == 1 else []
            vectors.append(weight.new_zeros(weight.shape[-1]) if bias is None else bias)
        self._vectors = torch.cat([x.detach() for x in vectors])
        self._norm_first, self._eps = norm_first, eps

    def usable(
        self, x: Float[Tensor, "b n width"], length: int, memory: Float[Tensor, "m s width"]
    ) -> bool:
        """Whether the step is small enough to pay, and x one that native operators support."""
        (b, n, _), s = x.shape, memory.shape[1]
        most = max(self._packed, self._inner, 2 * (length + n), 2 * s)
        return not torch.is_grad_enabled() and fits(b * n * self._width * most, x)

    def fits(
        self,
        x: Float[Tensor, "b n width"],
        own: Sequence[tuple[Tensor, Tensor]],
        length: int,
        read: Sequence[tuple[Tensor, Tensor]],
        memory: Float[Tensor, "m s width"],
    ) -> bool:
        """Whether the cached keys and values match x and the memory in shape, dtype and layout."""
        (b, n, _), (m, s, _), g = x.shape, memory.shape, self._kv_heads
        d = self._width // self._heads
        shapes = ((own, (b, g, length, d)), (read, (m, g, s, d)))
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

        Args:
            own: keys and values ``(b, g, room, d)`` of each block, `length` of them filled; those
                of x are written behind them.
            memory: those of the source ``(m, g, s, d)``, where m divides b · n.
        """
        s = memory[0][0].shape[2]
        return torch.ops.regard.decoder_step(  # type: ignore[no-any-return]
            x,
            self._panels,
            self._scales,
            self._vectors,
            [y for pair in own for y in pair],
            [y for pair in memory for y in pair],
            all_axes(mask, length + x.shape[1]),
            None if memory_mask is None else all_axes(memory_mask, s),
            length,
            self._heads,
            self._inner,
            self._norm_first,
            self._eps,
        )


def all_axes(term: Shaped[Tensor, "..."], keys: int) -> Shaped[Tensor, "_ _ _ {keys}"]:
    """A mask or bias with all four axes, the last of them expanded to all keys."""
    term = term.reshape((1,) * (4 - term.dim()) + tuple(term.shape))
    return term if term.shape[3] == keys else term.expand(*term.shape[:3], keys)
