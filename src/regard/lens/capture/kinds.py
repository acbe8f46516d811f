"""Whether a call is self- or cross-attention, by the arguments of the module around it.

Rules, in this order:

0. A module whose arguments are projected queries and keys is skipped: the one around it decides.
1. The innermost module with parameters has one sequence as argument: self-attention.
2. It has several, and the queries were projected from the same sequence as the keys or the values
   (through linear layers, norms, copies): self-attention; from another: cross-attention.
3. The projections were not seen: self-attention if the number of keys is the length of the first
   sequence and of no other, or equals the number of queries and is the length of no sequence (they
   were concatenated); else cross-attention.
4. No module has parameters: self-attention if there are as many queries as keys.

Arguments named like masks, biases, positions or caches are not sequences.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from regard.lens.capture.modules import Identity, Run, has_parameters, identity, sequences
from regard.lens.capture.storage import StorageMap, weak_memory

_aten = torch.ops.aten
NORMS = {
    _aten.native_layer_norm.default: 0,
    _aten.layer_norm.default: 0,
    _aten._fused_rms_norm.default: 0,
    _aten.rms_norm.default: 0,
    _aten.clone.default: 0,
    _aten._to_copy.default: 0,
    _aten.to.dtype: 0,
}
"""Operators whose result is a copy or a norm of one of their arguments, and its number."""
PROJECTIONS = NORMS | {
    _aten.linear.default: 0,
    _aten.addmm.default: 1,
    _aten.mm.default: 0,
    _aten.add.Tensor: 0,
    _aten.mul.Tensor: 0,
    _aten.mul.Scalar: 0,
    _aten.div.Tensor: 0,
    _aten.cat.default: 0,
}
"""`NORMS`, and the operators that project a sequence to queries, keys and values."""
STEPS = 16
"""The number of operators that the origin of a tensor is traced back."""
_ARITHMETIC = (_aten.add.Tensor, _aten.mul.Tensor, _aten.div.Tensor)


class _Step(NamedTuple):
    result: Identity
    source: Identity
    norm: bool
    keep: StorageWeakRef | None
    """Keeps the identity of the source from being given to another tensor."""


class Origins:
    """The tensor that each projection and norm was computed from."""

    def __init__(self) -> None:
        self._paths: StorageMap[tuple[_Step, ...]] = StorageMap()

    def note(self, func: object, args: tuple[object, ...], result: object) -> None:
        """Record that an operator of `PROJECTIONS` has run."""
        source = args[PROJECTIONS[func]]  # type: ignore[index]
        if isinstance(source, list | tuple):
            source = source[-1]  # new keys are put behind those of a cache
        result = result[0] if isinstance(result, tuple) else result
        if not isinstance(source, Tensor) or not isinstance(result, Tensor) or result.is_nested:
            return
        if func in _ARITHMETIC and isinstance(args[1], Tensor) and args[1].dim() > 1:
            return  # only a bias or a scale
        memory = None if source.is_nested else weak_memory(source.untyped_storage())
        step = _Step(identity(result), identity(source), func in NORMS, memory)
        if step.source[0] != step.result[0]:
            before = self._paths.get(source) or ()
            self._paths[result] = (step, *before)[:STEPS]

    def forms(self, x: Tensor) -> set[Identity]:
        """The tensor itself, and those of which it is a copy or a norm."""
        found = {identity(x)}
        for step in self._paths.get(x) or ():
            if not step.norm or step.result not in found:
                break
            found.add(step.source)
        return found

    def of(self, x: Tensor, given: Collection[Identity] = ()) -> Identity:
        """The tensor that x was projected from: one of `given`, or the earliest that is known.

        A given tensor that is a norm of another counts as that other one.
        """
        found, inside = identity(x), True
        for step in self._paths.get(x) or ():
            inside = inside and found not in given
            if not (inside or (step.norm and step.result == found)):
                break
            found = step.source
        return found


def kind_of(
    runs: Sequence[Run], q: Tensor | None, k: Tensor, v: Tensor | None, origins: Origins
) -> str:
    """``"self"`` or ``"cross"``, for queries, keys and values in the innermost running module."""
    for i, run in enumerate(runs):
        given = sequences(run)
        parameters = has_parameters(run.module)
        if not given or not (parameters or i == len(runs) - 1):
            continue  # its arguments are projected already
        if len(given) == 1:
            return "self"
        if not parameters:
            break
        ends = {identity(x) for x in given}
        if q is not None and origins.forms(q) & ends and origins.forms(k) & ends:
            continue
        of_q = None if q is None else origins.of(q, ends)
        others = [origins.of(x, ends) for x in (k, v) if x is not None]
        if of_q in others:
            return "self"
        known = {origins.of(x, ends) for x in given}
        if of_q in known and any(one in known for one in others):
            return "cross"
        keys = k.shape[-2]
        fits = [keys in x.shape[:-1] for x in given]
        joined = q is not None and q.shape[-2] == keys and not any(fits)
        return "self" if joined or (fits[0] and not any(fits[1:])) else "cross"
    return "self" if q is None or q.shape[-2] == k.shape[-2] else "cross"
