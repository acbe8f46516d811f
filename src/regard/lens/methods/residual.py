"""The residual stream around an attention sublayer, and the norms in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import OptionError
from regard.lens.methods.blocks import BlockRun, Sublayer, first
from regard.lens.predictions import Prediction
from regard.nn.blocks import Block

Linear = Callable[[Tensor, slice], Tensor]
NAME = "alti-logit"
"""The method, for error messages."""


@dataclass
class Residual:
    """The norms around one attention sublayer."""

    norm: nn.Module
    mixer: nn.Module
    following: nn.Module | None = None
    """Pre-norm: the norm of the next sublayer, whose input is the sum."""
    feed_forward: nn.Module | None = None
    """Post-norm: the norm of the feed-forward network, if it comes next."""
    final: nn.Module | None = None
    """The norm at the end of the stack."""
    kept: dict[str, Tensor] = field(default_factory=dict)
    """The recorded inputs of the norms, under their names above, and ``"mixed"``, the output of the
    mixer."""

    @property
    def after(self) -> bool:
        """Whether norms come after the sums (post-norm), not before the sublayers."""
        return self.following is None

    def hooks(self) -> list[Any]:
        """Register hooks that record the inputs of the norms and the output of the mixer."""

        def keep(name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:
            self.kept[name] = inputs[0][0].detach()

        def mixed(module: nn.Module, inputs: Any, output: Any) -> None:
            self.kept["mixed"] = first(output)[0].detach()

        handles = [
            module.register_forward_hook(partial(keep, name))
            for name in ("norm", "following", "feed_forward")
            if (module := getattr(self, name)) is not None
        ]
        return [*handles, self.mixer.register_forward_hook(mixed)]

    def stream(
        self, run: BlockRun
    ) -> tuple[Float[Tensor, "n width"], Float[Tensor, "n width"], Linear]:
        """x, y = norm(x + attention), and the linear map of that norm for parts of the sum."""
        given = self.kept["norm"]  # x; post-norm: x + attention
        mixed = self.kept["mixed"].reshape(given.shape)
        if not self.after:
            total = given + mixed
            if not torch.allclose(total, self.kept["following"], rtol=1e-3, atol=1e-3):
                raise unknown(run.module)
            return given, total, lambda each, rows: each
        linear: Linear = lambda each, rows: scaled(self.norm, given[rows, None], each)  # noqa: E731
        return given - mixed, frozen(self.norm, given), linear


def residual_of(prediction: Prediction, run: BlockRun, sublayer: Sublayer) -> Residual:
    """The residual stream at an attention sublayer; raises for an unknown architecture."""
    model, block = prediction.model, run.module
    last = sublayer is run.sublayers[-1]
    if isinstance(block, Block):
        cross = sublayer.site.place == "cross"
        norm = block.cross_norm if cross else block.attention_norm
        next_norm = block.feed_forward_norm if last else block.cross_norm
        assert norm is not None
        stack = model.get_submodule(sublayer.site.module.partition(".")[0])
        return Residual(
            norm,
            sublayer.mixer,
            following=next_norm if block.norm_first else None,
            feed_forward=block.feed_forward_norm if last and not block.norm_first else None,
            final=getattr(stack, "norm", None),
        )
    parts = dict(block.named_children())
    if {"input_layernorm", "post_attention_layernorm", "mlp", "self_attn"} == parts.keys():
        final = getattr(getattr(model, "base_model", model), "norm", None)
        return Residual(
            parts["input_layernorm"],
            sublayer.mixer,
            following=parts["post_attention_layernorm"],
            final=final,
        )
    attention, output = parts.get("attention"), parts.get("output")
    behind = getattr(getattr(attention, "output", None), "LayerNorm", None)
    last_norm = getattr(output, "LayerNorm", None)
    if len(run.sublayers) == 1 and behind is not None and last_norm is not None:
        return Residual(behind, sublayer.mixer, feed_forward=last_norm)
    raise unknown(block)


def unknown(block: nn.Module) -> OptionError:
    return OptionError(
        f"{NAME}: how {type(block).__name__} adds attention to the residual stream is not known; "
        "it takes regard's own stacks and models built like Llama or BERT"
    )


def scaled(
    norm: nn.Module, x: Float[Tensor, "*#b width"], each: Float[Tensor, "*b width"]
) -> Float[Tensor, "*b width"]:
    """A norm as a linear map, its scale fixed to what it is at x, applied to parts of x."""
    return _centred(norm, each) * _scale(norm, x) * norm.get_parameter("weight")


def frozen(norm: nn.Module, x: Float[Tensor, "*b width"]) -> Float[Tensor, "*b width"]:
    """The output of a norm, with its scale as a constant."""
    if isinstance(getattr(norm, "weight", None), Tensor):
        found = scaled(norm, x.detach(), x)
        bias = getattr(norm, "bias", None)
        found = found if bias is None else found + bias
        expected = norm.forward(x)  # without hooks, one of which may call this
        if torch.allclose(found, expected, rtol=1e-3, atol=1e-3):
            return found
    raise OptionError(
        f"{NAME}: {type(norm).__name__} is neither a layer norm nor a root-mean-square norm"
    )


def back_through_norm(
    norm: nn.Module, x: Float[Tensor, "n width"], d: Float[Tensor, "n width"]
) -> Float[Tensor, "n width"]:
    """A gradient at the output of a norm, propagated to its input with the scale fixed."""
    return _centred(norm, d * norm.get_parameter("weight")) * _scale(norm, x)


def _centred(norm: nn.Module, x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True) if isinstance(norm, nn.LayerNorm) else x


def _scale(norm: nn.Module, x: Tensor) -> Tensor:
    eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    return (_centred(norm, x).square().mean(-1, keepdim=True) + eps).rsqrt()
