"""The blocks of a Transformer: attention and a feed-forward network with residual connections.

    norm after   x ← norm(x + f(x))        as in the paper
    norm before  x ← x + f(norm(x))        more stable to train; the stack ends with a norm

for each sublayer f: self-attention, in a decoder cross-attention, the feed-forward network.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import ALiBi, Mask, Rotary
from regard.errors import OptionError
from regard.nn.cache import BlockCache
from regard.nn.config import ACTIVATIONS, TransformerConfig
from regard.nn.dropout import Dropout
from regard.nn.multihead import MultiHeadAttention
from regard.nn.native_layers import LayerNorm, affine

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


class FeedForward(nn.Module):
    """The position-wise feed-forward network: activation(x W_in + b_in) W_out + b_out.

    ``swiglu`` has a second inner layer as a gate: (silu(x W_gate) · x W_in) W_out, without biases.

    >>> FeedForward(6, 24, "relu")(torch.zeros(5, 6)).shape
    torch.Size([5, 6])

    Vaswani et al., 2017, section 3.3; Shazeer, "GLU Variants Improve Transformer", 2020.
    """

    def __init__(self, width: int, inner: int, activation: str = "relu") -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise OptionError(
                f"FeedForward: activation={activation!r}, expected one of {', '.join(ACTIVATIONS)}"
            )
        self.activation = activation
        gated = activation == "swiglu"
        self.w_in = nn.Parameter(torch.empty(width, inner))
        self.w_gate = nn.Parameter(torch.empty(width, inner)) if gated else None
        self.w_out = nn.Parameter(torch.empty(inner, width))
        self.b_in = None if gated else nn.Parameter(torch.zeros(inner))
        self.b_out = None if gated else nn.Parameter(torch.zeros(width))
        for weight in (self.w_in, self.w_gate, self.w_out):
            if weight is not None:
                nn.init.xavier_uniform_(weight)

    def forward(self, x: Tensor) -> Float[Tensor, "*b width"]:
        """x ``(…, width)`` to vectors of the same shape."""
        inner = affine(x, self.w_in, self.b_in)
        if self.w_gate is not None:
            inner = F.silu(F.linear(x, self.w_gate.T)) * inner
        elif self.activation == "relu" and not torch.is_grad_enabled():
            inner.relu_()
        else:
            inner = FUNCTIONS[self.activation](inner)
        return affine(inner, self.w_out, self.b_out)

    def extra_repr(self) -> str:
        return f"width={self.w_in.shape[0]}, inner={self.w_in.shape[1]}, {self.activation}"


class Block(nn.Module):
    """Self-attention, cross-attention to an encoder if `cross`, and a feed-forward network.

    ``(b, n, width)`` in and out.
    """

    def __init__(self, config: TransformerConfig, *, cross: bool = False) -> None:
        super().__init__()
        self.norm_first = config.norm_place == "before"
        self.attention = _attention(config, _position(config))
        self.cross = _attention(config, None) if cross else None
        self.feed_forward = FeedForward(config.width, config.feed_forward, config.activation)
        self.attention_norm = norm(config)
        self.cross_norm = norm(config) if cross else None
        self.feed_forward_norm = norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x: Float[Tensor, "b n width"],
        memory: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        memory_mask: Mask | Tensor | None = None,
        cache: BlockCache | None = None,
    ) -> Float[Tensor, "b n width"]:
        """x after the block; `memory` is the output of the encoder.

        x may hold several consecutive sequences for each sentence of the memory, which is not
        copied.
        """
        seen = None if cache is None else cache.own
        y = self.attention_norm(x) if self.norm_first else x
        x = self.dropout(self.attention(y, mask=mask, cache=seen), onto=x)
        x = x if self.norm_first else self.attention_norm(x)
        if self.cross is not None and self.cross_norm is not None and memory is not None:
            read = None if cache is None else cache.memory
            y = self.cross_norm(x) if self.norm_first else x
            if len(y) != len(memory):
                y = y.reshape(len(memory), -1, y.shape[-1])
            y = self.cross(y, memory, mask=memory_mask, cache=read)
            x = self.dropout(y.view(x.shape), onto=x)
            x = x if self.norm_first else self.cross_norm(x)
        y = self.feed_forward_norm(x) if self.norm_first else x
        x = self.dropout(self.feed_forward(y), onto=x)
        return x if self.norm_first else self.feed_forward_norm(x)


class TwoWayALiBi(ALiBi):
    """`ALiBi` with doubled distances of later words in every second head.

    With `ALiBi` alone, an encoder could not distinguish a sentence from its reverse. In a causal
    decoder it is the same as `ALiBi`.

    >>> TwoWayALiBi(2)(2, 2)[0]
    tensor([[ 0.0000, -0.1250],
            [-0.0625,  0.0000]])
    """

    def _values(
        self, relative: Tensor, device: torch.device | str | None, dtype: torch.dtype
    ) -> Tensor:
        values = super()._values(relative, device, dtype)
        values[0::2] *= 1 + (relative > 0)
        return values


def norm(config: TransformerConfig) -> nn.Module:
    """The norm of this configuration."""
    if config.norm == "rmsnorm":
        return nn.RMSNorm(config.width, eps=config.norm_eps or 1e-6)
    return LayerNorm(config.width, eps=config.norm_eps or 1e-5)


def _attention(config: TransformerConfig, position: nn.Module | None) -> MultiHeadAttention:
    return MultiHeadAttention(config.width, config.heads, config.kv_heads, position)


def _position(config: TransformerConfig) -> nn.Module | None:
    """The position encoding inside attention, if it is not added to the embeddings."""
    if config.position == "rotary":
        return Rotary(config.width // config.heads)
    return TwoWayALiBi(config.heads) if config.position == "alibi" else None
