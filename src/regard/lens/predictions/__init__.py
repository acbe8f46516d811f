"""One choice of a model, whatever the model: what to ask `Lens.why` about."""

from regard.lens.predictions.prediction import Axis, Prediction, Site
from regard.lens.predictions.translation import Translated, TranslationPrediction

__all__ = ["Axis", "Prediction", "Site", "Translated", "TranslationPrediction"]
