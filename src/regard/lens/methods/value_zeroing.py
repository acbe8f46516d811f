"""Value zeroing: the change of a layer's output when one value vector is 0."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import OptionError
from regard.lens.methods.blocks import BlockRun, Sublayer, block_runs
from regard.lens.methods.method import Method, step_distribution, to_units
from regard.lens.predictions import Prediction
from regard.lens.predictions.prediction import TOKENS

NAME = "value-zeroing"


def score(prediction: Prediction) -> Float[Tensor, " units"]:
    """The share of each word in the step's row, rolled out through the layers.

    In a layer, C_ij is the cosine distance between the output at i and the output when the value of
    j is 0 in all heads, rows normalised to sum 1; the layers are multiplied without a residual
    term, since the output has it. The paper is about encoders: in a decoder the words written
    before and the source words share a row of C.
    """
    here, source = step_distribution(prediction), None
    with torch.no_grad():
        for run in reversed(block_runs(NAME, prediction)):
            changes = _changes(run)
            if run.sublayers[0].site.place == "encoder" and source is not None:
                source = source @ changes[0]
                continue
            for sublayer, change in zip(run.sublayers, changes, strict=True):
                if sublayer.site.place == "cross":
                    source = here @ change + (0 if source is None else source)
            own = [
                change
                for sublayer, change in zip(run.sublayers, changes, strict=True)
                if sublayer.site.place != "cross"
            ]
            here = here @ own[0]
    return to_units(prediction, here if source is None else source)


def _changes(run: BlockRun) -> list[Float[Tensor, "q k"]]:
    """For each attention of a layer, the share of each key in the change of each output."""
    base = run.rerun(1)
    if not torch.allclose(base, run.output, rtol=1e-3, atol=1e-4):
        raise OptionError(
            f"{NAME}: a {type(run.module).__name__} run by itself does not return what it returns "
            "in the model"
        )
    found = [_distances(run, sublayer, base) for sublayer in run.sublayers]
    total = sum(one.sum(-1, keepdim=True) for one in found)
    assert isinstance(total, Tensor)
    return [one / total.clamp(min=torch.finfo(one.dtype).tiny) for one in found]


def _distances(
    run: BlockRun, sublayer: Sublayer, base: Float[Tensor, "1 n width"]
) -> Float[Tensor, "n k"]:
    """1 − cosine of the output with and without the value of each key."""
    parts = sublayer.parts(slice(None)).transpose(0, 1)  # (k, q, width)
    found = []
    for removed in torch.split(parts, max(1, TOKENS // base.shape[1])):
        with _subtracting(sublayer.mixer, removed):
            found.append(1 - F.cosine_similarity(run.rerun(len(removed)), base, dim=-1))
    return torch.cat(found).clamp(min=0).mT.to(parts)


@contextmanager
def _subtracting(mixer: nn.Module, removed: Float[Tensor, "k q width"]) -> Iterator[None]:
    """Context: `removed` is subtracted from the output of a module."""

    def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return output[0] - removed.reshape(output[0].shape).to(output[0]), *output[1:]
        return output - removed.reshape(output.shape).to(output)

    with mixer.register_forward_hook(hook):
        yield


METHOD = Method(NAME, "Mohebbi et al., Quantifying Context Mixing in Transformers, 2023", score)
