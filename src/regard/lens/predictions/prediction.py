"""`Prediction`: one choice of a model, a word and the alternative to it.

A prediction can compute its logits again, for a batch of equal rows with different links cut, and
names the rows and columns of attention at that step. Each kind of model has its own: translators,
language models, classifiers, encoders.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from regard.lens.capture import Cut, Seen, cut, watch
from regard.lens.measures import HeadMixers
from regard.text.words import Words

TOKENS = 8192
"""Tokens that the model reads at once."""
CHOICES = 5
"""The number of most probable choices that are reported."""


@dataclass(frozen=True)
class Axis:
    """The units along one axis of attention, words and special tokens, with their positions."""

    names: tuple[str, ...]
    positions: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, words: Words, length: int) -> Axis:
        """The units of a text among its first `length` tokens."""
        units = [tuple(p for p in words.tokens_of(i) if p < length) for i in range(len(words))]
        kept = [i for i, positions in enumerate(units) if positions]
        return cls(tuple(words.called(i) for i in kept), tuple(units[i] for i in kept))

    def __len__(self) -> int:
        return len(self.names)

    def groups(self, length: int) -> Int64[Tensor, " length"]:
        """The unit at each position; -1 where there is none."""
        found = torch.full((length,), -1)
        positions, units = self._units
        found[positions] = units
        return found

    @cached_property
    def _units(self) -> tuple[Tensor, Tensor]:
        """Every position, and the number of its unit."""
        pairs = [(p, unit) for unit, positions in enumerate(self.positions) for p in positions]
        positions, units = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).unbind(1)
        return positions, units

    def at(self, position: int) -> int:
        """The unit at a position."""
        return next(i for i, positions in enumerate(self.positions) if position in positions)


@dataclass(frozen=True)
class Site:
    """A module that attends: its place in the model, and its number at that place."""

    module: str
    kind: str
    """``"self"`` or ``"cross"``."""
    place: str
    """``"encoder"``, ``"decoder"`` or ``"cross"``."""
    layer: int


class Prediction(ABC):
    """One choice of a model: `token` where `instead` would have been the alternative."""

    model: nn.Module
    embeddings: Sequence[nn.Module]
    """The modules whose outputs the model computes everything else from."""
    place: str
    """The place whose rows attend to the input words at this step."""
    words: Words
    """The input words."""
    length: int
    """Tokens of one row."""
    token: int
    instead: int
    word: str
    """The word that `token` begins, as it is shown."""
    word_instead: str
    written_text: str
    """The whole output."""
    position: int | None = None
    """The number of the word in the output."""
    output_words: tuple[str, ...] = ()
    """The words of the output, if it has several."""
    alignment: tuple[tuple[int, int], ...] = ()
    """For each of them, the input word that its row attends to most."""
    note: str = ""
    """A caveat about the question or the text, if there is one."""
    every_place: bool = True
    """Whether links of the whole model are asked about, or only those from the step's rows."""
    probes: int = 1
    """The number of rows of the pass whose gradient is taken."""

    @abstractmethod
    def logits(self, rows: int = 1) -> Float[Tensor, "rows choices"]:
        """The logits at this step, for equal rows."""

    @abstractmethod
    def axes(self, place: str) -> tuple[Axis, Axis]:
        """The units that attend and those attended to, at a place of the model."""

    @property
    @abstractmethod
    def queries(self) -> tuple[int, ...]:
        """The positions of the rows, at `place`, that attend to the input words at this step."""

    @abstractmethod
    def spell(self, token: int) -> str:
        """A choice as text."""

    def named(self, tokens: Iterable[int]) -> dict[int, str]:
        """Choices with their names: the word and its alternative as such, others as text."""
        own = {self.token: self.word, self.instead: self.word_instead}
        return {token: own[token] if token in own else self.spell(token) for token in tokens}

    def place_of(self, module: str, kind: str) -> str:
        """The place of a module that attends."""
        return self.place

    def logits_without(self, cuts: Sequence[Sequence[Cut]]) -> Float[Tensor, "rows choices"]:
        """The logits with each set of links cut, a row each."""
        with cut(self.model, in_rows(cuts)):
            return self.logits(len(cuts))

    def text_with(self, cuts: Sequence[Sequence[Cut]], first: Sequence[int]) -> list[str]:
        """What the model writes with each set of links cut, given its choices at this step."""
        return [self.spell(i) for i in first]

    def named_and_written(
        self, tokens: Iterable[int], cuts: Sequence[Sequence[Cut]], first: Sequence[int]
    ) -> tuple[dict[int, str], list[str]]:
        """The results of `named` and `text_with`."""
        return self.named(tokens), self.text_with(cuts, first)

    def is_word(self, unit: int) -> bool:
        """Whether an input unit is a word of the text, not a special token."""
        return self.words.is_word[unit]

    def queries_except(self, positions: Sequence[int]) -> tuple[int, ...]:
        """The rows from which links to a word at these positions are cut."""
        return self.queries

    @cached_property
    def _baseline(self) -> tuple[Tensor, Seen]:
        """The logits, and the attention with the gradient of the metric."""
        found = self._with_gradients(watched=False)
        return found if has_gradients(found[1]) else self._with_gradients(watched=True)

    def _with_gradients(self, *, watched: bool) -> tuple[Tensor, Seen]:
        """A forward and a backward pass; the latter is watched if its gradients need it.

        Unwatched it is faster, and has the gradients of attention whose output was captured.
        """
        with torch.enable_grad(), embeddings_as_leaves(self.embeddings) as leaves:
            with watch(self.model, gradients=True) as seen:
                logits = self.logits(self.probes)
                if watched:
                    torch.autograd.grad(self.objective(logits), leaves)
            if not watched:
                torch.autograd.grad(self.objective(logits), leaves)
        return logits[0].detach(), seen

    @property
    def seen(self) -> Seen:
        """The attention at this step, with the gradient of the metric at every output."""
        return self._baseline[1]

    @property
    def baseline(self) -> Float[Tensor, " choices"]:
        """The logits with nothing cut."""
        return self._baseline[0]

    @cached_property
    def sites(self) -> list[Site]:
        """The modules that attend, in the order in which they run."""
        counts: dict[str, int] = {}
        found = []
        for module in self.seen:
            kind = self.seen.kind(module)
            place = self.place_of(module, kind)
            found.append(Site(module, kind, place, counts.setdefault(place, 0)))
            counts[place] += 1
        return found

    @cached_property
    def _mixing(self) -> tuple[dict[str, nn.Module | None], dict[str, Tensor]]:
        with torch.no_grad(), watch(self.model) as seen, HeadMixers(self.model) as found:
            self.logits()
        looks = seen.layers()
        mixers = {name: found.mixer(name, look) for name, look in looks.items()}
        return mixers, found.outputs(looks)

    @property
    def mixers(self) -> dict[str, nn.Module | None]:
        """The module that mixes the heads of each layer, by layer."""
        return self._mixing[0]

    @property
    def output_matrices(self) -> dict[str, Tensor]:
        """The matrix that mixes the heads of each layer, ``(h, e, width)``, by layer."""
        return self._mixing[1]

    def objective(self, logits: Float[Tensor, "probes choices"]) -> Float[Tensor, ""]:
        """The quantity whose gradient is taken: the metric."""
        return self.metric(logits[0])

    def effects(self, of_probes: Float[Tensor, "probes h q k"]) -> Float[Tensor, "h q k"]:
        """The effects of links on the metric, from those on the objective."""
        return of_probes[0]

    def probability(self, logits: Float[Tensor, "*b choices"]) -> Float[Tensor, "*b"]:
        """p(token)."""
        return logits.softmax(-1)[..., self.token]

    def chosen(self, logits: Float[Tensor, "b choices"]) -> list[int]:
        """The most probable choice of each row."""
        found: list[int] = logits.argmax(-1).tolist()
        return found

    def choices(self) -> list[tuple[str, float]]:
        """The most probable choices with nothing cut, and their probabilities."""
        p, i = self.baseline.softmax(-1).topk(min(CHOICES, len(self.baseline)))
        return [(self.spell(one), share) for one, share in zip(i.tolist(), p.tolist(), strict=True)]

    def metric(self, logits: Float[Tensor, "*b choices"]) -> Float[Tensor, "*b"]:
        """log p(token) − log p(instead)."""
        return logits[..., self.token] - logits[..., self.instead]

    @torch.no_grad()
    def cut_logits(self, cuts: Sequence[Sequence[Cut]]) -> Float[Tensor, "n choices"]:
        """The logits with each set of links cut, in batches of rows."""
        size = max(1, TOKENS // max(1, self.length))
        parts = [cuts[start : start + size] for start in range(0, len(cuts), size)]
        found = [self.logits_without(part) for part in parts]
        return torch.cat(found) if found else torch.empty(0, 0)

    @cached_property
    def word_cuts(self) -> list[list[Cut]]:
        """For each input unit, all links from the step's rows to it."""
        _, keys = self.axes(self.place)
        kind = "cross" if self.place == "cross" else "self"
        return [[Cut(self.queries_except(at), at, kind=kind)] for at in keys.positions]

    @cached_property
    def without_word(self) -> Float[Tensor, "units choices"]:
        """The logits when all links from the step's rows to one input unit are cut."""
        return self.cut_logits(self.word_cuts)

    @torch.no_grad()
    def default_instead(self) -> int:
        """The runner-up."""
        best = self.logits()[0].topk(2).indices.tolist()
        return int(best[1] if best[0] == self.token else best[0])


def in_rows(cuts: Sequence[Sequence[Cut]]) -> list[Cut]:
    """Sets of links, each to be cut in a row of its own."""
    return [replace(one, row=row) for row, links in enumerate(cuts) for one in links]


def has_gradients(seen: Seen) -> bool:
    """Whether the gradient of every call is known."""
    looks = [look for name in seen for look in seen.calls(name)]
    return all(x.output_gradient is not None or x.weights_gradient is not None for x in looks)


@contextmanager
def embeddings_as_leaves(modules: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """Context: the outputs of modules are leaves of the autograd graph.

    Gradients then flow through every attention call, whether parameters are frozen or not, and none
    is computed for a parameter.
    """
    found: list[Tensor] = []

    def leaf(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        found.append(output.detach().requires_grad_())
        return found[-1]

    with ExitStack() as hooks:
        for module in modules:
            hooks.enter_context(module.register_forward_hook(leaf))
        yield found
