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

FAST = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
"""The modules that take a faster way when no function mode is on."""
PLAIN = (bool, int, float, str, type(None))
CONTAINERS = (list, tuple, dict)
MANY = 100
"""Entries of a list, or modules in a module, that are still looked through."""
OF_ALL = frozenset(vars(nn.Module()))
"""What every module has."""
IMPORTED = (
    F.scaled_dot_product_attention,
    F.multi_head_attention_forward,
    torch.ops.aten.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention.default,
)
"""What is heard without the mode only if it is looked up where torch has it."""


def one_sequence(args: Iterable[object], named: Mapping[str, object]) -> object:
    """What a module is given, if that is one sequence, with masks and options; else None.

    Equal for two calls if there are sequence and masks in the same places, and equal options.
    """
    given = (*args, *named.values())
    tensors = [x for x in given if isinstance(x, Tensor)]
    with torch._C.DisableTorchFunction():
        masks = [x.dtype == torch.bool for x in tensors] if len(tensors) > 1 else []
    if len(tensors) - sum(masks) != 1:
        return None
    places: list[object] = []
    for x in given:
        if isinstance(x, Tensor):
            places.append(Tensor)
        elif isinstance(x, PLAIN):
            places.append(x)
        else:
            return None  # a list, or a cache
    return places, masks, [*named]


def snapshot(module: nn.Module) -> list[Known] | None:
    """What a module and all modules in it are, if one can know from that what others like it do.

    Not if one holds tensors of its own to attend to, is hooked, or its authors have imported
    attention by its name, so that only the mode hears it.
    """
    found: list[Known] = []
    todo = [module]
    with torch._C.DisableTorchFunction():
        while todo:
            one = todo.pop()
            if len(found) == MANY or not _knowable(one):
                return None
            found.append(Known(one))
            todo += _present(one)
    return found


def alike(module: nn.Module, known: list[Known]) -> bool:
    """Whether a module, with all in it, is like that of a snapshot, or has remained what it was."""
    todo = [module]
    for one in known:
        if not todo:
            return False
        part = todo.pop()
        if not one.is_like(part):
            return False
        if part._modules:
            todo += _present(part)
    return not todo


def _present(module: nn.Module) -> list[nn.Module]:
    return [part for part in module._modules.values() if part is not None]


def _knowable(module: nn.Module) -> bool:
    return not hooked(module) and (
        _simple(module)
        or not (
            _imports_attention(type(module))  # type: ignore[arg-type]
            or any(x is not None and _is_sequence(x) for x in module._buffers.values())
            or any(_may_hold_tensors(x) for name, x in vars(module).items() if name not in OF_ALL)
        )
    )


def _is_sequence(x: Tensor) -> bool:
    return x.is_floating_point() and x.dim() > 1


def _may_hold_tensors(x: object) -> bool:
    if isinstance(x, CONTAINERS):
        inside = x.values() if isinstance(x, dict) else x
        return len(x) > MANY or not all(isinstance(one, PLAIN) for one in inside)
    return isinstance(x, Tensor)


class Known:
    """What one module was when it had run."""

    __slots__ = ("_buffers", "_count", "_held", "_kind", "_parameters", "_parts", "_simple",
                 "_training")  # fmt: skip

    def __init__(self, module: nn.Module) -> None:
        held = vars(module)
        self._kind = type(module)
        self._simple = _simple(module)
        if self._simple:
            return
        self._count = len(held)
        self._held = [(name, x) for name, x in held.items() if name not in OF_ALL]
        self._training = module.training
        self._parameters = _named(module._parameters)
        self._buffers = _named(module._buffers)
        self._parts = _named(module._modules)

    def is_like(self, module: nn.Module) -> bool:
        """Whether a module does the same.

        It must be of the same kind, and have the same parameters, parts of the same names, the same
        switches, and hold the same objects and functions; numbers may differ.
        """
        held = vars(module)
        if type(module) is not self._kind or hooked(module):
            return False
        if self._simple:
            return not module._modules and "forward" not in held
        if len(held) != self._count or module.training is not self._training:
            return False
        for name, x in self._held:
            y = held.get(name, held)
            if (x is not y or type(x) in CONTAINERS) and not _same(x, y):
                return False
        return (
            _named(module._parameters) == self._parameters
            and _named(module._modules) == self._parts
            and (not module._buffers or self._same_buffers(module))
        )

    def _same_buffers(self, module: nn.Module) -> bool:
        with torch._C.DisableTorchFunction():
            found = _named(module._buffers) == self._buffers
            return found and not any(
                _is_sequence(x) for x in module._buffers.values() if x is not None
            )


def of_torch(module: nn.Module) -> bool:
    """Whether it is one of torch's own that only call others, or none, and nobody changed that."""
    return _only_calls(type(module)) and "forward" not in vars(module)  # type: ignore[arg-type]


def _simple(module: nn.Module) -> bool:
    """Whether it is one of torch's own that call no other, such as `nn.Linear`."""
    return not module._modules and of_torch(module)


@cache
def _only_calls(kind: type) -> bool:
    return kind.__module__.startswith("torch.nn.modules.") and not issubclass(kind, FAST)


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
