"""A language small enough to learn in seconds: number words, English to German."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from regard.nn import TransformerConfig
from regard.translate import DataConfig, RunConfig, TrainingConfig, ValidationConfig

ENGLISH = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
GERMAN = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"]


def number_pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Sentences of two to six number words and their translations, all different."""
    chance = random.Random(seed)
    found: dict[str, str] = {}
    while len(found) < count:
        digits = [chance.randrange(10) for _ in range(chance.randint(2, 6))]
        found[" ".join(ENGLISH[i] for i in digits)] = " ".join(GERMAN[i] for i in digits)
    return list(found.items())


@dataclass(frozen=True)
class Corpus:
    """Where the sentences lie."""

    source: Path
    target: Path
    valid_source: Path
    valid_target: Path

    def data(self) -> DataConfig:
        return DataConfig(
            str(self.source), str(self.target), str(self.valid_source), str(self.valid_target)
        )

    def options(self) -> list[str]:
        """The same for the command line."""
        return [
            f"--source={self.source}",
            f"--target={self.target}",
            f"--valid-source={self.valid_source}",
            f"--valid-target={self.valid_target}",
        ]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """600 pairs to train on, 20 to validate on."""
    folder = tmp_path_factory.mktemp("numbers")
    pairs = number_pairs(620)
    parts = {"train": pairs[:600], "valid": pairs[600:]}
    for name, part in parts.items():
        for side, language in enumerate(("en", "de")):
            text = "".join(pair[side] + "\n" for pair in part)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    names = ("train.en", "train.de", "valid.en", "valid.de")
    return Corpus(*(folder / name for name in names))


SMALL = {
    "vocabulary": 40,
    "width": 32,
    "encoder_depth": 1,
    "decoder_depth": 1,
    "heads": 2,
    "feed_forward": 64,
    "dropout": 0.1,
}
"""A model that learns number words in a few hundred updates."""


@pytest.fixture
def config(corpus: Corpus) -> RunConfig:
    """A short run: 30 updates, a checkpoint every 5, validated every 10 by loss."""
    return RunConfig(
        corpus.data(),
        TransformerConfig(**SMALL),
        TrainingConfig(max_steps=30, batch_tokens=256, warmup=10, learning_rate=0.005),
        ValidationConfig(valid_every=10, checkpoint_every=5, select_by="loss", average=2),
    )
