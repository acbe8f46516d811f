"""Attention layers: self-attention without parameters, and multi-head attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Bias, Mask, Rotary, attend, look
from regard.attention.scores import Score
from regard.errors import DtypeError, OptionError, ShapeError, check_share, check_whole, shape
from regard.nn.cache import KeyValues
from regard.nn.config import check_heads
from regard.nn.native_layers import affine

if TYPE_CHECKING:
    from regard.walkthrough import Steps


class SelfAttention(nn.Module):
    """Self-attention without parameters: every vector becomes a weighted average of all of them.

    >>> layer = SelfAttention()
    >>> layer(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    tensor([[0.7311, 0.2689],
            [0.2689, 0.7311]])
    """

    def __init__(self, score: str | Score = "dot") -> None:
        super().__init__()
        self.score = score

    def forward(
        self, x: Tensor, *, mask: Mask | Tensor | str | None = None
    ) -> Float[Tensor, "*b n d"]:
        """x ``(n, d)`` or ``(b, n, d)`` to vectors of the same shape."""
        return attend(x, x, x, mask=mask, score=self.score)

    def steps(
        self,
        x: Tensor,
        words: Sequence[str] | None = None,
        *,
        mask: Mask | Tensor | str | None = None,
    ) -> Steps:
        """The six steps for one sequence x ``(n, d)``."""
        from regard.walkthrough import steps

        return steps(x, words=words, mask=mask, score=self.score)


class MultiHeadAttention(nn.Module):
    """Multi-head attention with learned projections.

    head_i = attend(x W_Q, c W_K, c W_V) in columns i of each; output = (head_1, …, head_h) W_O.
    The context c is x itself for self-attention, another sequence for cross-attention.

    Args:
        width: of x and of the result.
        heads: number of heads, each of width / heads.
        kv_heads: number of heads of keys and values, a divisor of `heads`, which is the default.
        position: `Rotary` (of the head's width) rotates queries and keys; `ALiBi` or
            `RelativeBias` is added to the scores.
        dropout: of the weights, while training.
        bias: whether the four projections have one.

    Weights are ``(d_in, d_out)``, used as ``x @ w``.

    >>> layer = MultiHeadAttention(width=6, heads=2)
    >>> layer(torch.zeros(5, 6)).shape
    torch.Size([5, 6])

    Vaswani et al., "Attention Is All You Need", 2017; Ainslie et al., "GQA", 2023.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        position: nn.Module | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        for name, value in (("width", width), ("heads", heads), ("kv_heads", kv_heads)):
            check_whole(f"MultiHeadAttention: {name}", value)
        check_heads("MultiHeadAttention", width, heads, kv_heads)
        if position is not None and not isinstance(position, Rotary | Bias):
            raise OptionError(
                f"MultiHeadAttention: position is {type(position).__name__}, expected Rotary, "
                "ALiBi or RelativeBias; Sinusoidal and Learned are added to x before the layer"
            )
        check_share("MultiHeadAttention: dropout", dropout)
        if isinstance(position, Rotary) and position.width != width // heads:
            raise OptionError(
                f"MultiHeadAttention: position has width={position.width}, but a head has "
                f"head_width={width // heads}; make it Rotary({width // heads})"
            )
        if isinstance(position, Bias) and position.heads != heads:
            raise OptionError(
                f"MultiHeadAttention: position has heads={position.heads}, but there are "
                f"heads={heads}; make one with heads={heads}"
            )
        self.width, self.heads, self.kv_heads = width, heads, kv_heads
        self.head_width = width // heads
        self.dropout = dropout
        self.position = position
        narrow = kv_heads * self.head_width
        self.w_q = nn.Parameter(torch.empty(width, width))
        self.w_k = nn.Parameter(torch.empty(width, narrow))
        self.w_v = nn.Parameter(torch.empty(width, narrow))
        self.w_o = nn.Parameter(torch.empty(width, width))
        self.b_q = nn.Parameter(torch.zeros(width)) if bias else None
        self.b_k = nn.Parameter(torch.zeros(narrow)) if bias else None
        self.b_v = nn.Parameter(torch.zeros(narrow)) if bias else None
        self.b_o = nn.Parameter(torch.zeros(width)) if bias else None
        for weight in (self.w_q, self.w_k, self.w_v, self.w_o):
            nn.init.xavier_uniform_(weight)

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        *,
        mask: Mask | Tensor | str | None = None,
        cache: KeyValues | None = None,
    ) -> Float[Tensor, "*b n width"]:
        """x ``(n, width)`` or ``(b, n, width)`` to vectors of the same shape.

        Attends to `context`, or to x itself. With a cache, x continues the cached words and attends
        to them as well; a context is projected once and then cached.
        """
        q, k, v, bias = self.project(x, context, cache)
        dropout = self.dropout if self.training else 0.0
        heads = attend(q, k, v, mask=mask, bias=bias, dropout=dropout)
        joined = heads.transpose(1, 2).flatten(2)
        return self._combine(joined if x.dim() == 3 else joined[0])

    def steps(
        self,
        x: Tensor,
        words: Sequence[str] | None = None,
        *,
        context: Tensor | None = None,
        context_words: Sequence[str] | None = None,
        mask: Mask | Tensor | str | None = None,
    ) -> Steps:
        """The six steps of every head for one sequence x ``(n, width)``."""
        from regard.walkthrough import Steps

        if context is not None and context.dim() != 2:
            raise ShapeError(
                f"steps: context has shape {shape(context)}, expected one sequence (n,width); "
                "pick one by context[i]"
            )
        if x.dim() != 2:
            raise ShapeError(
                f"steps: x has shape {shape(x)}, expected one sequence (n,width); pick one by x[i]"
            )
        with torch.no_grad():
            q, k, v, bias = self.project(x, context)
            seen = look(q, k, v, mask=mask, bias=bias)
            if context is not None and context_words is None:
                context_words = [f"c{i}" for i in range(1, len(context) + 1)]
            c, b = "x" if context is None else "c", "" if self.b_q is None else " + b_{}"
            made = [
                f"{one} W_{name}{b.format(name)}"
                for one, name in zip(("x", c, c), "QKV", strict=True)
            ]
            if isinstance(self.position, Rotary):
                made[:2] = [f"{how}, rotated by its position" for how in made[:2]]
            return Steps(x, seen, words, context=context_words, made=made, combine=self._combine)

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> MultiHeadAttention:
        """The same layer as a `torch.nn.MultiheadAttention`, with the same numbers.

        Whatever its ``batch_first``, this one takes ``(b, n, width)``.
        """
        if not isinstance(module, nn.MultiheadAttention):
            raise OptionError(
                f"from_torch: got {type(module).__name__}, expected torch.nn.MultiheadAttention"
            )
        if module.bias_k is not None or module.add_zero_attn:
            raise OptionError(
                "from_torch: the module adds keys of its own (add_bias_kv or add_zero_attn), "
                "which MultiHeadAttention does not"
            )
        if module.in_proj_weight is None:
            raise OptionError(
                f"from_torch: the module has kdim={module.kdim} and vdim={module.vdim} beside "
                f"embed_dim={module.embed_dim}; MultiHeadAttention has one width"
            )
        layer = cls(
            module.embed_dim,
            module.num_heads,
            dropout=module.dropout,
            bias=module.in_proj_bias is not None,
        ).to(module.in_proj_weight)
        weights = (*module.in_proj_weight.chunk(3), module.out_proj.weight)
        state = {f"w_{name}": weight.T for name, weight in zip("qkvo", weights, strict=True)}
        if module.in_proj_bias is not None:
            biases = (*module.in_proj_bias.chunk(3), module.out_proj.bias)
            state |= {f"b_{name}": bias for name, bias in zip("qkvo", biases, strict=True)}
        layer.load_state_dict(state)
        return layer.train(module.training)

    def extra_repr(self) -> str:
        return f"width={self.width}, heads={self.heads}, kv_heads={self.kv_heads}"

    def project(
        self, x: Tensor, context: Tensor | None, cache: KeyValues | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Bias | None]:
        """Queries ``(b, h, q, d)``, keys and values ``(b, g, k, d)``, and the bias."""
        self._check(x, x if context is None else context)
        if context is None:
            q, k, v = self._project_all(x)
            start = 0 if cache is None else cache.length
            q, k = self._rotated(q, start), self._rotated(k, start)
            if cache is not None:
                k, v = cache.append(k, v)
        else:
            q = self._rotated(self._split(affine(x, self.w_q, self.b_q), self.heads))
            k, v = self._project_context(context, cache)
        bias = self.position
        return q, k, v, bias if bias is not None and isinstance(bias, Bias) else None

    def _project_context(
        self, context: Tensor, cache: KeyValues | None
    ) -> tuple[Float[Tensor, "b g k d"], Float[Tensor, "b g k d"]]:
        """Keys and values of another sequence, cached if there is a cache."""
        if cache is not None and cache.length:
            return cache.known()
        k = self._rotated(self._split(affine(context, self.w_k, self.b_k), self.kv_heads))
        v = self._split(affine(context, self.w_v, self.b_v), self.kv_heads)
        return (k, v) if cache is None else cache.append(k, v)

    def _rotated(self, x: Tensor, start: int = 0) -> Tensor:
        return self.position(x, offset=start) if isinstance(self.position, Rotary) else x

    def _packed(self) -> tuple[Tensor, Tensor | None]:
        """The weights of queries, keys and values side by side, and their biases."""
        biases = (self.b_q, self.b_k, self.b_v)
        bias = torch.cat([b for b in biases if b is not None]) if self.b_q is not None else None
        return torch.cat((self.w_q, self.w_k, self.w_v), 1), bias

    def _project_all(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of x in one product, which is faster than three."""
        counts = (self.heads, self.kv_heads, self.kv_heads)
        widths = [count * self.head_width for count in counts]
        x = affine(x if x.dim() == 3 else x.unsqueeze(0), *self._packed())
        parts = torch.split(x, widths, -1)
        q, k, v = (self._split(part, count) for part, count in zip(parts, counts, strict=True))
        return q, k, v

    def _check(self, x: Tensor, context: Tensor) -> None:
        for name, given in (("x", x), ("context", context)):
            if given.dim() not in (2, 3) or given.shape[-1] != self.width:
                raise ShapeError(
                    f"MultiHeadAttention: {name} has shape {shape(given)}, expected (n,width) or "
                    f"(b,n,width) with width={self.width}"
                )
            if given.dtype != self.w_q.dtype and not torch.is_autocast_enabled(given.device.type):
                raise DtypeError(
                    f"MultiHeadAttention: {name} is {given.dtype} but the layer {self.w_q.dtype}; "
                    "convert one of them"
                )
        if context.dim() == 3 and (x.dim() == 2 or len(x) not in (len(context), 1)):
            raise ShapeError(
                f"MultiHeadAttention: context has b={len(context)} beside x {shape(x)} (context "
                f"{shape(context)}); give one context, or one per sequence of x"
            )

    def _split(self, x: Tensor, heads: int) -> Float[Tensor, "b h n d"]:
        x = x if x.dim() == 3 else x.unsqueeze(0)
        return x.view(*x.shape[:2], heads, self.head_width).transpose(1, 2)

    def _combine(self, joined: Tensor) -> Tensor:
        return affine(joined, self.w_o, self.b_o)
