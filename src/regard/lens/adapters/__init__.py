"""How the lens runs a model: one adapter for each kind."""

from regard.lens.adapters.adapter import (
    ModelAdapter,
    Reading,
    StackAdapter,
    TranslatorAdapter,
    speaks,
)

__all__ = ["ModelAdapter", "Reading", "StackAdapter", "TranslatorAdapter", "speaks"]
