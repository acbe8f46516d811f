"""Attention in a single block, for batches of sentences: on a CPU nothing is faster.

Three plain lines, of which autograd knows the gradient; and where none is wanted, the same in
scratch memory, by exponentials from which no row's largest score was subtracted first.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention._call import Call, unreadable, weighted_sum
from regard.attention._exponentials import all_near, near
from regard.attention.masks import Mask

SCRATCH = 2**19
"""So many scores are held at once where nothing is kept: what fits into the caches."""


def one_block(call: Call, logsumexp: bool) -> tuple[Tensor, Tensor | None]:
    """All at once, in operations that torch can differentiate and trace."""
    rows, cols = call.whole()
    scores = call.raw(call.q, call.k, rows, cols)
    mask = call.mask_block(rows, cols)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)  # in place, its gradient would be slow
    weights = torch.softmax(scores, -1)
    if unreadable(weights) or bool(weights.detach()[..., 0].isnan().any()):
        nothing = (scores == -torch.inf).all(-1, keepdim=True)
        weights = torch.softmax(scores.masked_fill(nothing, 0.0), -1).masked_fill(nothing, 0.0)
    weights = torch.dropout(weights, call.dropout, call.dropout > 0)
    output = weighted_sum(weights, call.v).to(call.v.dtype)
    return output, scores.detach().logsumexp(-1) if logsumexp else None


def in_turn(call: Call, logsumexp: bool) -> tuple[Tensor, Tensor | None]:
    """Some batch entries at a time, all in the same small scratch memory.

    Fresh memory for every step would cost more than the arithmetic.
    """
    b, h, n, m = call.sizes
    q, k, v = _side_by_side(call)
    output = v.new_empty(*q.shape[:2], v.shape[2])
    sums = q.new_empty(*q.shape[:2], 1) if logsumexp else None
    some = min(b, max(1, SCRATCH // (h * n * m)))
    g = call.k.shape[1]
    scratch = _scratch((some * g, q.shape[1], m), call.work, q.device)
    bias, seen = _bias(call), _seen(call)
    for start in range(0, b, some):
        entries = slice(start, min(start + some, b))
        part = slice(start * g, entries.stop * g)
        weights = scratch[: part.stop - part.start]
        terms = [x if x is None or len(x) == 1 else x[entries] for x in (bias, seen)]
        total, true_sums = _weigh(call, q[part], k[part], terms[0], terms[1], weights)
        torch.bmm(weights, v[part], out=output[part]).div_(total)
        if sums is not None:
            sums[part] = total.log_() if true_sums is None else true_sums
    output = output.view(b, h, n, -1).to(call.v.dtype)
    return output, None if sums is None else sums.view(b, h, n)


def _side_by_side(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as batches of matrices, the heads that share keys in one of them."""
    b, g, m, _ = call.k.shape
    q = call.q.to(call.work).reshape(b * g, -1, call.q.shape[-1])
    k = call.k.to(call.work).reshape(b * g, m, -1)
    return q, k, call.v.to(call.work).reshape(b * g, m, -1)


def _weigh(
    call: Call,
    q: Float[Tensor, "bg r d"],
    k: Float[Tensor, "bg k d"],
    bias: Tensor | None,
    seen: Tensor | None,
    weights: Float[Tensor, "bg r k"],
) -> tuple[Float[Tensor, "bg r 1"], Float[Tensor, "bg r 1"] | None]:
    """Weights that are still to be divided by their sums, the sums, and the log-sum-exp.

    While no score is far from 0, exp() needs no row's maximum, and costs less than half of a
    softmax; then the log-sum-exp is the logarithm of the sums, and not returned. What is hidden is
    taken out afterwards, for exp(-inf) is slow.
    """
    g, n = call.k.shape[1], call.sizes[2]
    grouped = weights.view(-1, g, weights.shape[1] // n, n, weights.shape[2])
    _multiply(call, q, k, bias, grouped)
    weights.exp_()
    if seen is not None:
        grouped.mul_(seen)
    total = weights.sum(-1, keepdim=True)
    if all_near(total):  # neither NaN, nor nothing to see
        return total, None
    # Once more: rows that are far from 0 in another way, and no row by what it does not see.
    _multiply(call, q, k, bias, grouped)
    if seen is not None:
        grouped.masked_fill_(seen == 0, -torch.inf)
    sums = weights.logsumexp(-1, keepdim=True)
    plain = torch.softmax(weights, -1).masked_fill_(sums == -torch.inf, 0.0)
    total = weights.exp_().sum(-1, keepdim=True)
    reliable = near(total)
    weights.copy_(torch.where(reliable, weights, plain))
    return total.masked_fill(~reliable, 1.0), torch.where(reliable, total.log(), sums)


def _multiply(
    call: Call,
    q: Float[Tensor, "bg r d"],
    k: Float[Tensor, "bg k d"],
    bias: Tensor | None,
    scores: Float[Tensor, "b g _ q k"],
) -> None:
    """factor · q·k, and the bias added."""
    assert call.factor is not None
    if bias is not None:
        scores.copy_(bias)
    flat = scores.view(len(q), -1, scores.shape[-1])
    torch.baddbmm(flat, q, k.mT, beta=int(bias is not None), alpha=call.factor, out=flat)


def _told_of() -> bool:
    """Whether somebody is told of torch's operations, and may put other tensors in their place.

    Such tensors must not be kept for later calls, nor given to them what was kept.
    """
    return torch._C._len_torch_dispatch_stack() > 0


_kept = threading.local()


def _scratch(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory that this thread keeps from call to call, 2 MiB in float32."""
    wanted = (size, dtype, device)
    if _told_of():
        return torch.empty(size, dtype=dtype, device=device)
    if getattr(_kept, "wanted", None) == wanted:
        return _kept.block  # type: ignore[no-any-return]
    count = prod(size)
    memory = getattr(_kept, "memory", None)
    if memory is None or (memory.dtype, memory.device) != wanted[1:] or len(memory) < count:
        with torch.inference_mode(False):
            memory = torch.empty(max(count, SCRATCH), dtype=dtype, device=device)
    with torch.inference_mode(False):
        block = memory[:count].view(size)
    if count <= SCRATCH:
        _kept.memory, _kept.wanted, _kept.block = memory, wanted, block
    return block


def _bias(call: Call) -> Float[Tensor, "#b #g _ _ _"] | None:
    """The bias, ready to be copied under the scores of `in_turn`."""
    bias = call.bias_block(*call.whole())
    return None if bias is None else _grouped(bias, call.k.shape[1])


def _seen(call: Call) -> Float[Tensor, "#b #g _ _ _"] | None:
    """The mask as factors 0 and 1, ready to be multiplied with the exponentials of `in_turn`."""
    if call.mask is None:
        return None
    rows, cols = call.whole()
    if call.mask.relative:
        distances = _distances.__wrapped__ if _told_of() else _distances
        return distances(call.mask, rows.stop, cols.stop, call.work, call.q.device)
    seen = call.mask_block(rows, cols)
    assert seen is not None
    return _grouped(seen.to(call.work), call.k.shape[1])


def _grouped(term: Tensor, groups: int) -> Float[Tensor, "#b #g _ _ _"]:
    """What is broadcastable to ``(b, h, q, k)``, with the heads that share a key head apart."""
    term = term.reshape((1,) * (4 - term.dim()) + tuple(term.shape))
    heads = (1, 1) if term.shape[1] == 1 else (groups, term.shape[1] // groups)
    return term.view(term.shape[0], *heads, *term.shape[2:])


@lru_cache(maxsize=16)
def _distances(
    mask: Mask, q: int, k: int, dtype: torch.dtype, device: torch.device
) -> Float[Tensor, "1 1 1 q k"]:
    """A mask that depends on distances alone as factors, the last few of them kept."""
    with torch.inference_mode(False):
        return mask.block(slice(0, q), slice(0, k), q, k, device).to(dtype)[None, None, None]
