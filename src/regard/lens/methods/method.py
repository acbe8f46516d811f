"""`Method`: an explanation method, and what several of them share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.link_effects import grouped
from regard.attention.record import Look
from regard.errors import OptionError
from regard.lens.predictions import Prediction, Site


@dataclass(frozen=True)
class Method:
    """An explanation method: a name, the paper, and a score for each input unit.

    `score` maps a `Prediction` to one number for each unit attended to at its place: how much it
    favours `token` over `instead`. Methods without a sign, such as attention, give the size of the
    influence only. A method that does not suit a model raises an `OptionError` with the reason.
    """

    name: str
    paper: str
    score: Callable[[Prediction], Float[Tensor, " units"]]


def layers(prediction: Prediction) -> list[tuple[str, Site, Look]]:
    """Every attention call, in the order in which they ran; a shared module several times."""
    sites = {site.module: site for site in prediction.sites}
    return [
        (name, sites[name.partition("#")[0]], look)
        for name, look in prediction.seen.layers().items()
    ]


def to_units(prediction: Prediction, x: Float[Tensor, "*b keys"]) -> Float[Tensor, "*b units"]:
    """The sums over the tokens of each input unit."""
    _, keys = prediction.axes(prediction.place)
    return grouped(x, keys.groups(x.shape[-1]), len(keys))


def step_distribution(prediction: Prediction) -> Float[Tensor, " queries"]:
    """The uniform distribution over the step's rows."""
    look = next(look for _, site, look in layers(prediction) if site.place == prediction.place)
    exact = torch.promote_types(look.output.dtype, torch.float32)
    found = torch.zeros(look.output.shape[-2], dtype=exact, device=look.output.device)
    found[list(prediction.queries)] = 1 / len(prediction.queries)
    return found


def check_differentiable(name: str, prediction: Prediction) -> None:
    """Raise if the gradient of the metric is 0 by construction."""
    if prediction.probes > 1:
        raise OptionError(
            f"{name}: {type(prediction.model).__name__} writes nothing, and the cosine of a vector "
            "to itself has gradient 0; it takes a model with an output head"
        )


def block_of(name: str, model: nn.Module, module: str) -> str:
    """The name of the layer that a module belongs to."""
    parts = module.partition("#")[0].partition(":")[0].split(".")
    for i in range(1, len(parts)):
        if isinstance(model.get_submodule(".".join(parts[:i])), nn.ModuleList):
            return ".".join(parts[: i + 1])
    raise OptionError(
        f"{name}: {module or type(model).__name__!r} is not part of a stack of layers (an "
        "nn.ModuleList), so its layers cannot be told apart"
    )
