"""The vectors of the input words, and the gradient of the metric with respect to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import OptionError
from regard.lens.predictions import Prediction
from regard.nn.transformer import Embedding


def gradients(
    name: str, prediction: Prediction, shares: Float[Tensor, " rows"]
) -> tuple[Float[Tensor, "n width"], Float[Tensor, "rows n width"]]:
    """The word vectors, and for each share the gradient where they are scaled by it.

    Only the words are scaled; what is added to them, such as positions, stays.
    """
    kept: dict[str, Tensor] = {}

    def scaled(words: Tensor, rest: Tensor) -> Tensor:
        kept["words"] = words[0].detach()
        kept["leaf"] = (shares.to(words)[:, None, None] * words).detach().requires_grad_()
        return kept["leaf"] + rest

    with torch.enable_grad(), replaced(name, prediction, scaled):
        total = prediction.metric(prediction.logits(len(shares))).sum()
    found = torch.autograd.grad(total, kept["leaf"])[0]
    return kept["words"], found


@contextmanager
def replaced(
    name: str, prediction: Prediction, change: Callable[[Tensor, Tensor], Tensor]
) -> Iterator[None]:
    """Context: `change` computes the input of the model from word vectors and the rest.

    The word vectors are the first that the model embeds; positions, and the words of a decoder,
    follow.
    """
    done = False

    def hook(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        nonlocal done
        if done:
            return output
        done = True
        words = output
        if isinstance(module, Embedding):
            words = F.embedding(inputs[0], module.table) * module.scale
        return change(words.detach(), (output - words).detach())

    with ExitStack() as hooks:
        for one in prediction.embeddings:
            hooks.enter_context(one.register_forward_hook(hook))
        yield
        if not done:
            raise OptionError(
                f"{name}: {type(prediction.model).__name__} does not embed words by nn.Embedding"
            )
