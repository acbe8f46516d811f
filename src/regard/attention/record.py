"""`Look`: the output of a call of attention, and its weights and scores on demand.

A look keeps q, k, v and the row log-sum-exp, all linear in the length. Everything else is
recomputed from them, bit for bit, in blocks of bounded size.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.attention import statistics
from regard.attention.call import Call, autocast_disabled, masked_softmax, repeat_kv, runs
from regard.attention.link_effects import link_effects
from regard.attention.scores import Scaled, Score, Softcap
from regard.attention.selection import Which, indices
from regard.attention.statistics import WeightStatistics
from regard.errors import MemoryLimitError, OptionError, ShapeError, StaleError, check_whole

if TYPE_CHECKING:
    import pandas

    from regard.view import View

LIMIT = 2**30
"""The default limit of the size of a result, in bytes."""
SHOWN = 32
"""The most queries, and the most keys, of a call that a notebook shows as a figure."""

P = ParamSpec("P")
R = TypeVar("R")


def _without_autograd(method: Callable[P, R]) -> Callable[P, R]:
    """Decorator: runs a method of `Look` without gradients and autocast."""

    @wraps(method)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        look = args[0]
        assert isinstance(look, Look)
        with torch.no_grad(), autocast_disabled(look._of.q.device):
            return method(*args, **kwargs)

    return wrapped


class Look:
    """The output of a call of attention, and its weights and scores on demand.

    Shapes are those of the call; ``(…, h, q, d)`` below stands for ``(q, d)`` or ``(b, q, d)``
    if the call had that rank. Only `output` has a gradient.
    """

    output: Float[Tensor, "*bh q e"]
    """What `attend` returns, bit for bit."""
    output_gradient: Float[Tensor, "*bh q e"] | None = None
    """Gradient of the metric with respect to `output`; set by ``watch(model, gradients=True)``
    once the metric's backward pass has run."""
    weights_gradient: Float[Tensor, "*bh q k"] | None = None
    """The same with respect to the weights, for models that compute attention themselves."""
    sink: Float[Tensor, "b h q"] | None = None
    """Per query, a further score whose share of the softmax goes to no key (an attention sink)."""

    def __init__(self, call: Call, output: Tensor, logsumexp: Tensor | None) -> None:
        self._of = call
        self._versions = _versions(call)
        self._logsumexp = None if logsumexp is None else logsumexp.detach()
        self._known_statistics: WeightStatistics | None = None
        if call.sink is not None:
            b, _, q, _ = call.sizes
            self.sink = call.sink.detach()[:, None].expand(b, -1, q)
        self.output = call.restore(output)

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        if "_of" in state:  # the versions of tensors are not pickled
            self._versions = _versions(self._of)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Batch (all leading axes together), heads, queries, keys."""
        return self._of.sizes

    @property
    def has_vectors(self) -> bool:
        """Whether queries, keys and values are known, besides the weights."""
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
    @_without_autograd
    def logsumexp(self) -> Float[Tensor, "*bh q"]:
        """Per query, the log of the sum of the exponentials of its scores; -inf if it sees none."""
        return self._call.restore(self._statistics.logsumexp)

    @property
    def score(self) -> Score:
        """The score function of the call."""
        return self._call.score

    @property
    def scaling(self) -> str:
        """How q·k becomes a score, in words: ``÷ √64``, ``× 0.3``, ``÷ √64, softcap 50, + bias``.

        Other scores are ``× 1``. A mask that is added to the scores is no bias.
        """
        call, width = self._call, self._call.q.shape[-1]
        scale = 1.0 if call.scale is None else call.scale
        parts = [f"÷ √{width}" if math.isclose(scale, width**-0.5) else f"× {scale:.4g}"]
        if isinstance(call.score, Softcap):
            parts.append(f"softcap {call.score.cap:g}")
        bias = call.bias
        if isinstance(bias, Tensor):
            added = bool(((bias != 0) & (bias > torch.finfo(torch.float16).min)).any())
        else:
            added = bias is not None
        return ", ".join([*parts, "+ bias"] if added else parts)

    @_without_autograd
    def compared(
        self,
        queries: Which = None,
        heads: Which = None,
        *,
        scaled: bool = False,
        limit: int = LIMIT,
    ) -> Float[Tensor, "*bh q k"]:
        """The scores of queries and keys without bias and mask, with scale and cap if `scaled`."""
        unscaled = not scaled and self._call.scale is not None
        score = Scaled(1.0) if unscaled else self._call.score
        bare = dataclasses.replace(self._call, mask=None, bias=None, score=score)
        return self._call.restore(self._rows("compared", bare, queries, heads, limit))

    @_without_autograd
    def scores(
        self, queries: Which = None, heads: Which = None, *, limit: int = LIMIT
    ) -> Float[Tensor, "*bh q k"]:
        """What entered the softmax: scaled, bias added, masked places -inf."""
        return self._call.restore(self._rows("scores", self._call, queries, heads, limit))

    @_without_autograd
    def weights(
        self, queries: Which = None, heads: Which = None, *, limit: int = LIMIT
    ) -> Float[Tensor, "*bh q k"]:
        """The exact weights of these queries and heads (all by default), before dropout.

        Each row sums to 1, or is 0 if the query sees no key. Raises if the result has more than
        `limit` bytes.
        """
        return self._call.restore(self._softmax("weights", queries, heads, limit))

    @_without_autograd
    def contributions(
        self, queries: Which = None, heads: Which = None, *, limit: int = LIMIT
    ) -> Float[Tensor, "*bh q k"]:
        """Weight times the norm of the value vector: how much each key adds to the output.

        Kobayashi et al., "Attention is Not Only a Weight", 2020.
        """
        call = self._call
        norms = torch.linalg.vector_norm(self._values.to(call.work), dim=-1, keepdim=True)
        norms = repeat_kv(norms, call.q.shape[1])[:, indices(heads, call.q.shape[1], "heads")]
        weights = self._softmax("contributions", queries, heads, limit)
        return call.restore(weights * norms.mT)

    @_without_autograd
    def effects(
        self, queries: Which = None, heads: Which = None, *, limit: int = LIMIT
    ) -> Float[Tensor, "*bh q k"]:
        """The first-order estimate of M(cut) - M, for cutting each link and the metric M.

        Needs the gradient of a backward pass; see `regard.attention.link_effects` for the formula.
        """
        scores = self._rows("effects", self._call, queries, heads, limit)
        gradient = self.gradient_of_weights(queries, heads).reshape(scores.shape)
        sink = self._sink_of(queries, heads)
        return self._call.restore(link_effects(scores, gradient, sink=sink)[1])

    @_without_autograd
    def gradient_of_weights(
        self, queries: Which = None, heads: Which = None
    ) -> Float[Tensor, "*bh q k"]:
        """The gradient of the metric with respect to each weight: output gradient · value."""
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

    @_without_autograd
    def top(self, n: int) -> tuple[Float[Tensor, "*bh q n"], Int64[Tensor, "*bh q n"]]:
        """For every query its n largest weights, largest first, and the keys they belong to.

        Masked or missing places have weight 0 and key -1.
        """
        call = self._call
        check_whole("top: n", n)
        if not 1 <= n <= call.sizes[3]:
            raise OptionError(f"top: n={n}, expected 1 to k={call.sizes[3]}")
        weights, keys = self._statistics.top(n)
        return call.restore(weights), call.restore(keys)

    @_without_autograd
    def entropy(self) -> Float[Tensor, "*bh q"]:
        """Per query, the entropy of its weights in nats: 0 for one key, log k for k equal ones."""
        return self._call.restore(self._statistics.entropy())

    @_without_autograd
    def received(self) -> Float[Tensor, "*bh k"]:
        """Per key, the sum over the queries of the weight it was given, for each query head."""
        return self._call.restore(self._statistics.received())

    def view(self, words: Sequence[str], keys: Sequence[str] | None = None) -> View:
        """The weights as a figure, labelled with a word per query, and per key if they differ."""
        from regard.view import attention_view

        return attention_view(self, words, keys)

    def _repr_html_(self) -> str | None:
        """The weights as a figure, words being numbers; None if there are too many to show."""
        _, _, q, k = self.sizes
        if not 0 < q <= SHOWN or not 0 < k <= SHOWN:
            return None
        return self.view(list(map(str, range(q))), list(map(str, range(k))))._repr_html_()

    def to_frame(
        self, words: Sequence[str] | None = None, keys: Sequence[str] | None = None
    ) -> pandas.DataFrame:
        """One row for each weight: batch entry, head, query, key, weight. Needs pandas.

        Words replace the indices of queries and keys if they are given.
        """
        import pandas

        weights = self.weights().detach().float().cpu().reshape(self.sizes)
        places = torch.meshgrid(*(torch.arange(n) for n in self.sizes), indexing="ij")
        entry, head, query, key = (x.flatten().tolist() for x in places)
        columns = words if keys is None else keys
        for what, given, size in (("query", words, self.sizes[2]), ("key", columns, self.sizes[3])):
            if given is not None and len(given) != size:
                raise ShapeError(
                    f"to_frame: {len(given)} words given, expected {size}, one for each {what}"
                )
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
        """The call; raises if one of its tensors has been changed since."""
        if _versions(self._of) != self._versions:
            raise StaleError(
                "Look: a tensor of the call was changed in place after it was looked at, so its "
                "weights are lost; read them before the change, or look at a clone"
            )
        return self._of

    @property
    def _statistics(self) -> WeightStatistics:
        call = self._call
        if self._known_statistics is None:
            self._known_statistics = WeightStatistics(call, self._logsumexp, self.sink)
        return self._known_statistics

    def _sink_of(self, queries: Which, heads: Which) -> Float[Tensor, "b h q"] | None:
        """The sink's score for each of these queries and heads."""
        if self.sink is None:
            return None
        _, h, q, _ = self.sizes
        rows, chosen = indices(queries, q, "queries"), indices(heads, h, "heads")
        return self.sink[:, chosen][:, :, rows]

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
        height = max(1, statistics.SPAN // max(b * h * k, 1))
        done = 0
        for first, last in runs(np.array(lines)):
            for start in range(first, last, height):
                rows = slice(start, min(start + height, last))
                part = call.scores(rows, slice(0, k))[:, chosen]
                result[:, :, done : done + part.shape[2]] = part
                done += part.shape[2]
        return result

    def _softmax(self, what: str, queries: Which, heads: Which, limit: int) -> Tensor:
        scores = self._rows(what, self._call, queries, heads, limit)
        sink = self._sink_of(queries, heads)
        if sink is not None:
            scores = torch.cat([scores, sink.unsqueeze(-1).to(scores.dtype)], -1)
            return torch.softmax(scores, -1)[..., :-1].nan_to_num_()
        return masked_softmax(scores)


def _versions(call: Call) -> list[int]:
    """The version counters of the call's tensors: in-place changes increment them."""
    return [x._version for x in call.tensors if not x.is_inference()]
