"""Which module of a model is running, and its arguments.

Both are read off Python's call stack, where every call of an `nn.Module` has a frame of
``_call_impl``. That happens at a call of attention only, so modules need no hooks, other threads
are not slowed down, and PyTorch's fast paths stay on.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.errors import OptionError

_CALL = nn.Module._call_impl.__code__
_NO_SEQUENCE = re.compile(
    r"mask|bias|(^|_)pos|rotary|rope|freq|^cos|^sin|past|cache|scal|temb|time|indices|ids|coord|residual|alibi"
)
"""Names of arguments that are not sequences, even if they are tensors of floats."""


TRANSFORMED = (
    "watch: the model runs inside a transform of torch.func or torch.compile, whose tensors cannot "
    "be kept; call it without"
)
Identity = tuple[int, int, int]
"""A tensor's storage, its offset in it, and its number of elements."""


class Run(NamedTuple):
    """A module that is running, and its arguments (none if a method of it was called directly)."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def running() -> Iterator[Run]:
    """The modules that are running in this thread, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    last: nn.Module | None = None
    while frame is not None:
        code = frame.f_code
        if code is _CALL:
            local = frame.f_locals
            last = local["self"]
            yield Run(last, local["args"], local["kwargs"])
        elif code.co_argcount and code.co_varnames[0] == "self" and code.co_name != "forward":
            this = frame.f_locals.get("self")
            if isinstance(this, nn.Module) and this is not last:
                last = this
                yield Run(this, (), {})
        frame = frame.f_back


def is_part(module: nn.Module) -> bool:
    """Whether a module is one of PyTorch's smallest parts, such as `nn.Softmax` or `nn.Dropout`."""
    kind = type(module)
    small = kind.__module__.startswith("torch.nn.modules.") or "softmax" in kind.__name__.lower()
    whole = isinstance(module, nn.MultiheadAttention) or "forward" in vars(module)
    return small and not module._modules and not whole


def sequences(run: Run) -> list[Tensor]:
    """The distinct sequences of vectors among a module's arguments, in order."""
    found: dict[Identity, Tensor] = {}
    named = zip((*_parameters(type(run.module)), *("",) * len(run.args)), run.args, strict=False)  # type: ignore[arg-type]
    for name, value in (*named, *run.kwargs.items()):
        if _NO_SEQUENCE.search(name):
            continue
        for x in value if isinstance(value, list | tuple) else (value,):
            if not isinstance(x, Tensor):
                continue
            if torch._C._functorch.is_functorch_wrapped_tensor(x):
                raise OptionError(TRANSFORMED)
            if x.is_floating_point() and x.dim() >= 2:
                found.setdefault(identity(x), x)
    return list(found.values())


@cache
def _parameters(kind: Any) -> tuple[str, ...]:
    """The names of the positional parameters of a module's forward."""
    try:
        parameters = list(inspect.signature(kind.forward).parameters.values())[1:]
    except (TypeError, ValueError):
        return ()
    return tuple(
        one.name
        for one in parameters
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    )


def identity(x: Tensor) -> Identity:
    """The identity of a tensor, which its views of the same elements share."""
    if x.is_nested:
        return id(x), 0, 0
    return x.untyped_storage()._cdata, int(x.storage_offset()), x.numel()


_PARTS = (nn.Embedding, nn.LayerNorm, nn.RMSNorm, nn.Dropout, nn.ModuleList)
"""Modules of PyTorch that regard's models are made of; none of them attends."""

_OWN = ("regard.nn.", "regard.attention.")


def only_attend(model: nn.Module) -> bool:
    """Whether all attention of a model is by `attend`: all its modules are those of regard."""
    return all(
        type(one) in _PARTS
        or (type(one).__module__.startswith(_OWN) and "forward" not in vars(one))
        for one in model.modules()
    )


def has_parameters(module: nn.Module) -> bool:
    """Whether a module or one in it has any parameters."""
    return any(one._parameters for one in module.modules())


def names_of(model: nn.Module, caller: str) -> dict[int, str]:
    """The names of all modules of a model, by their id; raises if one is compiled or scripted."""
    if not isinstance(model, nn.Module):
        raise OptionError(
            f"{caller}: model is {type(model).__name__}, expected a torch.nn.Module; for a "
            "pipeline or a trainer, pass its .model"
        )
    names = {}
    for name, module in model.named_modules():
        names[id(module)] = name
        _check(module, name, caller)
    return names


def _check(module: nn.Module, name: str, caller: str) -> None:
    """Raise if the module is compiled or scripted, so that its operators cannot be captured."""
    compiled = module._compiled_call_impl is not None or hasattr(
        vars(module).get("forward"), "_torchdynamo_orig_callable"
    )
    if not compiled and not _opaque(type(module)):  # type: ignore[arg-type]
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
def _opaque(kind: Any) -> bool:
    """Whether modules of this class are compiled or scripted."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    optimized = () if dynamo is None else (dynamo.OptimizedModule,)
    return issubclass(kind, (torch.jit.ScriptModule, *optimized))


def name_in(runs: list[Run], names: Mapping[int, str]) -> str | None:
    """The name of the innermost running module that has one; None if there is none."""
    for run in runs:
        if id(run.module) in names and not is_part(run.module):
            return names[id(run.module)]
    return next((names[id(run.module)] for run in runs if id(run.module) in names), None)
