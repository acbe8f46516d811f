"""`Why`: the links that made a model write a word, and what it writes without them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor


if TYPE_CHECKING:
    import pandas

DIGITS = 4
PLACES = {"encoder": "encoder", "decoder": "decoder", "cross": "cross-attention"}


@dataclass(frozen=True)
class Link:
    """One head looking from one word at another, and what cutting that does to the metric."""

    place: str
    """``"encoder"``, ``"decoder"``, or ``"cross"`` for attention from decoder to encoder."""
    layer: int
    head: int
    query: str
    """The word that attends; of a decoder, the word being written."""
    key: str
    """The word attended to."""
    attention: float
    effect: float
    """The estimated change of the metric when the link is cut."""
    cut: float | None
    """The measured change."""
    module: str
    query_positions: tuple[int, ...]
    key_positions: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.query} → {self.key}, {PLACES[self.place]} layer {self.layer} head {self.head}"


@dataclass(frozen=True)
class WordEffect:
    """An input word: how much it is looked at, and what is lost when it cannot be."""

    word: str
    looked: float
    """The strongest attention of any head from the step's row."""
    layer: int
    head: int
    """The head that has it."""
    probability: float
    """Of the word that was written, when all links from its row to this one are cut."""
    matters: float
    """The loss of probability."""
    writes: str
    """The most probable choice then."""
    text: str | None
    """What is written then, if that changes."""
    special: bool
    """Whether this is a special token, not a word."""


@dataclass(frozen=True)
class Flip:
    """A smallest set of links found whose joint cut changes the word that is written."""

    links: tuple[Link, ...]
    word: str
    """The word that is written then."""
    text: str
    probability: float


@dataclass(frozen=True, eq=False)
class Why:
    """Why a model wrote a word and not another; see `Lens.why`."""

    text: str
    written: str
    """The whole output."""
    word: str
    instead: str
    position: int | None
    """The number of the word in what was written, from 0; None where there is just one choice."""
    metric: float
    """log p(word) − log p(instead)."""
    probability: float
    probability_instead: float
    choices: tuple[tuple[str, float], ...]
    """The most probable choices at this step."""
    links: tuple[Link, ...]
    """Links that were cut, the strongest first."""
    control: tuple[Link, ...]
    """Other links, cut at random as a control."""
    words: tuple[WordEffect, ...]
    flip: Flip | None
    agreement: float
    """Spearman's correlation of estimated effect and measured change over all links cut."""
    estimated: int
    """Links whose effect was estimated."""
    place: str
    attention: Float[Tensor, "layers heads words"]
    """From the step's row to each input word, at `place`."""
    effects: Float[Tensor, "layers heads words"]
    """The estimated effect of cutting each of these links."""
    note: str = ""
    """Anything about the question that a reader has to know."""
