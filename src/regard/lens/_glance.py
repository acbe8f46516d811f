"""One call of attention as it was seen in a model, kept at little cost until somebody asks.

A glance holds the tensors that the model used, by reference where torch counts their changes, so
that a change afterwards is noticed; as a copy where it does not (inference mode), or where the
tensor had been changed before and so will be again (a cache that is written in place).
"""

from __future__ import annotations

import dataclasses
from collections import deque

import torch
from torch import Tensor, nn

from regard.attention import look
from regard.attention._call import Call, exactly, spread
from regard.attention.masks import Both, Dense, Mask
from regard.attention.positions import Bias
from regard.attention.record import Look
from regard.attention.scores import Score
from regard.errors import OptionError, StaleError
from regard.lens._projection import Projection
from regard.lens._torch_calls import Asked


class Kept:
    """A tensor as it was when it was kept, without its gradient."""

    __slots__ = ("_tensor", "_version")

    def __init__(self, x: Tensor) -> None:
        # A parameter is changed by training, between calls.
        if x.is_inference() or (x._version and not isinstance(x, nn.Parameter)):
            self._tensor = copied(x)
        else:
            self._tensor = x.detach()
        self._version = self._tensor._version

    @property
    def changed(self) -> bool:
        """Whether the tensor is not any more what it was."""
        return self._tensor._version != self._version

    @property
    def tensor(self) -> Tensor:
        """The tensor, if it still is what it was."""
        if self.changed:
            raise StaleError(
                "watch: a tensor of this call was changed in place after the model had used it, so "
                "its weights are gone; ask before the change"
            )
        return self._tensor


def copied(x: Tensor) -> Tensor:
    """A copy that torch counts the changes of, whatever mode it is in."""
    with torch.inference_mode(False), torch.no_grad():
        return x.detach().clone()


class OutputGradient:
    """The gradient of the metric with respect to the output of one call, once it is known."""

    __slots__ = ("value",)

    def __init__(self, output: Tensor) -> None:
        self.value: Tensor | None = None
        output.register_hook(self._store)  # type: ignore[no-untyped-call]

    def _store(self, gradient: Tensor) -> None:
        self.value = gradient.detach()


class Shelf:
    """Masks and biases that were kept lately, so that one which many layers use is held once."""

    def __init__(self) -> None:
        self._lately: deque[Kept] = deque(maxlen=4)

    def keep(self, x: Tensor) -> Kept:
        """The tensor, or an equal one that is there already."""
        for kept in self._lately:
            if not kept.changed and _equal(x.detach(), kept.tensor):
                return kept
        self._lately.append(Kept(x))
        return self._lately[-1]


def _equal(x: Tensor, y: Tensor) -> bool:
    if x.shape != y.shape or x.dtype != y.dtype or x.device != y.device:
        return False
    same_place = x.data_ptr() == y.data_ptr() and x.stride() == y.stride()
    return same_place or torch.equal(x, y)


class Keys:
    """The keys and values of several calls that go on from one another, as a cache makes them.

    Only the newest are held, and those that a window has dropped: each call saw a part of all.
    """

    def __init__(self, call: Call) -> None:
        self._k, self._v = Kept(call.k), Kept(call.v)
        self._gone: list[tuple[Tensor, Tensor]] = []
        self._start = 0
        self._joined: tuple[Tensor, Tensor] | None = None
        self._calls = [(call.mask, call.bias)]
        self._seen: Tensor | None = None

    def all(self) -> tuple[Tensor, Tensor]:
        """All keys and values ``(b, g, k, d)`` that any of the calls saw."""
        newest = self._k.tensor, self._v.tensor
        if not self._gone:
            return newest
        if self._joined is None:
            heads = newest[0].shape[1]
            k, v = (
                torch.cat([*(spread(gone[i], heads) for gone in self._gone), newest[i]], 2)
                for i in range(2)
            )
            self._joined = k, v
        return self._joined

    def extend(self, call: Call) -> int | None:
        """Where in all keys those of the call begin, if it goes on from the last one; else None.

        Either all old keys come first again, or, from a cache with a window, the last of them.
        """
        if self._k.changed or self._v.changed:
            return None
        old, new = self._k.tensor.shape[2], call.k.shape[2]
        for overlap in dict.fromkeys((old, new - call.q.shape[2])):
            if 0 < overlap <= min(old, new) and self._goes_on(call, old - overlap, overlap):
                self._replace(call, old - overlap)
                return self._start
        return None

    def _goes_on(self, call: Call, dropped: int, overlap: int) -> bool:
        parts = []
        for old, new in ((self._k.tensor, call.k.detach()), (self._v.tensor, call.v.detach())):
            heads = new.shape[1]
            if old.dtype != new.dtype or old.shape[0] != new.shape[0] or heads % old.shape[1]:
                return False  # heads may be shared at first, and written out later
            parts.append((spread(old[:, :, dropped:], heads), new[:, :, :overlap]))
        if all(_equal(new, old) for old, new in parts):
            return True
        if dropped or overlap < call.k.shape[2] or any(x.shape != y.shape for x, y in parts):
            return False
        unseen = self._unseen()  # a cache of fixed length, not yet written everywhere
        return unseen is not None and all(bool(((x == y) | unseen).all()) for x, y in parts)

    def _unseen(self) -> Tensor | None:
        """The keys ``(#b, 1, k, 1)`` that no query has been allowed to see so far."""
        while self._calls:
            seen = _seen(*self._calls[-1])
            if seen is None:
                return None
            self._seen = seen if self._seen is None else self._seen | seen
            self._calls.pop()
        return None if self._seen is None else ~self._seen

    def _replace(self, call: Call, dropped: int) -> None:
        old, new = self._k.tensor.shape[2], call.k.shape[2]
        if dropped:
            k, v = self._k.tensor, self._v.tensor
            self._gone.append((k[:, :, :dropped].clone(), v[:, :, :dropped].clone()))
            self._start += dropped
        if old != new:
            places = torch.arange(new, device=call.k.device)
            self._calls, self._seen = [], (places < old - dropped)[None, None, :, None]
        self._k, self._v = Kept(call.k), Kept(call.v)
        self._joined = None
        self._calls.append((call.mask, call.bias))


def _seen(mask: Mask | None, bias: Tensor | Bias | None) -> Tensor | None:
    """The keys ``(#b, 1, k, 1)`` that a query may see, by what of mask and bias is written out."""
    written = [part.seen for part in _parts(mask) if isinstance(part, Dense)]
    if isinstance(bias, Tensor):
        written.append(bias.detach() > torch.finfo(bias.dtype).min / 2)
    found: Tensor | None = None
    for part in written:
        seen = part.any(-2).any(-2)[:, None, :, None]
        found = seen if found is None else found & seen
    return found


def _parts(mask: Mask | None) -> list[Mask]:
    """The masks that are joined by ``&``."""
    if isinstance(mask, Both):
        return _parts(mask.left) + _parts(mask.right)
    return [] if mask is None else [mask]


class Glance:
    """A call of attention, and its output, if that could be seen."""

    def __init__(
        self,
        call: Call,
        output: Tensor | None,
        *,
        shelf: Shelf,
        before: Glance | None = None,
        doubt: str = "",
    ) -> None:
        """`before` is the call of the same module before this one; `doubt` says why the call is not
        what it seems to be, if so."""
        self._q = Kept(call.q)
        self._output = None if output is None else Kept(output)
        self._mask = None if call.mask is None else _lasting(call.mask, shelf)
        self._bias = shelf.keep(call.bias).tensor if isinstance(call.bias, Tensor) else call.bias
        self._score, self._dropout, self._lead, self._rank = (
            call.score, call.dropout, call.lead, call.rank,
        )  # fmt: skip
        self._held = [Kept(x) for x in _held(self._mask, self._bias, self._score)]
        self._doubt = doubt
        self.gradient: OutputGradient | None = None
        self.sizes = call.sizes
        lasting = call
        if self._mask is not None or self._bias is not None:
            lasting = dataclasses.replace(call, mask=self._mask, bias=self._bias)
        start = None if before is None else before.keys.extend(lasting)
        goes_on = before is not None and start is not None
        self.keys: Keys = before.keys if before is not None and goes_on else Keys(lasting)
        self.start: int = start or 0

    @property
    def stop(self) -> int:
        """One past the last of all keys that this call was given."""
        return self.start + self.sizes[3]

    def call(self) -> Call:
        """The call, if nothing of it has been changed since."""
        if self._doubt:
            raise OptionError(self._doubt)
        for kept in self._held:
            _ = kept.tensor
        k, v = self.keys.all()
        k, v = (x[:, :, self.start : self.stop] for x in (k, v))
        rest = self._score, self._mask, self._bias, self._dropout, self._lead, self._rank
        return Call(self._q.tensor, k, v, *rest, caller="watch")

    def output(self, call: Call) -> tuple[Tensor, Tensor | None]:
        """What came out ``(b, h, q, e)``, computed again where the model has changed it since."""
        if self._output is not None and not self._output.changed:
            b, h, q, _ = self.sizes
            return self._output.tensor.reshape(b, h, q, call.v.shape[3]), None
        seen = look(call.q, call.k, call.v, mask=call.mask, bias=call.bias, score=call.score)
        return seen.output, seen.logsumexp

    def made(self) -> Glance:
        """Itself."""
        return self

    def look(self) -> Look:
        """Everything about this one call."""
        call = self.call()
        with torch.no_grad(), exactly(call.q.device):
            return Look(call, *self.output(call))


class Later:
    """A call of which only the tensors that it was given are kept, read when it is asked for.

    Either because the model never showed its queries, keys and values, and they have to be made
    again, or to lose no time while the model runs.
    """

    def __init__(self, asked: Projection | Asked, output: Tensor | None, shelf: Shelf) -> None:
        self._kept: list[Kept] = []
        self._made: Glance | None = None
        self._shelf = shelf
        self.gradient: OutputGradient | None = None
        self._asked = asked.map(
            lambda x: self._keep(Kept(x)), lambda mask: self._keep(shelf.keep(mask))
        )
        self._output = None if output is None else Kept(output)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """b, h, q and k."""
        return self._asked.sizes

    @property
    def shown(self) -> bool:
        """Whether the model has shown its queries, keys and values, and they still are the same."""
        unread = self._made is None
        return isinstance(self._asked, Asked) and not (
            unread and any(kept.changed for kept in self._kept)
        )

    def made(self) -> Glance:
        """The call as a glance at it would have been."""
        if self._made is None:
            for kept in self._kept:
                _ = kept.tensor
            known = self._output is not None and not self._output.changed
            output = self._output.tensor if self._output is not None and known else None
            with torch.inference_mode(False), torch.no_grad():
                self._made = Glance(self._asked.call(), output, shelf=self._shelf)
        return self._made

    def _keep(self, kept: Kept) -> Tensor:
        self._kept.append(kept)
        return kept.tensor


def _lasting(mask: Mask, shelf: Shelf) -> Mask:
    """The mask, made of tensors whose changes can be noticed."""
    parts: dict[str, Tensor | Mask] = {}
    for field in dataclasses.fields(mask):  # type: ignore[arg-type]
        value = getattr(mask, field.name)
        if isinstance(value, Tensor):
            parts[field.name] = shelf.keep(value).tensor
        elif isinstance(value, Mask):
            parts[field.name] = _lasting(value, shelf)
    return dataclasses.replace(mask, **parts) if parts else mask  # type: ignore[type-var]


def _held(mask: Mask | None, bias: Tensor | Bias | None, score: Score) -> list[Tensor]:
    """The tensors behind mask, bias and score."""
    held = [] if mask is None else mask.held()
    if isinstance(bias, Tensor):
        held.append(bias)
    for part in (bias, score):
        if isinstance(part, nn.Module):
            held.extend(part.parameters())
    return held
