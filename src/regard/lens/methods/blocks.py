"""The layers of a model's stacks, each of which can be run again on its recorded inputs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.record import Look
from regard.errors import OptionError
from regard.lens.measures import projected_values
from regard.lens.methods.method import block_of, layers
from regard.lens.predictions import Prediction, Site


@dataclass
class Sublayer:
    """Attention inside a layer."""

    site: Site
    look: Look
    matrix: Tensor
    """The matrix that mixes its heads, ``(h, e, width)``."""
    mixer: nn.Module
    """The module that mixes its heads."""

    def parts(self, queries: Sequence[int] | slice) -> Float[Tensor, "q k width"]:
        """The contribution of each key to the output at each of these queries."""
        weights = self.look.weights(queries=queries)[0]
        return torch.einsum("hqk,hkw->qkw", weights, projected_values(self.look.v[0], self.matrix))


@dataclass
class BlockRun:
    """One layer of a stack: its recorded inputs and output, and its attention."""

    module: nn.Module
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    output: Tensor = field(default_factory=lambda: torch.empty(0))
    sublayers: list[Sublayer] = field(default_factory=list)

    def rerun(self, rows: int) -> Float[Tensor, "rows n width"]:
        """The output for so many equal rows of the recorded inputs."""
        arguments = [_repeated(one, rows) for one in self.arguments]
        options = {name: _repeated(one, rows) for name, one in self.options.items()}
        return first(self.module(*arguments, **options))


def first(output: Any) -> Tensor:
    """The vectors that a layer returns, alone or first in a tuple."""
    found: Tensor = output[0] if isinstance(output, tuple) else output
    return found


def block_runs(name: str, prediction: Prediction) -> list[BlockRun]:
    """The layers of all stacks, in the order in which they run; `name` is the method's."""
    runs: dict[str, BlockRun] = {}
    model = prediction.model
    for layer, site, look in layers(prediction):
        block = block_of(name, model, layer)
        run = runs.setdefault(block, BlockRun(model.get_submodule(block)))
        mixer = prediction.mixers[layer]
        if mixer is None:
            raise OptionError(f"{name}: the matrix that mixes the heads of {layer!r} is not known")
        run.sublayers.append(Sublayer(site, look, prediction.output_matrices[layer], mixer))
    _record(name, prediction, runs)
    return list(runs.values())


def _record(name: str, prediction: Prediction, runs: dict[str, BlockRun]) -> None:
    """Fill in the inputs and the output of each layer."""
    counts = dict.fromkeys(runs, 0)

    def record(block: str, module: nn.Module, arguments: Any, options: Any, output: Any) -> None:
        counts[block] += 1
        run = runs[block]
        run.arguments, run.options, run.output = arguments, options, first(output)

    with torch.no_grad(), ExitStack() as hooks:
        for block, run in runs.items():
            hooks.enter_context(
                run.module.register_forward_hook(partial(record, block), with_kwargs=True)
            )
        prediction.logits()
    shared = [block for block, count in counts.items() if count != 1]
    if shared:
        raise OptionError(
            f"{name}: {shared[0]!r} runs {counts[shared[0]]} times, so the layers of "
            f"{type(prediction.model).__name__} cannot be told apart"
        )


def _repeated(value: Any, rows: int) -> Any:
    """Vectors or a mask of one sequence as so many equal ones; anything else as it is."""
    if isinstance(value, Tensor) and value.dim() > 2 and len(value) == 1:
        return value.expand(rows, *value.shape[1:])
    if isinstance(value, tuple):
        return tuple(_repeated(one, rows) for one in value)
    return value
