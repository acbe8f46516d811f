"""C++ kernels, registered with PyTorch as operators torch.ops.regard.*; optional, never required.

`loaded` returns whether they can be called; `operators` lists them.
"""

from regard.native.decoder import DecoderStep, Layers, panels
from regard.native.int8 import Int8Matrix, Int8Product
from regard.native.library import loaded, status
from regard.native.operators import FAR, Attend, gradients
from regard.native.products import bfloat16_products, fits, has_tangent, products_in

__all__ = [
    "FAR",
    "Attend",
    "DecoderStep",
    "Int8Matrix",
    "Int8Product",
    "Layers",
    "bfloat16_products",
    "fits",
    "gradients",
    "has_tangent",
    "loaded",
    "panels",
    "products_in",
    "status",
]
