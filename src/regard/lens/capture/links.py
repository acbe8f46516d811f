"""`Links`: the links of a model whose cut would change a metric most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from typing import TYPE_CHECKING, overload

import torch

from regard.attention.record import Look
from regard.errors import OptionError
from regard.lens.plain_data import frame

if TYPE_CHECKING:
    import pandas

    from regard.lens.capture.seen import Seen

BLOCK = 2**22
"""The number of links held at once."""


@dataclass(frozen=True)
class Link:
    """A link from a query to a key in one head, its weight, and the effect of cutting it."""

    module: str
    kind: str
    layer: int
    """Which of the modules of its kind, in the order of their first call."""
    head: int
    row: int
    """Which sequence of the batch."""
    query: int
    key: int
    attention: float
    effect: float
    """Estimate of metric(cut) - metric."""


class Links(Sequence[Link]):
    """Links, strongest first."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = tuple(links)

    @overload
    def __getitem__(self, index: int) -> Link: ...

    @overload
    def __getitem__(self, index: slice) -> Links: ...

    def __getitem__(self, index: int | slice) -> Link | Links:
        return Links(self._links[index]) if isinstance(index, slice) else self._links[index]

    def __len__(self) -> int:
        return len(self._links)

    def to_frame(self) -> pandas.DataFrame:
        """One row for each link. Needs pandas."""
        names = [field.name for field in fields(Link)]
        return frame([asdict(link) for link in self._links], names)

    def __repr__(self) -> str:
        rows = [[field.name for field in fields(Link)]]
        for link in self._links:
            *names, attention, effect = astuple(link)
            rows.append([*map(str, names), f"{attention:.4f}", f"{effect:+.4f}"])
        return aligned(rows, len(rows[0]))


def aligned(rows: Sequence[Sequence[str]], left: int) -> str:
    """The cells in columns, of which the first `left` are aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def strongest(seen: Seen, most: int) -> Links:
    """The links of largest effect, in size, of everything that was seen."""
    if most < 1:
        raise OptionError(f"links: most={most}, expected 1 or more")
    best: list[Link] = []
    count = {"self": 0, "cross": 0}
    for name in seen:
        kind = seen.kind(name)
        for look in seen.calls(name):
            for found in _of_look(look, most):
                best += [Link(name, kind, count[kind], *link) for link in found]
                best = sorted(best, key=lambda link: -abs(link.effect))[:most]
        count[kind] += 1
    return Links(best)


def _of_look(look: Look, most: int) -> Iterator[list[tuple[int, int, int, int, float, float]]]:
    """Per block: head, row of the batch, query, key, weight and effect of its strongest links."""
    b, h, q, k = look.sizes
    heads = max(1, min(h, BLOCK // max(b * k, 1)))
    height = max(1, BLOCK // max(b * heads * k, 1))
    for first in range(0, h, heads):
        for start in range(0, q, height):
            rows, some = range(start, min(start + height, q)), range(first, min(first + heads, h))
            effects = look.effects(rows, some).reshape(b, len(some), len(rows), k)
            values, at = effects.abs().flatten().topk(min(most, effects.numel()))
            at = at[values > 0]
            if not len(at):
                continue
            row, head, query, key = (x.tolist() for x in torch.unravel_index(at, effects.shape))
            weights: list[float] = look.weights(rows, some).flatten()[at].tolist()
            yield [
                (head[i] + first, row[i], query[i] + start, key[i], weights[i], float(effect))
                for i, effect in enumerate(effects.flatten()[at])
            ]
