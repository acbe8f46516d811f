"""The compiled loops, as functions of tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd import forward_ad

from regard.compiled.building import library

LANES = 16
"""The length of what is computed at once: rows are a multiple of it."""
ALONE = 2**22
"""More products of two numbers than this are better shared out, if there are threads for it."""


class Rows(ctypes.Structure):
    """Where rows of numbers begin, and how far apart batch entries, heads and rows are."""

    _fields_ = (
        ("start", ctypes.c_void_p),
        ("batch", ctypes.c_int64),
        ("head", ctypes.c_int64),
        ("row", ctypes.c_int64),
    )

    @classmethod
    def of(cls, x: Tensor | None) -> Rows:
        """The rows of a tensor ``(b, h, n, …)``; an axis of length 1 is the same for all."""
        if x is None:
            return cls()
        (b, h, n, _), (batch, head, row, _) = x.shape, x.stride()
        return cls(
            x.data_ptr(), 0 if b == 1 else batch, 0 if h == 1 else head, 0 if n == 1 else row
        )


class Sizes(ctypes.Structure):
    """The sizes of one call of attention."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("b", "h", "g", "n", "m", "d", "e"))


def usable(work: int, *tensors: Tensor | None) -> bool:
    """Whether compiled loops can do so many products of two numbers with these tensors, and pay.

    Not with tensors that only stand for numbers, nor while PyTorch writes down what is done with
    them, for it would not see it. Nor if it is so much that several threads were faster.
    """
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    grads = torch.is_grad_enabled()
    return (
        (work <= ALONE or torch.get_num_threads() == 1)
        and all(
            x is None
            or (
                (type(x) is Tensor or type(x) is nn.Parameter)
                and x.dtype == torch.float32
                and x.device.type == "cpu"
                and not (grads and x.requires_grad)
                and not x.is_neg()
                and not wrapped(x)
            )
            for x in tensors
        )
        and forward_ad._current_level < 0
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and torch._C._get_tracing_state() is None
        and library() is not None
    )


def attend_few(
    q: Float[Tensor, "b h q d"],
    k: Float[Tensor, "b g k d"],
    v: Float[Tensor, "b g k e"],
    factor: float,
    mask: Bool[Tensor, "..."] | None,
    logsumexp: bool,
) -> tuple[Float[Tensor, "b h q e"], Float[Tensor, "b h q"] | None]:
    """Attention with the score factor · q·k, and the log-sum-exp of its rows if it is asked for.

    d and e are multiples of 16. For few queries: keys and values are read once for each, where they
    are, without a copy, and those that the mask hides not at all. The output has its heads side by
    side, as the next product wants them.
    """
    b, h, n, d = q.shape
    _, g, m, e = v.shape
    q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
    output = q.new_empty(b, n, h, e).transpose(1, 2)
    sums = q.new_empty(b, h, n) if logsumexp else None
    seen = None if mask is None else as_bytes(mask, m)
    places = [ctypes.byref(Rows.of(x)) for x in (q, k, v, seen, output)]
    call = _loops().attend_few
    _check(call(ctypes.byref(Sizes(b, h, g, n, m, d, e)), factor, *places, _start(sums)))
    return output, sums


def best_words(
    logits: Float[Tensor, "sk vocabulary"], log_p: Float[Tensor, "s k"], count: int
) -> tuple[Float[Tensor, "s c"], Int[Tensor, "s c"], Int[Tensor, "s c"]] | None:
    """The likeliest words after k beginnings of s sentences, the best first; None if one is NaN.

    log_p are those of the beginnings. Of the `count` best of each sentence, log p, which beginning,
    and which word.
    """
    (s, k), vocabulary = log_p.shape, logits.shape[1]
    logits, log_p = logits.contiguous(), log_p.contiguous()
    found = log_p.new_empty(s, count)
    beginnings, words = (torch.empty(s, count, dtype=torch.int64) for _ in range(2))
    places = map(_start, (logits, log_p, found, beginnings, words))
    failed = _loops().best_words(s, k, vocabulary, count, *places)
    if failed == 2:
        return None
    _check(failed)
    return found, beginnings, words


def affine(
    x: Float[Tensor, "rows d"], weight: Float[Tensor, "d n"], bias: Float[Tensor, "n"] | None
) -> Float[Tensor, "rows n"]:
    """x W + b, where n is a multiple of 16; no row depends on how many there are."""
    x, weight = x.contiguous(), weight.contiguous()
    (rows, d), n = x.shape, weight.shape[1]
    y = x.new_empty(rows, n)
    _check(_loops().affine(rows, d, n, *map(_start, (x, weight, bias, y))))
    return y


def layer_norm(
    x: Float[Tensor, "*b width"],
    weight: Float[Tensor, "width"],
    bias: Float[Tensor, "width"],
    eps: float,
) -> Float[Tensor, "*b width"]:
    """Each row minus its mean, divided by its deviation, times the weight, and the bias added.

    The width is a multiple of 16.
    """
    x = x.contiguous()
    y, width = torch.empty_like(x), x.shape[-1]
    _loops().normalize(x.numel() // width, width, eps, *map(_start, (x, weight, bias, y)))
    return y


def as_bytes(mask: Bool[Tensor, "..."], k: int) -> Bool[Tensor, "_ _ _ k"]:
    """A mask with four axes, in which the keys of a row lie side by side."""
    mask = mask.reshape((1,) * (4 - mask.dim()) + tuple(mask.shape))
    mask = mask if mask.shape[3] == k else mask.expand(*mask.shape[:3], k)
    return mask if mask.stride(3) == 1 else mask.contiguous()


def multiples(lengths: Iterable[int]) -> bool:
    """Whether rows of these lengths can be computed with."""
    return all(length % LANES == 0 for length in lengths)


def _start(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()


def _loops() -> ctypes.CDLL:
    loops = library()
    assert loops is not None
    return loops


def _check(failed: int) -> None:
    if failed:
        raise MemoryError("there is no memory left for a compiled loop")
