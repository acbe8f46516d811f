"""Which modules do the same, so that what was followed in one need not be in the next.

A model is mostly the same layer many times. What the first did is known: which way it called
attention, and that it attended to its own sequence. A layer like it, that is given a single
sequence as well, can attend to nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PLAIN = (bool, int, float, str, type(None))
CONTAINERS = (list, tuple, dict)
MANY = 100
"""Entries of a list that are still looked through."""
OF_ALL = frozenset(vars(nn.Module()))
"""What every module has."""
IMPORTED = (
    F.scaled_dot_product_attention,
    F.multi_head_attention_forward,
    torch.ops.aten.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention.default,
)
"""What is heard without the mode only if it is looked up where torch has it."""


def one_sequence(args: Iterable[object], named: Mapping[str, object]) -> bool:
    """Whether a module is given one tensor, and beside it nothing but masks and options."""
    tensors: list[Tensor] = []
    for x in (*args, *named.values()):
        if isinstance(x, Tensor):
            tensors.append(x)
        elif not isinstance(x, PLAIN):
            return False  # a list, or a cache
    if len(tensors) > 1:
        with torch._C.DisableTorchFunction():
            tensors = [x for x in tensors if x.dtype != torch.bool]
    return len(tensors) == 1


def given(args: Iterable[object], named: Mapping[str, object]) -> object:
    """What a module is given: options as they are, of all else what it is."""
    places = [x if isinstance(x, PLAIN) else type(x) for x in args]
    return places, {name: x if isinstance(x, PLAIN) else type(x) for name, x in named.items()}


def knowable(module: nn.Module) -> bool:
    """Whether one can know from one run of a module what others like it do.

    Not if it holds tensors of its own to attend to, is hooked, or its authors have imported
    attention by its name, so that only the mode hears it.
    """
    with torch._C.DisableTorchFunction():
        return not (
            hooked(module)
            or _imports_attention(type(module))  # type: ignore[arg-type]
            or any(x is not None and _is_sequence(x) for x in module._buffers.values())
            or any(_may_hold_tensors(x) for name, x in vars(module).items() if name not in OF_ALL)
        )


def _is_sequence(x: Tensor) -> bool:
    return x.is_floating_point() and x.dim() > 1


def _may_hold_tensors(x: object) -> bool:
    if isinstance(x, CONTAINERS):
        inside = x.values() if isinstance(x, dict) else x
        return len(x) > MANY or not all(isinstance(one, PLAIN) for one in inside)
    return isinstance(x, Tensor)


class Known:
    """What a module was when it had run, if it is `knowable`."""

    __slots__ = (
        "_buffers", "_count", "_held", "_parameters", "_parts", "_training", "given", "quiet",
    )  # fmt: skip

    def __init__(self, module: nn.Module, given: object, quiet: bool) -> None:
        held = vars(module)
        self._count = len(held)
        self._held = {name: x for name, x in held.items() if name not in OF_ALL}
        self._training = module.training
        self._parameters = _named(module._parameters)
        self._buffers = _named(module._buffers)
        self._parts = {name: type(part) for name, part in module._modules.items()}
        self.given = given
        self.quiet = quiet
        """Whether nothing attended in it."""

    def is_like(self, module: nn.Module) -> bool:
        """Whether a module of its kind, or the same one later, does the same.

        It must have the same parameters, parts of the same kinds, the same switches, and hold the
        same objects and functions; numbers may differ.
        """
        held, parts = vars(module), module._modules
        if len(held) != self._count or hooked(module) or module.training is not self._training:
            return False
        for name, x in self._held.items():
            y = held.get(name, held)
            if (x is not y or type(x) in CONTAINERS) and not _same(x, y):
                return False
        if _named(module._parameters) != self._parameters or len(parts) != len(self._parts):
            return False
        for name, part in parts.items():
            if type(part) is not self._parts.get(name) or (part is not None and hooked(part)):
                return False
        return not module._buffers or self._same_buffers(module)

    def _same_buffers(self, module: nn.Module) -> bool:
        with torch._C.DisableTorchFunction():
            found = _named(module._buffers) == self._buffers
            return found and not any(
                _is_sequence(x) for x in module._buffers.values() if x is not None
            )


def _same(x: object, y: object) -> bool:
    """Whether these are numbers, or equal texts, or equal lists of plain things."""
    if type(x) is not type(y):
        return False
    if isinstance(x, CONTAINERS):
        return not _may_hold_tensors(y) and x == y
    return x == y if isinstance(x, str) else isinstance(x, int | float) and not isinstance(x, bool)


def _named(things: Mapping[str, object]) -> list[str]:
    return [name for name, x in things.items() if x is not None]


def hooked(module: nn.Module) -> bool:
    """Whether somebody has hooked something of their own into a module."""
    return bool(module._forward_pre_hooks or module._forward_hooks)


@cache
def _imports_attention(kind: type) -> bool:
    """Whether the file of a class, or of one it inherits from, has attention under a name."""
    names = {one.__module__ for one in kind.__mro__} - {"builtins", nn.Module.__module__}
    files = [vars(sys.modules[name]) for name in names if name in sys.modules]
    return any(x is one for file in files for x in list(file.values()) for one in IMPORTED)
