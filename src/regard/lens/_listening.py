"""Hearing of every call of attention while it happens, and who made it.

No model has to be asked or changed: calls are intercepted where they go to torch, transformers or
regard.

- A `TorchFunctionMode` sees `scaled_dot_product_attention`, however the model came by it. But
  torch's own layers leave their fast path as soon as such a mode is on, and so change bits. In them
  it is off, and the functions that they call are wrapped where they look them up.
- transformers looks its functions up by `AttentionInterface.get_interface`; those that write the
  weights out are wrapped as they are handed over.
- regard's `attend` and `look` announce themselves.
- Every run of a module is announced by `nn.Module` itself (hooks would end the fast path of torch's
  layers, and slow down all others).
- torch's own modules that call no other, such as `nn.Linear`, are followed as wholes, and the mode
  is off in them, unless somebody has changed what they do.
- So it is in a module that is like those that have run before, and was given a single sequence:
  what attends in there is heard without the mode, and can attend to nothing but that sequence.

What is wrapped is so for the whole process, as long as anybody listens; what is heard belongs to
the context and thread that listen.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn, overrides
from torch.compiler import is_compiling
from torch.nn.modules import module as running
from torch.overrides import TorchFunctionMode

from regard.attention._call import Call
from regard.lens._forbidden import Forbidden
from regard.lens._frames import Frame
from regard.lens._likeness import Known, given, hooked, knowable, one_sequence
from regard.lens._listener import Function, Listener
from regard.lens._projection import Projection
from regard.lens._torch_calls import Asked
from regard.lens._written_out import WrittenOut

FAST = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
"""The modules that take a faster way when no function mode is on."""

MOVING: frozenset[Function] = frozenset(
    getattr(place, name)
    for place in (torch, Tensor)
    for name in (
        "chunk", "flip", "flipud", "fliplr", "gather", "index_select", "masked_select", "narrow",
        "roll", "select", "sort", "split", "take_along_dim", "tensor_split", "unbind",
        "__getitem__", "__setitem__", "unfold",
    )
    if hasattr(place, name)
)  # fmt: skip
"""The functions after which a word stands in another place."""

KNOWN = 8
"""How many different modules of a kind are remembered."""


class Session:
    """Who listens in one thread, and what is running there."""

    def __init__(self, sensors: dict[Function, Function]) -> None:
        """`sensors` are for functions that compute attention: the same, but heard of."""
        self.listeners: list[Listener] = []
        self.cuts = False
        """Whether anybody changes what is heard."""
        self._expecting = False
        """Whether anybody's model has not run yet."""
        self.frame: Frame | None = None
        self.functions: Counter[Function] = Counter()
        self.written_out = WrittenOut()
        self.busy = False
        """Whether a call of attention is under way, whose parts are nobody's business."""
        self.thread = threading.get_ident()
        self._mode = _Mode(self, sensors)
        self._on = False
        self._resting: nn.Module | None = None
        """The module that is running as a whole, if one is."""
        self._depth = 0
        """How many modes were below ours when it began."""
        self._plain: bool | None = None
        """Whether all attention so far was of a sequence to itself, and heard without the mode."""
        self._heard = 0
        """How many calls of attention there were."""
        self._known: dict[type, list[Known]] = {}
        """Modules that have run and were followed, by their kind."""

    def add(self, listener: Listener) -> None:
        """Let somebody hear."""
        self.listeners.append(listener)
        self._changed()

    def remove(self, listener: Listener) -> None:
        """Let them hear no more."""
        self.listeners.remove(listener)
        self._changed()

    def _changed(self) -> None:
        self.cuts = any(listener.cuts for listener in self.listeners)
        self._expecting = not all(listener.ran for listener in self.listeners)
        self.adjust()

    def enter(self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> bool:
        """A module begins to run; returns whether `leave` wants to know of its end."""
        if self._expecting:
            for listener in self.listeners:
                listener.ran = listener.ran or id(module) in listener.names
            self._expecting = not all(listener.ran for listener in self.listeners)
        if self._resting is not None:
            self._wake()  # it was interrupted, or calls another after all
        frame = self.frame
        inside = frame is not None and frame.sealed and not self.cuts
        if _attends_never(module):
            if not inside:
                return self._rest(module)
            if not hooked(module):
                return False
        known = self._like(module, args, named)
        if inside and known is not None and known.quiet:
            return False
        sealed = known is not None and self._seals(args, named)
        self.frame = Frame(module, frame, args, named, sealed=sealed, heard=self._heard)
        if not (inside and sealed):
            self.adjust()
        return True

    def leave(
        self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any], result: object
    ) -> None:
        """A module has run, or failed."""
        if module is self._resting:
            self._wake()
            self.functions[type(module)] += 1
            if self.frame is not None:
                self.frame.follow((*args, *named.values()), result)
                self.written_out.follow(type(module), args, result, self.frame.module)
            return
        frame = self.frame
        while frame is not None and frame.module is not module:
            frame = frame.parent  # one that was interrupted, and never left
        if frame is None:
            return
        self.frame = frame.parent
        if frame.parent is not None and frame.parent.sealed and frame.sealed:
            return
        queries_only = isinstance(module, nn.MultiheadAttention)
        given_to = args[:1] if queries_only else (*args, *named.values())
        frame.leave(given_to, result, attended=self._heard != frame.heard)
        if result is not None and not (frame.sealed or self.busy or _goes_backward()):
            self._learn(module, args, named, quiet=self._heard == frame.heard)
        self.adjust()

    def _learn(
        self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any], quiet: bool
    ) -> None:
        """Remember a module that has run and was followed."""
        known = self._known.setdefault(type(module), [])
        if len(known) < KNOWN and knowable(module):
            alike = self._like(module, args, named)
            if alike is None:
                known.append(Known(module, given(args, named), quiet))
            else:
                alike.quiet &= quiet

    def _like(
        self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]
    ) -> Known | None:
        """A module like this that has run when given the same, if there is one."""
        known = self._known.get(type(module))
        if known and self._plain is not False:
            what = given(args, named)
            for one in known:
                if what == one.given and one.is_like(module):
                    return one
        return None

    def _seals(self, args: tuple[Any, ...], named: dict[str, Any]) -> bool:
        """Whether what attends in a module is a single sequence, and is heard without the mode.

        So it is if it is given no more, and is like one that has run with the mode on, which had
        nothing to hear.
        """
        return (
            bool(self._plain)
            and not self.cuts
            and one_sequence(args, named)
            and not (running._global_forward_pre_hooks or running._global_forward_hooks)
        )

    def _rest(self, module: nn.Module) -> bool:
        """Set the mode to off in a module of torch, if that can be followed as a whole."""
        if not (self._on and _whole(module) and _top() is self._mode):
            return False
        self._depth = _count() - 1
        self._resting = module
        _pop()
        return True

    def _wake(self) -> None:
        """Set the mode to on again, below those that came meanwhile."""
        above = [_pop() for _ in range(_count() - self._depth)]
        self._on = bool(self.listeners)  # else the last one left meanwhile
        ours = [self._mode] if self._on else []
        for mode in (*ours, *(other for other in reversed(above) if other is not self._mode)):
            _push(mode)
        self._resting = None

    def adjust(self) -> None:
        """Set the mode to on or off, as the module that is running needs it."""
        frame = self.frame
        quiet = frame is not None and (frame.sealed or isinstance(frame.module, FAST))
        off = self.busy or (quiet and not self.cuts)
        if not self.listeners or (off and _top() is self._mode):
            if self._on:
                _remove(self._mode)
            self._on = False
        elif not off and not self._on:
            _push(self._mode)
            self._on = True

    def needs_mode(self) -> None:
        """There is attention that only the mode hears."""
        self._plain = False

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A context for one call of attention, whose parts are not heard of."""
        self.busy = True
        self.adjust()
        try:
            yield
        finally:
            self.busy = False
            self.adjust()

    def kind(self, q: Tensor, k: Tensor, v: Tensor) -> str:
        """``"self"`` or ``"cross"``."""
        if self.frame is not None:
            return self.frame.kind(q, k, v)
        return "self" if q.shape[-2] == k.shape[-2] else "cross"

    def belongs(self, result: object, query: Tensor) -> None:
        """What attention gave belongs to the sequence of the queries, whatever they looked at."""
        if self.frame is not None:
            self.frame.follow((query,), result, moved=True)

    def forbidden(
        self, kind: str, call: Call | Projection, owner: nn.Module | None = None
    ) -> Forbidden | None:
        """The pairs that somebody forbids; None if nobody does."""
        forbidden: Forbidden | None = None
        for listener in self.listeners:
            name = listener.name(self.frame, owner) if listener.cuts else None
            pairs = None if name is None else listener.forbids(name, kind, call)
            if pairs is not None:
                forbidden = pairs if forbidden is None else forbidden | pairs
        return forbidden

    def saw(
        self,
        kind: str,
        call: Call | Projection | Asked,
        output: Tensor | None,
        owner: nn.Module | None = None,
        doubt: str = "",
    ) -> None:
        """Tell everybody of a call that has run; `output` is ``(b, h, q, e)`` or of its rank."""
        self._heard += 1
        if _goes_backward():
            return
        self._plain = self._plain is not False and kind == "self"
        for listener in self.listeners:
            name = listener.name(self.frame, owner)
            if name is not None:
                listener.saw(name, kind, call, output, doubt)


class _Mode(TorchFunctionMode):
    """Sees every torch function that is called in this thread while it is on."""

    def __init__(self, session: Session, sensors: dict[Function, Function]) -> None:
        super().__init__()
        self._session = session
        self._sensors = sensors

    def __torch_function__(
        self,
        func: Function,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        session = self._session
        if is_compiling() or session.busy or SESSION.get() is not session:
            return func(*args, **kwargs) if kwargs else func(*args)
        session.functions[func] += 1
        sensor = self._sensors.get(func)
        if sensor is not None:
            session.needs_mode()
            return sensor(*args, **(kwargs or {}))
        result = func(*args, **kwargs) if kwargs else func(*args)
        if session.frame is not None:
            given = (*args, *kwargs.values()) if kwargs else args
            changed = args[0] if func is Tensor.__setitem__ else result
            session.frame.follow(given, changed, moved=func in MOVING)
            session.written_out.follow(func, given, result, session.frame.module)
        return result


def _goes_backward() -> bool:
    """Whether this is a checkpoint, run again for the backward pass."""
    return torch._C._current_graph_task_id() != -1


@cache
def _of_torch(kind: type) -> bool:
    """Whether this is one of torch's own modules that only call others, or none at all."""
    return kind.__module__.startswith("torch.nn.modules.") and not issubclass(kind, FAST)


def _attends_never(module: nn.Module) -> bool:
    """Whether it is such a module, and nobody has changed what it does."""
    return _of_torch(type(module)) and "forward" not in vars(module)  # type: ignore[arg-type]


def _whole(module: nn.Module) -> bool:
    """Whether all that such a module does is in what it is given and what it returns.

    It calls no other, and nobody has hooked in something that might.
    """
    return not (
        module._modules
        or hooked(module)
        or module._backward_hooks
        or module._backward_pre_hooks
        or running._global_forward_pre_hooks
        or running._global_forward_hooks
        or running._global_backward_hooks
        or running._global_backward_pre_hooks
    )


SESSION: ContextVar[Session | None] = ContextVar("session", default=None)


def current() -> Session | None:
    """Who listens here, if anybody does."""
    session = SESSION.get()
    if session is None or not session.listeners or session.thread != threading.get_ident():
        return None
    return session


_top: Callable[[], TorchFunctionMode | None] = overrides._get_current_function_mode
_push: Callable[[TorchFunctionMode], None] = overrides._push_mode
_pop: Callable[[], TorchFunctionMode] = overrides._pop_mode
_count: Callable[[], int] = torch._C._len_torch_function_stack


def _remove(mode: TorchFunctionMode) -> None:
    """Take a mode off, also from under others."""
    above = []
    while (top := _top()) is not None and top is not mode:
        above.append(_pop())
    if top is mode:
        _pop()
    for other in reversed(above):
        _push(other)
