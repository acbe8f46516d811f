"""The configuration of a run: its schedule, its file, and what it refuses."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest

from regard.errors import FileError, OptionError
from regard.nn import TransformerConfig
from regard.translate import DataConfig, RunConfig, TrainingConfig, ValidationConfig


def test_a_configuration_survives_its_file() -> None:
    config = RunConfig(
        model=TransformerConfig(width=64, kv_heads=2),
        training=TrainingConfig(learning_rate=0.003, max_steps=7),
        validation=ValidationConfig(select_by="loss"),
    )
    assert RunConfig.from_json(config.to_json(), "config.json") == config


def test_a_damaged_file_is_named() -> None:
    with pytest.raises(FileError, match=r"^config.json: not JSON: "):
        RunConfig.from_json("{", "config.json")


def test_differences_are_told_by_field() -> None:
    one, other = RunConfig(), RunConfig(training=TrainingConfig(epochs=3, init_from="x"))
    assert one.differences(other) == [
        "training.epochs: 60, not 3",
        "training.init_from: '', not 'x'",
    ]
    assert one.differences(one) == []


def test_the_rate_is_the_papers_if_none_is_given() -> None:
    config, width = TrainingConfig(warmup=4000), 512
    for step in (1, 100, 4000, 20_000):
        paper = width**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert config.rate(step, 100_000, width) == pytest.approx(paper)


def test_a_cosine_ends_at_nought() -> None:
    config = TrainingConfig(warmup=10, schedule="cosine", learning_rate=0.1)
    rates = [config.rate(step, 110, 512) for step in range(1, 111)]
    assert rates[9] == pytest.approx(0.1)
    assert rates[59] == pytest.approx(0.05)
    assert rates[-1] == pytest.approx(0.0)
    assert all(a >= b for a, b in pairwise(rates[9:]))


def test_no_warmup_begins_at_the_top() -> None:
    config = TrainingConfig(warmup=0, learning_rate=0.1)
    assert config.rate(1, 10, 512) == pytest.approx(0.1)
    assert math.isfinite(TrainingConfig(warmup=0).rate(1, 10, 512))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"smoothing": 1.0}, "smoothing=1.0, expected 0 up to, but not including, 1"),
        ({"batch_tokens": 0}, "batch_tokens=0, expected at least 1"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0, expected at least 0"),
        ({"max_steps": 0}, "max_steps=0, expected at least 1"),
        ({"schedule": "linear"}, "schedule='linear', expected one of inverse_sqrt, cosine"),
        ({"learning_rate": math.nan}, "learning_rate=nan, expected a finite number"),
        ({"learning_rate": math.inf}, "learning_rate=inf, expected a finite number"),
        ({"weight_decay": math.nan}, "weight_decay=nan, expected a finite number"),
        ({"clip": math.inf}, "clip=inf, expected a finite number"),
        ({"word_dropout": 1.0}, "word_dropout=1.0, expected 0 up to, but not including, 1"),
        ({"smoothing": math.nan}, "smoothing=nan, expected 0 up to"),
        ({"seed": 10**19}, "seed is too large, expected at most 18 digits"),
    ],
)
def test_nonsense_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        TrainingConfig(**changes)  # type: ignore[arg-type]


def test_pairs_are_never_too_unequal_or_the_limit_is_a_number() -> None:
    assert DataConfig(max_ratio=math.inf).max_ratio == math.inf
    with pytest.raises(OptionError, match="max_ratio=nan, expected a finite number"):
        DataConfig(max_ratio=math.nan)


def test_a_path_is_as_good_as_its_text(tmp_path: Path) -> None:
    config = RunConfig(
        DataConfig(tmp_path / "a.en", tmp_path / "a.de"),
        training=TrainingConfig(init_from=tmp_path),
    )
    text = RunConfig(
        DataConfig(str(tmp_path / "a.en"), str(tmp_path / "a.de")),
        training=TrainingConfig(init_from=str(tmp_path)),
    )
    assert config == text
    assert RunConfig.from_json(config.to_json(), "config.json") == config


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epochs": "3"}, "train: epochs is '3', expected a whole number"),
        ({"epochs": None}, "train: epochs is None, expected a whole number"),
        ({"clip": 10**400}, "train: clip is too large, expected at most 18 digits"),
    ],
)
@pytest.mark.usefixtures("as_users_run")
def test_another_type_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        TrainingConfig(**changes)  # type: ignore[arg-type]
