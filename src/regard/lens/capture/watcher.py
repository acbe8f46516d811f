"""`watch`: every attention call of a model, without a change to its output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from regard.attention.tracing import values_unavailable
from regard.errors import OptionError
from regard.lens.capture.modules import TRANSFORMED
from regard.lens.capture.positions import Progress
from regard.lens.capture.record import AttentionRecord, FinishedCall
from regard.lens.capture.seen import Seen
from regard.lens.capture.session import Listener, capturing
from regard.lens.capture.storage import MaskPool
from regard.lens.capture.unseen import check_seen, missed
from regard.memory import keep_some_freed_memory


class _Watcher(Listener):
    """Listener that records calls in a `Seen`."""

    def __init__(self, model: nn.Module, gradients: bool) -> None:
        super().__init__(model, "watch")
        self.seen = Seen()
        self.gradients = gradients
        self._masks = MaskPool()
        self._progress = Progress()

    def saw(self, name: str, kind: str, call: FinishedCall) -> None:
        if call.output is not None and values_unavailable(call.output):
            raise OptionError(TRANSFORMED)
        seen = self.seen
        if seen._kinds.get(name, kind) != kind:
            name = f"{name}:{kind}"
        seen._kinds[name] = kind
        records = seen._records.setdefault(name, [])
        position = self._progress.place(name, kind, call.inputs.sizes[2], call.in_use)
        before = records[-1] if records else None
        records.append(AttentionRecord(call, self._masks, position, before))
        seen._order.append(name)


@contextmanager
def watch(model: nn.Module, *, gradients: bool = False) -> Iterator[Seen]:
    """Context: captures what the model attends to while it runs, as a `Seen`.

    Any model: regard's own, those of transformers, torch's `nn.Transformer`,
    `nn.TransformerEncoder` and `nn.MultiheadAttention`, whatever calls
    `scaled_dot_product_attention`, and attention that is written out as products and a softmax. Its
    output does not change by a bit, and it is not asked for its weights: queries, keys and values
    are kept, by reference where that is safe, and everything else is computed from them on demand.
    Memory is linear in the length of the text, unless the model itself makes all weights.

    With ``gradients=True``, what was seen also has the gradient of a metric, once its backward pass
    has run in the context: `Look.effects` and `Seen.links` then estimate what cutting each link
    would do to it.

    Calls in other threads are not seen, nor those inside torch.compile or transforms of torch.func.

    On their fast path torch's own modules do not show their queries, keys and values. They are
    computed again from the vectors that the layer was given, and so are exact only to the rounding
    of a matrix product.

    >>> import torch
    >>> model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(1, 5, 8)
    >>> with watch(model) as seen:
    ...     output, _ = model(x, x, x)
    >>> print(seen)
    module       kind  calls  batch  heads  queries  keys
    (the model)  self      1      1      2        5     5
    >>> seen[""].weights().shape
    torch.Size([1, 2, 5, 5])
    """
    keep_some_freed_memory()  # that of what was seen, for what will be
    watcher = _Watcher(model, gradients)
    with capturing(watcher) as session:
        before = session.operators.copy()
        yield watcher.seen
        watcher.seen.missed = missed(session, watcher, set(watcher.seen))
        check_seen(watcher, bool(watcher.seen), session, session.operators - before)
