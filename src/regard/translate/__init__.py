"""Translation: training a Transformer, and translating with it."""

from regard.translate.config import DataConfig, RunConfig, TrainingConfig, ValidationConfig
from regard.translate.strategies import Beam, Greedy, Sampling
from regard.translate.training import train
from regard.translate.translator import Translation, Translator

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
