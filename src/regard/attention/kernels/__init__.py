"""The kernels: interchangeable implementations of attention for one `Call`.

A kernel is a module with ``supports(call)``, which returns None or why it cannot run the call, and
``run(call, logsumexp)``, which returns the output ``(b, h, q, e)`` and, if requested, the row
log-sum-exp. `reference` defines correctness. Kernels never import each other.

``"auto"`` selects the first that supports the call: `native`, the fastest (see ``make bench``);
`plain`, which holds all scores, for at most `plain.MOST` of them; `fused`; `blocked`; and `plain`
if no other can, such as for long calls that are traced.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from regard.attention.call import Call
from regard.attention.kernels import blocked, fused, native, plain, reference
from regard.errors import OptionError


@runtime_checkable
class Kernel(Protocol):
    """The interface of the modules of this package."""

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
    """The kernel that ``"auto"`` selects, and why those before it cannot run the call."""
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
    """The kernel of that name, or the one that ``"auto"`` selects; raises if it cannot run."""
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
