"""Somebody who hears of the attention of one model, and what is said where there is none."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention._call import Call
from regard.errors import OptionError
from regard.lens._forbidden import Forbidden
from regard.lens._frames import Frame
from regard.lens._projection import Projection
from regard.lens._torch_calls import Asked

Function = Callable[..., Any]


class Listener:
    """Somebody who hears of the attention of one model."""

    cuts = False
    """Whether this one changes what it hears of."""

    def __init__(self, model: nn.Module, caller: str) -> None:
        self.names = _names(model, caller)
        self.ran = False

    def forbids(self, name: str, kind: str, call: Call | Projection) -> Forbidden | None:
        """Which pairs of a call that is about to run must not meet, if any."""
        return None

    def saw(
        self,
        name: str,
        kind: str,
        call: Call | Projection | Asked,
        output: Tensor | None,
        doubt: str,
    ) -> None:
        """A call has run, as it is given here."""

    def name(self, frame: Frame | None, owner: nn.Module | None) -> str | None:
        """The innermost running module, or the owner of the call if it is known, by name."""
        if owner is not None and id(owner) in self.names:
            return self.names[id(owner)]
        while frame is not None:
            if id(frame.module) in self.names:
                return self.names[id(frame.module)]
            frame = frame.parent
        return None


def nothing_seen(
    caller: str, model: nn.Module, functions: Counter[Function], written_out: tuple[str, ...]
) -> str:
    """The error for a model without attention that can be seen."""
    made: Counter[str] = Counter()
    for function, times in functions.items():
        name = getattr(function, "__name__", "__")
        if "__" not in name:
            made[name] += times
    most = sorted(made, key=lambda name: -made[name])[:12]
    softmax = [name for name in made if "softmax" in name.lower() and name not in most]
    calls = ", ".join(f"{name} × {made[name]}" for name in [*most, *softmax])
    remedy = "have it call one of these (a model of transformers may know "
    remedy += "attn_implementation='sdpa')"
    if written_out:
        why = f"{' and '.join(written_out)} writes attention out in products and softmax: {remedy}"
    else:
        why = "If it writes attention out in products and softmax, or calls flex_attention, which "
        why += f"is compiled, {remedy}"
    return (
        f"{caller}: {type(model).__name__} ran, but made no call of attention that can be seen: "
        "not scaled_dot_product_attention, multi_head_attention_forward, regard.attend, nor an "
        f"attention function of transformers. It called {calls or 'no torch function'}. {why}"
    )


def _names(model: nn.Module, caller: str) -> dict[int, str]:
    """The names of all modules, if the model is one whose calls can be heard."""
    if not isinstance(model, nn.Module):
        raise OptionError(
            f"{caller}: model is {type(model).__name__}, expected a torch.nn.Module; of a pipeline "
            "or a trainer take its .model"
        )
    names = {id(model): ""}
    _check(model, "", caller)
    _name_parts(model, "", names, caller)
    return names


def _name_parts(model: nn.Module, before: str, names: dict[int, str], caller: str) -> None:
    """Add the names of all modules in it, as `nn.Module.named_modules`, in a third of the time."""
    for key, module in model._modules.items():
        if module is not None and id(module) not in names:
            name = names[id(module)] = before + key
            _check(module, name, caller)
            if module._modules:
                _name_parts(module, f"{name}.", names, caller)


def _check(module: nn.Module, name: str, caller: str) -> None:
    """Raise if what the module calls cannot be heard."""
    if module._compiled_call_impl is None and not _opaque(type(module)):  # type: ignore[arg-type]
        return
    where = f"its module {name!r}" if name else "the model"
    if isinstance(module, torch.jit.ScriptModule):
        raise OptionError(
            f"{caller}: {where} is a ScriptModule, so what it calls cannot be seen; use the "
            "model from before torch.jit"
        )
    raise OptionError(
        f"{caller}: {where} is compiled, so what it calls cannot be seen; use the model "
        "from before torch.compile (compiled._orig_mod), or one without model.compile()"
    )


@cache
def _opaque(kind: type) -> bool:
    """Whether what modules of this kind call cannot be seen."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    optimized = () if dynamo is None else (dynamo.OptimizedModule,)
    return issubclass(kind, (torch.jit.ScriptModule, *optimized))
