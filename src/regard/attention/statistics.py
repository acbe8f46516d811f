"""Statistics of attention weights, from blocks of scores of bounded size.

The weights exist one block at a time, as exp(score − log-sum-exp); the whole matrix never does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.attention.call import Call, Span, shift
from regard.attention.kernels import native, select

HEIGHT, WIDTH, SPAN = 128, 64, 2**22
"""Queries in a block, keys in a block, and how many scores are held at once."""
LARGE = {torch.float32: 2.0**10, torch.float64: 2.0**20}
"""From this log-sum-exp on, its last digit is worth 10⁻⁴ of a weight, in float64 10⁻¹⁰."""


class WeightStatistics:
    """Top keys, entropies and column sums of the weights of a call.

    Args:
        call: the call, without gradients.
        logsumexp: that of each row ``(b, h, q)``; computed when needed if None.
        sink: per query, a further score that takes its share of the softmax.
    """

    def __init__(
        self,
        call: Call,
        logsumexp: Float[Tensor, "b h q"] | None,
        sink: Float[Tensor, "b h q"] | None,
    ) -> None:
        self._call, self._sink = call, sink
        self._native_result: native.Statistics | None = None
        if logsumexp is not None:
            self.logsumexp = logsumexp

    @cached_property
    def logsumexp(self) -> Float[Tensor, "b h q"]:
        """Per query, the log-sum-exp of its scores; -inf if it sees no key."""
        call = self._call.reduced()
        total = torch.full(call.sizes[:3], -torch.inf, dtype=call.work, device=call.q.device)
        for rows, _, scores in _score_blocks(call):
            total[:, :, rows] = torch.logaddexp(total[:, :, rows], scores.logsumexp(-1))
        return total if self._sink is None else torch.logaddexp(total, self._sink)

    def top(self, n: int) -> tuple[Float[Tensor, "b h q n"], Int64[Tensor, "b h q n"]]:
        """The n largest weights of each query and their keys; weight 0 and key -1 if fewer."""
        known = self._native(n)
        if known is not None:
            exps = torch.exp(known.scores - shift(known.highest).unsqueeze(-1))
            weights = exps / known.total.unsqueeze(-1)
            return weights.masked_fill(known.keys < 0, 0.0)[..., :n], known.keys[..., :n]
        call = self._call.reduced()
        sizes = (*call.sizes[:3], n)
        values = torch.zeros(sizes, dtype=call.work, device=call.q.device)
        keys = torch.full(sizes, -1, dtype=torch.int64, device=call.q.device)
        for rows, spans in _blocks(call):
            found, at = values[:, :, rows, :0], keys[:, :, rows, :0]
            for span in spans:
                scores = call.span(rows, span)
                more, places = scores.topk(min(n, scores.shape[-1]), -1)
                found = torch.cat([found, more], -1)
                at = torch.cat([at, places + span.cols.start], -1)
                if found.shape[-1] > n:
                    found, order = found.topk(n, -1)
                    at = at.gather(-1, order)
            found, order = found.sort(-1, descending=True)
            size = found.shape[-1]
            values[:, :, rows, :size] = torch.exp(self._log_weights(found, rows))
            at = at.gather(-1, order).masked_fill(found == -torch.inf, -1)
            keys[:, :, rows, :size] = at
        return values, keys

    def entropy(self) -> Float[Tensor, "b h q"]:
        """The entropy of each row of weights, in nats.

        Without native code, it is the log-sum-exp minus the mean score, and the mean score is the
        product of the query with the mean key: attention once more, with keys as values.
        """
        known = self._native(0)
        if known is not None:
            return known.entropy
        call = self._call.reduced()
        plain = call.bias is None and self._sink is None
        if call.factor is not None and plain and self._large is None:
            q, k = call.q.to(call.work), call.k.to(call.work)
            again = dataclasses.replace(call, q=q, k=k, v=k, dropout=0.0)
            mean_key, _ = select(again, "auto").run(again, logsumexp=False)
            mean = (q * mean_key).sum(-1) * call.factor
            entropy = (self.logsumexp - mean).clamp_(min=0.0)
        else:
            entropy = torch.zeros_like(self.logsumexp)
            for rows, _, scores in _score_blocks(call):
                logs = self._log_weights(scores, rows)
                weights = logs.exp()
                entropy[:, :, rows] -= (weights * logs.masked_fill(weights == 0, 0.0)).sum(-1)
        return entropy.masked_fill_(self.logsumexp == -torch.inf, 0.0)

    def received(self) -> Float[Tensor, "b h k"]:
        """Per key, the sum over the queries of its weights."""
        call = self._call.reduced()
        b, h, _, k = call.sizes
        sums = torch.zeros(b, h, k, dtype=call.work, device=call.q.device)
        for rows, span, scores in _score_blocks(call):
            sums[:, :, span.cols] += self._log_weights(scores, rows).exp_().sum(-2)
        return sums

    def _native(self, count: int) -> native.Statistics | None:
        """The statistics by native code, with `count` top keys; None if it cannot do the call."""
        if self._sink is not None or native.supports(self._call) is not None:
            return None
        if self._call.mask is not None and self._call.mask.in_few_rows:
            return None  # native code would materialize the mask, queries × keys
        if self._native_result is None or self._native_result.scores.shape[-1] < count:
            self._native_result = native.statistics(self._call, count)
        return self._native_result

    @cached_property
    def _large(self) -> tuple[Float[Tensor, "b h q"], Float[Tensor, "b h q"]] | None:
        """Each row's largest score, and its log-sum-exp less that, where scores are `LARGE`.

        None where they are not: there the log-sum-exp itself is precise enough.
        """
        finite = self.logsumexp[self.logsumexp.isfinite()]
        if not finite.numel() or float(finite.abs().max()) < LARGE[self._call.work]:
            return None
        call = self._call.reduced()
        highest = torch.full_like(self.logsumexp, -torch.inf)
        for rows, _, scores in _score_blocks(call):
            highest[:, :, rows] = torch.maximum(highest[:, :, rows], scores.amax(-1))
        total = torch.zeros_like(self.logsumexp)
        if self._sink is not None:
            highest = torch.maximum(highest, self._sink)
            total += torch.exp(self._sink - highest)
        for rows, _, scores in _score_blocks(call):
            total[:, :, rows] += (scores - shift(highest[:, :, rows, None])).exp_().sum(-1)
        return highest, total.log_().masked_fill_(highest == -torch.inf, 0.0)

    def _log_weights(
        self, scores: Float[Tensor, "b h r c"], rows: slice
    ) -> Float[Tensor, "b h r c"]:
        """The logarithms of the weights that belong to these scores."""
        if self._large is None:
            return scores - shift(self.logsumexp[:, :, rows, None])
        highest, rest = (x[:, :, rows, None] for x in self._large)
        return scores - shift(highest) - rest


def _blocks(call: Call) -> Iterator[tuple[slice, list[Span]]]:
    b, h, _, _ = call.sizes
    rows = max(b * h, 1)
    height = max(1, min(HEIGHT, SPAN // (rows * WIDTH)))
    return call.blocks(height, WIDTH, max(SPAN // (rows * height) // WIDTH, 1) * WIDTH)


def _score_blocks(call: Call) -> Iterator[tuple[slice, Span, Float[Tensor, "b h r c"]]]:
    """All scores that the mask allows, a block at a time."""
    for rows, spans in _blocks(call):
        for span in spans:
            yield rows, span, call.span(rows, span)
