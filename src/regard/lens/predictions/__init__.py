"""Predictions: one choice of a model, of any kind, that `Lens.why` explains."""

from regard.lens.predictions.prediction import Axis, Prediction, Site
from regard.lens.predictions.translation import Translated, TranslationPrediction

__all__ = ["Axis", "Prediction", "Site", "Translated", "TranslationPrediction"]
