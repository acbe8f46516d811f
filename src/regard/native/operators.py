"""Fake implementations, autograd and vmap rules of the operators torch.ops.regard.*.

| operator | returns |
|---|---|
| ``attend`` | output, and per row the largest score and the sum of exp(score − largest) |
| ``attend_backward`` | the gradients of q, k and v, of the bias and of the relative bias |
| ``statistics`` | per row: largest score, sum, entropy, the largest scores and their keys |
| ``drop`` | x after dropout, plus another tensor |
| ``best_words`` | the best continuations of a step of beam search |
| ``affine``, ``affine_panels``, ``affine_int8``, ``layer_norm`` | layers of a decoder |
| ``decoder_step`` | all blocks of a decoder, one step; writes keys and values into the cache |
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

FAR = 2**40
"""A distance larger than that between any two positions."""


def register() -> None:
    """Register fake implementations, autograd and vmap rules; once, when the library is loaded."""
    for name, fake in FAKES.items():
        torch.library.register_fake(f"regard::{name}", fake)
    torch.library.register_autograd("regard::attend", _backward, setup_context=_setup)
    torch.library.register_autograd("regard::drop", _drop_backward, setup_context=_drop_setup)
    torch.library.register_vmap("regard::attend", _attend_vmap)
    torch.library.register_vmap("regard::attend_backward", _backward_vmap)


# ── shapes ────────────────────────────────────────────────────────────────────────────────────


def _side_by_side(x: Tensor) -> Tensor:
    """An empty tensor (b, h, n, width) like x, laid out as (b, n, h, width)."""
    return x.new_empty(x.transpose(1, 2).shape).transpose(1, 2)


def _per_row(q: Tensor) -> Tensor:
    return q.new_empty(q.shape[:3], dtype=torch.float32)


def _fake_attend(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    b, h, n, _ = q.shape
    output = q.new_empty(b, n, h, v.shape[3]).transpose(1, 2)
    return output, _per_row(q), _per_row(q)


def _fake_backward(
    grad: Tensor, grad_total: Tensor | None, q: Tensor, k: Tensor, v: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    (b, h, n, _), m = q.shape, k.shape[2]
    bias_wanted, relative_wanted = rest[-2:]
    shapes = ((b, h, n, m) if bias_wanted else (0,), (h, n + m - 1) if relative_wanted else (0,))
    rest = tuple(q.new_empty(shape, dtype=torch.float32) for shape in shapes)
    return *(_side_by_side(x) for x in (q, k, v)), *rest


def _fake_statistics(q: Tensor, k: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    found = q.new_empty(*q.shape[:3], rest[-1], dtype=torch.float32)
    return _per_row(q), _per_row(q), _per_row(q), found, torch.empty_like(found, dtype=torch.int64)


def _fake_best_words(logits: Tensor, log_p: Tensor, count: int) -> tuple[Tensor, ...]:
    found = log_p.new_empty(len(log_p), count)
    words = torch.empty_like(found, dtype=torch.int64)
    return found, words, torch.empty_like(words)


FAKES: dict[str, Any] = {
    "attend": _fake_attend,
    "attend_backward": _fake_backward,
    "statistics": _fake_statistics,
    "drop": lambda x, *_: torch.empty_like(x),
    "best_words": _fake_best_words,
    "affine": lambda x, weight, _: x.new_empty(len(x), weight.shape[1]),
    "affine_panels": lambda x, panels, bias, n: x.new_empty(len(x), n),
    "affine_int8": lambda x, panels, scales, bias: x.new_empty(len(x), len(scales)),
    "layer_norm": lambda x, *_: torch.empty_like(x),
    "decoder_step": lambda x, *_: torch.empty_like(x, memory_format=torch.contiguous_format),
}


# ── gradients ─────────────────────────────────────────────────────────────────────────────────


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:3], *inputs[7:12], inputs[13], *output)
    ctx.numbers, ctx.dropout = inputs[3:7], inputs[12]
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(
    ctx: Any, grad: Tensor | None, _: Tensor | None, grad_total: Tensor | None
) -> tuple[Tensor | None, ...]:
    """The gradients; by differentiable operations if a graph of them is to be created."""
    q, k, v, first, last, mask, bias, relative, seed, output, highest, total = ctx.saved_tensors
    grad = torch.zeros_like(output) if grad is None else grad
    wanted = [ctx.needs_input_grad[i] for i in (0, 1, 2, 10, 11)]
    pairs = (*ctx.numbers, first, last, mask, bias, relative)
    found: list[Any]
    if torch.is_grad_enabled():
        if ctx.dropout:
            raise RuntimeError("attend: with dropout, gradients of gradients are not defined")
        found = list(gradients(q, k, v, *pairs, grad=grad, grad_total=grad_total))
    else:
        if grad_total is not None:
            grad_total = grad_total.contiguous()
        found = list(
            torch.ops.regard.attend_backward(
                *(grad, grad_total, q, k, v, output, highest, total),
                *(*pairs, ctx.dropout, seed, *wanted[3:]),
            )
        )
        if wanted[3]:
            found[3] = found[3].sum_to_size(bias.shape)
    found = [x if want else None for x, want in zip(found, wanted, strict=True)]
    return *found[:3], *(None,) * 7, *found[3:], None, None


class Attend(torch.autograd.Function):
    """``regard::attend`` for torch.func, which does not support an operator's autograd rule."""

    generate_vmap_rule = True
    setup_context = staticmethod(_setup)
    backward = staticmethod(_backward)

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
        return torch.ops.regard.attend(*args)  # type: ignore[no-any-return]


def gradients(
    q: Float[Tensor, "b h q d"],
    k: Float[Tensor, "b g k d"],
    v: Float[Tensor, "b g k e"],
    scale: float,
    softcap: float = 0.0,
    low: int = -FAR,
    high: int = FAR,
    first: Int64[Tensor, "#b 1 #q 1"] | None = None,
    last: Int64[Tensor, "#b 1 #q 1"] | None = None,
    mask: Bool[Tensor, "..."] | None = None,
    bias: Float[Tensor, "..."] | None = None,
    relative: Float[Tensor, "h r"] | None = None,
    *,
    grad: Float[Tensor, "b h q e"],
    grad_total: Float[Tensor, "b h q"] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """The gradients of q, k, v, bias and relative bias of ``attend``, by differentiable operations.

    All scores are held at once.
    """
    dtype, (n, m), (h, g) = v.dtype, (q.shape[2], k.shape[2]), (q.shape[1], k.shape[1])
    if dtype in (torch.bfloat16, torch.float16):
        q, k, v, grad = q.float(), k.float(), v.float(), grad.float()
    keys, values = (x.repeat_interleave(h // g, 1) if g != h else x for x in (k, v))
    scores = q @ keys.mT * scale
    bend = None
    if softcap:
        tanh = torch.tanh(scores / softcap)
        scores, bend = softcap * tanh, 1 - tanh * tanh
    places = torch.arange(m, device=q.device)
    distance = places - torch.arange(n, device=q.device).unsqueeze(1)
    scores = scores if bias is None else scores + bias
    scores = scores if relative is None else scores + relative[:, distance + n - 1]
    seen = (distance >= low) & (distance <= high)
    seen = seen if first is None else seen & (places >= first)
    seen = seen if last is None else seen & (places < last)
    scores = scores.masked_fill(~(seen if mask is None else seen & mask), -torch.inf)
    nothing = (scores == -torch.inf).all(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(nothing, 0.0), -1).masked_fill(nothing, 0.0)
    towards = grad @ values.mT
    level = (weights * towards).sum(-1, keepdim=True)
    if grad_total is not None:
        highest = scores.detach().amax(-1, keepdim=True).masked_fill(nothing, 0.0)
        level = level - grad_total.unsqueeze(-1) * (scores - highest).exp().sum(-1, keepdim=True)
    slopes = weights * (towards - level)
    of_bias = None if bias is None else slopes.sum_to_size(bias.shape)
    of_relative = None
    if relative is not None:
        diagonals = (distance + n - 1).flatten()
        of_relative = torch.zeros_like(relative).index_add(1, diagonals, slopes.sum(0).flatten(1))
    slopes = slopes * scale if bend is None else slopes * bend * scale
    of_k, of_v = (
        x.view(len(x), g, h // g, *x.shape[2:]).sum(2) for x in (slopes.mT @ q, weights.mT @ grad)
    )
    return (slopes @ keys).to(dtype), of_k.to(dtype), of_v.to(dtype), of_bias, of_relative


def _drop_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, onto, seed, *rest = inputs
    ctx.save_for_backward(seed)
    ctx.rest, ctx.added = rest, onto is not None


def _drop_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (seed,) = ctx.saved_tensors
    passed = grad if ctx.added else None
    return torch.ops.regard.drop(grad.contiguous(), None, seed, *ctx.rest), passed, None, None, None


# ── vmap ──────────────────────────────────────────────────────────────────────────────────────


def _in_batch(size: int, b: int, x: Tensor | None, dim: int | None) -> Tensor | None:
    """A term (b or 1, …) with the mapped axis merged into its batch axis."""
    if x is None or (dim is None and x.shape[0] == 1):
        return x
    x = x.unsqueeze(0) if dim is None else x.movedim(dim, 0)
    return x.expand(size, b, *x.shape[2:]).reshape(size * b, *x.shape[2:])


def _flat(info: Any, dims: tuple[Any, ...], args: tuple[Any, ...], full: int) -> tuple[Any, int]:
    """Arguments with the mapped axis merged into the batch axis, and the former batch size.

    The first `full` arguments are expanded to the whole batch.
    """
    size, flat = info.batch_size, list(args)
    at = next(i for i, x in enumerate(args) if isinstance(x, Tensor))
    b = args[at].shape[0] if dims[at] is None else args[at].movedim(dims[at], 0).shape[1]
    for i, (x, dim) in enumerate(zip(args, dims, strict=True)):
        if not isinstance(x, Tensor) or x.dim() < 3:
            if dim is not None:
                raise NotImplementedError("vmap over a relative bias or a seed of attention")
        elif i < full and dim is None:
            flat[i] = x.expand(size, *x.shape).reshape(size * b, *x.shape[1:])
        else:
            flat[i] = _in_batch(size, b, x, dim)
    return flat, b


def _attend_vmap(info: Any, dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    flat, b = _flat(info, dims, args, 3)
    found = torch.ops.regard.attend(*flat)
    return tuple(x.unflatten(0, (info.batch_size, b)) for x in found), (0, 0, 0)


def _backward_vmap(info: Any, dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    if args[-1]:
        raise NotImplementedError("vmap over the gradient of a relative bias of attention")
    flat, b = _flat(info, dims, args, 8)
    *found, relative = torch.ops.regard.attend_backward(*flat)
    apart = [x.unflatten(0, (info.batch_size, b)) if x.dim() > 1 else x for x in found]
    return (*apart, relative), (*(0 if x.dim() > 1 else None for x in found), None)
