"""Loops in C++, compiled on this machine when first wanted; where that fails, PyTorch does it all.

Nothing outside this package knows that there is C++: `usable` and `readable` say whether it can be
called for some tensors, and the other functions take tensors.
"""

from regard.compiled.calling import (
    KEYS,
    QUERIES,
    affine,
    affine_by_panels,
    attend_few,
    attend_short,
    attend_short_backwards,
    best_words,
    drop,
    layer_norm,
    multiples,
    panels,
    products_of,
    readable,
    rounds,
    usable,
)
from regard.compiled.decoding import DecoderStep, Weights

__all__ = [
    "KEYS",
    "QUERIES",
    "DecoderStep",
    "Weights",
    "affine",
    "affine_by_panels",
    "attend_few",
    "attend_short",
    "attend_short_backwards",
    "best_words",
    "drop",
    "layer_norm",
    "multiples",
    "panels",
    "products_of",
    "readable",
    "rounds",
    "usable",
]
