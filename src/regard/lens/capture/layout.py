"""`Layout`: which axes of a tensor of weights are batch, heads, queries and keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch import Tensor, nn

from regard.lens.capture.modules import Run, has_parameters, is_part, sequences

HEADS = (
    "num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead",
    "num_head", "n_attn_heads",
)  # fmt: skip
"""Attributes in which modules store their number of heads."""


@dataclass(frozen=True)
class Layout:
    """How a tensor of weights becomes ``(b, h, q, k)``: by a permutation and a reshape."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    heads: int
    """The number of heads merged with the batch in the first axis; 1 if they are not."""

    @staticmethod
    def of(x: Tensor, runs: Sequence[Run], rows_first: bool) -> Layout:
        """The layout of weights that the innermost of the running modules made.

        Heads are the axis before queries and keys, unless the module's number of heads shows that
        they are another axis, or merged with the batch. Weights of a single head have as many
        entries as the module was given sequences. Where queries are as many as heads, `rows_first`
        tells whether they are the axis before the heads.
        """
        heads = _heads(next((run.module for run in runs if not is_part(run.module)), None))
        shape, axes = tuple(x.shape), list(range(x.dim()))
        if x.dim() <= 3:
            joined = x.dim() == 3 and heads > 1 and shape[0] % heads == 0
            joined = joined and shape[0] != _batch(runs, shape[1])
            return Layout(shape, tuple(axes), heads if joined else 1)
        found = [axis for axis in axes[:-1] if shape[axis] == heads > 1]
        at = axes[-3]
        if axes[-2] in found and rows_first:
            at = axes[-2]
        elif len(found) == 1:
            at = found[0]
        axes.remove(at)
        axes.insert(-2, at)
        return Layout(shape, tuple(axes), 1)

    @property
    def rank(self) -> int:
        """The rank of the weights without an axis of heads; 4 if they have one."""
        return len(self.shape) if len(self.shape) < 4 and self.heads == 1 else 4

    @property
    def plain(self) -> bool:
        """Whether the axes are in their order."""
        return self.order == tuple(range(len(self.shape)))

    def apply(self, x: Tensor) -> Tensor:
        """Weights or their gradient as ``(b, h, q, k)``; the last axis may be shorter."""
        x = x if self.plain else x.permute(self.order)
        q, k = x.shape[-2:]
        if x.dim() <= 3:
            return x.reshape(-1, self.heads, q, k)
        return x.reshape(prod(x.shape[:-3]), x.shape[-3], q, k)

    def undo(self, x: Tensor) -> Tensor:
        """From ``(b, h, q, k)`` back to the layout of the model; axes of size 1 stay."""
        x = x.reshape(tuple(self.shape[axis] for axis in self.order))
        return x if self.plain else x.permute([self.order.index(axis) for axis in range(x.dim())])


def _batch(runs: Sequence[Run], queries: int) -> int | None:
    """The number of sequences of this length that a module was given, if their shape tells it."""
    for i, run in enumerate(runs):
        given = sequences(run)
        if not given or not (has_parameters(run.module) or i == len(runs) - 1):
            continue  # its arguments are projected already
        if given[0].dim() < 3:
            break
        first, second, *_ = given[0].shape
        if second == queries:
            return first
        return second if first == queries > 1 else None
    return None


def _heads(module: nn.Module | None) -> int:
    """The number of heads of a module, by itself, its configuration or a child; else 1."""
    if module is None:
        return 1
    for thing in (module, getattr(module, "config", None), *module.children()):
        for name in HEADS:
            value = getattr(thing, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return 1
