"""`prepare` checks the arguments of a call and brings them into the form of `Call`."""

from __future__ import annotations

from math import prod

import numpy as np
import torch
from torch import Tensor

from regard.attention.call import Call, autocasts
from regard.attention.masks import Mask, as_mask, with_four_axes
from regard.attention.positions import Bias
from regard.attention.scores import NAMED, Additive, Bilinear, DotScore, Scaled, Score, as_score
from regard.errors import DtypeError, OptionError, ShapeError, check_share, shape

FLOAT = torch.float32
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

Given = tuple[Tensor, Tensor, Tensor]
"""q, k and v as passed by the user, for error messages."""


def prepare(
    caller: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | Tensor | str | None,
    bias: Tensor | Bias | None,
    score: str | Score,
    dropout: float,
    sink: Tensor | None = None,
) -> Call:
    """The canonical call; raises if the arguments do not fit together."""
    if (
        (mask is None or (isinstance(mask, Mask) and mask.relative))
        and bias is None
        and isinstance(q, Tensor)
        and q.dtype == torch.float32
        and q.dim() == 4
        and _alike(q, k)
        and _alike(q, v)
        and (score == "scaled_dot" or type(score) is Scaled)
        and dropout == 0.0
        and sink is None
        and not autocasts(q.device)
    ):  # a shortcut for the most common calls
        dot = score if isinstance(score, Scaled) else NAMED["scaled_dot"]
        return Call(q, k, v, dot, mask, None, 0.0, q.shape[:1], 4, caller)
    _check_tensors(caller, q, k, v)
    how = as_score(score, caller)
    check_share(f"{caller}: dropout", dropout)
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
    if autocasts(q.device) and q.dtype != torch.float64:  # which autocast leaves alone
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
    if sink is not None:
        sink = _checked_sink(caller, sink, heads, q.device).to(torch.promote_types(q.dtype, FLOAT))
    return Call(q4, k4, v4, how, mask, bias, dropout, lead, rank, caller, sink)


def _checked_sink(caller: str, sink: Tensor, heads: int, device: torch.device) -> Tensor:
    if not isinstance(sink, Tensor) or not sink.is_floating_point():
        kind = sink.dtype if isinstance(sink, Tensor) else type(sink).__name__
        raise DtypeError(
            f"{caller}: sink is {kind}, expected a floating tensor (h), a score per head"
        )
    if sink.shape != (heads,):
        raise ShapeError(f"{caller}: sink has shape {shape(sink)}, expected (h) = ({heads})")
    if sink.device != device:
        raise DtypeError(f"{caller}: sink is on {sink.device}, q on {device}; move it to q's")
    return sink


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
    full = with_four_axes(bias, rank)
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
