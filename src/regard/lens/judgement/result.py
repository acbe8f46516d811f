"""`Judgement`: explanation methods side by side, each measure with its interval."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from regard.errors import OptionError, counted
from regard.lens.judgement.evaluation import RANDOM
from regard.lens.methods import METHODS
from regard.lens.plain_data import rounded
from regard.view.chart import lines
from regard.view.picture import Picture

SAMPLES = 2000
"""Bootstrap samples."""
GRID = 21
"""Points of the mean curves."""
MEASURES = ("cuts", "hidden", "deletion", "insertion", "evidence")


@dataclass(frozen=True)
class Estimate:
    """A mean over items, with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate | None:
        """None if there are no values.

        >>> Estimate.of([1.0, 1.0])
        Estimate(mean=1.0, low=1.0, high=1.0, n=2)
        """
        if not values:
            return None
        given = np.array(values)
        drawn = np.random.default_rng(0).integers(len(given), size=(SAMPLES, len(given)))
        low, high = np.percentile(given[drawn].mean(1), [2.5, 97.5])
        return cls(float(given.mean()), float(low), float(high), len(given))

    def __str__(self) -> str:
        return f"{self.mean:5.2f} [{self.low:5.2f}, {self.high:5.2f}]"


@dataclass(frozen=True)
class MethodResult:
    """One method on all items.

    `cuts` and `hidden` are Spearman's correlation of the scores with the loss of the metric when
    the links from the step to a word are cut, or when the word is hidden everywhere. `deletion` is
    the mean loss of the word's share against its alternative while words are hidden, the highest
    score first (AOPC); `insertion` is the mean share while they are shown again. `evidence` is the
    mean reciprocal rank of the words that decide.
    """

    name: str
    paper: str
    cuts: Estimate | None
    hidden: Estimate | None
    deletion: Estimate | None
    insertion: Estimate | None
    evidence: Estimate | None
    deletion_curve: tuple[float, ...]
    """The mean share, at equal steps from no word hidden to all."""
    insertion_curve: tuple[float, ...]


@dataclass(frozen=True)
class Judgement:
    """Explanation methods, scored side by side; see `judge`."""

    model: str
    data: str
    items: int
    """Items that were judged."""
    skipped: dict[str, int]
    """The number of items that were not, by reason."""
    methods: tuple[MethodResult, ...]
    """The best by deletion first, the random baseline last."""
    refused: dict[str, str]
    """Methods that do not suit the model, and why."""

    def __getitem__(self, name: str) -> MethodResult:
        for one in self.methods:
            if one.name == name:
                return one
        raise OptionError(f"judgement: {self.refused.get(name, f'there is no method {name!r}')}")

    def __str__(self) -> str:
        """A table: a row per method."""
        shown = [m for m in MEASURES if any(getattr(one, m) is not None for one in self.methods)]
        width = max(len(one.name) for one in self.methods)
        rows = [f"{'':{width}}" + "".join(f"  {name:>20}" for name in shown)]
        for one in self.methods:
            cells = [getattr(one, name) for name in shown]
            rows.append(f"{one.name:{width}}" + "".join(f"  {c or '–'!s:>20}" for c in cells))
        left = "; ".join(f"{count} skipped: {reason}" for reason, count in self.skipped.items())
        rows += ["", f"{self._counted()}, {self.model}" + (left and f"; {left}")]
        rows += [f"not judged: {reason}" for reason in self.refused.values()]
        return "\n".join(rows)

    def __repr__(self) -> str:
        return f"Judgement({len(self.methods)} methods, {self._counted()})"

    def _counted(self) -> str:
        return f"{counted(self.items, 'item')} of {self.data}"

    def picture(self) -> Picture:
        """The deletion and insertion curves of all methods, for the first half of the words.

        In the end all curves meet: the same words are hidden, whatever the order.
        """
        share = "share of the word against its alternative"
        return lines(
            _curves(self.methods, lambda one: one.deletion_curve),
            title="Deletion: lower is better",
            x="share of the words hidden, highest score first",
            y=share,
        ).beside(
            lines(
                _curves(self.methods, lambda one: one.insertion_curve),
                title="Insertion: higher is better",
                x="share of the words shown, highest score first",
                y=share,
            )
        )

    def to_data(self) -> dict[str, Any]:
        """Everything as plain lists and numbers."""
        found: dict[str, Any] = rounded(asdict(self))
        return found

    def to_json(self) -> str:
        """Everything as JSON, on one line."""
        return json.dumps(self.to_data(), ensure_ascii=False)


def summarise(
    records: Sequence[dict[str, Any]], model: str, data: str, names: Sequence[str]
) -> Judgement:
    """The judgement from what was found for each item."""
    skipped = dict(Counter(one["skipped"] for one in records if "skipped" in one))
    judged = [one for one in records if "skipped" not in one]
    if not judged:
        raise OptionError(
            f"judge: none of the {len(records)} items can be judged: {next(iter(skipped))}"
        )
    refused = {name: why for one in judged for name, why in one["refused"].items()}
    found = [_method(name, judged) for name in names if any(name in r["methods"] for r in judged)]
    found.sort(key=lambda one: -one.deletion.mean if one.deletion else 0.0)
    chance = _method(RANDOM, judged)
    return Judgement(model, data, len(judged), skipped, (*found, chance), refused)


def _method(name: str, judged: Sequence[dict[str, Any]]) -> MethodResult:
    own = [one["methods"][name] for one in judged if name in one["methods"]]
    deletion, insertion = ([one[curve] for one in own] for curve in ("deletion", "insertion"))
    return MethodResult(
        name=name,
        paper=METHODS[name].paper if name in METHODS else "",
        cuts=Estimate.of(_known([one["cuts"] for one in own])),
        hidden=Estimate.of(_known([one["hidden"] for one in own])),
        deletion=Estimate.of([one[0] - sum(one[1:]) / len(one[1:]) for one in deletion]),
        insertion=Estimate.of([sum(one[1:]) / len(one[1:]) for one in insertion]),
        evidence=Estimate.of([1 / one["rank"] for one in own if one["rank"]]),
        deletion_curve=_mean_curve(deletion),
        insertion_curve=_mean_curve(insertion),
    )


def _known(values: Sequence[float | None]) -> list[float]:
    """The correlations that are defined; equal scores have none."""
    return [one for one in values if one is not None and not math.isnan(one)]


def _mean_curve(curves: Sequence[Sequence[float]]) -> tuple[float, ...]:
    grid = np.linspace(0, 1, GRID)
    drawn = [np.interp(grid, np.linspace(0, 1, len(one)), one) for one in curves]
    return tuple(np.mean(drawn, 0).tolist())


def _curves(
    methods: Sequence[MethodResult], curve: Callable[[MethodResult], tuple[float, ...]]
) -> dict[str, tuple[list[float], list[float]]]:
    half = GRID // 2 + 1
    grid = np.linspace(0, 1, GRID)[:half].tolist()
    return {one.name: (grid, list(curve(one)[:half])) for one in methods}
