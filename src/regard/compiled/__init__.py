"""Loops in C++, compiled on this machine when first wanted; where that fails, PyTorch does it all.

Nothing outside this package knows that there is C++: `usable` says whether it can be called for
some tensors, and the other functions take tensors.
"""

from regard.compiled.calling import (
    affine,
    attend_few,
    best_words,
    layer_norm,
    multiples,
    usable,
)
from regard.compiled.decoding import DecoderStep, Weights

__all__ = [
    "DecoderStep",
    "Weights",
    "affine",
    "attend_few",
    "best_words",
    "layer_norm",
    "multiples",
    "usable",
]
