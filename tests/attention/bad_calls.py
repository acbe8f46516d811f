"""What the tests of bad calls share: tensors of known sizes, and errors compared word for word."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard.attention import (
    attend,
    look,
    which,
)
from regard.errors import (
    RegardError,
)

# Axes: batch 2, heads 6, queries 5, keys 7, width 11, values 13.
B, H, Q, K, D, E = 2, 6, 5, 7, 11, 13
Kind = type[RegardError]


def zeros(*sizes: int, **options: object) -> Tensor:
    return torch.zeros(*sizes, **options)  # type: ignore[call-overload, no-any-return]


def yes(*sizes: int) -> Tensor:
    return torch.ones(*sizes, dtype=torch.bool)


def good() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(  # type: ignore[return-value]
        torch.randn(B, H, n, d, generator=generator) for n, d in ((Q, D), (K, D), (K, E))
    )


def raises(call: Callable[[], object], kind: Kind, text: str) -> None:
    with pytest.raises(kind, match=f"^{re.escape(text)}$") as caught:
        call()
    assert type(caught.value) is kind


THREE: dict[str, Callable[..., object]] = {"attend": attend, "look": look, "which": which}
of_three = pytest.mark.parametrize("name", THREE)
