"""A view of weights that the caller has, in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from regard.attention import Look, look
from regard.errors import OptionError, ShapeError, shape
from regard.view.records import Layer, Text
from regard.view.viewer import View

QUERIES, KEYS = "text", "keys"
Weights = Look | Tensor | Mapping[str, Look] | Sequence[Look | Tensor]


def attention_view(
    weights: Weights, words: Sequence[str], keys: Sequence[str] | None = None, *, title: str = ""
) -> View:
    """A view of attention weights, from what `look` or `watch` saw, or from plain tensors.

    Args:
        weights: a `Look`, several by name as in `Seen`, or weights ``(layers, heads, q, k)``, also
            as a sequence of one tensor ``(1, heads, q, k)`` per layer, as transformers has them.
        words: one per query: tokens, or words.
        keys: one per key; `words` if not given.
        title: stands at the top.

    >>> print(attention_view(torch.eye(2)[None, None], ["a", "b"]).text("head", word="b"))
    layer 0, head 0 (self attention, words)
    b  1.000  ████████████████████████
    """
    if isinstance(words, str) or isinstance(keys, str):
        raise OptionError("view: words expected a list, got one text; split it first")
    texts = {QUERIES: Text.of(words)}
    if keys is not None:
        texts[KEYS] = Text.of(keys)
    names = (QUERIES, QUERIES if keys is None else KEYS)
    kind = "self" if keys is None else "cross"
    layers = [
        Layer(name, kind, *names, one, numbers=numbers) for name, one, numbers in _looks(weights)
    ]
    return View(texts, layers, title=title)


def _looks(weights: Weights) -> list[tuple[str, Look, bool]]:
    """Each layer: its name, its look, and whether that has the model's queries and keys."""
    if isinstance(weights, Mapping):
        return [(name, one, True) for name, one in weights.items()]
    if isinstance(weights, Tensor):
        if weights.dim() not in (2, 3, 4):
            raise ShapeError(
                f"view: weights {shape(weights)}, expected (layers, heads, q, k), (heads, q, k) or "
                "(q, k)"
            )
        weights = list(weights.reshape(-1, *weights.shape[-3:]) if weights.dim() > 2 else [weights])
    several = [weights] if isinstance(weights, Look) else list(weights)
    return [
        (f"layer {i}", one, True) if isinstance(one, Look) else (f"layer {i}", _look_of(one), False)
        for i, one in enumerate(several)
    ]


def _look_of(weights: Tensor) -> Look:
    """A look that has these weights: their logarithms as a bias on scores of zero."""
    if not isinstance(weights, Tensor) or not 2 <= weights.dim() <= 4:
        raise ShapeError("view: weights expected tensors (1, heads, q, k), one per layer")
    if weights.dim() == 4 and weights.shape[0] != 1:
        raise ShapeError(
            f"view: weights {shape(weights)}, expected one text; take one entry of the batch"
        )
    found = weights.detach().float().reshape(1, -1, *weights.shape[-2:])
    sums = found.sum(-1)
    if bool((found < 0).any()) or bool(((sums - 1).abs() > 1e-2).logical_and(sums != 0).any()):
        raise OptionError("view: weights expected rows that sum to 1; give them after the softmax")
    heads, queries, keys = found.shape[1:]
    q, k = torch.zeros(1, heads, queries, 1), torch.zeros(1, heads, keys, 1)
    return look(q, k, k, bias=found.log())
