"""Predictions: one choice of a model, of any kind, that `Lens.why` explains."""

from regard.lens.predictions.prediction import Axis, Prediction, Site
from regard.lens.predictions.translated_text import Translated
from regard.lens.predictions.translation import TranslationPrediction

__all__ = ["Axis", "Prediction", "Site", "Translated", "TranslationPrediction"]
