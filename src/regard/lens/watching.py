"""`watch`: every call of attention of a model, on demand and without changing its output."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.attention._call import Call, values_unavailable
from regard.attention.record import Look
from regard.errors import OptionError, WordError
from regard.lens._glance import Glance, Later, OutputGradient, Shelf
from regard.lens._installing import listening
from regard.lens._joining import Track
from regard.lens._listener import Listener, nothing_seen
from regard.lens._projection import Projection
from regard.lens._torch_calls import Asked
from regard.memory import keep_some_freed_memory


class UnseenError(WordError, KeyError):
    """A module that was not seen to attend."""

    __str__ = Exception.__str__  # not KeyError's, which prints its text in quotes


class Seen(Mapping[str, Look]):
    """What was seen: for each module that attends, by its name, a `Look` at all its calls.

    Modules are in the order of their first call. If a module ran several times, its calls are
    joined: queries one after the other, and each sees the keys of its own call. Where calls go on
    from one another, as in generation, they share their keys, and key j is the word at position j.

    A module that attends to its own sequence as well as to another is there twice, the second time
    as ``"name:cross"`` (or ``"name:self"``).
    """

    def __init__(self) -> None:
        self._tracks: dict[str, Track] = {}
        self._running: list[str] = []
        """Who attended at each call, in the order in which they ran."""
        self.missed: tuple[str, ...] = ()
        """The classes of modules that write attention out in softmax and products, if any do: what
        they attend to cannot be seen."""

    def __getitem__(self, name: str) -> Look:
        return self._track(name).look()

    def __iter__(self) -> Iterator[str]:
        return iter(self._tracks)

    def __len__(self) -> int:
        return len(self._tracks)

    def __contains__(self, name: object) -> bool:
        return name in self._tracks

    def calls(self, name: str) -> tuple[Look, ...]:
        """Each call of a module by itself, in order."""
        return self._track(name).looks()

    def layers(self) -> dict[str, Look]:
        """A look at every call, for models that ran once: one layer after the other, as they ran.

        A module that several layers share, as in ALBERT, is there as ``"name#0"``, ``"name#1"``, …
        """
        found: dict[str, Look] = {}
        so_far: Counter[str] = Counter()
        for name in self._running:
            looks = self.calls(name)
            found[name if len(looks) == 1 else f"{name}#{so_far[name]}"] = looks[so_far[name]]
            so_far[name] += 1
        return found

    def kind(self, name: str) -> str:
        """``"self"`` if the module attends to its own sequence, ``"cross"`` if to another."""
        return self._track(name).kind

    def __str__(self) -> str:
        """A table: the modules, and what they did."""
        if not self:
            return "nothing was seen"
        head = ("module", "kind", "calls", "batch", "heads", "queries", "keys")
        rows = [head, *(self._row(track) for track in self._tracks.values())]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        lines = [
            "  ".join(
                cell.ljust(width) if i < 2 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        if self.missed:
            lines.append(
                f"not seen: {', '.join(self.missed)} (written out in softmax and products)"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Seen({len(self)} modules)\n{self}"

    @staticmethod
    def _row(track: Track) -> tuple[str, ...]:
        sizes = track.sizes
        b, h, _, _ = sizes[-1]
        queries, k = sum(size[2] for size in sizes), max(size[3] for size in sizes)
        numbers = (len(sizes), b, h, queries, k)
        return track.name or "(the model)", track.kind, *map(str, numbers)

    def _track(self, name: str) -> Track:
        if name in self._tracks:
            return self._tracks[name]
        if not self._tracks:
            raise UnseenError(
                f"seen: {name!r} is not there, nothing was seen; call the model inside "
                "`with regard.watch(model) as seen:`, in the same thread"
            )
        near = difflib.get_close_matches(str(name), self._tracks, n=3, cutoff=0.0)
        raise UnseenError(
            f"seen: no attention was seen in {name!r}; there are {len(self)} modules, such as "
            f"{', '.join(map(repr, near))}; print(seen) lists them"
        )


class _Watcher(Listener):
    """Puts what it hears into a `Seen`."""

    def __init__(self, model: nn.Module, gradients: bool) -> None:
        super().__init__(model, "watch")
        self.seen = Seen()
        self._gradients = gradients
        self._shelf = Shelf()

    def saw(
        self,
        name: str,
        kind: str,
        call: Call | Projection | Asked,
        output: Tensor | None,
        doubt: str,
    ) -> None:
        if output is not None and values_unavailable(output):
            raise OptionError(
                "watch: the model runs inside a transform of torch.func or torch.compile, whose "
                "tensors cannot be kept; call it without"
            )
        track = self._track(name, kind)
        self.seen._running.append(track.name)
        with torch.no_grad():
            entry: Glance | Later
            if isinstance(call, Projection) or (isinstance(call, Asked) and not track):
                entry = Later(call, output, self._shelf)
            else:
                call = call.call() if isinstance(call, Asked) else call
                entry = Glance(call, output, shelf=self._shelf, before=track.last, doubt=doubt)
        if self._gradients:
            if output is None or not output.requires_grad:
                raise OptionError(
                    f"watch: gradients=True, but attention in {name or 'the model'!r} has no "
                    "gradient; run the model outside torch.no_grad() and torch.inference_mode(), "
                    "with parameters or inputs that require a gradient"
                )
            entry.gradient = OutputGradient(output)
        track.add(entry)

    def _track(self, name: str, kind: str) -> Track:
        tracks = self.seen._tracks
        if name in tracks and tracks[name].kind != kind:
            name = f"{name}:{kind}"
        if name not in tracks:
            tracks[name] = Track(name, kind)
        return tracks[name]


@contextmanager
def watch(model: nn.Module, *, gradients: bool = False) -> Iterator[Seen]:
    """What the model attends to while it runs in this context, as a `Seen`.

    With ``gradients=True`` each call also keeps, once a backward pass has run, the gradient of what
    was differentiated with respect to the output of attention (`Look.output_gradient`).

    Any model: regard's own, those of transformers (with sdpa or eager attention), torch's
    `nn.Transformer`, `nn.TransformerEncoder` and `nn.MultiheadAttention`, and whatever calls
    `scaled_dot_product_attention`. Its output does not change by a bit, and it is not asked for its
    weights: queries, keys and values are kept, by reference where that is safe, and everything else
    is computed from them on demand. Memory is linear in the length of the text.

    torch's own layers do not show their queries, keys and values. They are computed again from the
    vectors that the layer was given, and so are exact only to the rounding of a matrix product.

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
    with listening(watcher) as session:
        before = session.functions.copy()
        yield watcher.seen
        watcher.seen.missed = session.written_out.among(watcher.names)
        if watcher.ran and not watcher.seen:
            missed = watcher.seen.missed
            raise OptionError(nothing_seen("watch", model, session.functions - before, missed))
