"""Small Transformers and words for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.nn import Transformer, TransformerConfig

VOCABULARY = 37
SHAPE: dict[str, Any] = {
    "vocabulary": VOCABULARY, "width": 24, "encoder_depth": 2, "decoder_depth": 2, "heads": 4,
    "feed_forward": 26, "max_length": 64, "dropout": 0.0,
}  # fmt: skip


def config_of(**changes: Any) -> TransformerConfig:
    return TransformerConfig(**{**SHAPE, **changes})


def model_of(**changes: Any) -> Transformer:
    return Transformer(config_of(**changes)).double().eval()


def words(*sizes: int) -> Tensor:
    return torch.randint(VOCABULARY, sizes)


def close(found: Tensor, wanted: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance)
