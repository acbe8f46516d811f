"""regard's own C++ kernel, ``torch.ops.regard.attend``: blocks with an online softmax.

It takes the mask as an interval of keys per query (`Mask.spans`), so that keys outside are never
read, and as a bool tensor for what is no interval. Biases that depend on distance alone are a
vector per head.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard import native
from regard.attention.call import Call
from regard.attention.mask import Mask, Spans
from regard.attention.masks import Dense
from regard.attention.positions import PerDistance
from regard.attention.scores import DotScore, Softcap
from regard.attention.tracing import wrapped_by_torch_func
from regard.native.decoder import all_axes

WIDEST = 256
"""The widest heads that the kernel has registers for."""
WRITTEN = 2**25
"""The largest number of pairs for which a mask or the gradient of a bias is materialized."""


def supports(call: Call) -> str | None:
    """Why the kernel cannot run this call; None if it can."""
    if call.q.device.type not in ("cpu", "meta"):
        return f"it runs on the CPU, and q is on {call.q.device}"
    if call.v.dtype not in (torch.float32, torch.bfloat16):
        return f"it supports float32 and bfloat16, and q is {call.v.dtype}"
    if not isinstance(call.score, DotScore | Softcap):
        return "the score does not reduce to a dot product"
    if call.v.dtype == torch.bfloat16 and call.scale is None:
        return "the queries and keys that the score makes would be rounded to bfloat16"
    if max(call.q.shape[-1], call.v.shape[-1]) > WIDEST:
        return f"heads are wider than {WIDEST}"
    if 0 in call.sizes or call.v.shape[-1] == 0:
        return "there is nothing to compute"
    if not isinstance(call.bias, Tensor | PerDistance | None):
        return f"{type(call.bias).__name__} would have to be materialized, queries × keys"
    if isinstance(call.bias, Tensor) and call.bias.dtype == torch.float64:
        return "the bias would be rounded from float64"
    if isinstance(call.bias, Tensor) and call.bias.requires_grad and torch.is_grad_enabled():
        b, h, q, k = call.sizes
        if b * h * q * k > WRITTEN:
            return "the gradient of the bias would be materialized for every batch entry and head"
    if call.dropout and wrapped_by_torch_func(*call.tensors):
        return "torch.func transforms dropout in plain operations only"
    if isinstance(call.bias, PerDistance) and wrapped_by_torch_func(*call.bias.parameters()):
        return f"torch.func transforms {type(call.bias).__name__} in plain operations only"
    if native.has_tangent(call.q, call.k, call.v):
        return "it has no forward-mode derivative"
    if (reason := _unwritten(call)) is not None:
        return reason
    return native.status()


def run(call: Call, logsumexp: bool) -> tuple[Float[Tensor, "b h q e"], Tensor | None]:
    """Output, and the row log-sum-exp if it is requested."""
    reduced = call.reduced()
    seed = torch.randint(2**62, (1,), device="cpu") if call.dropout else None
    args = (reduced.q, reduced.k, reduced.v, *pairs(reduced), float(call.dropout), seed)
    if wrapped_by_torch_func(*[x for x in args if isinstance(x, Tensor)]):
        output, highest, total = native.Attend.apply(*args)  # type: ignore[no-untyped-call]
    else:
        output, highest, total = torch.ops.regard.attend(*args)
    return output, log_sum(highest, total) if logsumexp else None


class Statistics(NamedTuple):
    """Statistics of each row of weights."""

    highest: Float[Tensor, "b h q"]
    """The largest score."""
    total: Float[Tensor, "b h q"]
    """The sum of exp(score − highest)."""
    entropy: Float[Tensor, "b h q"]
    scores: Float[Tensor, "b h q n"]
    """The n largest scores, in descending order; −inf where there are fewer."""
    keys: Int64[Tensor, "b h q n"]
    """The keys they belong to; −1 where there are fewer."""


def statistics(call: Call, count: int) -> Statistics:
    """Statistics of every row of a supported call, in one pass over the scores."""
    reduced = call.reduced()
    q, k = (x.contiguous() for x in (reduced.q, reduced.k))
    return Statistics(*torch.ops.regard.statistics(q, k, *pairs(reduced), count))


def log_sum(highest: Float[Tensor, "*rows"], total: Float[Tensor, "*rows"]) -> Tensor:
    """The log-sum-exp of rows, from their maxima and the sums of exp(score − maximum)."""
    sums = highest + total.log()
    return torch.where(highest == torch.inf, torch.inf, sums)


def pairs(call: Call) -> tuple[Any, ...]:
    """The arguments of the operator for scale, mask and bias."""
    _, h, q, k = call.sizes
    spans, parts = _split(call, q, k)
    mask = None
    for part in parts:
        seen = all_axes(part.block(slice(0, q), slice(0, k), q, k, call.q.device), k)
        mask = seen if mask is None else mask & seen
    bias = relative = None
    if isinstance(call.bias, Tensor):
        bias = all_axes(call.bias.float(), k)
    elif isinstance(call.bias, PerDistance):
        relative = call.bias.diagonals(q, k, device=call.q.device).expand(h, -1).contiguous()
    softcap = call.score.cap if isinstance(call.score, Softcap) else 0.0
    return (call.scale, softcap, *spans, mask, bias, relative)


def _split(call: Call, q: int, k: int) -> tuple[Spans, list[Mask]]:
    """The mask as intervals of keys, and its parts that are no intervals."""
    spans: Spans | None = None
    rest = []
    for part in [] if call.mask is None else call.mask.parts():
        found = part.spans(q, k, call.q.device)
        if found is None:
            rest.append(part)
        else:
            spans = found if spans is None else spans & found
    return spans or Spans(), rest


def _unwritten(call: Call) -> str | None:
    """Why a part of the mask is neither intervals nor small enough to materialize."""
    _, _, q, k = call.sizes
    if call.mask is None or call.mask.keys_only or q * k <= 2**12:
        return None
    for part in _split(call, q, k)[1]:
        if not part.keys_only and not isinstance(part, Dense):
            row = part.block(slice(0, 1), slice(0, 1), q, k, call.q.device)
            if prod(row.shape[:-2]) * q * k > WRITTEN:
                return f"the mask {part!r} would have to be materialized, queries × keys"
    return None
