"""`WeightsLook`: a look at a call of which only the weights, or little more, were visible."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.call import HALF, Call, autocast_disabled, repeat_kv
from regard.attention.record import LIMIT, Look
from regard.attention.selection import Which, indices
from regard.errors import OptionError
from regard.lens.capture.inputs import Weights

ROUNDING, HALF_ROUNDING = 3e-6, 2e-2
"""What a row's weights may lack of 1 by rounding; more than that went to a sink."""


class WeightsLook(Look):
    """A look at attention that a model computes by its own products and softmax.

    Scale, bias and mask are inside the model: `scores` are the logarithms of the weights, and so
    differ from what entered the softmax by a constant in each row.
    """

    def __init__(
        self, call: Call, output: Tensor, logsumexp: Tensor | None, inputs: Weights
    ) -> None:
        super().__init__(call, output, logsumexp)
        self._queries, self._keys = inputs.q, inputs.k
        half = inputs.weights.dtype in HALF
        self.sink = _sink(call, HALF_ROUNDING if half else ROUNDING)

    @property
    def has_vectors(self) -> bool:
        """Whether queries, keys and values are known, and not only the weights."""
        return self._queries is not None and self._call.v.shape[-1] > 0

    @property
    def q(self) -> Float[Tensor, "*bh q d"]:
        """The queries; raises if only the weights were seen."""
        return self._call.restore(self._known()[0])

    @property
    def k(self) -> Float[Tensor, "*bg k d"]:
        """The keys; raises if only the weights were seen."""
        return self._call.restore(self._known()[1])

    @property
    def _values(self) -> Float[Tensor, "b g k e"]:
        if self._call.v.shape[-1] == 0:
            raise OptionError(_unseen("values"))
        return self._call.v

    @property
    def scaling(self) -> str:
        """How q·k became a score is not known: `scores` are the logarithms of the weights."""
        return "log of the weight"

    def compared(
        self,
        queries: Which = None,
        heads: Which = None,
        *,
        scaled: bool = False,
        limit: int = LIMIT,
    ) -> Float[Tensor, "*bh q k"]:
        """The products of queries and keys; scaled, they are the `scores`."""
        if scaled:
            return self.scores(queries, heads, limit=limit)
        q, k = self._known()
        _, h, n, _ = self.sizes
        chosen = indices(heads, h, "heads")
        rows = q[:, chosen][:, :, indices(queries, n, "queries")]
        with torch.no_grad(), autocast_disabled(q.device):
            return self._call.restore(rows.float() @ repeat_kv(k, h)[:, chosen].float().mT)

    def gradient_of_weights(
        self, queries: Which = None, heads: Which = None
    ) -> Float[Tensor, "*bh q k"]:
        """The gradient of the metric with respect to each weight."""
        if self.weights_gradient is None:
            raise OptionError(
                "effects: there is no gradient of the weights; run the model and call backward() "
                "inside `with regard.watch(model, gradients=True)`; where a model changes its "
                "weights after the softmax, only weights() can be seen"
            )
        return super().gradient_of_weights(queries, heads)

    def _known(self) -> tuple[Tensor, Tensor]:
        _ = self._call  # raises if a tensor was changed
        if self._queries is None or self._keys is None:
            raise OptionError(_unseen("queries and keys"))
        return self._queries, self._keys


def _unseen(what: str) -> str:
    return (
        f"Look: the {what} of this call could not be seen, only its weights; ask for weights(), "
        "scores(), top(n), entropy() or received()"
    )


def _sink(call: Call, least: float) -> Tensor | None:
    """The logarithm of what rows ``(b, h, q)`` lack of 1; None if none lacks more than `least`."""
    assert isinstance(call.bias, Tensor)
    missing = 1.0 - call.bias.exp().sum(-1)
    real = missing > least
    if not bool((real & (call.bias > -torch.inf).any(-1)).any()):
        return None
    return missing.masked_fill(~real, 0.0).log()
