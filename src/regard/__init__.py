"""Self-attention you can see through."""

from importlib import import_module
from typing import Any

from regard import nn, view
from regard.attention import (
    Additive,
    ALiBi,
    Bilinear,
    Learned,
    Look,
    RelativeBias,
    Rotary,
    Scaled,
    Sinusoidal,
    attend,
    causal,
    dense,
    keys,
    look,
    padding,
    prefix,
    scaled_dot_product_attention,
    segments,
    steps,
    window,
)
from regard.errors import (
    DtypeError,
    FileError,
    MemoryLimitError,
    OptionError,
    RegardError,
    ShapeError,
    StaleError,
    WordError,
)

__version__ = "0.1.0"

_LATER = {
    "Lens": "regard.lens",
    "Translator": "regard.translate",
    "Vectors": "regard.vectors",
    "contextualise": "regard.vectors",
    "cut": "regard.lens",
    "similar": "regard.vectors",
    "watch": "regard.lens",
}
"""Names that are loaded when they are first asked for: not everybody translates."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "ALiBi",
    "Additive",
    "Bilinear",
    "DtypeError",
    "FileError",
    "Learned",
    "Lens",
    "Look",
    "MemoryLimitError",
    "OptionError",
    "RegardError",
    "RelativeBias",
    "Rotary",
    "Scaled",
    "ShapeError",
    "Sinusoidal",
    "StaleError",
    "Translator",
    "Vectors",
    "WordError",
    "attend",
    "causal",
    "contextualise",
    "cut",
    "dense",
    "keys",
    "look",
    "nn",
    "padding",
    "prefix",
    "scaled_dot_product_attention",
    "segments",
    "similar",
    "steps",
    "view",
    "watch",
    "window",
]
