"""Attention that a model writes out in softmax and products: it cannot be seen, but noticed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_SOFTMAX = {torch.softmax, Tensor.softmax, F.softmax, torch._softmax, nn.Softmax}
_PRODUCTS = {
    torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm, torch.bmm, Tensor.bmm,
    torch.baddbmm, Tensor.baddbmm, torch.einsum, torch.functional.einsum,
}  # fmt: skip
_STILL_WEIGHTS = {
    "Dropout", "__getitem__", "bfloat16", "contiguous", "double", "dropout", "expand", "flatten",
    "float", "half", "masked_fill", "masked_fill_", "nan_to_num", "permute", "reshape", "squeeze",
    "to", "transpose", "type", "type_as", "unsqueeze", "view", "where",
}  # fmt: skip
"""The names of what leaves weights what they are, but for some that it hides or drops."""


class WrittenOut:
    """Who multiplied something with what had come out of a softmax."""

    def __init__(self) -> None:
        self._by: dict[int, str] = {}
        """The classes of the modules, by their identities."""
        self._weights: dict[int, weakref.ref[Tensor]] = {}

    def follow(
        self, function: Callable[..., Any], given: Iterable[object], result: object, who: nn.Module
    ) -> None:
        """A function has been called, or a module of torch whose kind is given instead."""
        softmax = function in _SOFTMAX
        if not softmax and not (self._weights and any(self._is_weight(x) for x in given)):
            return
        if function in _PRODUCTS:
            self._by[id(who)] = type(who).__name__
            self._weights.clear()
        elif isinstance(result, Tensor) and (softmax or _name(function) in _STILL_WEIGHTS):
            self._weights[id(result)] = weakref.ref(result)

    def among(self, modules: Container[int]) -> tuple[str, ...]:
        """The classes of those among these modules, given by their identities."""
        return tuple(dict.fromkeys(kind for who, kind in self._by.items() if who in modules))

    def _is_weight(self, x: object) -> bool:
        kept = self._weights.get(id(x))
        return kept is not None and kept() is x


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", "")
