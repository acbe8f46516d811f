"""Position encodings: five ways to make attention depend on order.

Attention alone is permutation-equivariant. Order enters

- with the vectors: `Sinusoidal` and `Learned` add a row per position to them;
- with the queries and keys: `Rotary` rotates them by an angle per position;
- with the scores: `ALiBi` and `RelativeBias` add a number per distance, and are a `Bias`.

Positions count from 0. ``offset`` is the position of the first row: ``rotary(x, offset=40)``
encodes new words after 40 cached ones as in the whole sequence.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import DtypeError, OptionError, ShapeError, check_whole, shape

Device = torch.device | str | None


@runtime_checkable
class Bias(Protocol):
    """A term that kernels add to the scaled scores, block by block.

    The whole ``(heads, q, k)`` is never needed. Any object with ``heads`` and ``block`` is a bias.
    """

    heads: int

    def block(
        self,
        rows: slice,
        cols: slice,
        q: int,
        k: int,
        *,
        device: Device = None,
        dtype: torch.dtype = torch.float32,
    ) -> Float[Tensor, "heads rows cols"]:
        """The term for the queries ``rows`` and the keys ``cols`` of a call with q and k of them.

        The slices have integer ``start`` and ``stop`` and no step. Query i stands at position
        i + k − q (aligned at the end), key j at position j. Blocks must agree with each other.
        """
        ...


class Sinusoidal(nn.Module):
    """Adds a fixed wave per coordinate: of high frequency in the first, of low in the last.

    table[p, 2i] = sin(p / base^(2i/width)),  table[p, 2i+1] = cos(p / base^(2i/width))

    ``(…, n, width)`` in and out, in the dtype of x; the table is computed in float64 on every
    call, so there is no buffer and no maximal length.

    >>> Sinusoidal(4).table(2)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])

    Vaswani et al., "Attention Is All You Need", 2017, section 3.5. An odd width, which the paper
    leaves open, ends with a sine. Some texts print base 1000.
    """

    def __init__(self, width: int, *, base: float | int = 10_000) -> None:
        super().__init__()
        self.width = _at_least("Sinusoidal", "width", width, 1)
        self.base = _finite_base("Sinusoidal", base)

    def table(self, length: int, offset: int = 0) -> Float[Tensor, "length width"]:
        """The float32 rows of the positions offset … offset + length − 1, on the CPU."""
        _at_least("Sinusoidal", "length", length, 0)
        _at_least("Sinusoidal", "offset", offset, 0)
        positions = torch.arange(offset, offset + length, dtype=torch.float64, device="cpu")
        angles = positions[:, None] * _frequencies(self.width, self.base, positions)
        table = torch.empty(length, self.width, dtype=torch.float64, device="cpu")
        table[:, 0::2] = angles.sin()
        table[:, 1::2] = angles.cos()[:, : self.width // 2]
        return table.float()

    def forward(
        self, x: Float[Tensor, "*batch n width"], offset: int = 0
    ) -> Float[Tensor, "*batch n width"]:
        """x plus the rows of its positions."""
        _check("Sinusoidal", x, self.width, offset)
        return x + self.table(x.shape[-2], offset).to(x)


class Learned(nn.Module):
    """Adds a trained vector per position.

    ``(…, n, width)`` in and out, in the dtype of x. The parameter ``table (length, width)`` is
    initialized from N(0, 0.02²); a position past its end is an error.

    >>> Learned(512, 16)(torch.zeros(3, 5, 16), offset=507).shape
    torch.Size([3, 5, 16])

    Gehring et al., "Convolutional Sequence to Sequence Learning", 2017, section 3.1; with the
    initial values of Devlin et al., "BERT", 2019.
    """

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.length = _at_least("Learned", "length", length, 1)
        self.width = _at_least("Learned", "width", width, 1)
        self.table = nn.Parameter(nn.init.normal_(torch.empty(length, width), std=0.02))

    def forward(
        self, x: Float[Tensor, "*batch n width"], offset: int = 0
    ) -> Float[Tensor, "*batch n width"]:
        """x plus the rows of its positions."""
        _check("Learned", x, self.width, offset)
        stop = offset + x.shape[-2]
        if stop > self.length:
            raise ShapeError(
                f"Learned: positions {offset}…{stop - 1} asked for, but the table has length "
                f"{self.length}; use a longer table or a smaller offset"
            )
        return x + self.table[offset:stop].to(x.dtype)


class Rotary(nn.Module):
    """Rotates queries or keys, pair by pair of coordinates, by an angle per position.

    pair i at position p: (a, b) → (a cos pθ − b sin pθ, b cos pθ + a sin pθ), θ = base^(−2i/width)

    so that the product of a query and a key depends only on their distance. Pair i is the
    coordinates (i, i + width/2), or (2i, 2i + 1) when ``interleaved``. ``(…, n, width)`` in and
    out; computed in float32 (float64 stays float64) and rounded once to the dtype of x.

    >>> Rotary(2)(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    tensor([[1.0000, 0.0000],
            [0.5403, 0.8415]])

    Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021. The paper and
    GPT-J pair neighbours; the default is the pairing of Llama, the same up to a fixed permutation
    of coordinates. A checkpoint needs the pairing that it was trained with.
    """

    def __init__(
        self, width: int, *, base: float | int = 10_000, interleaved: bool = False
    ) -> None:
        super().__init__()
        self.width = _at_least("Rotary", "width", width, 2)
        self.base = _finite_base("Rotary", base)
        self.interleaved = interleaved
        if width % 2:
            raise OptionError(
                f"Rotary: width is {width}, but pairs of coordinates are rotated; use an even width"
            )

    def forward(
        self, x: Float[Tensor, "*batch n width"], offset: int = 0
    ) -> Float[Tensor, "*batch n width"]:
        """x, each row rotated by the angles of its position."""
        _check("Rotary", x, self.width, offset)
        precise = x.to(torch.promote_types(x.dtype, torch.float32))
        positions = torch.arange(offset, offset + x.shape[-2], dtype=precise.dtype, device=x.device)
        angles = positions[:, None] * _frequencies(self.width, self.base, positions)
        cos, sin = angles.cos(), angles.sin()
        half = self.width // 2
        sizes, axis = ((half, 2), -1) if self.interleaved else ((2, half), -2)
        a, b = torch.unflatten(precise, -1, sizes).unbind(axis)
        rotated = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=axis)
        return rotated.flatten(-2).to(x.dtype)


class PerDistance(nn.Module):
    """A `Bias` that depends on the distance alone: one value per head and diagonal."""

    heads: int

    def _values(self, relative: Tensor, device: Device, dtype: torch.dtype) -> Tensor:
        raise NotImplementedError

    def diagonals(
        self, q: int, k: int, *, device: Device = None, dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "heads qk"]:
        """The values of all diagonals of q queries and k keys; diagonal j − i at j − i + q − 1."""
        return self._values(torch.arange(1 - k, q, device=device), device, dtype)

    def block(
        self,
        rows: slice,
        cols: slice,
        q: int,
        k: int,
        *,
        device: Device = None,
        dtype: torch.dtype = torch.float32,
    ) -> Float[Tensor, "heads rows cols"]:
        """The bias of the queries ``rows`` and the keys ``cols``; see `Bias`."""
        if not (0 <= rows.start <= rows.stop <= q and 0 <= cols.start <= cols.stop <= k):
            raise ShapeError(
                f"{type(self).__name__}: rows {rows.start}:{rows.stop} and cols "
                f"{cols.start}:{cols.stop} asked for, but there are q={q} queries and k={k} keys; "
                "use slices within 0:q and 0:k"
            )
        height, breadth = rows.stop - rows.start, cols.stop - cols.start
        # The last row begins at the least relative position, each row above it one later. One
        # diagonal is added for empty blocks.
        least = cols.start - (rows.stop - 1 + k - q)
        relative = torch.arange(least, least + height + breadth, device=device)
        values = self._values(relative, device, dtype)  # (heads, height + breadth)
        return values.unfold(-1, breadth, 1)[:, :height].flip(-2)

    def forward(
        self, q: int, k: int, *, device: Device = None, dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "heads q k"]:
        """The bias of all q queries and k keys."""
        return self.block(slice(0, q), slice(0, k), q, k, device=device, dtype=dtype)


class ALiBi(PerDistance):
    """A bias that decreases linearly with distance, at a fixed slope per head.

    bias[head, i, j] = −slope[head] · |position(i) − j|

    With h heads, h a power of two, slope[i] = 2^(−8(i+1)/h). Otherwise the slopes are those of the
    power of two below, then every second one of the power above. No parameters; ``(heads, q, k)``.

    >>> ALiBi(8)(2, 3)[0]
    tensor([[-0.5000,  0.0000, -0.5000],
            [-1.0000, -0.5000,  0.0000]])

    Press et al., "Train Short, Test Long", 2022. The paper is causal; here keys after the query are
    biased by their distance as well.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = _at_least("ALiBi", "heads", heads, 1)
        power = 2 ** (heads.bit_length() - 1)
        slopes = [2.0 ** (-8 * i / power) for i in range(1, power + 1)]
        between = [2.0 ** (-4 * i / power) for i in range(1, 2 * power, 2)]
        # Plain floats, not a buffer, which model.bfloat16() would round.
        self.slopes: tuple[float, ...] = (*slopes, *between[: heads - power])

    def _values(self, relative: Tensor, device: Device, dtype: torch.dtype) -> Tensor:
        precise = torch.promote_types(dtype, torch.float32)
        slopes = torch.tensor(self.slopes, dtype=precise, device=device)
        return (slopes[:, None] * -relative.abs()).to(dtype)


class RelativeBias(PerDistance):
    """A trained bias per head and bucket of distances, with wider buckets for larger distances.

    bias[head, i, j] = table[bucket(j − position(i)), head]

    Of the n buckets of a direction, the first n//2 hold one distance each, the others grow
    with the logarithm of the distance, and the last also holds all from ``max_distance`` on. When
    ``bidirectional``, keys after the query have the second half of the buckets; otherwise they
    share the bucket of distance 0 (a causal mask hides them). The parameter ``table (buckets,
    heads)`` is initialized from N(0, 0.02²). ``(heads, q, k)``, on the table's device unless
    another is given.

    >>> RelativeBias(8).bucket(torch.tensor([-1000, -20, -2, 0, 2, 20, 1000]))
    tensor([15, 10,  2,  0, 18, 26, 31])

    Raffel et al., "Exploring the Limits of Transfer Learning" (T5), 2020, section 2.1; buckets as
    in its code, float32 rounding included, so that its tables can be loaded.
    """

    def __init__(
        self, heads: int, *, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
    ) -> None:
        super().__init__()
        self.heads = _at_least("RelativeBias", "heads", heads, 1)
        self.buckets = _at_least("RelativeBias", "buckets", buckets, 4 if bidirectional else 2)
        if bidirectional and buckets % 2:
            raise OptionError(
                f"RelativeBias: buckets is {buckets}, but half of them go to each direction; "
                "use an even number or bidirectional=False"
            )
        count = buckets // 2 if bidirectional else buckets
        if max_distance <= count // 2:
            raise OptionError(
                f"RelativeBias: max_distance is {max_distance}, but the first {count // 2} buckets "
                f"hold one distance each; use more than {count // 2} or fewer buckets"
            )
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.starts: tuple[int, ...] = _bucket_starts(count, max_distance)
        self.table = nn.Parameter(nn.init.normal_(torch.empty(buckets, heads), std=0.02))

    def bucket(self, relative: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """The row of the table for each key position − query position."""
        distance = relative.abs() if self.bidirectional else (-relative).clamp(min=0)
        starts = torch.tensor(self.starts, device=relative.device)
        row = torch.bucketize(distance, starts, right=True) - 1
        return row + len(self.starts) * (relative > 0) if self.bidirectional else row

    def _values(self, relative: Tensor, device: Device, dtype: torch.dtype) -> Tensor:
        rows = self.bucket(relative.to(self.table.device))
        return F.embedding(rows, self.table).T.to(device=device, dtype=dtype)


def _frequencies(width: int, base: float, like: Tensor) -> Tensor:
    """base^(−2i/width) for every pair i, in the dtype and on the device of ``like``."""
    exponents = torch.arange(0, width, 2, dtype=like.dtype, device=like.device) / width
    return 1.0 / torch.pow(base, exponents)


def _bucket_starts(count: int, max_distance: int) -> tuple[int, ...]:
    """The least distance that falls into each of ``count`` buckets (or a later one)."""
    exact = count // 2
    # float32 as in T5: a distance on the edge of two buckets must fall where T5's falls.
    distance = torch.arange(exact, max_distance + 1, dtype=torch.float32, device="cpu")
    part = torch.log(distance / exact) / math.log(max_distance / exact)
    far = (exact + (part * (count - exact)).long()).clamp(max=count - 1)
    wanted = torch.arange(exact, count, device="cpu")
    starts: list[int] = (exact + torch.searchsorted(far, wanted)).tolist()
    return (*range(exact), *starts)


def _at_least(name: str, argument: str, value: int, least: int) -> int:
    check_whole(f"{name}: {argument}", value)
    if value < least:
        raise OptionError(
            f"{name}: {argument} is {value}, but the least possible is {least}; "
            f"use a larger {argument}"
        )
    return value


def _finite_base(name: str, base: float | int) -> float:
    if not 0 < base < math.inf:
        raise OptionError(
            f"{name}: base is {base}, but wavelengths are its powers; "
            "use a positive number such as 10000"
        )
    return float(base)


def _check(name: str, x: Tensor, width: int, offset: int) -> None:
    if not x.is_floating_point():
        raise DtypeError(f"{name}: x is {x.dtype}, but vectors are floating; use x.float()")
    if x.ndim < 2:
        raise ShapeError(f"{name}: x has no axis n (x {shape(x)}); pass (…, n, width)")
    if x.shape[-1] != width:
        raise ShapeError(
            f"{name}: x has width={x.shape[-1]} but positions have width={width} (x {shape(x)}); "
            "use the same width for both"
        )
    _at_least(name, "offset", offset, 0)
