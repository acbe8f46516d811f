"""`Session`: the dispatch mode that captures attention in one thread, and its listeners.

PyTorch calls a `TorchDispatchMode` for every operator that runs in its thread, below autograd and
autocast, with the tensors that enter the kernels. Operators that belong to attention are
handled by the adapters (`regard.lens.capture.adapters`), all others run as they are. regard's own
models announce their calls by `attend` itself, so the mode, which would cost more than a short
sentence takes, stays off for them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)
from torch.utils.hooks import RemovableHandle

from regard.errors import OptionError
from regard.lens.capture.forbidden import Forbidden
from regard.lens.capture.inputs import Inputs
from regard.lens.capture.kinds import PROJECTIONS, Origins, kind_of
from regard.lens.capture.modules import Run, name_in, names_of, only_attend, running
from regard.lens.capture.record import FinishedCall, Gradients
from regard.lens.capture.storage import counted_views

FAST = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
"""Modules whose fast path is off if they have hooks."""
Operator = Callable[..., Any]
Handler = Callable[["Session", Operator, tuple[Any, ...], dict[str, Any]], Any]


@runtime_checkable
class Adapter(Protocol):
    """One host of attention.

    It converts each call of its host to `Inputs`, asks `Session.forbidden` for links to mask before
    it runs the call, and passes the finished call to `Session.announce`.
    """

    @property
    def operators(self) -> Mapping[Operator, Handler]:
        """The operators that it handles, called within the dispatch mode."""

    def install(self, session: Session) -> None:
        """Called when capturing begins in a thread."""

    def remove(self, session: Session) -> None:
        """Called when capturing ends in a thread."""


class Place(NamedTuple):
    """Where a call of attention is made: the modules that run, and its kind."""

    runs: list[Run]
    kind: str
    listeners: list[tuple[Listener, str]]
    """Those to whose model it belongs, and the name of the module in it."""

    @property
    def module(self) -> nn.Module:
        """The innermost module."""
        return self.runs[0].module


class Listener:
    """Receives the attention calls of one model: `watch` or `cut`."""

    cuts = False
    """Whether it forbids links."""
    gradients = False
    """Whether it needs gradients of the calls announced to it."""

    def __init__(self, model: nn.Module, caller: str) -> None:
        self.model = model
        self.caller = caller
        self.names = names_of(model, caller)
        self.ran = False
        """Whether a module of the model has run in this thread."""
        self.elsewhere = False
        """Whether the model was called in another thread."""
        self._thread = threading.get_ident()
        self._hook: RemovableHandle | None = None

    @cached_property
    def parameters(self) -> set[int]:
        """The storages of the model's parameters and buffers."""
        tensors = (*self.model.parameters(), *self.model.buffers())
        return {x.untyped_storage()._cdata for x in tensors if x.layout == torch.strided}

    def begin(self) -> None:
        """Called when its context begins: from now on, calls in other threads are noted.

        PyTorch's own modules get no hook, which would switch their fast path off.
        """
        if not isinstance(self.model, FAST):
            self._hook = self.model.register_forward_pre_hook(self._called)

    def end(self) -> None:
        """Called when its context ends."""
        if self._hook is not None:
            self._hook.remove()

    def _called(self, *_: object) -> None:
        if threading.get_ident() != self._thread:
            self.elsewhere = True

    def forbidden(self, name: str, kind: str, inputs: Inputs) -> Forbidden | None:
        """The links to mask in a call, if any."""
        return None

    def saw(self, name: str, kind: str, call: FinishedCall) -> None:
        """A call has run."""


class Session(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Captures the attention of one thread."""

    supports_higher_order_operators = True
    adapters: tuple[Adapter, ...] = ()
    handlers: dict[Operator, Handler] = {}  # noqa: RUF012  (filled by `register`)

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.listeners: list[Listener] = []
        self.origins = Origins()
        self.operators: Counter[str] = Counter()
        """The number of calls of each operator, for the error if no attention was captured."""
        self.state: dict[object, Any] = {}
        """State of the adapters in this thread, each under its own key."""
        self.unread: dict[int, nn.Module] = {}
        """Modules that multiplied activations or took a softmax, and completed no call, by id."""
        self.announced: Any = None
        """What an attention function of transformers that is running was given, if one is."""
        self.empty = False
        """Whether a tensor had no elements, for which PyTorch skips attention."""
        self.nested = False
        """Whether attention was called with nested tensors, which are not followed."""
        self.inside = False
        """Whether an attention call is running whose operators are not to be captured."""
        self._waiting = False
        self._on = False
        """Whether the mode is on; models that attend by `attend` alone do without it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether PyTorch wraps each call of the mode so that torch.compile skips it.

        Nothing is compiled while the mode runs, and the wrapper takes a third of its time.
        """
        return False

    @classmethod
    def register(cls, adapter: Adapter) -> None:
        """Capture the host of one more adapter from now on."""
        cls.adapters += (adapter,)
        cls.handlers.update(adapter.operators)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Whether torch.compile may compile while the mode is on; what it compiles is not seen."""
        return True

    # ------------------------------------------------------------------ operators

    def __torch_dispatch__(
        self, func: Operator, types: object, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._waiting:
            self._note(func, args)
        if torch.is_inference_mode_enabled() and _composite(func):
            # Here a mode comes before an operator is taken apart. The guard makes views of
            # parameters what they are without a mode, on which bits depend.
            with counted_views():
                return self._run(func, args, kwargs)
        return self._run(func, args, kwargs)

    def _run(self, func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        handler = None if self.inside else self.handlers.get(func)
        result = func(*args, **kwargs) if handler is None else handler(self, func, args, kwargs)
        if func in PROJECTIONS:
            self.origins.note(func, args, result)
        return result

    def _note(self, func: Operator, args: tuple[Any, ...]) -> None:
        """Note, until attention is captured, that a model has run and which operators."""
        self.empty = self.empty or any(isinstance(x, Tensor) and not x.numel() for x in args)
        self.operators[getattr(func, "__name__", str(func)).split(".")[0]] += 1
        if not all(listener.ran for listener in self.listeners):
            modules = {id(run.module) for run in running()}
            for listener in self.listeners:
                listener.ran = listener.ran or not modules.isdisjoint(listener.names)

    # ------------------------------------------------------------------ for adapters

    def place(
        self,
        q: Tensor | None,
        k: Tensor,
        v: Tensor | None,
        *,
        kind: str | None = None,
        owner: nn.Module | None = None,
    ) -> Place | None:
        """The place of the running call; None if it is in no module of a listener's model.

        `owner` is the module that attends, if it is another than the innermost that is running.
        """
        runs = list(running())
        if owner is not None:
            runs.insert(0, Run(owner, (), {}))
        names = ((listener, name_in(runs, listener.names)) for listener in self.listeners)
        listeners = [(listener, name) for listener, name in names if name is not None]
        if not listeners:
            return None
        return Place(runs, kind or kind_of(runs, q, k, v, self.origins), listeners)

    @property
    def cuts(self) -> bool:
        """Whether a listener forbids links."""
        return any(listener.cuts for listener in self.listeners)

    def forbidden(self, place: Place, inputs: Inputs) -> Forbidden | None:
        """The links to mask in the call; None if there are none."""
        found: Forbidden | None = None
        for listener, name in place.listeners:
            one = listener.forbidden(name, place.kind, inputs)
            if one is not None:
                found = one if found is None else found | one
        return found

    def announce(
        self, place: Place, inputs: Inputs, output: Tensor | None, in_use: int | None = None
    ) -> Gradients:
        """Pass a finished call to the listeners; returns the record for its gradients.

        `in_use` is the number of keys in use before links were cut, if any were.
        """
        call = FinishedCall(inputs, output, inputs.in_use() if in_use is None else in_use)
        if recomputing():
            return call.gradients
        for listener, name in place.listeners:
            listener.ran = True
            with torch.no_grad():
                listener.saw(name, place.kind, call)
        self._waiting = False
        return call.gradients

    def needs_gradient(self, place: Place, *tensors: Tensor | None) -> bool:
        """Whether a listener needs the gradients of a call; raises if it has none."""
        for listener, name in place.listeners:
            if not listener.gradients:
                continue
            if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
                return True
            raise OptionError(
                f"{listener.caller}: gradients=True, but attention in {name or 'the model'!r} has "
                "no gradient; run the model outside torch.no_grad() and torch.inference_mode(), "
                "with parameters or inputs that require a gradient"
            )
        return False

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Context for one attention call whose operators are not to be captured."""
        before, self.inside = self.inside, True
        try:
            yield
        finally:
            self.inside = before

    # ------------------------------------------------------------------ listeners

    def add(self, listener: Listener) -> None:
        """Register a listener."""
        if not self.listeners:
            torch.clear_autocast_cache()  # whose copies of parameters would not be known as such
            for adapter in self.adapters:
                adapter.install(self)
        self.listeners.append(listener)
        if not self._on and not only_attend(listener.model):
            self._on = True
            _push_mode(self)
        self._waiting = True

    def remove(self, listener: Listener) -> None:
        """Unregister a listener."""
        self.listeners.remove(listener)
        if not self.listeners:
            for adapter in self.adapters:
                adapter.remove(self)
            if self._on:
                self._on = False
                _take_out(self)


@cache
def _composite(func: Any) -> bool:
    """Whether an operator is made of others, and has no kernel for views of its own."""
    name = getattr(func, "name", None)
    if not callable(name):
        return False  # a higher-order operator
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(name(), "CompositeImplicitAutograd") and not has(name(), "ADInplaceOrView")


def _take_out(mode: TorchDispatchMode) -> None:
    """Remove a mode from the stack, below others that came later and stay."""
    above = []
    while _get_current_dispatch_mode_stack():
        last = _pop_mode()
        if last is mode:
            break
        above.append(last)
    for other in reversed(above):
        _push_mode(other)


_LOCAL = threading.local()


def current() -> Session | None:
    """The session of this thread, if anything is captured in it."""
    session: Session | None = getattr(_LOCAL, "session", None)
    return session


@contextmanager
def capturing(listener: Listener) -> Iterator[Session]:
    """Context: announces the attention calls of a listener's model, in this thread."""
    session = current()
    if session is None:
        session = _LOCAL.session = Session()
    session.add(listener)
    listener.begin()
    try:
        yield session
    finally:
        listener.end()
        session.remove(listener)
        if not session.listeners and current() is session:
            _LOCAL.session = None


def recomputing() -> bool:
    """Whether a forward pass runs again inside a backward pass, as checkpointing does."""
    return torch._C._current_graph_task_id() != -1
