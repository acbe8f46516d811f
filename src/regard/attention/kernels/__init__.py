"""The kernels, each of which computes the same: attention for one `Call`.

A kernel is a module with ``supports(call)``, which is None or says why it cannot do the call, and
``run(call, logsumexp)``, which returns the output ``(b, h, q, e)`` and the row log-sum-exp, or None
unless that was asked for. `reference` defines what is right. Kernels never import each other.

``"auto"`` takes the first that supports the call: `native`, which is the fastest, see ``make
bench``; for at most `plain.MOST` scores `plain`, which holds them all; `fused`; `blocked`; and
`plain` again where none of these can, as for long calls that are traced.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from regard.attention.call import Call
from regard.attention.kernels import blocked, fused, native, plain, reference
from regard.errors import OptionError


@runtime_checkable
class Kernel(Protocol):
    """What a module of this package offers."""

    def supports(self, call: Call) -> str | None: ...

    def run(self, call: Call, logsumexp: bool) -> tuple[Tensor, Tensor | None]: ...


KERNELS: dict[str, Kernel] = {
    "native": native,
    "plain": plain,
    "fused": fused,
    "blocked": blocked,
    "reference": reference,
}
ORDER = ("native", "plain", "fused", "blocked")


def choose(call: Call) -> tuple[str, list[str]]:
    """The kernel that ``"auto"`` takes, and why those before it cannot do the call."""
    reasons: list[str] = []
    for name in ORDER:
        reason = KERNELS[name].supports(call)
        if reason is None and name == "plain" and not plain.pays(call):
            reason = "so many scores are faster in blocks"
        if reason is None:
            return name, reasons
        reasons.append(f"{name} cannot: {reason}")
    return "plain", reasons


def select(call: Call, kernel: str) -> Kernel:
    """The kernel of that name, if it can do the call, or the one that ``"auto"`` takes."""
    if kernel == "auto":
        return KERNELS[choose(call)[0]]
    if kernel not in KERNELS:
        names = ", ".join(map(repr, ("auto", *KERNELS)))
        raise OptionError(f"{call.caller}: kernel={kernel!r} is unknown, expected {names}")
    reason = KERNELS[kernel].supports(call)
    if reason is not None:
        raise OptionError(
            f"{call.caller}: kernel={kernel!r} cannot do this call: {reason}; use 'auto'"
        )
    return KERNELS[kernel]
