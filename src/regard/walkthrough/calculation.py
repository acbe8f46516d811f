"""Self-attention in six steps, with every intermediate.

1. queries, keys and values; 2. scores; 3. scaling (and bias, and mask); 4. softmax; 5. values
times weights; 6. their sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import Bias, Learned, Mask, Rotary, Scaled, Sinusoidal, look
from regard.attention.scores import Cosine, Gaussian, ScaledDot, Score, as_score
from regard.errors import OptionError, ShapeError, shape
from regard.walkthrough.record import Steps

Numbers = Any
"""A tensor, a numpy array or nested lists of numbers."""


def steps(
    x: Numbers,
    w_q: Numbers | None = None,
    w_k: Numbers | None = None,
    w_v: Numbers | None = None,
    *,
    words: Sequence[str] | None = None,
    heads: int = 1,
    w_o: Numbers | None = None,
    mask: Mask | Tensor | str | None = None,
    score: str | Score | None = None,
    position: Any = None,
) -> Steps:
    """Self-attention over x ``(n, d_in)``, with every intermediate kept by its name.

    Args:
        x: one vector per word; a tensor, a numpy array or lists.
        w_q, w_k, w_v: weights ``(d_in, d_out)``, used as ``x @ w``. Without any of them the
            vectors themselves are compared and summed: the basic form.
        words: their names, one per row of x.
        heads: the number of heads that the columns of q, k and v are split into.
        w_o: ``(d, d_out)``, combines the heads.
        mask: which words may attend to which, such as ``window(before=1, after=1)``.
        score: how a query is compared with a key; ``"dot"`` without weights, else
            ``"scaled_dot"``.
        position: `Sinusoidal` or `Learned` (added to x), `Rotary` (turns q and k), `ALiBi` or
            `RelativeBias` (added to the scores).

    >>> s = steps([[1.0, 0.0], [1.0, 1.0]], words=["the", "cat"])
    >>> s.weights
    tensor([[0.5000, 0.5000],
            [0.2689, 0.7311]])
    >>> print(s.of("cat").steps[1].table.rows)
    (('the', '1×1 + 1×0', 1.0), ('cat ←', '1×1 + 1×1', 2.0))
    """
    if x is None:
        raise ShapeError("steps: x is None, expected one vector per word")
    matrices = {"x": x, "w_q": w_q, "w_k": w_k, "w_v": w_v, "w_o": w_o}
    given = {name: _matrix(name, m) for name, m in matrices.items() if m is not None}
    dtype = torch.float32
    for matrix in given.values():
        dtype = torch.promote_types(dtype, matrix.dtype)
    given = {name: matrix.to(dtype) for name, matrix in given.items()}
    x = given["x"]
    _check_words(words)
    if words is not None and len(words) != len(x):
        raise ShapeError(
            f"steps: {len(words)} words but x has {len(x)} rows (x {shape(x)}); "
            "give one word per row"
        )
    bias = position if isinstance(position, Bias) else None
    if position is not None and bias is None and not isinstance(position, Rotary):
        if not isinstance(position, Sinusoidal | Learned):
            raise OptionError(
                f"steps: position is {position!r}, expected Sinusoidal(width), Learned(length, "
                "width), Rotary(width), ALiBi(heads) or RelativeBias(heads)"
            )
        x = position(x)
    projected = [_times(x, given, name) for name in ("w_q", "w_k", "w_v")]
    basic = not any(name in given for name in ("w_q", "w_k", "w_v"))
    q, k, v = _split(projected, heads)
    if isinstance(position, Rotary):
        q, k = position(q), position(k)
    how = as_score(score or ("dot" if basic else "scaled_dot"), "steps")
    if q.shape[-1] != k.shape[-1] and isinstance(how, Scaled | ScaledDot | Cosine | Gaussian):
        raise ShapeError(
            f"steps: w_q has d_out={q.shape[-1]} but w_k has d_out={k.shape[-1]}; queries are "
            "compared with keys, so give both the same width"
        )
    seen = look(q, k, v, mask=mask, bias=bias, score=how)
    if not bool(seen.output.isfinite().all()):
        raise OptionError(
            f"steps: the numbers are too large to multiply in {dtype}; "
            "give float64, or smaller ones"
        )
    w_o = given.get("w_o")
    joined = heads * seen.output.shape[-1]
    if w_o is not None and w_o.shape[0] != joined:
        raise ShapeError(
            f"steps: the heads side by side have d={joined} but w_o has d_in={w_o.shape[0]} "
            f"(w_o {shape(w_o)}); weights are (d_in,d_out), used as x @ w"
        )
    combine = None if w_o is None else (lambda z: z @ w_o)
    made = [f"x {name.upper()}" if name in given else "x" for name in ("w_q", "w_k", "w_v")]
    if isinstance(position, Rotary):
        made[:2] = [f"{how}, rotated by its position" for how in made[:2]]
    return Steps(x, seen, words, made=made, combine=combine)


def _matrix(name: str, values: Numbers) -> Float[Tensor, "rows columns"]:
    """The values as a matrix; raises unless they are finite numbers in rows and columns."""
    try:
        first = values[0] if isinstance(values, list | tuple) and values else values
        if isinstance(first, np.ndarray):
            values = np.array(values)  # torch reads no negative strides
        elif isinstance(first, Tensor) and first is not values:
            values = torch.stack(list(values))
        matrix = values if isinstance(values, Tensor) else torch.tensor(values)
    except (ValueError, TypeError, RuntimeError, OverflowError):
        raise ShapeError(f"steps: {name} {_unlike_a_matrix(values)}") from None
    if matrix.is_complex():
        raise OptionError(
            f"steps: {name} has complex numbers; give its real part or absolute value"
        )
    if matrix.dim() != 2 or matrix.numel() == 0:
        raise ShapeError(
            f"steps: {name} has shape {shape(matrix)}, expected rows and columns; "
            + ("one vector per word" if name == "x" else "weights are (d_in,d_out)")
        )
    if not matrix.is_floating_point():
        matrix = matrix.to(torch.get_default_dtype())
    bad = (~matrix.isfinite()).nonzero()
    if len(bad):
        row, column = bad[0].tolist()
        raise OptionError(
            f"steps: {name} has {matrix[row, column].item()} at row {row}, column {column} "
            "(numbered from 0); expected finite numbers"
        )
    return matrix


def _check_words(words: Sequence[str] | None) -> None:
    if isinstance(words, str):
        raise OptionError(
            f"steps: words is one text, {words!r}; give a list, such as words.split()"
        )
    for word in words or ():
        if not isinstance(word, str):
            raise OptionError(f"steps: words has {word!r}, expected strings; use str(word)")


def _unlike_a_matrix(values: Numbers) -> str:
    """Why nested lists are not a matrix."""
    try:
        rows = [list(row) for row in values]
    except TypeError:
        return "is not a list of rows of numbers"
    for i, row in enumerate(rows):
        if len(row) != len(rows[0]):
            return (
                f"is ragged: row {i} has {len(row)} numbers and row 0 has {len(rows[0])}; "
                "give rows of equal length"
            )
        for j, value in enumerate(row):
            if isinstance(value, int) and abs(value) > 2**63:
                return f"has an integer of {len(str(value))} digits; expected finite numbers"
            if not isinstance(value, int | float):
                return f"has {value!r} at row {i}, column {j} (numbered from 0); expected numbers"
    return "is not a list of rows of numbers"


def _times(x: Tensor, given: dict[str, Tensor], name: str) -> Tensor:
    """x @ w, or x without such a weight."""
    if name not in given:
        return x
    w = given[name]
    if x.shape[1] != w.shape[0]:
        turned = "; its transpose would fit" if x.shape[1] == w.shape[1] else ""
        raise ShapeError(
            f"steps: x has d_in={x.shape[1]} but {name} has d_in={w.shape[0]} (x {shape(x)}, "
            f"{name} {shape(w)}); weights are (d_in,d_out), used as x @ w{turned}"
        )
    return x @ w


def _split(projected: list[Tensor], heads: int) -> list[Tensor]:
    """Columns to heads: ``(n, h · d)`` to ``(1, h, n, d)``; ``(n, d)`` for one head."""
    if heads < 1:
        raise OptionError(f"steps: heads={heads}, expected 1 or more")
    if heads == 1:
        return projected
    q, k, v = projected
    if q.shape[1] % heads:
        raise ShapeError(
            f"steps: queries of width {q.shape[1]} do not split into heads={heads}; "
            f"choose heads that divide {q.shape[1]}"
        )
    head_width = q.shape[1] // heads
    kv_heads = k.shape[1] // head_width
    if k.shape[1] % head_width or v.shape[1] % max(kv_heads, 1) or heads % max(kv_heads, 1):
        raise ShapeError(
            f"steps: keys of width {k.shape[1]} and values of width {v.shape[1]} do not split "
            f"beside heads={heads} of width {head_width}; give w_k and w_v as many columns as w_q"
        )
    counts = (heads, kv_heads, kv_heads)
    return [
        y.unflatten(1, (h, -1)).transpose(0, 1).unsqueeze(0)  # type: ignore[no-untyped-call]
        for y, h in zip(projected, counts, strict=True)
    ]
