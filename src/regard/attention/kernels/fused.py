"""PyTorch's CPU flash operation, where it can express the call.

`torch.nn.functional.scaled_dot_product_attention` silently falls back to an n × n matrix when the
flash operation does not apply. Here that operation itself is called, which also returns the row
log-sum-exp, or `supports` says why it cannot be. Three of its defects are worked around: empty rows
(it aborts the process), a non-contiguous last axis (it reads the wrong numbers) and rows whose
scores are all NaN, all -inf or partly +inf (it returns finite numbers). It computes gradients from
the rounded log-sum-exp; those of large scores are computed here.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard import native
from regard.attention.call import (
    HALF,
    Call,
    masked_softmax,
    runs,
    weighted_sum,
)
from regard.attention.mask import Mask
from regard.attention.masks import Causal, Dense
from regard.attention.scores import DotScore
from regard.attention.tracing import values_unavailable, wrapped_by_torch_func
from regard.native.decoder import all_axes

_FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default

LARGE = {
    torch.float64: 2.0**20,
    torch.float32: 2.0**10,
    torch.bfloat16: 2.0**13,
    torch.float16: 2.0**11,
}
"""Rounding a log-sum-exp of this size costs 10⁻⁴ of a weight, in float64 10⁻¹⁰; in half precision,
about a quarter of its own rounding."""
CHUNK = 2**22
"""The number of scores held at once when rows are recomputed."""


def supports(call: Call) -> str | None:
    """Why the operation cannot run this call; None if it can."""
    if call.q.device.type != "cpu":
        return f"it runs on the CPU, and q is on {call.q.device}"
    if not isinstance(call.score, DotScore):
        return "the score does not reduce to a dot product"
    if call.v.dtype in HALF and call.factor is None:
        return f"the queries and keys that the score makes would be rounded to {call.v.dtype}"
    if call.k.shape[-1] != call.v.shape[-1]:
        return (
            f"keys have d={call.k.shape[-1]} and values e={call.v.shape[-1]}, it needs equal widths"
        )
    if call.dropout:
        return "it does not support dropout"
    if call.q.numel() == 0 or call.k.numel() == 0:
        return "there is nothing to compute"
    if wrapped_by_torch_func(*call.tensors):
        return "torch.func transforms plain operations best"
    if call.bias is not None and not isinstance(call.bias, Tensor):
        return f"{type(call.bias).__name__} would have to be materialized, queries × keys"
    if isinstance(call.bias, Tensor) and call.bias.dtype.itemsize > call.v.dtype.itemsize:
        return f"the bias would be rounded from {call.bias.dtype} to {call.v.dtype}"
    if isinstance(call.bias, Tensor) and call.bias.requires_grad and torch.is_grad_enabled():
        return "it computes no gradient of the bias"
    if call.sink is not None and call.v.dtype in HALF:
        return f"its log-sum-exp, which a sink needs, is imprecise in {call.v.dtype}"
    if call.sink is not None and call.needs_grad:
        return "its log-sum-exp has no gradient, which a sink needs"
    causal, rest = _without_causal(call)
    if not all(part.keys_only or isinstance(part, Dense) for part in rest):
        return f"the mask {call.mask!r} would have to be materialized, queries × keys"
    if causal and call.factor is not None and not call.factor > 0:
        return f"its causal mask fails at a scale of {call.factor:g}, which is not positive"
    return None


def run(
    call: Call, logsumexp: bool = True
) -> tuple[Float[Tensor, "b h q e"], Float[Tensor, "b h q"] | None]:
    """Output and row log-sum-exp of a supported call.

    No log-sum-exp in half precision: that of the operation is off by 5 · 10⁻⁵.
    """
    causal, rest = _without_causal(call)
    reduced = call.reduced()
    width = call.v.shape[-1]
    q, k, v = reduced.q, reduced.k, call.v
    if q is not call.q:
        q, k = q.to(v.dtype), k.to(v.dtype)
        v = torch.nn.functional.pad(v, (0, q.shape[-1] - width))
    if not q.stride(-1) == k.stride(-1) == v.stride(-1) == 1:
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    output, sums = _FLASH(
        q, k, v, 0.0, causal, attn_mask=_additive(call, rest), scale=reduced.factor
    )
    if v.shape[-1] != width:
        output = output[..., :width]
    output, sums = _repaired(call, output, sums)
    if call.needs_grad and _large(sums, LARGE[v.dtype]):
        output = _ExactGradient.apply(  # type: ignore[no-untyped-call]
            output.detach(), reduced.detached(), reduced.q, reduced.k, call.v
        )
    return output, None if v.dtype in HALF else sums


def _without_causal(call: Call) -> tuple[bool, list[Mask]]:
    """Whether the operation's causal flag applies, and the remaining parts of the mask.

    The flag is aligned at the start, so it applies only if q = k; a single query at the end sees
    everything.
    """
    if call.mask is None:
        return False, []
    parts = call.mask.parts()
    _, _, q, k = call.sizes

    def known(part: Mask) -> bool:
        return isinstance(part, Causal) and (q == k or (q == 1 and not part.from_start))

    rest = [part for part in parts if not known(part)]
    return q > 1 and len(rest) < len(parts), rest


def _additive(call: Call, masks: list[Mask]) -> Float[Tensor, "#b #h #q k"] | None:
    """Mask and bias as the one additive term that the operation takes."""
    _, _, q, k = call.sizes
    bias = call.bias_block(*call.whole())
    for mask in masks:
        seen = mask.block(slice(0, q), slice(0, k), q, k, call.q.device)
        if bias is None:
            bias = torch.zeros(seen.shape, device=call.q.device)
        bias = torch.where(seen, bias, -torch.inf)
    return None if bias is None else all_axes(bias.detach().to(call.v.dtype), k)


def _large(logsumexp: Tensor, limit: float) -> bool:
    if values_unavailable(logsumexp):
        return False
    return bool((logsumexp.abs().masked_fill(logsumexp.isinf(), 0.0) >= limit).any())


class _ExactGradient(torch.autograd.Function):
    """The identity on the output, with gradients from weights computed without a log-sum-exp."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, call: Call, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ctx.call = call
        ctx.save_for_backward(q, k, v)
        return output.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        call: Call = ctx.call
        assert call.factor is not None
        q, k, v = (x.to(call.work) for x in ctx.saved_tensors)
        b, h, n, m = call.sizes
        parts_q, of_k, of_v = [], torch.zeros_like(k), torch.zeros_like(v)
        height = max(1, CHUNK // (b * h * m))
        for start in range(0, n, height):
            rows, cols = slice(start, min(start + height, n)), slice(0, m)
            mask, bias = call.mask_block(rows, cols), call.bias_block(rows, cols)
            upper = grad[:, :, rows].to(call.work)
            of_rows, more_k, more_v, *_ = native.gradients(
                q[:, :, rows], k, v, call.factor, mask=mask, bias=bias, grad=upper
            )
            parts_q.append(of_rows)
            of_k, of_v = of_k + more_k, of_v + more_v
        of_q = torch.cat(parts_q, 2)
        dtypes = [x.dtype for x in ctx.saved_tensors]
        return None, None, *(x.to(t) for x, t in zip((of_q, of_k, of_v), dtypes, strict=True))


def _repaired(call: Call, output: Tensor, logsumexp: Tensor) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp: 0 and -inf in rows without keys, NaN in rows with NaN or +inf.

    The operation returns 0 and a log-sum-exp of 0 for rows without keys and rows of NaN, unless NaN
    leaks from masked positions; in half precision, rows with +inf are finite. A true log-sum-exp of
    exactly 0 is rare, so the few rows that have it, NaN or +inf are recomputed. While tracing, NaN
    is detected in the queries and by a log-sum-exp of +inf.
    """
    if values_unavailable(output):
        unknown = call.q.isnan().any(-1, keepdim=True) | logsumexp.isposinf().unsqueeze(-1)
        return output.masked_fill(unknown, torch.nan), logsumexp
    found = logsumexp.detach()
    least, most = torch.aminmax(found.abs())
    if least.item() > 0 and most.item() < torch.inf:  # neither holds for NaN
        return output, logsumexp
    suspects = (found == 0) | ~found.isfinite()
    true_output, true_sums = _rows_again(call, suspects, output.detach(), found)
    true_sums = torch.where(suspects, true_sums, found)
    wrong = suspects & (found.isnan() | ~true_sums.isfinite())
    return torch.where(wrong.unsqueeze(-1), true_output, output), true_sums


@torch.no_grad()
def _rows_again(
    call: Call, suspects: Tensor, output: Tensor, logsumexp: Tensor
) -> tuple[Tensor, Tensor]:
    """Copies of output and log-sum-exp with the rows that have suspects recomputed."""
    output, logsumexp = output.clone(), logsumexp.clone()
    b, h, _, k = call.sizes
    height = max(1, CHUNK // (b * h * k))
    for first, last in runs(suspects.flatten(0, 1).any(0).nonzero().flatten().numpy()):
        for start in range(first, last, height):
            rows = slice(start, min(start + height, last))
            scores = call.scores(rows, slice(0, k))
            output[:, :, rows] = weighted_sum(masked_softmax(scores), call.v).to(output.dtype)
            logsumexp[:, :, rows] = scores.logsumexp(-1)
    return output, logsumexp
