"""Shapes of Transformers: the presets, and what is impossible."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from regard.errors import OptionError
from regard.nn import TransformerConfig
from regard.nn.config import PRESETS


def test_presets() -> None:
    assert list(PRESETS) == ["tiny", "pocket", "small", "base", "big"]
    base = TransformerConfig.preset("base")
    assert (base.width, base.encoder_depth, base.decoder_depth) == (512, 6, 6)
    assert (base.heads, base.feed_forward, base.dropout) == (8, 2048, 0.1)
    big = TransformerConfig.preset("big")
    assert (big.width, big.heads, big.feed_forward, big.dropout) == (1024, 16, 4096, 0.3)
    changed = TransformerConfig.preset("big", vocabulary=99, norm_place="before")
    assert dataclasses.replace(big, vocabulary=99, norm_place="before") == changed


def test_a_final_norm_goes_with_norms_before_unless_said() -> None:
    assert TransformerConfig(norm_place="before").ends_with_norm
    assert not TransformerConfig(norm_place="after").ends_with_norm
    assert TransformerConfig(norm_place="after", final_norm=True).ends_with_norm
    assert not TransformerConfig(norm_place="before", final_norm=False).ends_with_norm
    after = TransformerConfig(norm_place="after")
    assert dataclasses.replace(after, norm_place="before").ends_with_norm


def test_it_is_frozen_and_compared_by_value() -> None:
    config = TransformerConfig(width=64)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.width = 128  # type: ignore[misc]
    assert config == TransformerConfig(width=64) != TransformerConfig(width=128)
    assert hash(config) == hash(TransformerConfig(width=64))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"vocabulary": 0}, "vocabulary=0, expected a whole number of at least 1"),
        ({"width": 2.0}, r"width=2\.0, expected a whole number of at least 1"),
        ({"heads": True}, "heads=True, expected a whole number of at least 1"),
        ({"feed_forward": -3}, "feed_forward=-3, expected a whole number of at least 1"),
        ({"max_length": "9"}, "max_length='9', expected a whole number of at least 1"),
        ({"encoder_depth": -1}, "encoder_depth=-1, expected a whole number of at least 0"),
        ({"decoder_depth": None}, "decoder_depth=None, expected a whole number of at least 0"),
        ({"activation": "tanh"}, "activation='tanh', expected one of relu, gelu, silu, swiglu"),
        ({"norm": "batch"}, "norm='batch', expected one of layernorm, rmsnorm"),
        ({"norm_place": "within"}, "norm_place='within', expected one of before, after"),
        (
            {"position": "none"},
            "position='none', expected one of sinusoidal, learned, rotary, alibi",
        ),
        ({"heads": 7}, "width=512 does not split into heads=7; choose heads that divide the"),
        ({"kv_heads": 0}, "kv_heads=0, expected a whole number of at least 1"),
        ({"kv_heads": 3}, "heads=8 is not a multiple of kv_heads=3; choose kv_heads that div"),
        (
            {"position": "rotary", "width": 24},
            "position='rotary' rotates pairs of numbers, but a head is 3 wide; choose an even",
        ),
        ({"norm_eps": 0.0}, r"norm_eps=0\.0, expected a positive number"),
        ({"norm_eps": math.inf}, "norm_eps=inf, expected a positive number"),
        ({"norm_eps": "small"}, "norm_eps='small', expected a number"),
        ({"dropout": 1.0}, r"dropout=1\.0, expected 0 up to, but not including, 1"),
        ({"dropout": math.nan}, "dropout=nan, expected 0 up to, but not including, 1"),
        ({"dropout": "0.1"}, r"dropout='0\.1', expected a number"),
    ],
)
@pytest.mark.usefixtures("as_users_run")
def test_impossible_shapes(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=f"^TransformerConfig: {text}"):
        TransformerConfig(**changes)


def test_unknown_presets_and_changes() -> None:
    with pytest.raises(
        OptionError, match="preset 'huge' is unknown, expected one of tiny, pocket,"
    ):
        TransformerConfig.preset("huge")
    with pytest.raises(OptionError, match="TransformerConfig: vocab is unknown; did you mean voca"):
        TransformerConfig.preset("tiny", vocab=3)
    with pytest.raises(OptionError, match="zzz is unknown; known are vocabulary, width, encoder_d"):
        TransformerConfig.preset("tiny", zzz=3)
