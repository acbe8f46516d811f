"""How the lens runs a model: one adapter for each kind."""

from regard.lens.adapters.adapter import (
    ModelAdapter,
    Reading,
    Resumed,
    StackAdapter,
    TranslatorAdapter,
    writes_for,
)

__all__ = [
    "ModelAdapter",
    "Reading",
    "Resumed",
    "StackAdapter",
    "TranslatorAdapter",
    "writes_for",
]
