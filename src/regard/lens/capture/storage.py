"""Tensors kept from a watched model: by reference where PyTorch counts their changes."""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from regard.errors import StaleError

T = TypeVar("T")

_VIEWS = torch._C.DispatchKey.ADInplaceOrView
MANY = 256
"""Entries of a `StorageMap` from which on expired ones are dropped."""


class Kept:
    """A tensor as it was when it was kept, without its autograd graph.

    It is copied where PyTorch does not count changes (inference mode), and where it had been
    changed in place before and so may be again (a cache of keys).
    """

    __slots__ = ("_tensor", "_version")

    def __init__(self, x: Tensor) -> None:
        # A parameter is changed by training, between calls.
        if x.is_inference() or (x._version and not isinstance(x, nn.Parameter)):
            x = copied(x)
        with counted_views():
            self._tensor = x.detach()
        self._version = x._version

    @property
    def changed(self) -> bool:
        """Whether the tensor has been changed in place since."""
        return self._tensor._version != self._version

    @property
    def tensor(self) -> Tensor:
        """The tensor; raises if it has been changed since."""
        if self.changed:
            raise StaleError(
                "watch: a tensor of this call was changed in place after the model had used it, so "
                "its weights are lost; read them before the change"
            )
        return self._tensor

    def __getstate__(self) -> Tensor:
        return self.tensor

    def __setstate__(self, x: Tensor) -> None:
        self._tensor, self._version = x, x._version


def counted_views() -> AbstractContextManager[None]:
    """A context in a dispatch mode where views share the counted changes of their tensors."""
    guard: AbstractContextManager[None] = torch._C._SetExcludeDispatchKeyGuard(_VIEWS, False)
    return guard


def copied(x: Tensor) -> Tensor:
    """A copy whose changes PyTorch counts, whatever mode it is in."""
    with torch.inference_mode(False), torch.no_grad():
        return x.detach().clone()


class MaskPool:
    """Recently kept masks, so that one used by many layers is held once."""

    def __init__(self) -> None:
        self._lately: deque[Kept] = deque(maxlen=4)

    def keep(self, x: Tensor) -> Kept:
        """The mask as kept, or an equal one that is already held."""
        for kept in self._lately:
            if not kept.changed and equal(x.detach(), kept.tensor):
                return kept
        self._lately.append(Kept(x))
        return self._lately[-1]


def equal(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors have the same form and numbers."""
    if x.shape != y.shape or x.dtype != y.dtype or x.device != y.device:
        return False
    same_place = x.data_ptr() == y.data_ptr() and x.stride() == y.stride()
    return same_place or torch.equal(x, y)


def weak_memory(storage: Any) -> StorageWeakRef:
    """A weak reference to a storage, whose address is not reused while it is held."""
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _expired(memory: StorageWeakRef) -> bool:
    return bool(memory.expired())  # type: ignore[no-untyped-call]


class StorageMap(Generic[T]):
    """A weak map from storages to values: all views of a tensor have the same entry."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[StorageWeakRef, T]] = {}

    def __setitem__(self, x: Tensor, value: T) -> None:
        if len(self._entries) >= MANY:
            self._entries = {
                key: entry for key, entry in self._entries.items() if not _expired(entry[0])
            }
        storage = x.untyped_storage()
        self._entries[storage._cdata] = weak_memory(storage), value

    def get(self, x: object) -> T | None:
        """The value for the storage of this tensor, if there is one."""
        if not self._entries or not isinstance(x, Tensor) or x.is_nested:
            return None
        entry = self._entries.get(x.untyped_storage()._cdata)
        return None if entry is None or _expired(entry[0]) else entry[1]

    def __bool__(self) -> bool:
        return bool(self._entries)


class KeyCache:
    """Keys and values, or values alone, of calls that continue one another; held once."""

    def __init__(self, keys: tuple[Tensor, ...], first: int, end: int) -> None:
        self._gone: list[tuple[Tensor, ...]] = []
        self._set(keys, first, end)

    def _set(self, keys: tuple[Tensor, ...], first: int, end: int) -> None:
        self.kept = [Kept(x) for x in keys]
        self._first, self._end = first, end
        """Positions of the first key that the newest call was given, and past the last in use."""

    def extend(self, keys: tuple[Tensor, ...], first: int, end: int) -> bool:
        """Add the keys of a continuing call; False if the old keys are not among them."""
        start, length = first - self._first, self._end - first
        if start < 0 or length < 1 or len(keys) != len(self.kept):
            return False
        if any(old.changed for old in self.kept):
            return False
        for old, new in zip(self.kept, keys, strict=True):
            before = old.tensor[:, :, start : start + length]
            if not equal(before, new.detach()[:, :, :length]):
                return False
        if start:
            self._gone.append(tuple(old.tensor[:, :, :start].clone() for old in self.kept))
        self._set(keys, first, end)
        return True

    def part(self, first: int, size: int) -> tuple[Tensor, ...]:
        """Keys and values of the call whose first key stands at `first`."""
        held = tuple(kept.tensor for kept in self.kept)
        start = first - self._first
        if self._gone:
            start += sum(parts[0].shape[2] for parts in self._gone)
            held = tuple(torch.cat(parts, 2) for parts in zip(*self._gone, held, strict=True))
        return tuple(x[:, :, start : start + size] for x in held)
