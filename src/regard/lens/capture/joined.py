"""`JoinedLook`: all calls of one module as one look, computed from them on demand.

Queries stand one after the other. Calls that continue one text share its key positions; other calls
have columns of their own, to the right of those before.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from regard.attention.call import Call, repeat_kv
from regard.attention.record import LIMIT, Look
from regard.attention.scores import Score
from regard.attention.selection import Which, indices
from regard.errors import MemoryLimitError, OptionError
from regard.lens.capture.positions import Position


class JoinedLook(Look):
    """A look at several calls of one module; see the module's docstring for its numbering."""

    def __init__(self, name: str, looks: Sequence[Look], positions: Sequence[Position]) -> None:
        self._looks = tuple(looks)
        _check(name, self._looks)
        self._tops = [0, *accumulate(look.output.shape[-2] for look in self._looks)]
        self._lefts, self._widths, self._keys = _columns(positions)
        self.output = torch.cat([look.output for look in self._looks], -2)

    def _by_call(
        self, what: str, queries: Which, heads: Which, limit: int, fill: float = 0.0,
        **options: bool,
    ) -> Tensor:  # fmt: skip
        """What the method `what` of each call returns, in rows and columns of all calls.

        A row has `fill` at the keys that its call does not have.
        """
        lines = indices(queries, self._tops[-1], "queries")
        h = self.sizes[1]
        chosen = len(indices(heads, h, "heads"))
        size = self.sizes[0] * chosen * len(lines) * self._keys * self.output.element_size()
        if size > limit:
            raise MemoryLimitError(
                f"{what}: {self.sizes[0]} × {chosen} heads × {len(lines)} queries × {self._keys} "
                f"keys are {size:,} bytes, over the limit of {limit:,}; name queries= or heads=, "
                "use top(n), entropy() or received(), which need no such matrix, or raise limit="
            )
        result: Tensor | None = None
        for i, look in enumerate(self._looks):
            first, end = self._tops[i : i + 2]
            at = [n for n, line in enumerate(lines) if first <= line < end]
            if not at:
                continue
            rows = [lines[n] - first for n in at]
            whole: Tensor = getattr(look, what)(rows, heads, limit=limit, **options)
            part = whole[..., : self._widths[i]]
            if result is None:
                shape = (*part.shape[:-2], len(lines), self._keys)
                result = part.new_full(shape, fill)
            left = self._lefts[i]
            result[..., torch.tensor(at), left : left + self._widths[i]] = part
        if result is None:
            return self.output.new_full((*self.output.shape[:-3], chosen, 0, self._keys), fill)
        return result

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Batch, heads, queries, keys."""
        b, h, _, _ = self._looks[0].sizes
        return b, h, self._tops[-1], self._keys

    @property
    def has_vectors(self) -> bool:
        """Whether queries, keys and values of all calls are known."""
        return all(look.has_vectors for look in self._looks)

    @property
    def q(self) -> Tensor:
        return torch.cat([look.q for look in self._looks], -2)

    @property
    def k(self) -> Tensor:
        return self._assembled([look.k for look in self._looks])

    @property
    def v(self) -> Tensor:
        return self._assembled([look.v for look in self._looks])

    def _assembled(self, parts: list[Tensor]) -> Tensor:
        """Keys or values at their columns; where calls of one text differ, those of the last."""
        groups = {part.shape[-3] for part in parts if part.dim() > 3}
        if len(groups) > 1:
            parts = [repeat_kv(part, self.sizes[1]) for part in parts]
        found = parts[0].new_zeros(*parts[0].shape[:-2], self._keys, parts[0].shape[-1])
        for part, left, width in zip(parts, self._lefts, self._widths, strict=True):
            found[..., left : left + width, :] = part[..., :width, :]
        return found

    @property
    def logsumexp(self) -> Tensor:
        return torch.cat([look.logsumexp for look in self._looks], -1)

    @property
    def score(self) -> Score:
        return self._looks[0].score

    @property
    def scaling(self) -> str:
        return self._looks[0].scaling

    @property
    def output_gradient(self) -> Tensor | None:  # type: ignore[override]
        found = [look.output_gradient for look in self._looks]
        known = [one for one in found if one is not None]
        return torch.cat(known, -2) if len(known) == len(found) else None

    def compared(
        self,
        queries: Which = None,
        heads: Which = None,
        *,
        scaled: bool = False,
        limit: int = LIMIT,
    ) -> Tensor:
        return self._by_call("compared", queries, heads, limit, scaled=scaled)

    def scores(self, queries: Which = None, heads: Which = None, *, limit: int = LIMIT) -> Tensor:
        return self._by_call("scores", queries, heads, limit, -torch.inf)

    def weights(self, queries: Which = None, heads: Which = None, *, limit: int = LIMIT) -> Tensor:
        return self._by_call("weights", queries, heads, limit)

    def contributions(
        self, queries: Which = None, heads: Which = None, *, limit: int = LIMIT
    ) -> Tensor:
        return self._by_call("contributions", queries, heads, limit)

    def effects(self, queries: Which = None, heads: Which = None, *, limit: int = LIMIT) -> Tensor:
        return self._by_call("effects", queries, heads, limit)

    def top(self, n: int) -> tuple[Tensor, Tensor]:
        if not 1 <= n <= self._keys:
            raise OptionError(f"top: n={n}, expected 1 to k={self._keys}")
        values, places = [], []
        for look, left in zip(self._looks, self._lefts, strict=True):
            found, at = look.top(min(n, look.sizes[3]))
            short = n - found.shape[-1]
            values.append(torch.nn.functional.pad(found, (0, short)))
            at = torch.where(at < 0, at, at + left)
            places.append(torch.nn.functional.pad(at, (0, short), value=-1))
        return torch.cat(values, -2), torch.cat(places, -2)

    def entropy(self) -> Tensor:
        return torch.cat([look.entropy() for look in self._looks], -1)

    def received(self) -> Tensor:
        parts = [look.received() for look in self._looks]
        found = parts[0].new_zeros(*parts[0].shape[:-1], self._keys)
        for part, left, width in zip(parts, self._lefts, self._widths, strict=True):
            found[..., left : left + width] += part[..., :width]
        return found

    def __repr__(self) -> str:
        _, h, q, k = self.sizes
        return f"Look({h} heads, {q} queries, {k} keys, {len(self._looks)} calls joined)"

    @property
    def _call(self) -> Call:
        raise OptionError(
            f"Look: {len(self._looks)} calls of one module are no single call of attention; take "
            "one of them from seen.calls(name)"
        )


def _columns(positions: Sequence[Position]) -> tuple[list[int], list[int], int]:
    """For each call the first of its columns and how many it has, and how many there are in all."""
    lefts, widths, base, end = [], [], 0, 0
    for position in positions:
        if not position.continues:
            base = end
        lefts.append(base + position.key)
        widths.append(position.keys - position.key)
        end = max(end, base + position.keys)
    return lefts, widths, end


def _check(name: str, looks: tuple[Look, ...]) -> None:
    """Raise if the calls differ in batch, heads, width or dtype."""

    def form(look: Look) -> dict[str, object]:
        b, h, _, _ = look.sizes
        return {"b": b, "h": h, "e": look.output.shape[-1], "dtype": look.output.dtype}

    for one, other in pairwise(looks):
        first, second = form(one), form(other)
        unlike = [
            f"{key}={first[key]} and {second[key]}" for key in first if first[key] != second[key]
        ]
        if unlike:
            raise OptionError(
                f"watch: the {len(looks)} calls of {name!r} cannot be joined, they have "
                f"{', '.join(unlike)}; take them one by one from seen.calls({name!r})"
            )
