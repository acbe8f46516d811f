"""ALTI-Logit: the contribution of each word to the logits, through all layers.

Attention writes to the residual stream: y_i = x_i + Σ_j T_ij, where T_ij is what the heads pass on
from j to i. Of the logit difference, T_ij of the step's row i brings d · T_ij, where d is the
difference of the output vectors seen from that layer. What stands at j is a mixture of the input
words, by ALTI: C_ij ∝ (‖y_i‖₁ − ‖y_i − T_ij‖₁)⁺, with x_i counted to i itself, multiplied layer by
layer. What feed-forward networks and biases add is not divided among the words.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.lens.methods.blocks import BlockRun, block_runs, first
from regard.lens.methods.method import Method, check_differentiable, to_units
from regard.lens.methods.residual import NAME, Residual, back_through_norm, frozen, residual_of
from regard.lens.predictions import Prediction

ELEMENTS = 2**24
"""The number of elements held at once."""


def score(prediction: Prediction) -> Float[Tensor, " units"]:
    """The part of the metric that comes from each word.

    The paper is about language models with norms before the sublayers. Here the norm after a
    sublayer is taken as linear, its scale fixed, as ALTI does; a head that is more than a norm and
    a matrix enters by its gradient; in a translator, what cross-attention brings is mapped back
    through the encoder, and what words written before bring is theirs, not the source's.
    """
    check_differentiable(NAME, prediction)
    runs = block_runs(NAME, prediction)
    streams = [[residual_of(prediction, run, one) for one in run.sublayers] for run in runs]
    with torch.no_grad(), ExitStack() as hooks:
        for residual in chain.from_iterable(streams):
            for handle in residual.hooks():
                hooks.enter_context(handle)
        prediction.logits()
    with torch.no_grad():
        directions = _directions(prediction, runs, streams)
        return to_units(prediction, _add_up(prediction, runs, streams, directions))


def _directions(
    prediction: Prediction, runs: list[BlockRun], streams: list[list[Residual]]
) -> list[Tensor]:
    """For each attention, d at the step's rows, ``(n, width)``; at last that at the embeddings."""
    final = runs[-1]
    d = _last_direction(prediction, final, streams[-1][-1].final)
    found = []
    stack = [i for i, run in enumerate(runs) if _place(run) == _place(final)]
    for i in reversed(stack):
        for residual in reversed(streams[i]):
            if residual.after:
                if residual.feed_forward is not None:
                    d = back_through_norm(residual.feed_forward, residual.kept["feed_forward"], d)
                d = back_through_norm(residual.norm, residual.kept["norm"], d)
            found.append(d)
    return [*reversed(found), d]


def _last_direction(
    prediction: Prediction, run: BlockRun, final: nn.Module | None
) -> Float[Tensor, "n width"]:
    """The gradient of the metric at the output of the last layer, the final norm's scale fixed."""
    leaves: list[Tensor] = []

    def leaf(module: nn.Module, inputs: Any, output: Any) -> Any:
        leaves.append(first(output).detach().requires_grad_())
        return (leaves[-1], *output[1:]) if isinstance(output, tuple) else leaves[-1]

    def fixed(module: nn.Module, inputs: Any, output: Any) -> Any:
        return frozen(module, inputs[0])

    with ExitStack() as hooks, torch.enable_grad():
        hooks.enter_context(run.module.register_forward_hook(leaf))
        if final is not None and not isinstance(final, nn.Identity):
            hooks.enter_context(final.register_forward_hook(fixed))
        logits = prediction.logits()
        return torch.autograd.grad(prediction.metric(logits[0]), leaves[-1])[0][0]


def _add_up(
    prediction: Prediction,
    runs: list[BlockRun],
    streams: list[list[Residual]],
    directions: list[Tensor],
) -> Float[Tensor, " keys"]:
    """The parts of the metric by input token, summed layer by layer."""
    translates = prediction.place == "cross"
    encoded: Tensor | None = None
    mixed: Tensor | None = None
    total: Tensor | None = None
    remaining = iter(directions)
    for run, residuals in zip(runs, streams, strict=True):
        encoder = translates and _place(run) == "encoder"
        for sublayer, residual in zip(run.sublayers, residuals, strict=True):
            x, y, after = residual.stream(run)
            if encoder:
                encoded = _eye(x) if encoded is None else encoded
                encoded = _mixture(sublayer.parts, x, y, after) @ encoded
                continue
            if mixed is None:
                mixed = x.new_zeros(len(x), len(encoded)) if encoded is not None else _eye(x)
            cross = sublayer.site.place == "cross"
            keys = encoded if cross else mixed
            assert keys is not None
            d = next(remaining)
            rows = d.abs().amax(-1).nonzero().flatten().tolist()
            brought = torch.einsum("qw,qkw->qk", d[rows], sublayer.parts(rows)).sum(0) @ keys
            total = brought if total is None else total + brought
            share = _mixture(sublayer.parts, x, y, after, apart=cross)
            mixed = share[:, -1:] * mixed + share[:, :-1] @ keys if cross else share @ keys
    assert total is not None
    if translates:
        return total
    begin = streams[0][0].stream(runs[0])[0]
    return total + (next(remaining) * begin).sum(-1)


def _mixture(
    parts: Callable[[slice], Tensor],
    x: Float[Tensor, "n width"],
    y: Float[Tensor, "n width"],
    after: Callable[[Tensor, slice], Tensor],
    *,
    apart: bool = False,
) -> Float[Tensor, "n keys"]:
    """C: the share of each key in each output; with `apart`, that of x itself in a last column."""
    n, width = x.shape
    found = []
    step = max(1, ELEMENTS // max(1, n * width))
    for start in range(0, n, step):
        rows = slice(start, min(n, start + step))
        own, out = x[rows], y[rows]
        each = parts(rows)
        if apart:
            each = torch.cat([each, own.unsqueeze(1)], 1)
        else:
            places = torch.arange(rows.start, rows.stop)
            each = each.clone()
            each[torch.arange(len(own)), places] += own
        each = after(each, rows)
        whole = out.abs().sum(-1, keepdim=True)
        near = (whole - (out.unsqueeze(1) - each).abs().sum(-1)).clamp(min=0)
        found.append(near / near.sum(-1, keepdim=True).clamp(min=torch.finfo(near.dtype).tiny))
    return torch.cat(found)


def _place(run: BlockRun) -> str:
    return run.sublayers[0].site.place


def _eye(x: Tensor) -> Tensor:
    return torch.eye(len(x)).to(x)


METHOD = Method(
    NAME,
    "Ferrando et al., Explaining How Transformers Use Context to Build Predictions, 2023",
    score,
)
