"""regard's own `attend` and `look`, which pass every call to an interceptor."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from regard.attention import operation
from regard.attention.call import Call
from regard.attention.operation import Result
from regard.attention.tracing import values_unavailable
from regard.errors import OptionError
from regard.lens.capture.adapters.installation import Installation, Undo
from regard.lens.capture.forbidden import run_without
from regard.lens.capture.inputs import Prepared
from regard.lens.capture.modules import TRANSFORMED
from regard.lens.capture.session import current


class _Interceptor:
    """What `attend` calls in place of its kernels."""

    def active(self) -> bool:
        """Whether this thread captures."""
        return current() is not None

    def __call__(self, call: Call, compute: Callable[[Call], Result]) -> Result:
        session = current()
        if session is None or session.inside:
            return compute(call)
        place = session.place(call.q, call.k, call.v)
        if place is None:
            return compute(call)
        if values_unavailable(call.q):
            raise OptionError(TRANSFORMED)
        forbidden = session.forbidden(place, Prepared(call))
        in_use = Prepared(call).in_use()
        with session.whole():
            if forbidden is None:
                result = compute(call)
            else:
                call, result = run_without(call, forbidden, compute)
        output = result[0]
        wanted = session.needs_gradient(place, output)
        gradients = session.announce(place, Prepared(call), output, in_use)
        if wanted:

            def store(gradient: Tensor) -> None:
                gradients.output = gradient.detach()

            output.register_hook(store)  # type: ignore[no-untyped-call]
        return result


def _offer() -> Undo:
    operation.AROUND = _Interceptor()

    def undo() -> None:
        operation.AROUND = None

    return undo


OWN = Installation(_offer)
"""The adapter of `regard.attend`."""
