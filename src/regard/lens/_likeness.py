"""Which modules do the same, so that what was followed in one need not be in the next.

A model is mostly the same layer many times. What the first did is known: which way it called
attention, and that it attended to its own sequence. A layer like it, that is given a single
sequence as well, can attend to nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PLAIN = (bool, int, float, str, type(None))
MANY = 100
"""Entries of a list that are still looked through."""
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
IMPORTED = (
    F.scaled_dot_product_attention,
    F.multi_head_attention_forward,
    torch.ops.aten.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention.default,
)
"""What is heard without the mode only if it is looked up where torch has it."""


def one_sequence(args: Iterable[object], named: Mapping[str, object]) -> bool:
    """Whether a module is given one tensor, and beside it nothing but masks and options."""
    tensors = 0
    with torch._C.DisableTorchFunction():
        for x in (*args, *named.values()):
            if isinstance(x, Tensor):
                tensors += x.dtype != torch.bool
            elif not isinstance(x, PLAIN):
                return False  # a list, or a cache
    return tensors == 1


def likeness(module: nn.Module) -> object:
    """What modules that do the same have in common; None if one cannot know.

    Their kind, whether they train, the names of their parameters and the kinds of their parts,
    switches, and what objects and functions they were given. One cannot know what a module does
    that holds tensors of its own to attend to, that is hooked, or whose authors have imported
    attention by its name, so that only the mode hears it.
    """
    kind = type(module)
    if _imports_attention(kind):  # type: ignore[arg-type]
        return None
    shared: list[Any] = [kind, module.training]
    shared += [name for name, x in module._parameters.items() if x is not None]
    for name, part in module._modules.items():
        if part is not None:
            if hooked(part):
                return None
            shared.append((name, type(part)))
    held = vars(module)
    for name in sorted(held.keys() - _OF_EVERY_MODULE):
        x = held[name]
        if isinstance(x, Tensor):
            return None
        if isinstance(x, list | tuple | dict):
            inside = x.values() if isinstance(x, dict) else x
            if len(x) > MANY or not all(isinstance(one, PLAIN) for one in inside):
                return None
        elif isinstance(x, bool | str | None):
            shared.append((name, x))
        elif not isinstance(x, int | float):
            shared.append((name, _Itself(x)))
    with torch._C.DisableTorchFunction():
        for x in module._buffers.values():
            if x is not None and x.is_floating_point() and x.dim() > 1:
                return None
    return None if hooked(module) else tuple(shared)


class _Itself:
    """An object that equals only itself."""

    __slots__ = ("_object",)

    def __init__(self, thing: object) -> None:
        self._object = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other._object is self._object

    def __hash__(self) -> int:
        return id(self._object)


def hooked(module: nn.Module) -> bool:
    """Whether somebody has hooked something of their own into a module."""
    return bool(module._forward_pre_hooks or module._forward_hooks)


@cache
def _imports_attention(kind: type) -> bool:
    """Whether the file of a class, or of one it inherits from, has attention under a name."""
    names = {one.__module__ for one in kind.__mro__} - {"builtins", nn.Module.__module__}
    files = [vars(sys.modules[name]) for name in names if name in sys.modules]
    return any(x is one for file in files for x in list(file.values()) for one in IMPORTED)
