"""Translation: training a Transformer, and translating with it."""

from typing import TYPE_CHECKING

from regard.lazy import exports

if TYPE_CHECKING:
    from regard.translate.config import DataConfig, RunConfig, TrainingConfig, ValidationConfig
    from regard.translate.strategies import Beam, Greedy, Sampling
    from regard.translate.training import train
    from regard.translate.translator import Translation, Translator

__getattr__ = exports(
    __name__,
    config="DataConfig RunConfig TrainingConfig ValidationConfig",
    strategies="Beam Greedy Sampling",
    training="train",
    translator="Translation Translator",
)

__all__ = [
    "Beam",
    "DataConfig",
    "Greedy",
    "RunConfig",
    "Sampling",
    "TrainingConfig",
    "Translation",
    "Translator",
    "ValidationConfig",
    "train",
]
