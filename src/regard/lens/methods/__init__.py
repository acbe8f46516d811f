"""Explanation methods: a score for each input word of a prediction.

One module per method; each cites its paper and documents its deviations from it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import OptionError
from regard.lens.methods import (
    alti_logit,
    attention,
    effects,
    gradient_attention,
    gradient_input,
    integrated_gradients,
    knockout,
    norm,
    rollout,
    value_zeroing,
)
from regard.lens.methods.method import Method
from regard.lens.predictions import Prediction

METHODS: dict[str, Method] = {
    one.name: one
    for one in (
        attention.MEAN,
        attention.STRONGEST,
        norm.METHOD,
        rollout.METHOD,
        value_zeroing.METHOD,
        gradient_attention.METHOD,
        gradient_input.METHOD,
        integrated_gradients.METHOD,
        alti_logit.METHOD,
        effects.METHOD,
        knockout.METHOD,
    )
}
"""All methods, by name: from attention, from gradients, and from cuts."""


def find_methods(names: Iterable[str] | None = None) -> list[Method]:
    """The methods of these names, all if None; an unknown name is an error."""
    if names is None:
        return list(METHODS.values())
    asked = [names] if isinstance(names, str) else list(names)
    for name in asked:
        if name not in METHODS:
            near = difflib.get_close_matches(str(name), METHODS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(METHODS)}"
            raise OptionError(f"methods: {name!r} is unknown; {hint}")
    if not asked:
        raise OptionError(f"methods: none given; there are {', '.join(METHODS)}")
    return [METHODS[name] for name in dict.fromkeys(asked)]


def score(method: str | Method, prediction: Prediction) -> Float[Tensor, " units"]:
    """The score of each input unit for the choice, by one method."""
    one = method if isinstance(method, Method) else find_methods([method])[0]
    with torch.inference_mode(False), torch.no_grad():
        return one.score(prediction)


__all__ = ["METHODS", "Method", "find_methods", "score"]
