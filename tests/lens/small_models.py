"""Small models with attention of their own, and a check that watching changes no bit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from regard.lens import Seen, watch

TEXT = "The animal didn't cross the street because it was too tired."
LINES = [TEXT, "The street was too wide.", "Das Tier war zu müde.", "because the bat hit it"]
MODES = [torch.no_grad, torch.enable_grad, torch.inference_mode]
B, H, N, M, D = 2, 3, 5, 7, 4
WIDTH = H * D


class Attention(nn.Module):
    """Self- or cross-attention, written by hand."""

    def __init__(self, function: Callable[..., Tensor] = F.scaled_dot_product_attention) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.function = function
        self.after: Callable[[Tensor, Tensor, Tensor, Tensor], None] | None = None

    def forward(self, x: Tensor, context: Tensor | None = None, **options: object) -> Tensor:
        context = x if context is None else context
        q, k, v = (
            layer(y).unflatten(-1, (H, D)).transpose(1, 2)
            for layer, y in ((self.q, x), (self.k, context), (self.v, context))
        )
        output = self.function(q, k, v, **options)
        if self.after is not None:
            self.after(q, k, v, output)
        return output.transpose(1, 2).flatten(2)

    def weights(
        self, x: Tensor, context: Tensor | None = None, bias: Tensor | None = None
    ) -> Tensor:
        context = x if context is None else context
        q, k = (
            layer(y).unflatten(-1, (H, D)).transpose(1, 2)
            for layer, y in ((self.q, x), (self.k, context))
        )
        scores = q @ k.mT / D**0.5
        return torch.softmax(scores if bias is None else scores + bias, -1).detach()


class Block(nn.Module):
    """A decoder's block in one module, which calls attention twice by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Attention()
        self.q, self.kv, self.memory = (
            nn.Linear(WIDTH, D),
            nn.Linear(WIDTH, 2 * D),
            nn.Linear(WIDTH, 2 * D),
        )
        self.out = nn.Linear(D, WIDTH)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        x = x + self.inner(x)
        for layer, source in ((self.kv, None), (self.memory, memory), (self.memory, memory)):
            k, v = layer(x if source is None else source).chunk(2, -1)
            x = x + self.out(F.scaled_dot_product_attention(self.q(x), k, v))
        return x


class Stack(nn.Module):
    """Three layers of self-attention in a row, then cross-attention to a memory."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Attention() for _ in range(3)])
        self.cross = Attention()

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x if memory is None else x + self.cross(x, memory)


def unchanged(model: nn.Module, *args: Tensor, **options: object) -> Seen:
    """What is seen of a model whose output watching does not change by a bit."""
    torch.manual_seed(1)
    plain = model(*args, **options)
    torch.manual_seed(1)
    with watch(model) as seen:
        watched = model(*args, **options)
    for one, other in zip(tree_leaves(plain), tree_leaves(watched), strict=True):
        assert torch.equal(one, other) if isinstance(one, Tensor) else one == other
    return seen


def causal_bias(q: int, k: int) -> Tensor:
    return torch.full((q, k), -torch.inf).triu(1)
