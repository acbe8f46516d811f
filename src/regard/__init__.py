"""Self-attention you can see through."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard import course, nn, view
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
        Softcap,
        attend,
        causal,
        dense,
        keys,
        look,
        padding,
        prefix,
        scaled_dot_product_attention,
        segments,
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
    from regard.lens import Lens, cut, judge, see, watch
    from regard.translate import Translator
    from regard.vectors import Vectors, contextualise, similar
    from regard.walkthrough import steps

__version__ = "0.1.0"

_PLACES = {
    "attention": (
        "ALiBi Additive Bilinear Learned Look RelativeBias Rotary Scaled Sinusoidal Softcap attend "
        "causal dense keys look padding prefix scaled_dot_product_attention segments window"
    ),
    "errors": (
        "DtypeError FileError MemoryLimitError OptionError RegardError ShapeError StaleError "
        "WordError"
    ),
    "lens": "Lens cut judge see watch",
    "translate": "Translator",
    "vectors": "Vectors contextualise similar",
    "walkthrough": "steps",
}
"""Where the names are. Each is loaded when first asked for, so that the program can answer Ctrl-C,
``--version`` and ``--help`` before torch is imported."""
_MODULE = {name: module for module, names in _PLACES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in ("course", "nn", "view", *_PLACES):
        return import_module(f"regard.{name}")
    if name not in _MODULE:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"regard.{_MODULE[name]}"), name)
    return found


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
    "Softcap",
    "StaleError",
    "Translator",
    "Vectors",
    "WordError",
    "attend",
    "causal",
    "contextualise",
    "course",
    "cut",
    "dense",
    "judge",
    "keys",
    "look",
    "nn",
    "padding",
    "prefix",
    "scaled_dot_product_attention",
    "see",
    "segments",
    "similar",
    "steps",
    "view",
    "watch",
    "window",
]
