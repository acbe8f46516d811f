"""A random call of attention: tensors of any rank and layout, masks, biases and scores."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fuzz import oracle
from regard import ALiBi, Bilinear, Scaled, causal, dense, keys, padding, prefix, segments, window
from regard.attention import Mask

LENGTHS = (1, 2, 3, 5, 8, 13, 16, 17, 31, 32, 33, 48, 49, 63, 64, 65)
LONG = (127, 128, 129, 200, 257)
DTYPES = (torch.float32,) * 6 + (torch.float64,) * 2 + (torch.bfloat16,) * 2 + (torch.float16,)
WIDTHS = (1, 2, 3, 4, 5, 7, 8, 16, 17, 24, 32, 33, 64)

Given = tuple[Tensor, Tensor, Tensor]


@dataclass
class Drawn:
    """The arguments of a call, and how to compute what it should give."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Mask | Tensor | None
    bias: Tensor | ALiBi | None
    score: Any
    scored: str
    """The name of the score in the oracle."""
    factor: float
    seen: Tensor
    """The mask in full, broadcastable to the whole shape of the scores."""
    lead: tuple[int, ...]
    heads: int
    exact: bool
    """Whether products of queries and keys have no rounding error."""
    kinds: list[str] = field(default_factory=list)
    """What the call consists of, to be counted."""

    @property
    def options(self) -> dict[str, Any]:
        return {"mask": self.mask, "bias": self.bias, "score": self.score}

    @property
    def parameters(self) -> list[Tensor]:
        """What a gradient may be asked of, besides q, k and v."""
        found = [self.bias] if isinstance(self.bias, Tensor) else []
        return found + ([self.score.weight] if isinstance(self.score, Bilinear) else [])

    def whole(self, x: Tensor, *, shared: bool = False) -> Tensor:
        """A tensor of the call with all leading axes and heads, ``(*lead, h, n, d)``."""
        x = x[None, None] if x.dim() == 2 else x.unsqueeze(1) if x.dim() == 3 else x
        if shared:
            x = x.repeat_interleave(self.heads // x.shape[-3], -3)
        return x.expand(*self.lead, *x.shape[-3:])

    def truth(self, q: Tensor, k: Tensor, v: Tensor, *parameters: Tensor) -> oracle.Truth:
        """What the call should give, in the dtype of these tensors."""
        rest = list(parameters)
        bias: Tensor | None = None
        if isinstance(self.bias, Tensor):
            bias = rest.pop(0)
            bias = bias.unsqueeze(1) if self.q.dim() == 3 and bias.dim() == 3 else bias
        elif self.bias is not None:
            bias = oracle.alibi(self.heads, self.q.shape[-2], self.k.shape[-2]).to(q.dtype)
        weight = rest.pop(0) if rest else None
        raw = oracle.score(
            self.scored, self.whole(q), self.whole(k, shared=True), self.factor, weight
        )
        raw = raw if bias is None else raw + bias
        return oracle.attention(raw, self.seen, self.whole(v, shared=True))


def draw(rng: random.Random, dtype: torch.dtype | None = None) -> Drawn:
    """A call that is valid, however strange."""
    dtype = dtype or rng.choice(DTYPES)
    rank = rng.choice((2, 3, 4, 4, 4, 5, 6))
    heads, groups = rng.choice(((1, 1), (2, 2), (2, 1), (4, 2), (4, 1), (6, 3)))
    if rank < 4:
        heads = groups = 1
    lead = tuple(rng.choice((1, 2, 3)) for _ in range(1 if rank == 2 else max(rank - 3, 1)))
    lead = (1,) if rank == 2 else lead
    some = LONG if rng.random() < 0.04 else LENGTHS
    q, k = rng.choice(some), rng.choice(some)
    k = q if rng.random() < 0.5 else k
    if rng.random() < 0.02:
        q, k = rng.choice(((0, k), (q, 0), (0, 0)))
    d = rng.choice(WIDTHS)
    e = d if rng.random() < 0.7 else rng.choice(WIDTHS)
    exact = rng.random() < 0.1
    size = 10.0 ** rng.randint(0, 3) if exact else rng.choice((1.0,) * 6 + (0.05, 4.0, 12.0))

    def made(h: int, n: int, width: int, size: float, whole: bool) -> Tensor:
        shape = _shape(rng, rank, lead, h, n, width)
        x = torch.randint(-1, 2, shape).double() if whole else torch.randn(shape).double()
        return _laid_out(rng, (x * size).to(dtype))

    queries, others = made(heads, q, d, size, exact), made(groups, k, d, size, exact)
    values = made(groups, k, e, 1.0, False)
    lead = tuple(
        max(one)
        for one in zip(
            *(x.shape[:-3] if rank > 3 else lead for x in (queries, others, values)), strict=True
        )
    )
    score, scored, factor = _score(rng, d, heads, exact, size)
    seen, mask = _mask(rng, rank, lead, heads, q, k)
    call = Drawn(
        queries, others, values, mask, None, score, scored, factor, seen, lead, heads, exact
    )
    call.bias = _bias(rng, call, dtype)
    call.kinds = [
        f"rank {rank}", str(dtype).removeprefix("torch."), f"score {scored}",
        "mask" if mask is not None else "no mask", "bias" if call.bias is not None else "no bias",
    ]  # fmt: skip
    return call


def _shape(
    rng: random.Random, rank: int, lead: tuple[int, ...], h: int, n: int, width: int
) -> tuple[int, ...]:
    if rank == 2:
        return (n, width)
    if rank == 3:
        return (*lead, n, width)
    return (*(1 if rng.random() < 0.2 else size for size in lead), h, n, width)


def _laid_out(rng: random.Random, x: Tensor) -> Tensor:
    """The same numbers, elsewhere in memory."""
    how = rng.choice(("plain", "plain", "swapped", "heads", "strided", "offset", "expanded"))
    if how == "swapped":
        return x.mT.contiguous().mT
    if how == "heads" and x.dim() > 2:
        return x.transpose(-3, -2).contiguous().transpose(-3, -2)
    if how == "strided":
        return torch.stack([x, torch.full_like(x, torch.nan)], -1)[..., 0]
    if how == "offset":
        return torch.cat([torch.full_like(x[..., :1], torch.nan), x], -1)[..., 1:]
    if how == "expanded" and x.dim() > 2:
        return x[:1].expand_as(x)
    return x


def _score(
    rng: random.Random, d: int, heads: int, exact: bool, size: float
) -> tuple[Any, str, float]:
    if exact or rng.random() < 0.6:
        usual = d**-0.5
        named: list[tuple[Any, float]] = [("dot", 1.0), (Scaled(-0.5), -0.5), (Scaled(0.0), 0.0)]
        named += [(Scaled(2.0), 2.0)] if exact else [("scaled_dot", usual)] * 4
        return *(pair := rng.choice(named))[:1], "dot", pair[1]
    name = rng.choice(("cosine", "gaussian", "bilinear", "other"))
    if name == "bilinear":
        own = heads if rng.random() < 0.3 else None
        return Bilinear(d, heads=own), name, 1.0
    if name == "other":
        return _minus_distance, name, 1.0
    return name, name, 1.0


def _minus_distance(q: Tensor, k: Tensor) -> Tensor:
    """A score of one's own, which is no dot product."""
    return -(q.unsqueeze(-2) - k.unsqueeze(-3)).abs().sum(-1)


def _bias(rng: random.Random, call: Drawn, dtype: torch.dtype) -> Tensor | ALiBi | None:
    chance = rng.random()
    if chance < 0.6:
        return None
    if chance < 0.7 and call.heads in (1, 2, 4):
        return ALiBi(call.heads)
    q, k = call.q.shape[-2], call.k.shape[-2]
    sizes: tuple[int, ...] = (call.heads, q, k)
    if call.q.dim() == 3:
        sizes = (*call.lead, q, k)
    elif call.q.dim() > 3 and rng.random() < 0.5:
        sizes = (*call.lead, *sizes)
    elif call.q.dim() == 2:
        sizes = (q, k)
    sizes = tuple(1 if rng.random() < 0.25 else size for size in sizes)
    kind = dtype if rng.random() < 0.6 or dtype == torch.float64 else torch.float32
    bias = torch.randn(sizes).to(kind) * rng.choice((1.0, 1.0, 1.0, 30.0))
    return bias.masked_fill(torch.rand(sizes) < 0.2, -torch.inf) if rng.random() < 0.3 else bias


def _mask(
    rng: random.Random, rank: int, lead: tuple[int, ...], heads: int, q: int, k: int
) -> tuple[Tensor, Mask | Tensor | None]:
    """The mask in full, and as it is given; several are joined by ``&``, ``|`` and ``~``."""
    everything = torch.ones(q, k, dtype=torch.bool)
    if rng.random() < 0.3:
        return everything, None
    seen, mask = _one_mask(rng, rank, lead, heads, q, k)
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 3))):
        other_seen, other = _one_mask(rng, rank, lead, heads, q, k)
        how = rng.choice("&|")
        seen = seen & other_seen if how == "&" else seen | other_seen
        mask = mask & other if how == "&" else mask | other
    if rng.random() < 0.1:
        seen, mask = ~seen, ~mask
    return seen, mask


def _one_mask(
    rng: random.Random, rank: int, lead: tuple[int, ...], heads: int, q: int, k: int
) -> tuple[Tensor, Mask]:
    rows, cols = oracle.places(q, k)
    batch = () if rank == 2 or rng.random() < 0.4 else lead

    def per_key(x: Tensor) -> Tensor:
        """``(*batch, k)`` for every head and query."""
        return x[..., None, None, :].expand(*x.shape[:-1], 1, q, k)

    def by_dense() -> tuple[Tensor, Mask]:
        own = [] if rank < 4 else [rng.choice((1, heads))]
        given = torch.rand(*batch, *(own if batch or rank > 3 else []), q, k) < rng.random()
        full = given.unsqueeze(-3) if rank == 3 and batch else given
        return full, dense(given)

    def by_window() -> tuple[Tensor, Mask]:
        before, after = rng.randrange(6), rng.randrange(6)
        near = (rows - cols <= before) & (cols - rows <= after)
        return near, window(before=before, after=after)

    def by_prefix() -> tuple[Tensor, Mask]:
        n = rng.randrange(k + 2)
        return (cols < n).expand(q, k), prefix(n)

    def by_padding() -> tuple[Tensor, Mask]:
        lengths = torch.randint(0, k + 1, batch)
        return per_key(torch.arange(k) < lengths[..., None]), padding(lengths)

    def by_keys() -> tuple[Tensor, Mask]:
        given = torch.rand(*batch, k) < 0.6
        return per_key(given), keys(given)

    def by_segments() -> tuple[Tensor, Mask]:
        ids = torch.randint(0, 3, (*batch, k))
        same = ids[..., k - q :, None] == ids[..., None, :]
        return (same.unsqueeze(-3) if batch else same), segments(ids)

    kinds: list[Callable[[], tuple[Tensor, Mask]]]
    kinds = [by_dense, by_window, by_prefix, by_padding, by_keys]
    kinds += [lambda: ((cols <= rows).expand(q, k), causal)] * 3
    if 0 < q <= k:
        kinds.append(by_segments)
    return rng.choice(kinds)()
