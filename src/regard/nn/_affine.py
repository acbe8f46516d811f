"""x W + b, and what becomes of it, by the fastest way on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from regard import compiled
from regard.attention._call import exactly, unreadable


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x ``(…, d_in)`` times weight ``(d_in, d_out)``, and the bias added."""
    (d_in, d_out), width = weight.shape, x.shape[-1]
    if (
        width == d_in > 0
        and (bias is None or bias.shape == (d_out,))
        and compiled.multiples((d_out,))
        and compiled.usable(x.numel() * d_out, x, weight, bias)
    ):
        rows = x.reshape(x.numel() // width, width)
        if compiled.rounds() and d_in % 2 == 0:
            panels = compiled.panels(weight, torch.bfloat16)
            y = compiled.affine_by_panels(rows, panels, bias, x.new_empty(len(rows), d_out))
        else:
            y = compiled.affine(rows, weight, bias)
        return y.view(*x.shape[:-1], d_out)
    if bias is None or x.device.type != "cpu" or d_in == 0 or unreadable(x, weight, bias):
        return F.linear(x, weight.T, bias)
    # In two steps: in one, torch copies the bias to every row before it multiplies.
    y = torch.mm(x.reshape(-1, x.shape[-1]), weight).add_(bias)
    return y.view(*x.shape[:-1], weight.shape[1])


def heads(x: Tensor, counts: list[int], width: int) -> list[Tensor]:
    """Columns of x ``(b, n, …)`` as several times so many heads ``(b, h, n, width)``."""
    if (
        torch.is_grad_enabled()
        and x.requires_grad
        and torch._C._functorch.peek_interpreter_stack() is None
        and not unreadable(x)
        and forward_ad._current_level < 0
        and torch._C._get_tracing_state() is None
    ):
        return list(_Heads.apply(x, counts, width))  # type: ignore[no-untyped-call]
    return _apart(x, counts, width)


def _apart(x: Tensor, counts: list[int], width: int) -> list[Tensor]:
    parts = torch.split(x, [count * width for count in counts], -1)
    return [
        part.view(*x.shape[:2], count, width).transpose(1, 2)
        for part, count in zip(parts, counts, strict=True)
    ]


class _Heads(torch.autograd.Function):
    """Views, whose gradients are put side by side in one pass, and not in two."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, counts: list[int], width: int) -> tuple[Tensor, ...]:
        ctx.given = x.shape, counts, width
        return tuple(_apart(x, counts, width))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        shape, counts, width = ctx.given
        with exactly(grads[0].device):
            plainly = all(map(compiled.readable, grads)) and not torch.is_grad_enabled()
        if not plainly:
            joined = [grad.transpose(1, 2).flatten(2) for grad in grads]
            return torch.cat(joined, -1), None, None
        whole = grads[0]._base
        if whole is not None and whole.shape == shape and whole.is_contiguous():
            parts = _apart(whole, counts, width)
            if all(
                part.data_ptr() == grad.data_ptr() and part.stride() == grad.stride()
                for part, grad in zip(parts, grads, strict=True)
            ):
                return whole, None, None  # they are side by side already
        whole = grads[0].new_empty(shape)
        for part, grad in zip(_apart(whole, counts, width), grads, strict=True):
            part.copy_(grad)
        return whole, None, None
