"""Attention block by block: every score, mask and bias, in memory linear in the length.

Each block of queries attends to the spans of keys that the mask allows. Every span has its own
softmax and log-sum-exp; two spans are merged by weighting each with its share of the joint
log-sum-exp (the online softmax of Milakov & Gimelshein 2018, as in Rabe & Staats 2021 and Dao et
al. 2022). The backward pass recomputes the weights from the largest score and the total of each
row.
"""

from __future__ import annotations

import dataclasses
from math import isnan
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.attention.call import (
    Call,
    Span,
    masked_logsumexp,
    masked_softmax,
    shift,
    weighted_sum,
)
from regard.attention.tracing import values_unavailable

HEIGHT, WIDTH = 128, 64
"""Queries and keys in a block, the granularity at which masked blocks are skipped."""
SPAN = 2**20
"""The number of scores held at once for a block of queries and one span of keys."""
PAIRWISE = 32
"""The divisor of these sizes for other scores than dot products, which need more per pair."""


def supports(call: Call) -> str | None:
    """Why the kernel cannot run this call; None if it can."""
    if values_unavailable(*call.tensors):
        return "it reads values, which are not available while a call is traced or transformed"
    return None


def run(call: Call, logsumexp: bool) -> tuple[Float[Tensor, "b h q e"], Tensor | None]:
    """Output, and the row log-sum-exp if it is requested."""
    call = call.reduced()
    if torch.is_grad_enabled():
        call = dataclasses.replace(call, score=_bound(call.score), bias=_bound(call.bias))
    b, h, q, k = call.sizes
    if q == 0 or k == 0 or b == 0:
        nothing = call.v.new_full((b, h, q), -torch.inf, dtype=call.work)
        zero = sum(x[:, :, :0].sum() for x in (call.q, call.k, call.v))  # keeps the graph
        return call.v.new_zeros(b, h, q, call.v.shape[-1]) + zero, nothing
    memory_divisor = 1 if call.factor is not None else PAIRWISE
    entries = max(1, SPAN // memory_divisor // (h * min(q, HEIGHT) * min(k, 8 * WIDTH)))
    if b <= entries:
        return _many_blocks(call, memory_divisor, logsumexp)
    parts = []
    for i, (q_part, k_part, v_part) in enumerate(
        zip(*(torch.split(x, entries) for x in (call.q, call.k, call.v)), strict=True)
    ):  # one split has a cheaper gradient than many slices
        some, mask, bias = slice(i * entries, (i + 1) * entries), call.mask, call.bias
        if mask is not None:
            mask = mask.take(some)
        if isinstance(bias, Tensor) and bias.shape[0] > 1:
            bias = bias[some]
        group = dataclasses.replace(call, q=q_part, k=k_part, v=v_part, mask=mask, bias=bias)
        parts.append(_many_blocks(group, memory_divisor, logsumexp))
    sums = [part[1] for part in parts if part[1] is not None]
    return torch.cat([part[0] for part in parts]), torch.cat(sums) if sums else None


def _bound(part: Any) -> Any:
    """A module as a copy with the tensors that it has now; anything else itself.

    The backward pass calls scores and biases again. By then `torch.func.functional_call` has given
    the module its own parameters back.
    """
    if not isinstance(part, nn.Module):
        return part
    copied = part.__new__(type(part))
    copied.__dict__ = part.__dict__.copy()
    copied._parameters, copied._buffers = part._parameters.copy(), part._buffers.copy()
    copied._modules = {name: _bound(child) for name, child in part._modules.items()}
    return copied


def _many_blocks(call: Call, memory_divisor: int, logsumexp: bool) -> tuple[Tensor, Tensor | None]:
    """Output and log-sum-exp; the gradient needs no more memory than the output."""
    if call.needs_grad and _has_parameters(call):
        return _checkpointed(call, memory_divisor)
    totals = logsumexp or call.needs_grad
    seed = torch.randint(2**62, ()) if call.dropout else torch.zeros((), dtype=torch.int64)
    bias = call.bias if isinstance(call.bias, Tensor) else None
    output, sums = _Blocks.apply(  # type: ignore[no-untyped-call]
        call.detached(), memory_divisor, totals, seed, call.q, call.k, call.v, bias
    )
    return output, sums if totals else None


class _Blocks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        call: Call,
        memory_divisor: int,
        totals: bool,
        seed: Int64[Tensor, ""],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        b, h, n, _ = q.shape
        output = torch.zeros(b, h, n, v.shape[-1], dtype=v.dtype, device=v.device)
        highest = torch.full((b, h, n), -torch.inf, dtype=call.work, device=v.device)
        total = torch.zeros_like(highest)
        for rows, spans in _blocks(call, memory_divisor):
            block: Part | None = None
            alone = len(spans) == 1 and not totals
            for span in spans:
                part = _attend_to(call, rows, span, _keep(call, seed, rows, span), alone)
                block = part if block is None else _merge(block, part)
            if block is not None:
                output[:, :, rows] = block.output
            if block is not None and totals:
                highest[:, :, rows], total[:, :, rows] = block.highest, block.total
        ctx.call, ctx.memory_divisor = call, memory_divisor
        ctx.save_for_backward(seed, q, k, v, bias, output, highest, total)
        logsumexp = torch.where(highest == torch.inf, torch.inf, highest + total.log())
        ctx.set_materialize_grads(False)
        return output, logsumexp

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor | None, grad_sums: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        if grad is None:
            grad = torch.zeros_like(ctx.saved_tensors[5])
        if torch.is_grad_enabled() and not ctx.call.dropout:
            return None, None, None, None, *_differentiable(ctx, grad, grad_sums)
        return _Blocks._in_blocks(ctx, grad, grad_sums)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def _in_blocks(ctx: Any, grad: Tensor, grad_sums: Tensor | None) -> tuple[Tensor | None, ...]:
        seed, q, k, v, bias, output, highest, total = ctx.saved_tensors
        call: Call = dataclasses.replace(ctx.call, q=q, k=k, v=v)
        inputs = (q, k, v, bias)
        sums: list[Tensor | None] = [
            torch.zeros_like(x, dtype=call.work) if want else None
            for x, want in zip(inputs, ctx.needs_input_grad[4:], strict=True)
        ]
        highest = shift(highest)
        share = total.reciprocal().masked_fill_(total == 0, 0.0)
        for rows, spans in _blocks(call, ctx.memory_divisor):
            grad_rows = grad[:, :, rows].to(call.work)
            inner = (grad_rows * output[:, :, rows]).sum(-1, keepdim=True)
            if grad_sums is not None:
                inner -= grad_sums[:, :, rows, None]
            for span in spans:
                keep = _keep(call, seed, rows, span)
                norm = highest[:, :, rows, None], share[:, :, rows, None]
                _backward_to(call, rows, span, keep, grad_rows, inner, norm, sums)
        grads = [None if s is None else s.to(x.dtype) for s, x in zip(sums, inputs, strict=True)]
        return (None, None, None, None, *grads)


def _differentiable(ctx: Any, grad: Tensor, grad_sums: Tensor | None) -> list[Tensor | None]:
    """The gradients of q, k, v and bias by differentiable operations, of all scores at once."""
    # Views: one tensor may be passed as several arguments, whose gradients are separate.
    given: list[Any] = [None if x is None else x.view_as(x) for x in ctx.saved_tensors[1:5]]
    q, k, v, bias = given
    call: Call = dataclasses.replace(
        ctx.call, q=q, k=k, v=v, bias=ctx.call.bias if bias is None else bias
    )
    wanted = [x if want else None for x, want in zip(given, ctx.needs_input_grad[4:], strict=True)]
    asked = [x for x in wanted if x is not None]
    scores = call.scores(*call.whole())
    weights = masked_softmax(scores)
    outputs, grads = [weighted_sum(weights, call.v).to(call.v.dtype)], [grad]
    if grad_sums is not None:
        outputs, grads = [*outputs, scores.logsumexp(-1)], [grad, grad_sums]
    found = iter(torch.autograd.grad(outputs, asked, grads, create_graph=True))
    return [None if x is None else next(found) for x in wanted]


def _blocks(call: Call, memory_divisor: int) -> Any:
    """Blocks of queries, and the spans of keys for each."""
    b, h, _, _ = call.sizes
    height = HEIGHT if memory_divisor == 1 else WIDTH
    most = max(SPAN // memory_divisor // (b * h * height) // WIDTH, 1) * WIDTH
    return call.blocks(height, WIDTH, most)


class Part(NamedTuple):
    """Attention of a block of queries to one or more spans, which can be merged with others."""

    output: Float[Tensor, "b h r e"]
    highest: Float[Tensor, "b h r"]
    """The largest score of each row; -inf if all keys are masked."""
    total: Float[Tensor, "b h r"]
    """The sum of exp(score - highest)."""


def _attend_to(call: Call, rows: slice, span: Span, keep: Tensor | None, alone: bool) -> Part:
    """Attention of a block of queries to one span of keys.

    If it is the only span and only the output is requested, the totals are left empty.
    """
    scores = call.span(rows, span)
    weights = torch.softmax(scores, -1)
    highest = total = scores.new_empty(0)
    if isnan(weights[..., 0].sum().item()):
        weights = masked_softmax(scores)
    if not alone:
        highest = scores.amax(-1)
        total = weights.amax(-1).reciprocal_().masked_fill_(highest == -torch.inf, 0.0)
    if keep is not None:
        weights *= keep
    return Part(weighted_sum(weights, call.v[:, :, span.cols]), highest, total)


def _merge(one: Part, other: Part) -> Part:
    """Attention to both of two spans, from attention to each."""
    highest = torch.maximum(one.highest, other.highest)
    norm = shift(highest)
    totals = [part.total * torch.exp(part.highest - norm) for part in (one, other)]
    total = totals[0] + totals[1]
    whole = total.masked_fill(total == 0, 1.0)
    shares = [(x / whole).unsqueeze(-1) for x in totals]
    return Part(one.output * shares[0] + other.output * shares[1], highest, total)


def _backward_to(
    call: Call,
    rows: slice,
    span: Span,
    keep: Tensor | None,
    grad: Float[Tensor, "b h r e"],
    inner: Float[Tensor, "b h r 1"],
    norm: tuple[Float[Tensor, "b h r 1"], Float[Tensor, "b h r 1"]],
    sums: list[Tensor | None],
) -> None:
    """Add the contribution of one block of queries and one span of keys to the gradients."""
    sum_q, sum_k, sum_v, sum_bias = sums
    q = call.q[:, :, rows].detach().requires_grad_(sum_q is not None)
    k = call.k[:, :, span.cols].detach().requires_grad_(sum_k is not None)
    v = call.v[:, :, span.cols].to(call.work)
    with torch.enable_grad():
        raw = call.raw(q, k, rows, span.cols)
    weights = (raw.detach() - norm[0]).exp_().mul_(norm[1])
    weights = call.fill(weights, rows, span, 0.0)
    b, h, r, c = weights.shape
    g = v.shape[1]
    if sum_v is not None:
        kept = weights if keep is None else weights * keep
        sum_v[:, :, span.cols] += torch.bmm(
            kept.reshape(b * g, h // g * r, c).mT, grad.reshape(b * g, h // g * r, -1)
        ).view(b, g, c, -1)
    towards = torch.bmm(grad.reshape(b * g, h // g * r, -1), v.reshape(b * g, c, -1).mT)
    towards = towards.view(b, h, r, c)
    if keep is not None:
        towards *= keep
    grad_scores = towards.sub_(inner).mul_(weights)
    if sum_bias is not None:
        place = sum_bias if sum_bias.shape[2] == 1 else sum_bias[:, :, rows]
        place = place if sum_bias.shape[3] == 1 else place[..., span.cols]
        place += grad_scores.sum_to_size(place.shape)
    if not raw.requires_grad:
        return
    asked = [x for x in (q, k) if x.requires_grad]
    found = iter(torch.autograd.grad(raw, asked, grad_scores, allow_unused=True))
    for sums_of, at in ((sum_q, rows), (sum_k, span.cols)):
        if sums_of is not None and (gradient := next(found)) is not None:
            sums_of[:, :, at] += gradient


def _keep(
    call: Call, seed: Int64[Tensor, ""], rows: slice, span: Span
) -> Float[Tensor, "b h r c"] | None:
    """The dropout factors of a block, a function of the seed and the block."""
    if not call.dropout:
        return None
    b, h, _, k = call.sizes
    generator = torch.Generator().manual_seed(
        (int(seed) + rows.start * k + span.cols.start) % 2**62
    )
    size = (b, h, rows.stop - rows.start, span.cols.stop - span.cols.start)
    keep = torch.empty(size, dtype=call.work).bernoulli_(1 - call.dropout, generator=generator)
    return (keep / (1 - call.dropout)).to(call.q.device)


def _has_parameters(call: Call) -> bool:
    """Whether the score of a pair depends on parameters beside q and k."""
    if call.factor is not None and isinstance(call.bias, Tensor | None):
        return False
    first, call = slice(0, 1), call.detached()
    with torch.enable_grad():
        return call.raw(call.q[:, :, first], call.k[:, :, first], first, first).requires_grad


def _checkpointed(call: Call, memory_divisor: int) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp with activation checkpointing.

    So gradients reach the parameters of any score or bias.
    """
    seed = torch.randint(2**62, ()) if call.dropout else torch.zeros((), dtype=torch.int64)
    parts = [
        checkpoint(_rows, call, seed, rows, spans, use_reentrant=False)
        for rows, spans in _blocks(call, memory_divisor)
    ]
    return torch.cat([part[0] for part in parts], 2), torch.cat([part[1] for part in parts], 2)


def _rows(
    call: Call, seed: Int64[Tensor, ""], rows: slice, spans: list[Span]
) -> tuple[Float[Tensor, "b h r e"], Float[Tensor, "b h r"]]:
    """Attention of a block of queries to all their spans, and its log-sum-exp."""
    if not spans:
        size = (*call.q.shape[:2], rows.stop - rows.start)
        nothing = call.q.new_full(size, -torch.inf, dtype=call.work)
        return call.v.new_zeros(*size, call.v.shape[-1]), nothing
    scores = torch.cat([call.span(rows, span) for span in spans], -1)
    weights = masked_softmax(scores)
    if call.dropout:
        kept = [_keep(call, seed, rows, span) for span in spans]
        weights = weights * torch.cat([one for one in kept if one is not None], -1)
    v = torch.cat([call.v[:, :, span.cols] for span in spans], 2)
    return weighted_sum(weights, v).to(call.v.dtype), masked_logsumexp(scores)
