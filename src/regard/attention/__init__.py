"""The attention operation, its masks, scores and positions, and `Look`: its weights on demand."""

from regard.attention.masks import Mask, causal, dense, keys, padding, prefix, segments, window
from regard.attention.operation import attend, look, scaled_dot_product_attention, which
from regard.attention.positions import ALiBi, Bias, Learned, RelativeBias, Rotary, Sinusoidal
from regard.attention.record import Look
from regard.attention.scores import Additive, Bilinear, Scaled, Softcap

__all__ = [
    "ALiBi",
    "Additive",
    "Bias",
    "Bilinear",
    "Learned",
    "Look",
    "Mask",
    "RelativeBias",
    "Rotary",
    "Scaled",
    "Sinusoidal",
    "Softcap",
    "attend",
    "causal",
    "dense",
    "keys",
    "look",
    "padding",
    "prefix",
    "scaled_dot_product_attention",
    "segments",
    "which",
    "window",
]
