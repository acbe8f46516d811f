"""`Look`: what attention did, exactly, computed again on demand and never held as a whole.

A look keeps q, k, v and the row log-sum-exp, all linear in the length. Weights, scores, entropies
and top keys are recomputed from them in blocks of bounded size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.attention.call import Call, Span, autocast_disabled, masked_softmax, repeat_kv
from regard.attention.kernels import native, select
from regard.attention.link_effects import link_effects
from regard.attention.masks import Both, Mask
from regard.attention.scores import Scaled, Score
from regard.attention.selection import Which, consecutive, indices
from regard.errors import MemoryLimitError, OptionError, StaleError

if TYPE_CHECKING:
    import pandas

    from regard.view import View

LIMIT = 2**30
"""The bytes that a result may have unless the caller says more."""
HEIGHT, WIDTH, SPAN = 128, 64, 2**22
"""Queries in a block, keys in a block, and how many scores are held at once."""
LARGE = {torch.float32: 2.0**10, torch.float64: 2.0**20}
"""From this log-sum-exp on, its last digit is worth 10⁻⁴ of a weight, in float64 10⁻¹⁰."""
GROUP = 16
"""How many keys stand behind one maximum in the first stage of `Look.top`."""

P = ParamSpec("P")
R = TypeVar("R")


def _exact(method: Callable[P, R]) -> Callable[P, R]:
    """The method of a look, computing without gradients and in the dtypes of the call."""

    @wraps(method)
    def exact(*args: P.args, **kwargs: P.kwargs) -> R:
        look = args[0]
        assert isinstance(look, Look)
        with torch.no_grad(), autocast_disabled(look._of.q.device):
            return method(*args, **kwargs)

    return exact


class Look:
    """The output of a call of attention, and everything that led to it.

    Shapes are those of the call; ``(…, h, q, d)`` below stands for ``(q, d)`` or ``(b, q, d)``
    where the call was made so. Nothing here has a gradient but `output`.
    """

    output: Float[Tensor, "*bh q e"]
    """What `attend` returns, bit for bit."""
    output_gradient: Float[Tensor, "*bh q e"] | None = None
    """Gradient of the metric with respect to `output`; set by ``watch(model, gradients=True)``
    once the metric's backward pass has run."""
    weights_gradient: Float[Tensor, "*bh q k"] | None = None
    """The same with respect to the weights, where the model writes attention out by itself."""
    sink: Float[Tensor, "b h q"] | None = None
    """Per query, a further score whose share of the softmax goes to no key (an attention sink)."""

    def __init__(self, call: Call, output: Tensor, logsumexp: Tensor | None) -> None:
        self._of = call
        self._versions = _versions(call)
        self._large: tuple[Tensor, Tensor] | None = None
        self._found: native.Statistics | None = None
        self._logsumexp = None if logsumexp is None else logsumexp.detach()
        self.output = call.restore(output)

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        if "_of" in state:  # changes are counted anew
            self._versions = _versions(self._of)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Batch (all leading axes together), heads, queries, keys."""
        return self._of.sizes

    @property
    def has_vectors(self) -> bool:
        """Whether queries, keys and values are known, and not only the weights."""
        return True

    @property
    def q(self) -> Float[Tensor, "*bh q d"]:
        """The queries."""
        return self._call.restore(self._call.q)

    @property
    def k(self) -> Float[Tensor, "*bg k d"]:
        """The keys."""
        return self._call.restore(self._call.k)

    @property
    def v(self) -> Float[Tensor, "*bg k e"]:
        """The values."""
        return self._call.restore(self._values)

    @property
    def _values(self) -> Float[Tensor, "b g k e"]:
        return self._call.v

    @property
    def logsumexp(self) -> Float[Tensor, "*bh q"]:
        """Per query, the log of the sum of the exponentials of its scores; -inf if it sees none."""
        return self._call.restore(self._lse)

    @property
    def score(self) -> Score:
        """How queries were compared with keys."""
        return self._call.score

    @_exact
    def compared(
        self,
        queries: Which = None,
        heads: Which = None,
        *,
        scaled: bool = False,
        limit: int = LIMIT,
    ) -> Float[Tensor, "*bh q k"]:
        """Queries compared with keys, and nothing else yet: no bias, no mask, scaled or not."""
        unscaled = not scaled and self._call.factor is not None
        score = Scaled(1.0) if unscaled else self._call.score
        bare = dataclasses.replace(self._call, mask=None, bias=None, score=score)
        return self._call.restore(self._rows("compared", bare, queries, heads, limit))

    @_exact
    def scores(
        self, queries: Which = None, heads: Which = None, *, limit: int = LIMIT
    ) -> Float[Tensor, "*bh q k"]:
        """What entered the softmax: scaled, bias added, masked places -inf."""
        return self._call.restore(self._rows("scores", self._call, queries, heads, limit))

    @_exact
    def weights(
        self, queries: Which = None, heads: Which = None, *, limit: int = LIMIT
    ) -> Float[Tensor, "*bh q k"]:
        """Exactly the weights of these queries and heads (all, if not said), before dropout.

        Each row sums to 1, or is 0 where there was nothing to see. A result of more than `limit`
        bytes raises instead.
        """
        return self._call.restore(self._softmax("weights", queries, heads, limit))

    @_exact
    def contributions(
        self, queries: Which = None, heads: Which = None, *, limit: int = LIMIT
    ) -> Float[Tensor, "*bh q k"]:
        """Weight times the length of the value vector: how much of the output came from each key.

        Kobayashi et al., "Attention is Not Only a Weight", 2020.
        """
        call = self._call
        lengths = torch.linalg.vector_norm(self._values.to(call.work), dim=-1, keepdim=True)
        lengths = repeat_kv(lengths, call.q.shape[1])[:, indices(heads, call.q.shape[1], "heads")]
        weights = self._softmax("contributions", queries, heads, limit)
        return call.restore(weights * lengths.mT)

    @_exact
    def effects(
        self, queries: Which = None, heads: Which = None, *, limit: int = LIMIT
    ) -> Float[Tensor, "*bh q k"]:
        """For each link, how cutting it would change the metric, to first order: M(cut) - M.

        Needs the gradient of a backward pass; see `regard.attention.link_effects` for the formula.
        """
        scores = self._rows("effects", self._call, queries, heads, limit)
        gradient = self.gradient_of_weights(queries, heads)
        gradient = gradient.reshape(scores.shape)
        if self._sinks is not None:  # one more key, of value 0
            scores = self._with_sink(scores, queries, heads)
            gradient = torch.nn.functional.pad(gradient, (0, 1))
            return self._call.restore(link_effects(scores, gradient)[1][..., :-1])
        return self._call.restore(link_effects(scores, gradient)[1])

    @_exact
    def gradient_of_weights(
        self, queries: Which = None, heads: Which = None
    ) -> Float[Tensor, "*bh q k"]:
        """The gradient of the metric with respect to each weight: that of its output · value."""
        call = self._call
        if self.weights_gradient is not None:
            rows = self.weights_gradient.reshape(call.sizes)
            rows = rows[:, indices(heads, call.sizes[1], "heads")]
            return call.restore(rows[:, :, indices(queries, call.sizes[2], "queries")])
        if self.output_gradient is None:
            raise OptionError(
                "effects: there is no gradient of the output; run the model and call backward() "
                "inside `with regard.watch(model, gradients=True)`"
            )
        b, h, q, _ = call.sizes
        chosen = indices(heads, h, "heads")
        g = self.output_gradient.reshape(b, h, q, -1).to(call.work)[:, chosen]
        g = g[:, :, indices(queries, q, "queries")]
        return call.restore(g @ repeat_kv(self._values.to(call.work), h)[:, chosen].mT)

    @_exact
    def top(self, n: int) -> tuple[Float[Tensor, "*bh q n"], Int64[Tensor, "*bh q n"]]:
        """For every query its n largest weights, largest first, and the keys they belong to.

        Masked or missing places have weight 0 and key -1.
        """
        call = self._call.reduced()
        b, h, q, k = call.sizes
        if not 1 <= n <= k:
            raise OptionError(f"top: n={n}, expected 1 to k={k}")
        known = self._statistics(n)
        if known is not None:
            weights = torch.exp(known.scores - _norm(known.highest)) / known.total.unsqueeze(-1)
            weights = weights.masked_fill(known.keys < 0, 0.0)
            return self._call.restore(weights[..., :n]), self._call.restore(known.keys[..., :n])
        values = torch.zeros(b, h, q, n, dtype=call.work, device=call.q.device)
        places = torch.full((b, h, q, n), -1, dtype=torch.int64, device=call.q.device)
        for rows, spans in self._blocks(call):
            best: tuple[Tensor, Tensor] | None = None
            for span in spans:
                found, at = _top_of(call.span(rows, span), n)
                at = at + span.cols.start
                if best is not None:
                    found, at = torch.cat([best[0], found], -1), torch.cat([best[1], at], -1)
                best = found, at
                if found.shape[-1] > n:
                    found, order = found.topk(n, -1)
                    best = found, at.gather(-1, order)
            if best is None:
                continue
            found, order = best[0].sort(-1, descending=True)
            size = found.shape[-1]
            values[:, :, rows, :size] = torch.exp(self._log_weights(found, rows))
            at = best[1].gather(-1, order).masked_fill(found == -torch.inf, -1)
            places[:, :, rows, :size] = at
        return self._call.restore(values), self._call.restore(places)

    @_exact
    def entropy(self) -> Float[Tensor, "*bh q"]:
        """Per query, how spread out its weights are, in nats: 0 for one key, log k for all alike.

        Where there is no native code, the mean of -log weight is the log-sum-exp minus the mean
        score, and the mean score is the product of the query with the mean key: attention once
        more, with keys for values.
        """
        found = self._statistics(0)
        if found is not None:
            return self._call.restore(found.entropy)
        call = self._call.reduced()
        plain = call.bias is None and self._sinks is None
        if call.factor is not None and plain and self._shift is None:
            q, k = call.q.to(call.work), call.k.to(call.work)
            again = dataclasses.replace(call, q=q, k=k, v=k, dropout=0.0)
            mean_key, _ = select(again, "auto").run(again, logsumexp=False)
            mean = (q * mean_key).sum(-1) * call.factor
            entropy = (self._lse - mean).clamp_(min=0.0)
        else:
            entropy = torch.zeros_like(self._lse)
            for rows, _, logs in self._blocks_of_logs(call):
                weights = logs.exp()
                entropy[:, :, rows] -= (weights * logs.masked_fill(weights == 0, 0.0)).sum(-1)
        return self._call.restore(entropy.masked_fill_(self._lse == -torch.inf, 0.0))

    @_exact
    def received(self) -> Float[Tensor, "*bh k"]:
        """Per key, the sum over the queries of the weight it was given, for each query head."""
        call = self._call.reduced()
        b, h, _, k = call.sizes
        sums = torch.zeros(b, h, k, dtype=call.work, device=call.q.device)
        for _, span, logs in self._blocks_of_logs(call):
            sums[:, :, span.cols] += logs.exp_().sum(-2)
        return self._call.restore(sums)

    def view(self, words: Sequence[str], keys: Sequence[str] | None = None) -> View:
        """The weights to look at, with a word for each query, and for each key if others."""
        from regard.view import attention_view

        return attention_view(self, words, keys)

    def to_frame(
        self, words: Sequence[str] | None = None, keys: Sequence[str] | None = None
    ) -> pandas.DataFrame:
        """One row for each weight: batch entry, head, query, key, weight. Needs pandas.

        Words, if they are given, take the place of the numbers of queries and keys.
        """
        import pandas

        weights = self.weights().detach().float().cpu()
        weights = weights.reshape(*(1,) * (4 - weights.dim()), *weights.shape)
        weights = weights.reshape(-1, *weights.shape[-3:])
        entry, head, query, key = (x.flatten().tolist() for x in _places(weights))
        columns = words if keys is None else keys
        return pandas.DataFrame(
            {
                "entry": entry,
                "head": head,
                "query": query if words is None else [words[i] for i in query],
                "key": key if columns is None else [columns[i] for i in key],
                "weight": weights.flatten().tolist(),
            }
        )

    def __repr__(self) -> str:
        _, h, q, k = self._call.sizes
        seen = "" if self._call.mask is None else f", mask={self._call.mask!r}"
        return f"Look({h} heads, {q} queries, {k} keys{seen})"

    @property
    def _call(self) -> Call:
        """The call that was looked at, if it still is what it was."""
        if _versions(self._of) != self._versions:
            raise StaleError(
                "Look: a tensor of the call was changed in place after it was looked at, so its "
                "weights are gone; ask before the change, or look at a clone"
            )
        return self._of

    @property
    @_exact
    def _lse(self) -> Float[Tensor, "b h q"]:
        if self._logsumexp is None:
            call = self._call.reduced()
            b, h, q, _ = call.sizes
            total = torch.full((b, h, q), -torch.inf, dtype=call.work, device=call.q.device)
            for rows, spans in self._blocks(call):
                for span in spans:
                    part = call.span(rows, span).logsumexp(-1)
                    total[:, :, rows] = torch.logaddexp(total[:, :, rows], part)
            sink = self._sinks
            self._logsumexp = total if sink is None else torch.logaddexp(total, sink)
        return self._logsumexp

    @property
    def _sinks(self) -> Float[Tensor, "b h q"] | None:
        """The score of the sink for each query: that of its head, or one of its own."""
        sink = self._of.sink
        if self.sink is not None or sink is None:
            return self.sink
        b, _, q, _ = self.sizes
        return sink[:, None].expand(b, len(sink), q)

    def _with_sink(self, scores: Tensor, queries: Which, heads: Which) -> Tensor:
        """Rows of scores, and behind them the score of the sink."""
        sink = self._sinks
        assert sink is not None
        _, h, q, _ = self.sizes
        rows, chosen = indices(queries, q, "queries"), indices(heads, h, "heads")
        return torch.cat([scores, sink[:, chosen][:, :, rows, None].to(scores.dtype)], -1)

    def _statistics(self, count: int) -> native.Statistics | None:
        """Of every row, from native code if that can do the call; kept until more is asked for."""
        if self._sinks is not None or native.supports(self._call) is not None:
            return None
        if _in_few_rows(self._call.mask):  # which native code would write out, queries × keys
            return None
        if self._found is None or self._found.scores.shape[-1] < count:
            self._found = native.statistics(self._call, count)
        return self._found

    def _blocks(self, call: Call) -> Iterator[tuple[slice, list[Span]]]:
        b, h, _, _ = call.sizes
        rows = max(b * h, 1)
        height = max(1, min(HEIGHT, SPAN // (rows * WIDTH)))
        return call.blocks(height, WIDTH, max(SPAN // (rows * height) // WIDTH, 1) * WIDTH)

    @property
    def _shift(self) -> tuple[Tensor, Tensor] | None:
        """Where scores are so large that the log-sum-exp rounds them off: the largest score of
        each row, and the log-sum-exp of the scores less that; None where they are not."""
        finite = self._lse[self._lse.isfinite()]
        if not finite.numel() or float(finite.abs().max()) < LARGE[self._call.work]:
            return None
        if self._large is None:
            call = self._call.reduced()
            highest = torch.full_like(self._lse, -torch.inf)
            for rows, spans in self._blocks(call):
                for span in spans:
                    found = call.span(rows, span).amax(-1)
                    highest[:, :, rows] = torch.maximum(highest[:, :, rows], found)
            total = torch.zeros_like(self._lse)
            sink = self._sinks
            if sink is not None:
                highest = torch.maximum(highest, sink)
                total += torch.exp(sink - highest)
            for rows, spans in self._blocks(call):
                for span in spans:
                    less = call.span(rows, span) - _norm(highest[:, :, rows])
                    total[:, :, rows] += less.exp_().sum(-1)
            self._large = highest, total.log_().masked_fill_(highest == -torch.inf, 0.0)
        return self._large

    def _log_weights(self, scores: Tensor, rows: slice) -> Tensor:
        """The logarithms of the weights that belong to these scores."""
        shift = self._shift
        if shift is None:
            return scores - _norm(self._lse[:, :, rows])
        return scores - _norm(shift[0][:, :, rows]) - shift[1][:, :, rows].unsqueeze(-1)

    def _blocks_of_logs(self, call: Call) -> Iterator[tuple[slice, Span, Tensor]]:
        """The logarithms of all weights, a block at a time."""
        for rows, spans in self._blocks(call):
            for span in spans:
                yield rows, span, self._log_weights(call.span(rows, span), rows)

    def _rows(
        self, what: str, call: Call, queries: Which, heads: Which, limit: int
    ) -> Float[Tensor, "b h q k"]:
        """The scores of whole rows."""
        b, h, q, k = call.sizes
        lines, chosen = indices(queries, q, "queries"), indices(heads, h, "heads")
        size = b * len(chosen) * len(lines) * k * call.work.itemsize
        if size > limit:
            raise MemoryLimitError(
                f"{what}: {b} × {len(chosen)} heads × {len(lines)} queries × {k} keys are "
                f"{size:,} bytes, over the limit of {limit:,}; name queries= or heads=, use "
                "top(n), entropy() or received(), which need no such matrix, or raise limit="
            )
        call = call.reduced()
        result = torch.empty(b, len(chosen), len(lines), k, dtype=call.work, device=call.q.device)
        height = max(1, SPAN // max(b * h * k, 1))
        done = 0
        for first, last in consecutive(lines):
            for start in range(first, last, height):
                rows = slice(start, min(start + height, last))
                part = call.scores(rows, slice(0, k))[:, chosen]
                result[:, :, done : done + part.shape[2]] = part
                done += part.shape[2]
        return result

    def _softmax(self, what: str, queries: Which, heads: Which, limit: int) -> Tensor:
        scores = self._rows(what, self._call, queries, heads, limit)
        if self._sinks is not None:
            scores = self._with_sink(scores, queries, heads)
            return torch.softmax(scores, -1)[..., :-1].nan_to_num_()
        return masked_softmax(scores)


def _versions(call: Call) -> list[int]:
    """How often torch has seen each tensor of the call changed in place."""
    held: list[object] = [call.q, call.k, call.v, call.bias]
    for part in (call.score, call.bias):
        if isinstance(part, torch.nn.Module):
            held.extend(part.parameters())
    if call.mask is not None:
        held.extend(call.mask.held())
    return [x._version for x in held if isinstance(x, Tensor) and not x.is_inference()]


def _top_of(scores: Float[Tensor, "b h r c"], n: int) -> tuple[Tensor, Tensor]:
    """The n largest scores of each row (all, if there are fewer) and where they stand.

    Two stages: the n largest of the maxima of groups of keys, then the n largest of what stands
    behind these. A group holds every c/GROUP-th key, so that its maximum is one of whole vectors.
    """
    c = scores.shape[-1]
    columns = c // GROUP
    if columns <= 2 * n:
        found, at = scores.topk(min(n, c), -1)
        return found, at
    grouped = scores[..., : columns * GROUP].view(*scores.shape[:-1], GROUP, columns)
    first = grouped.amax(-2).topk(n, -1, sorted=False).indices
    steps = torch.arange(GROUP, device=scores.device).mul_(columns)
    at = (first.unsqueeze(-2) + steps.unsqueeze(-1)).flatten(-2)
    rest = torch.arange(columns * GROUP, c, device=scores.device).expand(*at.shape[:-1], -1)
    at = torch.cat([at, rest], -1)
    found, order = scores.gather(-1, at).topk(n, -1)
    return found, at.gather(-1, order)


def _in_few_rows(mask: Mask | None) -> bool:
    """Whether a mask, or one that it is made of, concerns a few rows only."""
    if isinstance(mask, Both):
        return _in_few_rows(mask.left) or _in_few_rows(mask.right)
    return getattr(mask, "in_few_rows", False)


def _norm(level: Float[Tensor, "b h r"]) -> Float[Tensor, "b h r 1"]:
    """What to subtract from scores: +inf, and so weight 0, where there was nothing to see."""
    return level.masked_fill(level == -torch.inf, torch.inf).unsqueeze(-1)


def _places(x: Tensor) -> tuple[Tensor, ...]:
    """The index of each element of a tensor along each of its axes."""
    return torch.meshgrid(*(torch.arange(n) for n in x.shape), indexing="ij")
