"""All calls of one module as one: the queries one after the other, and what each of them saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from regard.attention._call import Call, exactly, spread
from regard.attention._mask_kinds import Cover, Device, Edges
from regard.attention.masks import ALL, NONE, SOME, Causal, Mask, causal
from regard.attention.positions import Bias
from regard.attention.record import Look
from regard.errors import OptionError
from regard.lens._glance import Glance, Keys, Later


class Track:
    """The calls of one module, in order."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self._calls: list[Glance | Later] = []
        self._looks: list[Look] = []
        self._joined: tuple[int, Look] | None = None

    def add(self, call: Glance | Later) -> None:
        """One more call."""
        self._calls.append(call)

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def last(self) -> Glance | None:
        """The last call, if its keys were seen."""
        last = self._calls[-1] if self._calls else None
        if isinstance(last, Later):
            if not last.shown:
                return None
            gradient = last.gradient
            last = self._calls[-1] = last.made()  # which holds no more than it must
            last.gradient = gradient
        return last

    @property
    def sizes(self) -> list[tuple[int, int, int, int]]:
        """b, h, q and k of each call."""
        return [call.sizes for call in self._calls]

    def looks(self) -> tuple[Look, ...]:
        """Each call by itself."""
        for call in self._calls[len(self._looks) :]:
            self._looks.append(call.made().look())
        for call, look in zip(self._calls, self._looks, strict=True):
            if call.gradient is not None and call.gradient.value is not None:
                look.output_gradient = call.gradient.value.reshape(look.output.shape)
        return tuple(self._looks)

    def look(self) -> Look:
        """All calls as one."""
        if len(self._calls) == 1:
            return self.looks()[0]
        if self._joined is None or self._joined[0] != len(self._calls):
            glances = [call.made() for call in self._calls]
            calls = [glance.call() for glance in glances]
            self._check(calls)
            with torch.no_grad(), exactly(calls[0].q.device):
                pairs = zip(glances, calls, strict=True)
                output = torch.cat([glance.output(call)[0] for glance, call in pairs], 2)
                self._joined = len(calls), Look(_joined(glances, calls), output, None)
        gradients = [look.output_gradient for look in self.looks()]
        known = [one for one in gradients if one is not None]
        if len(known) == len(gradients):
            self._joined[1].output_gradient = torch.cat(known, -2)
        return self._joined[1]

    def _check(self, calls: list[Call]) -> None:
        """Raise if there is no one call that all of these could be."""

        def form(call: Call) -> dict[str, object]:
            b, h, _, _ = call.sizes
            return {
                "b": b,
                "h": h,
                "d": call.q.shape[3],
                "e": call.v.shape[3],
                "dtype": call.q.dtype,
                "score": call.score,
            }

        first = form(calls[0])
        for call in calls[1:]:
            other = form(call)
            unlike = [
                f"{name}={first[name]} and {other[name]}"
                for name in first
                if first[name] != other[name]
            ]
            if unlike:
                raise OptionError(
                    f"watch: the {len(calls)} calls of {self.name!r} cannot be joined, they have "
                    f"{', '.join(unlike)}; take them one by one from seen.calls({self.name!r})"
                )


def _joined(glances: list[Glance], calls: list[Call]) -> Call:
    """One call with the queries of all. Keys that calls share are there once."""
    left: dict[int, int] = {}
    shared: list[Keys] = []
    width = 0
    for glance in glances:
        if id(glance.keys) not in left:
            left[id(glance.keys)] = width
            width += glance.keys.all()[0].shape[2]
            shared.append(glance.keys)
    parts, top = [], 0
    for glance, call in zip(glances, calls, strict=True):
        _, _, q, k = call.sizes
        parts.append(Part(top, left[id(glance.keys)] + glance.start, q, k, call.mask, call.bias))
        top += q
    # A model may write grouped heads out for a text with padding, and else leave them grouped.
    groups = {keys.all()[0].shape[1] for keys in shared}
    heads = groups.pop() if len(groups) == 1 else calls[0].sizes[1]
    all_k, all_v = ([spread(keys.all()[i], heads) for keys in shared] for i in range(2))
    joined = tuple(parts)
    return replace(
        calls[0],
        q=torch.cat([call.q for call in calls], 2),
        k=all_k[0] if len(shared) == 1 else torch.cat(all_k, 2),
        v=all_v[0] if len(shared) == 1 else torch.cat(all_v, 2),
        mask=causal if _is_causal(joined, top, width) else Joined(joined),
        bias=None if all(part.bias is None for part in parts) else JoinedBias(joined, calls[0]),
        dropout=max(call.dropout for call in calls),
    )


def _is_causal(parts: tuple[Part, ...], q: int, k: int) -> bool:
    """Whether the parts are one text, read a piece at a time, each word after those before it."""
    return q == k and all(
        part.left == 0
        and part.bias is None
        and part.k == part.top + part.q
        and (part.q == 1 if part.mask is None else _is_causal_mask(part))
        for part in parts
    )


def _is_causal_mask(part: Part) -> bool:
    return isinstance(part.mask, Causal) and (part.q == part.k or not part.mask.from_start)


@dataclass(frozen=True)
class Part:
    """One call in the joined one: its queries are the rows from `top`, its keys the columns from
    `left`."""

    top: int
    left: int
    q: int
    k: int
    mask: Mask | None
    bias: Tensor | Bias | None

    def within(self, rows: slice, cols: slice) -> tuple[slice, slice] | None:
        """The queries and keys of its own that lie in a block; None if there are none."""
        top, bottom = max(rows.start, self.top), min(rows.stop, self.top + self.q)
        left, right = max(cols.start, self.left), min(cols.stop, self.left + self.k)
        if top >= bottom or left >= right:
            return None
        return slice(top - self.top, bottom - self.top), slice(left - self.left, right - self.left)

    def seen(self, rows: slice, cols: slice, device: Device) -> Tensor:
        """Its mask for these queries and keys of its own."""
        if self.mask is None:
            return torch.ones(1, 1, dtype=torch.bool, device=device)
        return self.mask.block(rows, cols, self.q, self.k, device)

    def added(
        self, rows: slice, cols: slice, device: torch.device | str | None, dtype: torch.dtype
    ) -> Tensor:
        """Its bias for these queries and keys of its own."""
        if self.bias is None:
            return torch.zeros(1, 1, dtype=dtype, device=device)
        if not isinstance(self.bias, Tensor):
            return self.bias.block(rows, cols, self.q, self.k, device=device, dtype=dtype)
        part = self.bias if self.bias.shape[2] == 1 else self.bias[:, :, rows]
        return (part if part.shape[3] == 1 else part[..., cols]).to(dtype)


def _paste(
    parts: tuple[Part, ...],
    rows: slice,
    cols: slice,
    ground: Tensor,
    piece: Callable[[Part, slice, slice], Tensor],
) -> Tensor:
    """The block of these rows and columns: a ground of one value, and the parts pasted on it."""
    pieces = []
    for part in parts:
        own = part.within(rows, cols)
        if own is not None:
            down, right = part.top - rows.start, part.left - cols.start
            place = (
                ...,
                slice(own[0].start + down, own[0].stop + down),
                slice(own[1].start + right, own[1].stop + right),
            )
            pieces.append((place, piece(part, *own)))
    lead = np.broadcast_shapes(*(block.shape[:-2] for _, block in pieces))
    height, width = rows.stop - rows.start, cols.stop - cols.start
    whole = ground.expand(*lead, height, width).clone()
    for place, block in pieces:
        whole[place] = block
    return whole


@dataclass(frozen=True, eq=False, repr=False)
class Joined(Mask):
    """The masks of several calls; no query sees the keys of another call."""

    parts: tuple[Part, ...]

    def block(self, rows: slice, cols: slice, q: int, k: int, device: Device = None) -> Tensor:
        nothing = torch.zeros((), dtype=torch.bool, device=device)
        return _paste(
            self.parts,
            rows,
            cols,
            nothing,
            lambda part, down, right: part.seen(down, right, device),
        )

    def cover(self, rows: Edges, cols: Edges, q: int, k: int) -> Cover:
        grades = np.full((len(rows) - 1, len(cols) - 1), NONE, np.int8)
        for part in self.parts:
            bottom, right = part.top + part.q, part.left + part.k
            down = (rows[1:] > part.top) & (rows[:-1] < bottom)
            across = (cols[1:] > part.left) & (cols[:-1] < right)
            grades[np.ix_(down, across)] = SOME
            if part.mask is None:
                down &= (rows[:-1] >= part.top) & (rows[1:] <= bottom)
                across &= (cols[:-1] >= part.left) & (cols[1:] <= right)
                grades[np.ix_(down, across)] = ALL
        return grades

    def take(self, entries: slice) -> Mask:
        return Joined(
            tuple(
                replace(
                    part,
                    mask=None if part.mask is None else part.mask.take(entries),
                    bias=part.bias[entries]
                    if isinstance(part.bias, Tensor) and part.bias.shape[0] > 1
                    else part.bias,
                )
                for part in self.parts
            )
        )

    def held(self) -> list[Tensor]:
        found: list[Tensor] = []
        for part in self.parts:
            found.extend([] if part.mask is None else part.mask.held())
            if isinstance(part.bias, Tensor):
                found.append(part.bias)
        return found

    def __repr__(self) -> str:
        return f"{len(self.parts)} calls joined"


class JoinedBias:
    """The biases of several calls, put together block by block."""

    def __init__(self, parts: tuple[Part, ...], call: Call) -> None:
        self.heads = call.sizes[1]
        self._parts = parts

    def block(
        self,
        rows: slice,
        cols: slice,
        q: int,
        k: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """The term for these queries and keys, broadcastable to ``(b, heads, rows, cols)``."""
        nothing = torch.zeros((), dtype=dtype, device=device)
        return _paste(
            self._parts,
            rows,
            cols,
            nothing,
            lambda part, down, right: part.added(down, right, device, dtype),
        )
