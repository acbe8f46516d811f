"""What is wrapped in the process while anybody listens, and how one listens."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from regard.attention import operation
from regard.lens import _sensors
from regard.lens._listener import Function, Listener
from regard.lens._listening import SESSION, Session, current

Undo = Callable[[], None]

_ATEN = torch.ops.aten.scaled_dot_product_attention
_LOOKED_UP = [
    (F, "scaled_dot_product_attention", _sensors.sdpa),
    (F, "multi_head_attention_forward", _sensors.layer),
    (torch, "_native_multi_head_attention", _sensors.fast_attention),
    (torch, "_transformer_encoder_layer_fwd", _sensors.fast_layer),
]
"""Functions that torch's own layers look up when they call them, and their sensors."""

_SEEN: dict[Function, Function] = {
    F.scaled_dot_product_attention: _sensors.sdpa(F.scaled_dot_product_attention),
    F.multi_head_attention_forward: _sensors.layer(F.multi_head_attention_forward),
    _ATEN: _sensors.sdpa(_ATEN),
    _ATEN.default: _sensors.sdpa(_ATEN.default),
}
"""Functions that a mode sees wherever they are called, and the same, heard of."""


@contextmanager
def listening(listener: Listener) -> Iterator[Session]:
    """A context in which the listener hears of every call of attention of its model."""
    session = current()
    if session is None:
        session = Session(_SEEN)
        SESSION.set(session)
    with _INSTALLED:
        session.add(listener)
        try:
            yield session
        finally:
            session.remove(listener)
            if not session.listeners and SESSION.get() is session:
                SESSION.set(None)


class _Installation:
    """What is wrapped, as long as anybody is in it."""

    def __init__(self, *steps: Callable[[], Undo | None]) -> None:
        """Each step wraps something and returns what undoes it, or None if it is not there yet."""
        self._steps = steps
        self._lock = threading.Lock()
        self._count = 0
        self._undo: dict[Callable[[], Undo | None], Undo] = {}

    def __enter__(self) -> None:
        with self._lock:
            self._count += 1
            for step in self._steps:
                undo = None if step in self._undo else step()
                if undo is not None:
                    self._undo[step] = undo

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0:
                for undo in self._undo.values():
                    undo()
                self._undo.clear()


def _modules() -> Undo:
    """Every run of a module. Not by hooks: torch calls modules faster as long as there are none."""
    original: Function = nn.Module._call_impl

    def followed(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        session = current()
        if session is None or not session.enter(self, args, kwargs):
            return original(self, *args, **kwargs)
        result = None
        try:
            result = original(self, *args, **kwargs)
        finally:
            session.leave(self, args, kwargs, result)
        return result

    nn.Module._call_impl = followed  # type: ignore[method-assign]

    def undo() -> None:
        if nn.Module._call_impl is followed:  # else somebody has wrapped it once more
            nn.Module._call_impl = original  # type: ignore[method-assign]

    return undo


def _torch() -> Undo:
    wrapped = []
    for place, name, sensor in _LOOKED_UP:
        original = getattr(place, name)
        wrapped.append((place, name, original, sensor(original)))
        setattr(place, name, wrapped[-1][3])

    def undo() -> None:
        for place, name, original, heard in wrapped:
            if getattr(place, name) is heard:  # else somebody has wrapped it once more
                setattr(place, name, original)

    return undo


def _transformers() -> Undo | None:
    """The functions of transformers, if it is there."""
    interface = getattr(sys.modules.get("transformers.modeling_utils"), "AttentionInterface", None)
    original = getattr(interface, "get_interface", None)
    if interface is None or original is None:
        return None

    def get_interface(self: Any, attn_implementation: str, default: Function) -> Function:
        function: Function = original(self, attn_implementation, default)
        written_out = function is default and current() is not None
        return _sensors.eager(function) if written_out else function

    interface.get_interface = get_interface

    def undo() -> None:
        interface.get_interface = original

    return undo


def _own() -> Undo:
    operation.AROUND = _sensors.own

    def undo() -> None:
        operation.AROUND = None

    return undo


_INSTALLED = _Installation(_modules, _torch, _transformers, _own)
