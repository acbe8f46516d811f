"""Int8 matrices: integers with one scale per output, and products in integer arithmetic.

For a row x of activations and a matrix W whose column j is scale_j · Q_j with integers Q,

    y_j = scale_j · s · Σ_k round(x_k / s) Q_kj        with s = max |x| / 127

where the sum is exact in 32 bits, so results do not depend on the instruction set. Symmetric
quantisation as in Wu et al., "Integer Quantization for Deep Learning Inference", 2020, section 3.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int8, UInt8
from torch import Tensor
from torch.utils._pytree import tree_map_only

from regard.native.library import loaded
from regard.native.products import PANEL

LARGEST = 127
"""The largest magnitude of a quantised integer."""


class Int8Matrix(Tensor):
    """A float32 matrix stored as int8 with scales; other operators see its float32 values.

    Args:
        whole: the integers ``(r, c)``.
        scales: float32, one per row (axis 0) or per column (axis 1).
        axis: 0 or 1, see `scales`.
    """

    whole: Int8[Tensor, "r c"]
    scales: Float[Tensor, "_"]
    axis: int
    _packed: dict[int, Tensor]
    """Cached panels by axis, shared by all views of a matrix."""

    @staticmethod
    def __new__(cls, whole: Tensor, scales: Tensor, axis: int) -> Int8Matrix:
        made: Int8Matrix = Tensor._make_wrapper_subclass(
            cls, whole.shape, dtype=scales.dtype, device=whole.device
        )
        made.whole, made.scales, made.axis, made._packed = whole, scales, axis, {}
        return made

    @classmethod
    def quantise(cls, matrix: Float[Tensor, "r c"], axis: int) -> Int8Matrix:
        """The quantised matrix, with a scale for each row (axis 0) or column (axis 1)."""
        matrix = matrix.detach().to(torch.float32)
        scales = (matrix.abs().amax(1 - axis) / LARGEST).clamp(min=torch.finfo(torch.float32).tiny)
        whole = (matrix / scales.unsqueeze(1 - axis)).round().clamp(-LARGEST, LARGEST)
        return cls(whole.to(torch.int8), scales, axis)

    def values(self) -> Float[Tensor, "r c"]:
        """The matrix in float32."""
        return self.whole * self.scales.unsqueeze(1 - self.axis)

    @property
    def panels(self) -> UInt8[Tensor, "rc"]:
        """The integers plus 128 in the panel layout of ``regard::affine_int8``, cached."""
        if self.axis not in self._packed:
            shifted = (self.whole.to(torch.int16) + 128).to(torch.uint8)
            parts = torch.split(shifted, PANEL, 1)
            quads = (part.reshape(-1, 4, part.shape[1]).transpose(1, 2) for part in parts)
            self._packed[self.axis] = torch.cat([part.reshape(-1) for part in quads])
        return self._packed[self.axis]

    @property
    def multiplies(self) -> bool:
        """Whether ``regard::affine_int8`` supports this matrix."""
        (rows, columns), here = self.whole.shape, self.whole.device.type == "cpu"
        return self.axis == 1 and rows % 4 == 0 < rows and columns % 16 == 0 and here and loaded()

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Int8Matrix({tuple(self.shape)}, a scale per {('row', 'column')[self.axis]})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Int8Matrix:
        made = Int8Matrix(self.whole.clone(), self.scales.clone(), self.axis)
        if getattr(self, "_is_param", False):  # stays a parameter
            made._is_param = True
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = _kept(func, args, kwargs or {})
        if made is not None:
            return made
        args, kwargs = tree_map_only(Int8Matrix, Int8Matrix.values, (args, kwargs or {}))
        return func(*args, **kwargs)


def _view(old: Int8Matrix, whole: Tensor, axis: int) -> Int8Matrix:
    """A view of the matrix that shares its scales and cached panels."""
    made = Int8Matrix(whole, old.scales, axis)
    made._packed = old._packed
    return made


def _kept(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of operators that keep or need no float32 matrix; None for all others."""
    aten, first = torch.ops.aten, args[0]
    if func in (aten.detach.default, aten.alias.default):
        return _view(first, first.whole, first.axis)
    # Inference mode does not decompose numpy_T and mT.
    transposes = (aten.t.default, aten.numpy_T.default, aten.mT.default)
    if func in transposes or (func is aten.permute.default and list(args[1]) == [1, 0]):
        return _view(first, first.whole.T, 1 - first.axis)
    if func in (aten.new_zeros.default, aten.new_full.default, aten.new_empty.default):
        return func(first.scales, *args[1:], **kwargs)
    if func is aten.embedding.default and first.axis == 0:
        return first.whole[args[1]] * first.scales[args[1]].unsqueeze(-1)
    if func is aten.cat.default:
        parts, dim = first, args[1] if len(args) > 1 else kwargs.get("dim", 0)
        if all(isinstance(part, Int8Matrix) and part.axis == dim for part in parts):
            whole = torch.cat([part.whole for part in parts], dim)
            return Int8Matrix(whole, torch.cat([part.scales for part in parts]), dim)
    return None


class Int8Product(torch.autograd.Function):
    """x ``(…, d)`` times an `Int8Matrix` that `multiplies`, with a straight-through gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Int8Matrix, bias: Tensor | None) -> Tensor:
        ctx.weight = weight
        rows = x.detach().reshape(-1, x.shape[-1]).contiguous()
        bias = None if bias is None else bias.detach().contiguous()
        y = torch.ops.regard.affine_int8(rows, weight.panels, weight.scales, bias)
        return y.view(*x.shape[:-1], y.shape[-1])  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad @ ctx.weight.values().T, None, None
