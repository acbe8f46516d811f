"""`AttentionRecord`: one attention call of a watched model, evaluated on demand."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.attention import look as look_at
from regard.attention.call import Call, autocast_disabled
from regard.attention.record import LIMIT, Look
from regard.attention.selection import Which
from regard.lens.capture.inputs import Inputs, Sizes, Weights
from regard.lens.capture.positions import LOWEST, Position
from regard.lens.capture.storage import Kept, KeyCache, MaskPool
from regard.lens.capture.weights_look import WeightsLook


@dataclass(eq=False)
class Gradients:
    """The gradients of one call, filled in by the backward pass."""

    output: Tensor | None = None
    """With respect to the output ``(b, h, q, e)``."""
    weights: Tensor | None = None
    """With respect to the weights ``(b, h, q, k)``, where the output was not visible."""


@dataclass(eq=False)
class FinishedCall:
    """An attention call that has run, as an adapter announces it."""

    inputs: Inputs
    output: Tensor | None
    """``(b, h, q, e)``, if it was visible."""
    in_use: int
    """The number of keys in use; a cache of fixed length has more."""
    gradients: Gradients = field(default_factory=Gradients)


class AttentionRecord:
    """One call: its inputs, kept by reference where that is safe, its output and its gradients."""

    def __init__(
        self,
        call: FinishedCall,
        masks: MaskPool,
        position: Position,
        before: AttentionRecord | None,
    ) -> None:
        """`before` is the last call of the same module, which this one may continue."""
        inputs, output = call.inputs, call.output
        self.sizes: Sizes = inputs.sizes
        self.position = position
        self.gradients = call.gradients
        self._kept: list[Kept] = []
        self._cache = self._keys(inputs, before)
        if self._cache is not None:  # held there, and not here
            inputs = inputs.with_keys(*map(_stand_in, inputs.keys))
        self._inputs = inputs.map(
            lambda x: self._keep(Kept(x)), lambda x: self._keep(masks.keep(x))
        )
        self._output = None if output is None else Kept(output)
        self._look: Look | None = None

    def _keys(self, inputs: Inputs, before: AttentionRecord | None) -> KeyCache | None:
        """The cache that holds the keys, if the call continues another or may be continued."""
        keys, position = inputs.keys, self.position
        if not keys or not (position.text or position.continues):
            return None
        cache = None if before is None or not position.continues else before._cache
        if cache is not None and cache.extend(keys, position.key, position.keys):
            return cache
        return KeyCache(keys, position.key, position.keys)

    def _keep(self, kept: Kept) -> Tensor:
        self._kept.append(kept)
        return kept._tensor

    def inputs(self) -> Inputs:
        """The inputs of the call; raises if one of its tensors has been changed since."""
        for kept in self._kept:
            _ = kept.tensor
        if self._cache is None:
            return self._inputs
        return self._inputs.with_keys(*self._cache.part(self.position.key, self.sizes[3]))

    def look(self) -> Look:
        """The look at this call."""
        if self._look is None:
            with torch.inference_mode(False), torch.no_grad():
                inputs = self.inputs()
                call = inputs.call()
                with autocast_disabled(call.q.device):
                    result = self._result(call)
                    self._look = (
                        WeightsLook(call, *result, inputs)
                        if isinstance(inputs, Weights)
                        else _CallLook(call, *result)
                    )
        look, gradients = self._look, self.gradients
        if gradients.output is not None:
            look.output_gradient = gradients.output.reshape(look.output.shape)
        if gradients.weights is not None:
            look.weights_gradient = gradients.weights
        return look

    def _result(self, call: Call) -> tuple[Tensor, Tensor | None]:
        """The output ``(b, h, q, e)``, recomputed if the model has changed it since."""
        b, h, q, _ = self.sizes
        e = call.v.shape[3]
        if self._output is not None and not self._output.changed:
            return self._output.tensor.reshape(b, h, q, e), None
        if e == 0:
            return call.q.new_zeros(b, h, q, 0), None
        seen = look_at(call.q, call.k, call.v, mask=call.mask, bias=call.bias, score=call.score)
        return seen.output, seen.logsumexp


class _CallLook(Look):
    """A look at a call of a model, where a low number in an added mask forbids a link."""

    def scores(self, queries: Which = None, heads: Which = None, *, limit: int = LIMIT) -> Tensor:
        scores = super().scores(queries, heads, limit=limit)
        if not isinstance(self._call.bias, Tensor):
            return scores
        masked = scores < scores.amax(-1, keepdim=True) + LOWEST  # their weight is exactly 0
        return scores.masked_fill(masked, -torch.inf)


def _stand_in(x: Tensor) -> Tensor:
    """A tensor of the same shape that takes no memory."""
    with torch.inference_mode(False):
        return torch.zeros((), dtype=x.dtype, device=x.device).expand(x.shape)
