"""How the lens runs a model: one adapter for each kind."""

from regard.lens.adapters.adapter import (
    LastStep,
    ModelAdapter,
    Reading,
    StackAdapter,
    TranslatorAdapter,
    writes_for,
)

__all__ = ["LastStep", "ModelAdapter", "Reading", "StackAdapter", "TranslatorAdapter", "writes_for"]
