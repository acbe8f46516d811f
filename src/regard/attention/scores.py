"""Score functions: how a query is compared with a key.

A score takes blocks of queries ``(…, q, d)`` and keys ``(…, k, d)`` and returns ``(…, q, k)``;
any such function can be passed. Scores that are a dot product of transformed queries and keys are
a `DotScore`, and run on every kernel.

| name | score of q and k | from |
|---|---|---|
| ``"dot"`` | q·k | the form without parameters |
| ``"scaled_dot"`` | q·k / √d | Vaswani et al. 2017 |
| ``Scaled(x)`` | x q·k | |
| ``"cosine"`` | q·k / (|q| |k|) | Graves et al. 2014 |
| ``"gaussian"`` | -|q - k|² / 2 | Nadaraya 1964, Watson 1964 |
| ``Softcap(c)`` | c tanh(q·k / (√d c)) | Bello et al. 2016 |
| ``Bilinear`` | qᵀ W k | Luong et al. 2015, "general" |
| ``Additive`` | aᵀ tanh(W q + U k) | Bahdanau et al. 2015 |
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import OptionError, check_number

Score = Callable[[Tensor, Tensor], Tensor]
"""Queries ``(…, q, d)`` and keys ``(…, k, d)`` to scores ``(…, q, k)``."""


class DotScore:
    """A score that is the dot product of queries and keys, each transformed by itself."""

    def __call__(
        self, q: Float[Tensor, "*bh q d"], k: Float[Tensor, "*bh k e"]
    ) -> Float[Tensor, "*bh q k"]:
        q, k, factor = self.dot(q, k)
        return q @ k.mT * factor

    def dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        """Transformed queries and keys, and a factor, such that the score is factor · q·k."""
        raise NotImplementedError


@dataclass(frozen=True)
class Scaled(DotScore):
    """The dot product times a given factor.

    >>> Scaled(0.5)(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])).item()
    5.5
    """

    factor: float

    def __post_init__(self) -> None:
        check_number("Scaled: factor", self.factor)

    def dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        return q, k, self.factor


@dataclass(frozen=True)
class ScaledDot(DotScore):
    """The dot product over √d, which keeps its variance at 1 whatever the width."""

    def __call__(
        self, q: Float[Tensor, "*bh q d"], k: Float[Tensor, "*bh k d"]
    ) -> Float[Tensor, "*bh q k"]:
        return q @ k.mT / math.sqrt(q.shape[-1])

    def dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        return q, k, 1 / math.sqrt(q.shape[-1])


@dataclass(frozen=True)
class Cosine(DotScore):
    """The cosine of the angle: 1 in the same direction, -1 in the opposite one.

    The score of a zero vector is 0.
    """

    def dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        normalize = nn.functional.normalize
        return normalize(q, dim=-1), normalize(k, dim=-1), 1.0


@dataclass(frozen=True)
class Gaussian(DotScore):
    """Minus half the squared distance: its softmax is the Gaussian kernel of width 1."""

    def __call__(
        self, q: Float[Tensor, "*bh q d"], k: Float[Tensor, "*bh k d"]
    ) -> Float[Tensor, "*bh q k"]:
        return (q.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(-1) / -2

    def dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        """-|q - k|² / 2 = (q, -|q|²/2, 1) · (k, 1, -|k|²/2)."""
        # Distances do not depend on the origin: a query as origin keeps large vectors precise.
        first = (
            q[..., :1, :].detach() if q.shape[-2] else q.new_zeros(*q.shape[:-2], 1, q.shape[-1])
        )
        origin = first.nan_to_num(0.0, 0.0, 0.0)  # NaN in the first query must not reach the others
        if q.dim() > 2 and q.shape[-3] != k.shape[-3]:
            shared = q.shape[-3] // k.shape[-3]
            origin = origin[..., ::shared, :, :]
            q = q - origin.repeat_interleave(shared, -3)
        else:
            q = q - origin
        k = k - origin
        half_q, half_k = (x.square().sum(-1, keepdim=True) / -2 for x in (q, k))
        one_q, one_k = torch.ones_like(half_q), torch.ones_like(half_k)
        return torch.cat([q, half_q, one_q], -1), torch.cat([k, one_k, half_k], -1), 1.0


@dataclass(frozen=True)
class Softcap:
    """The scaled dot product squashed into −cap … cap: cap · tanh(scale q·k / cap).

    The scale is 1/√d by default.

    >>> Softcap(2.0)(torch.tensor([[3.0]]), torch.tensor([[4.0]]))
    tensor([[2.0000]])

    Bello et al. 2016, section 5.1; Gemma 2, 2024.
    """

    cap: float
    scale: float | None = None

    def __post_init__(self) -> None:
        check_number("Softcap: cap", self.cap)
        if not 0 < self.cap < math.inf:
            raise OptionError(f"Softcap: cap={self.cap}, expected a positive number")
        if self.scale is not None:
            check_number("Softcap: scale", self.scale)

    def scale_for(self, width: int) -> float:
        """The scale for vectors of this width."""
        return float(width**-0.5) if self.scale is None else self.scale

    def __call__(
        self, q: Float[Tensor, "*bh q d"], k: Float[Tensor, "*bh k d"]
    ) -> Float[Tensor, "*bh q k"]:
        return self.cap * torch.tanh(q @ k.mT * (self.scale_for(q.shape[-1]) / self.cap))


class Bilinear(nn.Module, DotScore):
    """A learned matrix between query and key, qᵀ W k; one per head if `heads` is given.

    >>> Bilinear(4)(torch.ones(3, 4), torch.ones(5, 4)).shape
    torch.Size([3, 5])
    """

    def __init__(self, width: int, key_width: int | None = None, heads: int | None = None) -> None:
        super().__init__()
        self.width, self.key_width, self.heads = width, key_width or width, heads
        lead = () if heads is None else (heads,)
        self.weight = nn.Parameter(torch.empty(*lead, width, self.key_width))
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(
        self, q: Float[Tensor, "*bh q d"], k: Float[Tensor, "*bh k e"]
    ) -> Float[Tensor, "*bh q k"]:
        return DotScore.__call__(self, q, k)

    def dot(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        return q @ self.weight.to(q.dtype), k, 1.0


class Additive(nn.Module):
    """A network with one hidden layer over query and key: aᵀ tanh(W q + U k).

    >>> Additive(4, hidden=8)(torch.ones(3, 4), torch.ones(5, 4)).shape
    torch.Size([3, 5])
    """

    def __init__(self, width: int, hidden: int, key_width: int | None = None) -> None:
        super().__init__()
        self.width, self.key_width = width, key_width or width
        self.of_query = nn.Parameter(torch.empty(width, hidden))
        self.of_key = nn.Parameter(torch.empty(self.key_width, hidden))
        self.out = nn.Parameter(torch.empty(hidden))
        for weight in (self.of_query, self.of_key, self.out):
            nn.init.normal_(weight, std=weight.shape[0] ** -0.5)

    def forward(
        self, q: Float[Tensor, "*bh q d"], k: Float[Tensor, "*bh k e"]
    ) -> Float[Tensor, "*bh q k"]:
        of_query, of_key, out = (w.to(q.dtype) for w in (self.of_query, self.of_key, self.out))
        return torch.tanh((q @ of_query).unsqueeze(-2) + (k @ of_key).unsqueeze(-3)) @ out


NAMED: dict[str, DotScore] = {
    "dot": Scaled(1.0),
    "scaled_dot": ScaledDot(),
    "cosine": Cosine(),
    "gaussian": Gaussian(),
}


def as_score(score: str | Score, caller: str) -> Score:
    """The score of that name, or the callable itself."""
    if isinstance(score, str):
        if score in NAMED:
            return NAMED[score]
        near = difflib.get_close_matches(score, NAMED, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise OptionError(
            f"{caller}: score={score!r} is unknown, expected {', '.join(map(repr, NAMED))}, "
            f"Scaled(x), Softcap(x), Bilinear, Additive or a function of blocks (q, k){meant}"
        )
    if callable(score) and not isinstance(score, type):
        return score
    given = f"the class {score.__name__}" if isinstance(score, type) else type(score).__name__
    raise OptionError(
        f"{caller}: score is {given}, expected a name such as 'scaled_dot' or a "
        "function of blocks (q, k)"
    )
