"""`Call`: one call of attention in the canonical form that all kernels take.

Users pass ``(n, d)``, ``(b, n, d)`` or ``(…, h, n, d)``; kernels see ``(b, h, n, d)`` only. Keys
and values may have fewer heads, g: heads 0 … h/g - 1 share the first of them, and so on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from regard.attention.mask import NONE, SOME, Mask
from regard.attention.positions import Bias
from regard.attention.scores import DotScore, Scaled, ScaledDot, Score, Softcap
from regard.errors import OptionError, ShapeError, shape

HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """The arguments of one call in canonical form."""

    q: Float[Tensor, "b h q d"]
    k: Float[Tensor, "b g k f"]
    v: Float[Tensor, "b g k e"]
    score: Score
    mask: Mask | None
    bias: Float[Tensor, "#b #h #q #k"] | Bias | None
    dropout: float
    lead: tuple[int, ...]
    """The leading axes of the arguments, flattened into the batch axis."""
    rank: int
    """The rank of the arguments, and of the result."""
    caller: str = "attend"
    """The name of the public function, for error messages."""
    sink: Float[Tensor, "h"] | None = None
    """A further score per head that takes its share of the softmax and has no value."""

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """b, h, q and k."""
        b, h, q, _ = self.q.shape
        return b, h, q, self.k.shape[2]

    @property
    def factor(self) -> float | None:
        """The scale of q·k; None if the score is not a scaled dot product."""
        if isinstance(self.score, ScaledDot):
            return float(self.q.shape[-1] ** -0.5)
        return self.score.factor if isinstance(self.score, Scaled) else None

    @property
    def scale(self) -> float | None:
        """`factor`, or the scale of q·k inside a softcap."""
        if isinstance(self.score, Softcap):
            return self.score.scale_for(self.q.shape[-1])
        return self.factor

    @property
    def work(self) -> torch.dtype:
        """The dtype of scores: at least float32."""
        return torch.float32 if self.v.dtype in HALF else self.v.dtype

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that the result depends on, parameters included."""
        found = [self.q, self.k, self.v]
        for part in (self.bias, self.score, self.sink):
            if isinstance(part, nn.Module):
                found.extend(part.parameters())
            elif isinstance(part, Tensor):
                found.append(part)
        return found if self.mask is None else found + self.mask.held()

    @property
    def needs_grad(self) -> bool:
        """Whether the result may need a gradient."""
        return torch.is_grad_enabled() and (
            self.q.requires_grad
            or self.k.requires_grad
            or self.v.requires_grad
            or (isinstance(self.bias, Tensor) and self.bias.requires_grad)
            or not isinstance(self.bias, Tensor | None)
            or not isinstance(self.score, DotScore | Softcap)
            or (self.sink is not None and self.sink.requires_grad)
        )

    def reduced(self) -> Call:
        """The call with its score rewritten as factor · q·k, if it is a `DotScore`."""
        if self.factor is not None or not isinstance(self.score, DotScore):
            return self
        q, k, factor = self.score.dot(self.q.to(self.work), self.k.to(self.work))
        return dataclasses.replace(self, q=q, k=k, score=Scaled(factor))

    def detached(self) -> Call:
        """The call without its autograd graph."""
        bias = self.bias.detach() if isinstance(self.bias, Tensor) else self.bias
        q, k, v = self.q.detach(), self.k.detach(), self.v.detach()
        sink = None if self.sink is None else self.sink.detach()
        return dataclasses.replace(self, q=q, k=k, v=v, bias=bias, sink=sink)

    def raw(
        self, q: Float[Tensor, "b h r d"], k: Float[Tensor, "b g c f"], rows: slice, cols: slice
    ) -> Float[Tensor, "b h r c"]:
        """Scores with the bias, before the mask: differentiable, in `work` precision.

        q and k are those of the call, sliced by `rows` and `cols`.
        """
        q, k = q.to(self.work), k.to(self.work)
        if self.factor is not None:
            scores = product(q, k, self.factor)
        else:
            scores = self.score(q, repeat_kv(k, q.shape[1]))
            wanted = (*q.shape[:3], k.shape[2])
            if not isinstance(scores, Tensor):
                raise OptionError(
                    f"{self.caller}: score returned {type(scores).__name__}, expected a tensor "
                    f"(b,h,q,k) = ({','.join(map(str, wanted))})"
                )
            if scores.shape != wanted:
                raise ShapeError(
                    f"{self.caller}: score returned {shape(scores)} for a block q {shape(q)}, "
                    f"k {shape(k)}; expected (b,h,q,k) = ({','.join(map(str, wanted))})"
                )
        bias = self.bias_block(rows, cols)
        return scores if bias is None else scores + bias

    def scores(self, rows: slice, cols: slice) -> Float[Tensor, "b h r c"]:
        """The input of the softmax for these queries and keys: -inf where masked."""
        raw = self.raw(self.q[:, :, rows], self.k[:, :, cols], rows, cols)
        mask = self.mask_block(rows, cols)
        return raw if mask is None else raw.masked_fill(~mask, -torch.inf)

    def span(self, rows: slice, span: Span) -> Float[Tensor, "b h r c"]:
        """`scores` of a block of `blocks`, with the mask applied to the partial parts only."""
        scores = self.raw(self.q[:, :, rows], self.k[:, :, span.cols], rows, span.cols)
        if span.partial and self.factor is None:
            scores = scores.clone()  # never change in place what a user's function returned
        return self.fill(scores, rows, span, -torch.inf)

    def fill(self, block: Tensor, rows: slice, span: Span, value: float) -> Tensor:
        """The block with `value` where the mask forbids, in place."""
        for cols in span.partial:
            seen = self.mask_block(rows, cols)
            assert seen is not None
            here = slice(cols.start - span.cols.start, cols.stop - span.cols.start)
            block[..., here].masked_fill_(~seen, value)
        return block

    def bias_block(self, rows: slice, cols: slice) -> Tensor | None:
        """The additive term for these queries and keys, broadcastable to ``(b, h, r, c)``."""
        _, _, q, k = self.sizes
        if self.bias is None:
            return None
        if isinstance(self.bias, Tensor):
            part = self.bias if self.bias.shape[2] == 1 else self.bias[:, :, rows]
            return (part if self.bias.shape[3] == 1 else part[..., cols]).to(self.work)
        return self.bias.block(rows, cols, q, k, device=self.q.device, dtype=self.work)

    def mask_block(self, rows: slice, cols: slice) -> Tensor | None:
        """The mask for these queries and keys, broadcastable to ``(b, h, r, c)``."""
        _, _, q, k = self.sizes
        if self.mask is None:
            return None
        return self.mask.block(rows, cols, q, k, self.q.device)

    def whole(self) -> tuple[slice, slice]:
        """All rows and all columns."""
        _, _, q, k = self.sizes
        return slice(0, q), slice(0, k)

    def restore(self, x: Shaped[Tensor, "b h *rest"]) -> Shaped[Tensor, "..."]:
        """A result with the leading axes of the arguments."""
        if self.rank == 4:
            return x
        if self.rank == 2:
            return x[0, 0]
        return x[:, 0] if self.rank == 3 else x.reshape(*self.lead, *x.shape[1:])

    def blocks(self, height: int, width: int, most: int) -> Iterator[tuple[slice, list[Span]]]:
        """Blocks of queries, each with the spans of keys that any of them may attend to.

        Blocks are `height` queries by `width` keys; spans join adjacent blocks, up to `most` keys.
        Blocks that are masked completely are skipped.
        """
        if 0 in self.sizes:
            return
        _, _, q, k = self.sizes
        rows = np.append(np.arange(0, q, height), q)
        cols = np.append(np.arange(0, k, width), k)
        if self.mask is None:
            spans = [Span(slice(a, min(a + most, k)), ()) for a in range(0, k, most)]
            for a, b in zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True):
                yield slice(a, b), spans
            return
        cover = self.mask.cover(rows, cols, q, k)
        for index, (a, b) in enumerate(zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True)):
            yield slice(a, b), _spans(cover[index], cols, most // width)


@dataclass(frozen=True)
class Span:
    """Keys to visit, and the parts of them that are partly masked."""

    cols: slice
    partial: tuple[slice, ...]


def _spans(cover: np.ndarray, cols: np.ndarray, most: int) -> list[Span]:
    """The spans of one block of queries: runs of reachable blocks, at most `most` blocks long."""
    spans = []
    for first, last in runs(np.flatnonzero(cover != NONE)):
        for start in range(first, last, most):
            stop = min(start + most, last)
            partial = tuple(
                slice(int(cols[start + a]), int(cols[start + b]))
                for a, b in runs(np.flatnonzero(cover[start:stop] == SOME))
            )
            spans.append(Span(slice(int(cols[start]), int(cols[stop])), partial))
    return spans


def runs(indices: np.ndarray) -> list[tuple[int, int]]:
    """Runs of consecutive integers as (first, one past the last)."""
    if not len(indices):
        return []
    breaks = np.flatnonzero(np.diff(indices) != 1)
    firsts = np.append(indices[0], indices[breaks + 1])
    lasts = np.append(indices[breaks], indices[-1]) + 1
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def product(
    q: Float[Tensor, "b h q d"], k: Float[Tensor, "b g k d"], factor: float
) -> Float[Tensor, "b h q k"]:
    """factor · q·k; heads that share a key head are rows of one matrix product."""
    b, h, n, d = q.shape
    _, g, m, _ = k.shape
    q, k = q.reshape(b * g, h // g * n, d), k.reshape(b * g, m, d)
    if factor == 0:  # BLAS would skip the product, and lose NaN
        return torch.bmm(q, k.mT).mul(factor).view(b, h, n, m)
    empty = q.new_empty(()).expand(b * g, h // g * n, m)
    return torch.baddbmm(empty, q, k.mT, beta=0, alpha=factor).view(b, h, n, m)


def weighted_sum(
    weights: Float[Tensor, "b h q k"], v: Float[Tensor, "b g k e"]
) -> Float[Tensor, "b h q e"]:
    """Σⱼ weightsᵢⱼ vⱼ; heads that share a value head are rows of one matrix product."""
    b, h, n, m = weights.shape
    _, g, _, e = v.shape
    v = v.reshape(b * g, m, e).to(weights.dtype)
    return torch.bmm(weights.reshape(b * g, h // g * n, m), v).view(b, h, n, e)


def masked_softmax(scores: Float[Tensor, "*bh q k"]) -> Float[Tensor, "*bh q k"]:
    """Softmax over the keys; exactly 0, with gradient 0, in rows that are -inf throughout."""
    nothing = (scores == -torch.inf).all(-1, keepdim=True)
    return torch.softmax(scores.masked_fill(nothing, 0.0), -1).masked_fill(nothing, 0.0)


def masked_logsumexp(scores: Float[Tensor, "*bh q k"]) -> Float[Tensor, "*bh q"]:
    """Log-sum-exp over the keys; -inf, with gradient 0, in rows that are -inf throughout."""
    nothing = (scores == -torch.inf).all(-1, keepdim=True)
    sums = scores.masked_fill(nothing, 0.0).logsumexp(-1)
    return sums.masked_fill(nothing.squeeze(-1), -torch.inf)


def shift(level: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """What to subtract from scores: +inf, and so weight 0, in rows without a key."""
    return level.masked_fill(level == -torch.inf, torch.inf)


def autocasts(device: torch.device) -> bool:
    """Whether autocast is enabled for this device."""
    kind = device.type
    return kind != "meta" and torch.is_autocast_enabled(kind)


def product_dtype(x: Tensor) -> torch.dtype:
    """The dtype of products of x with weights: bfloat16 under such an autocast, else that of x.

    Never float16, whose range is too small for exponentials; and autocast leaves float64 alone.
    """
    narrow = autocasts(x.device) and torch.get_autocast_dtype(x.device.type) == torch.bfloat16
    return torch.bfloat16 if narrow and x.dtype != torch.float64 else x.dtype


def autocast_disabled(device: torch.device) -> AbstractContextManager[object]:
    """A context that disables autocast on this device."""
    return torch.autocast(device.type, enabled=False) if autocasts(device) else nullcontext()


def repeat_kv(x: Float[Tensor, "b g n d"], heads: int) -> Float[Tensor, "b h n d"]:
    """Keys or values with one head per query head; a view where possible."""
    b, g, n, d = x.shape
    if g == heads:
        return x
    return x.unsqueeze(2).expand(b, g, heads // g, n, d).reshape(b, heads, n, d)
