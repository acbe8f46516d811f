"""One call of attention, checked, and brought into one form that every kernel understands.

Users pass ``(n, d)``, ``(b, n, d)`` or ``(…, h, n, d)``; kernels see ``(b, h, n, d)`` only. Keys
and values may have fewer heads, g: heads 0 … h/g - 1 share the first of them, and so on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from math import prod

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from regard.attention.masks import NONE, SOME, Mask, as_mask
from regard.attention.positions import Bias
from regard.attention.scores import (
    NAMED,
    Additive,
    Bilinear,
    DotScore,
    Scaled,
    ScaledDot,
    Score,
    as_score,
)
from regard.errors import DtypeError, OptionError, ShapeError, shape

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
HALF = (torch.bfloat16, torch.float16)

Given = tuple[Tensor, Tensor, Tensor]
"""q, k and v as the user passed them, for the errors."""


@dataclass(eq=False, slots=True)
class Call:
    """The arguments of one call in canonical form; nobody changes one."""

    q: Float[Tensor, "b h q d"]
    k: Float[Tensor, "b g k f"]
    v: Float[Tensor, "b g k e"]
    score: Score
    mask: Mask | None
    bias: Float[Tensor, "#b #h #q #k"] | Bias | None
    dropout: float
    lead: tuple[int, ...]
    """The leading axes that the batch axis stands for."""
    rank: int
    """The rank that the result has for the user."""
    caller: str = "attend"
    """Which function was called, for the errors."""
    kept: dict[tuple[int, int, int], Tensor] = field(default_factory=dict)
    """Blocks of the mask that come up again, for the kernel to keep."""

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """b, h, q and k."""
        b, h, q, _ = self.q.shape
        return b, h, q, self.k.shape[2]

    @property
    def factor(self) -> float | None:
        """What q·k is multiplied by; None where the score is something else."""
        if isinstance(self.score, ScaledDot):
            return float(self.q.shape[-1] ** -0.5)
        return self.score.factor if isinstance(self.score, Scaled) else None

    @property
    def work(self) -> torch.dtype:
        """The dtype that scores are computed in: never less than float32."""
        return torch.float32 if self.v.dtype in HALF else self.v.dtype

    @property
    def needs_grad(self) -> bool:
        """Whether a gradient may be asked of the result."""
        return torch.is_grad_enabled() and (
            self.q.requires_grad
            or self.k.requires_grad
            or self.v.requires_grad
            or (isinstance(self.bias, Tensor) and self.bias.requires_grad)
            or not isinstance(self.bias, Tensor | None)
            or not isinstance(self.score, DotScore)
        )

    def reduced(self) -> Call:
        """The call with its score written as factor · q·k, if it reduces to that at all."""
        if self.factor is not None or not isinstance(self.score, DotScore):
            return self
        q, k, factor = self.score.dot(self.q.to(self.work), self.k.to(self.work))
        rest = (self.mask, self.bias, self.dropout, self.lead, self.rank, self.caller)
        return Call(q, k, self.v, Scaled(factor), *rest)

    def detached(self) -> Call:
        """The call cut off from the autograd graph."""
        bias = self.bias.detach() if isinstance(self.bias, Tensor) else self.bias
        q, k, v = self.q.detach(), self.k.detach(), self.v.detach()
        return dataclasses.replace(self, q=q, k=k, v=v, bias=bias)

    def take(self, entries: slice) -> Call:
        """The call of these batch entries."""
        return dataclasses.replace(
            self,
            q=self.q[entries],
            k=self.k[entries],
            v=self.v[entries],
            mask=None if self.mask is None else self.mask.take(entries),
            bias=self.bias[entries]
            if isinstance(self.bias, Tensor) and self.bias.shape[0] > 1
            else self.bias,
        )

    def raw(
        self, q: Float[Tensor, "b h r d"], k: Float[Tensor, "b g c f"], rows: slice, cols: slice
    ) -> Float[Tensor, "b h r c"]:
        """Scores with the bias, before the mask: differentiable, in `work` precision.

        q and k are the parts of the call's that `rows` and `cols` say.
        """
        q, k = q.to(self.work), k.to(self.work)
        if self.factor is not None:
            scores = product(q, k, self.factor)
        else:
            scores = self.score(q, spread(k, q.shape[1]))
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
        """What enters the softmax for these queries and keys: masked places are -inf."""
        raw = self.raw(self.q[:, :, rows], self.k[:, :, cols], rows, cols)
        mask = self.mask_block(rows, cols)
        return raw if mask is None else raw.masked_fill(~mask, -torch.inf)

    def span(self, rows: slice, span: Span) -> Float[Tensor, "b h r c"]:
        """`scores` for a block that `blocks` gave: the mask is applied only where it has to be."""
        scores = self.raw(self.q[:, :, rows], self.k[:, :, span.cols], rows, span.cols)
        if span.partial and self.factor is None:
            scores = scores.clone()  # what a user's function returned is not ours to change
        return self.fill(scores, rows, span, -torch.inf)

    def fill(self, block: Tensor, rows: slice, span: Span, value: float) -> Tensor:
        """The block, changed in place: `value` wherever the mask forbids."""
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
        """A result with the leading axes that the user passed."""
        if self.rank == 4:
            return x
        if self.rank == 2:
            return x[0, 0]
        return x[:, 0] if self.rank == 3 else x.reshape(*self.lead, *x.shape[1:])

    def blocks(self, height: int, width: int, most: int) -> Iterator[tuple[slice, list[Span]]]:
        """Blocks of queries, each with the spans of keys that any of them may look at.

        Blocks are `height` queries by `width` keys; spans join reachable blocks that lie side by
        side, at most `most` keys long. What the mask rules out altogether is never visited.
        """
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
    """Keys to visit, and the parts of them where the mask has to be applied."""

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
    """Runs of consecutive numbers as (first, one past the last)."""
    if not len(indices):
        return []
    breaks = np.flatnonzero(np.diff(indices) > 1)
    firsts = np.append(indices[0], indices[breaks + 1])
    lasts = np.append(indices[breaks], indices[-1]) + 1
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def product(
    q: Float[Tensor, "b h q d"], k: Float[Tensor, "b g k d"], factor: float
) -> Float[Tensor, "b h q k"]:
    """factor · q·k, the heads that share a key head side by side in one matrix product."""
    b, h, n, d = q.shape
    _, g, m, _ = k.shape
    q, k = q.reshape(b * g, h // g * n, d), k.reshape(b * g, m, d)
    empty = q.new_empty(()).expand(b * g, h // g * n, m)
    return torch.baddbmm(empty, q, k.mT, beta=0, alpha=factor).view(b, h, n, m)


def weighted_sum(
    weights: Float[Tensor, "b h q k"], v: Float[Tensor, "b g k e"]
) -> Float[Tensor, "b h q e"]:
    """Σⱼ weightsᵢⱼ vⱼ, the heads that share a value head side by side in one matrix product."""
    b, h, n, m = weights.shape
    _, g, _, e = v.shape
    v = v.reshape(b * g, m, e).to(weights.dtype)
    return torch.bmm(weights.reshape(b * g, h // g * n, m), v).view(b, h, n, e)


def unreadable(*tensors: Tensor) -> bool:
    """Whether torch is tracing, so that no decision can depend on the numbers in the tensors."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return torch.compiler.is_compiling() or any(map(wrapped, tensors))


def autocasts(device: torch.device) -> bool:
    """Whether torch would now change dtypes by itself on this device."""
    kind = device.type
    return kind != "meta" and torch.is_autocast_enabled(kind)


_AS_IT_IS = nullcontext()


def exactly(device: torch.device) -> AbstractContextManager[object]:
    """A context in which dtypes are what the kernels say, and not what autocast says."""
    if not autocasts(device):
        return _AS_IT_IS
    return torch.autocast(device.type, enabled=False)


def spread(x: Float[Tensor, "b g n d"], heads: int) -> Float[Tensor, "b h n d"]:
    """Keys or values with one head for each query head, as a view where it can be."""
    b, g, n, d = x.shape
    if g == heads:
        return x
    return x.unsqueeze(2).expand(b, g, heads // g, n, d).reshape(b, heads, n, d)


def prepare(
    caller: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | Tensor | None,
    bias: Tensor | Bias | None,
    score: str | Score,
    dropout: float,
) -> Call:
    """The checked call, or an error that says what does not fit and what to do."""
    if (
        (mask is None or (isinstance(mask, Mask) and mask.relative))
        and bias is None
        and isinstance(q, Tensor)
        and q.dtype == torch.float32
        and q.dim() == 4
        and _alike(q, k)
        and _alike(q, v)
        and score == "scaled_dot"
        and dropout == 0.0
        and not autocasts(q.device)
    ):  # the commonest call of all, by the shortest way
        return Call(q, k, v, NAMED["scaled_dot"], mask, None, 0.0, q.shape[:1], 4, caller)
    _check_tensors(caller, q, k, v)
    how = as_score(score, caller)
    if not 0.0 <= dropout < 1.0:
        raise OptionError(f"{caller}: dropout={dropout}, expected 0 up to, but not including, 1")
    ranks = {q.dim(), k.dim(), v.dim()}
    rank = max(ranks)
    if 3 in ranks and rank > 3:
        raise ShapeError(
            f"{caller}: {_shapes((q, k, v))}: a tensor of rank 3 is (b,n,d), one head, and does "
            "not fit beside (…,h,n,d); insert the head axis with unsqueeze(-3)"
        )
    q4, k4, v4 = (_with_heads(x) for x in (q, k, v))
    _check_axes(caller, (q, k, v), q4, k4, v4, how)
    lead, (q4, k4, v4) = _one_batch_axis(caller, (q, k, v), q4, k4, v4)
    if autocasts(q.device):
        q4, k4, v4 = (x.to(torch.get_autocast_dtype(q.device.type)) for x in (q4, k4, v4))
    heads = q4.shape[1]
    if mask is not None:
        mask = as_mask(mask, caller)
        mask.fit(q4.shape[2], k4.shape[2])
        mask = mask.canonical(lead, heads, rank, caller)
    if bias is not None:
        sizes = (q4.shape[0], heads, q4.shape[2], k4.shape[2])
        bias = _canonical_bias(caller, bias, lead, rank, sizes)
        if isinstance(bias, Tensor) and bias.device != q.device:
            raise DtypeError(f"{caller}: bias is on {bias.device}, q on {q.device}; move it to q's")
    return Call(q4, k4, v4, how, mask, bias, dropout, lead, rank, caller)


def _alike(x: Tensor, y: object) -> bool:
    return (
        isinstance(y, Tensor)
        and x.shape == y.shape
        and x.dtype == y.dtype
        and x.device == y.device
        and x.numel() > 0
    )


def _check_tensors(caller: str, q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise DtypeError(
                f"{caller}: {name} is {type(x).__name__}, expected a tensor; use torch.as_tensor"
            )
        if x.dim() < 2:
            raise ShapeError(
                f"{caller}: {name} has shape {shape(x)}, expected (n,d), (b,n,d) or (…,h,n,d)"
            )
    if not q.dtype == k.dtype == v.dtype:
        raise DtypeError(
            f"{caller}: q is {q.dtype}, k is {k.dtype}, v is {v.dtype}; convert them to one dtype"
        )
    if q.dtype not in DTYPES:
        raise DtypeError(
            f"{caller}: q, k and v are {q.dtype}, expected float32, bfloat16, float16 or float64"
        )
    if not q.device == k.device == v.device:
        raise DtypeError(
            f"{caller}: q is on {q.device}, k on {k.device}, v on {v.device}; move them to one"
        )


def _check_axes(caller: str, given: Given, q: Tensor, k: Tensor, v: Tensor, score: Score) -> None:
    d, d_k = q.shape[-1], k.shape[-1]
    if d != d_k and isinstance(score, DotScore) and not isinstance(score, torch.nn.Module):
        raise ShapeError(
            f"{caller}: k has d={d_k} but q has d={d} ({_shapes(given[:2])}); "
            "project both to one head_width"
        )
    if isinstance(score, Bilinear | Additive) and (d, d_k) != (score.width, score.key_width):
        raise ShapeError(
            f"{caller}: score {type(score).__name__} compares width={score.width} with "
            f"key_width={score.key_width}, but q has d={d} and k d={d_k} ({_shapes(given[:2])})"
        )
    if isinstance(score, Bilinear) and score.heads not in (None, q.shape[-3]):
        raise ShapeError(
            f"{caller}: score Bilinear has heads={score.heads} but q has h={q.shape[-3]}; "
            f"make one with heads={q.shape[-3]}"
        )
    if d == 0:
        raise ShapeError(
            f"{caller}: q has d=0 ({_shapes(given)}); vectors need at least one number"
        )
    if k.shape[-2] != v.shape[-2]:
        raise ShapeError(
            f"{caller}: v has k={v.shape[-2]} but k has k={k.shape[-2]} ({_shapes(given)}); "
            "there is one value per key"
        )
    h, g = q.shape[-3], k.shape[-3]
    if g != v.shape[-3]:
        raise ShapeError(
            f"{caller}: v has h={v.shape[-3]} but k has h={g} ({_shapes(given)}); "
            "keys and values have the same kv_heads"
        )
    if g == 0 or h % g:
        raise ShapeError(
            f"{caller}: q has h={h}, which is not a multiple of the kv_heads h={g} of k "
            f"({_shapes(given)}); choose kv_heads that divide the heads"
        )


def _one_batch_axis(
    caller: str, given: Given, q: Tensor, k: Tensor, v: Tensor
) -> tuple[tuple[int, ...], tuple[Tensor, Tensor, Tensor]]:
    if q.dim() == k.dim() == v.dim() == 4 and q.shape[0] == k.shape[0] == v.shape[0]:
        return (q.shape[0],), (q, k, v)
    try:
        lead = tuple(np.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3]))
    except ValueError:
        raise ShapeError(
            f"{caller}: the leading axes do not fit together ({_shapes(given)}); "
            "they must be equal or 1"
        ) from None
    q, k, v = (x.expand(*lead, *x.shape[-3:]) for x in (q, k, v))
    if len(lead) != 1:
        q, k, v = (x.reshape(prod(lead), *x.shape[-3:]) for x in (q, k, v))
    return lead, (q, k, v)


def _with_heads(x: Tensor) -> Tensor:
    if x.dim() == 3:
        return x.unsqueeze(1)
    return x[None, None] if x.dim() == 2 else x


def _canonical_bias(
    caller: str,
    bias: Tensor | Bias,
    lead: tuple[int, ...],
    rank: int,
    sizes: tuple[int, int, int, int],
) -> Tensor | Bias:
    b, h, q, k = sizes
    if not isinstance(bias, Tensor):
        if not isinstance(bias, Bias):
            raise OptionError(
                f"{caller}: bias is {type(bias).__name__}, expected a tensor (…,h,q,k) or a bias "
                "such as ALiBi or RelativeBias"
            )
        if bias.heads not in (1, h):
            raise ShapeError(
                f"{caller}: bias has heads={bias.heads} but q has h={h}; make one with heads={h}"
            )
        return bias
    if not bias.is_floating_point():
        raise DtypeError(
            f"{caller}: bias is {bias.dtype}, expected floating point; "
            "a bool tensor (True = may attend) goes to mask="
        )
    full = bias
    if bias.dim() < 4:
        full = full.unsqueeze(1) if bias.dim() == rank == 3 else full[(None,) * (4 - bias.dim())]
    fits = all(have in (1, want) for have, want in zip(full.shape[-3:], (h, q, k), strict=True))
    try:
        if prod(full.shape[:-3]) == 1:
            full = full.reshape(1, *full.shape[-3:])
        else:
            full = full.expand(*lead, *full.shape[-3:]).reshape(b, *full.shape[-3:])
    except RuntimeError:
        fits = False
    if not fits:
        wanted = ",".join(map(str, (*lead, h, q, k)))
        raise ShapeError(
            f"{caller}: bias has shape {shape(bias)}, which does not broadcast to (…,h,q,k) = "
            f"({wanted}); 1 where it is the same for all"
        )
    return full


def _shapes(given: tuple[Tensor, ...]) -> str:
    return ", ".join(f"{name} {shape(x)}" for name, x in zip("qkv", given, strict=False))
