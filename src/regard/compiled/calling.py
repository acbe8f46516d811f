"""The compiled loops, as functions of tensors."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd import forward_ad

from regard.compiled.building import library

LANES = 16
"""The length of what is computed at once: rows are a multiple of it."""
QUERIES, KEYS = 16, 512
"""So many queries are few, of so many keys."""
ALONE = 2**22
"""More products of two numbers than this are better shared out, if there are threads for it."""


class _Products(threading.local):
    dtype = torch.float32


_products = _Products()


@contextmanager
def products_of(dtype: torch.dtype) -> Iterator[None]:
    """A context, for this thread, in which products with weights are in float32 or in bfloat16.

    Those of compiled code, and so without a gradient; the results are float32. In bfloat16 all that
    can be compiled is, however much work it is: there is no other way to the same numbers.
    """
    before, _products.dtype = _products.dtype, dtype
    try:
        yield
    finally:
        _products.dtype = before


def rounds() -> bool:
    """Whether products with weights are to be in bfloat16."""
    return _products.dtype == torch.bfloat16


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


def readable(*tensors: Tensor | None, dtypes: Sequence[torch.dtype] = (torch.float32,)) -> bool:
    """Whether there are compiled loops, and they can read these tensors as numbers in memory.

    Not tensors that only stand for numbers, nor while PyTorch writes down what is done with them,
    for it would not see it. Of other `dtypes` are tensors that are converted first.
    """
    if torch.compiler.is_compiling():
        return False  # before anything that it cannot trace
    functorch = torch._C._functorch
    if functorch.peek_interpreter_stack() is not None:
        return False
    for x in tensors:
        if x is not None and (
            (type(x) is not Tensor and type(x) is not nn.Parameter)
            or x.dtype not in dtypes
            or x.layout is not torch.strided
            or not x.is_cpu
            or x.is_neg()
            or x._is_zerotensor()
            or functorch.is_functorch_wrapped_tensor(x)
            or functorch.is_legacy_batchedtensor(x)
        ):
            return False
    return (
        torch._C._len_torch_dispatch_stack() == 0
        and forward_ad._current_level < 0
        and not torch.is_autocast_enabled("cpu")
        and torch._C._get_tracing_state() is None
        and library() is not None
    )


def usable(work: int, *tensors: Tensor | None) -> bool:
    """Whether a loop for one thread, without a gradient, can be used for these tensors, and pays.

    Not if it is so many products of two numbers that several threads were faster.
    """
    return (
        not torch.compiler.is_compiling()
        and (work <= ALONE or torch.get_num_threads() == 1 or rounds())
        and not (
            torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
        )
        and readable(*tensors)
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
    b, h, n, _ = q.shape
    q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
    output = q.new_empty(b, n, h, v.shape[3]).transpose(1, 2)
    sums = q.new_empty(b, h, n) if logsumexp else None
    seen = None if mask is None else as_bytes(mask, b, h, n, k.shape[2])
    places = _places(q, k, v, seen, output)
    _check(_loops().attend_few(_sizes(q, v), factor, *places, _start(sums)))
    return output, sums


def attend_short(
    q: Float[Tensor, "b h q d"],
    k: Float[Tensor, "b g k d"],
    v: Float[Tensor, "b g k e"],
    factor: float,
    mask: Bool[Tensor, "..."] | None,
) -> tuple[Float[Tensor, "b h q e"], Float[Tensor, "b h q"]]:
    """Attention with the score factor · q·k, and the log-sum-exp of its rows.

    d and e are multiples of 16. For short texts, of which all scores are near. The output has its
    heads side by side.
    """
    b, h, n, _ = q.shape
    q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
    output = q.new_empty(b, n, h, v.shape[3]).transpose(1, 2)
    sums = q.new_empty(b, h, n)
    seen = None if mask is None else as_bytes(mask, b, h, n, k.shape[2])
    places = _places(q, k, v, seen, output)
    call, threads = _loops().attend_short, torch.get_num_threads()
    _check(call(threads, _sizes(q, v), factor, *places, _start(sums)))
    return output, sums


def attend_short_backwards(
    q: Float[Tensor, "b h q d"],
    k: Float[Tensor, "b g k d"],
    v: Float[Tensor, "b g k e"],
    factor: float,
    mask: Bool[Tensor, "..."] | None,
    grad: Float[Tensor, "b h q e"],
) -> tuple[Float[Tensor, "b h q d"], Float[Tensor, "b g k d"], Float[Tensor, "b g k e"]]:
    """The gradients of q, k and v, given that of the output of `attend_short`."""
    q, k, v, grad = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v, grad))
    made = _side_by_side(q, k, v)
    (b, h, n, _), m = q.shape, k.shape[2]
    seen = None if mask is None else as_bytes(mask, b, h, n, m)
    places = _places(q, k, v, seen, grad, *made)
    call, threads = _loops().attend_short_backwards, torch.get_num_threads()
    _check(call(threads, _sizes(q, v), factor, *places))
    return made[0], made[1], made[2]


def _side_by_side(*tensors: Float[Tensor, "b _ _ _"]) -> list[Float[Tensor, "b _ _ _"]]:
    """Memory for as many tensors, of which all heads of a word lie in one row if those given do.

    Then whoever took the given ones out of one product has the gradient of that in one piece.
    """
    first, counts = tensors[0], [x.shape[1] for x in tensors]
    b, _, n, d = first.shape
    starts = [d * sum(counts[:i]) for i in range(len(tensors))]
    strides = (n * d * sum(counts), d, d * sum(counts), 1)
    if all(
        x.shape[2:] == (n, d)
        and x.stride() == strides
        and x.data_ptr() == first.data_ptr() + start * x.element_size()
        for x, start in zip(tensors, starts, strict=True)
    ):
        whole = first.new_empty(b, n, d * sum(counts))
        shapes = zip(counts, starts, strict=True)
        return [whole.as_strided((b, h, n, d), strides, start) for h, start in shapes]
    return [x.new_empty(x.transpose(1, 2).shape).transpose(1, 2) for x in tensors]


def drop(
    x: Float[Tensor, "..."], onto: Float[Tensor, "..."] | None, seed: int, share: int, of: int
) -> Float[Tensor, "..."]:
    """x with a share of its numbers set to 0 and the others raised in turn; and added to `onto`.

    The share is share / of, and of is a power of 2. The same seed drops the same places.
    """
    x, onto = x.contiguous(), None if onto is None else onto.contiguous()
    y, below = torch.empty_like(x), share * (2**32 // of)
    places = map(_start, (x, onto, y))
    threads = torch.get_num_threads()
    _loops().drop(threads, x.numel(), seed, below, of / (of - share), *places)
    return y


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
    beginnings, words = (log_p.new_empty(s, count, dtype=torch.int64) for _ in range(2))
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
    bias = None if bias is None else bias.contiguous()
    (rows, d), n = x.shape, weight.shape[1]
    y = x.new_empty(rows, n)
    _check(_loops().affine(rows, d, n, *map(_start, (x, weight, bias, y))))
    return y


class Panels(ctypes.Structure):
    """A matrix as `panels` lays it out; in pairs, if its numbers are bfloat16."""

    _fields_ = (("start", ctypes.c_void_p), ("in_pairs", ctypes.c_int64))


def panels(matrix: Float[Tensor, "d n"], dtype: torch.dtype = torch.float32) -> Float[Tensor, "dn"]:
    """A copy of the matrix in the form in which many rows are multiplied by it fastest.

    32 columns of it side by side, row by row, then the next 32; n is a multiple of 16. In bfloat16,
    which wants d to be even, two rows at a time, each number beside the one that stands below it.
    """
    parts = torch.split(matrix.detach().to(dtype), 2 * LANES, 1)
    if dtype == torch.bfloat16:
        parts = tuple(part.view(-1, 2, part.shape[1]).transpose(1, 2) for part in parts)
    return torch.cat([part.reshape(-1) for part in parts])


def affine_by_panels(
    x: Float[Tensor, "rows d"],
    weight: Float[Tensor, "dn"],
    bias: Float[Tensor, "n"] | None,
    out: Float[Tensor, "rows n"],
) -> Float[Tensor, "rows n"]:
    """`affine` of a weight in `panels`, into `out`, which lies in one piece.

    If these are in bfloat16, x is rounded to it as well; the sums are float32.
    """
    x, bias = x.contiguous(), None if bias is None else bias.contiguous()
    (rows, d), n = x.shape, out.shape[1]
    places = ctypes.byref(Panels(_start(weight), weight.dtype == torch.bfloat16))
    call = _loops().affine_by_panels
    _check(call(rows, d, n, _start(x), places, _start(bias), _start(out)))
    return out


def layer_norm(
    x: Float[Tensor, "*b width"],
    weight: Float[Tensor, "width"],
    bias: Float[Tensor, "width"],
    eps: float,
) -> Float[Tensor, "*b width"]:
    """Each row minus its mean, divided by its deviation, times the weight, and the bias added.

    The width is a multiple of 16.
    """
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    y, width = torch.empty_like(x), x.shape[-1]
    _loops().normalize(x.numel() // width, width, eps, *map(_start, (x, weight, bias, y)))
    return y


def as_bytes(
    mask: Bool[Tensor, "..."], b: int, h: int, n: int, k: int
) -> Bool[Tensor, "{b} {h} {n} {k}"]:
    """A mask with all its axes, in which the keys of a row lie side by side."""
    if mask.shape[-1] != k:
        mask = mask.expand(*mask.shape[:-1], k)
    if mask.stride(-1) != 1:
        mask = mask.contiguous()
    return mask.expand(b, h, n, k)


def multiples(lengths: Iterable[int]) -> bool:
    """Whether rows of these lengths can be computed with."""
    return all(length % LANES == 0 for length in lengths)


def _sizes(q: Float[Tensor, "b h q d"], v: Float[Tensor, "b g k e"]) -> Any:
    (b, h, n, d), (_, g, m, e) = q.shape, v.shape
    return ctypes.byref(Sizes(b, h, g, n, m, d, e))


def _places(*tensors: Tensor | None) -> list[Any]:
    return [ctypes.byref(Rows.of(x)) for x in tensors]


def _start(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()


def _loops() -> ctypes.CDLL:
    loops = library()
    assert loops is not None
    return loops


def _check(failed: int) -> None:
    if failed:
        raise MemoryError("there is no memory left for a compiled loop")
