"""Incremental decoding: all blocks as one native operator, or `Decoder.forward`.

For a single word, checking arguments, packing weights and materializing masks takes longer than the
arithmetic. The operator prepares all that once and returns the numbers of `Decoder.forward`, bit
for bit; `Decoder.forward` runs while a capture session is active, and if the operator does not
support the decoder.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules import module

from regard.attention import Mask
from regard.attention.call import autocasts
from regard.attention.operation import watched
from regard.native import DecoderStep, Layers, fits, products_in
from regard.nn.blocks import Block, FeedForward
from regard.nn.cache import Cache
from regard.nn.multihead import MultiHeadAttention
from regard.nn.native_layers import LayerNorm
from regard.nn.transformer import Decoder


class Stepper:
    """A callable like the decoder, with a cache. The decoder's weights must not change meanwhile.

    `products` is the dtype of products with weights in decoders that can run as one native
    operator: float32 or bfloat16, captured or not. Other decoders ignore it.
    """

    def __init__(self, decoder: Decoder, products: torch.dtype = torch.float32) -> None:
        self._decoder = decoder
        self._blocks = [block for block in decoder.blocks if isinstance(block, Block)]
        hooked = any(one._forward_hooks or one._forward_pre_hooks for one in decoder.modules())
        supported = not decoder.training and all(map(_supported, decoder.blocks))
        step = _native_step(self._blocks, products) if supported else None
        self._products = torch.float32 if step is None else products
        self._step = None if hooked else step
        self._last_mask: tuple[Mask, int, torch.Size, Tensor] | None = None

    def __call__(
        self,
        x: Float[Tensor, "b n width"],
        memory: Float[Tensor, "m s width"],
        *,
        mask: Mask,
        memory_mask: Mask | None,
        cache: Cache,
    ) -> Float[Tensor, "b n width"]:
        """The output of the decoder for x; see `Decoder.forward`."""
        with products_in(self._products):
            found = self._at_once(x, memory, mask, memory_mask, cache)
            if found is not None:
                return found
            return self._decoder(  # type: ignore[no-any-return]
                x, memory, mask=mask, memory_mask=memory_mask, cache=cache
            )

    def _at_once(
        self, x: Tensor, memory: Tensor, mask: Mask, memory_mask: Mask | None, cache: Cache
    ) -> Tensor | None:
        """x after all blocks by the native operator; None if it cannot run."""
        step = self._step
        if step is None or watched() or _hooked_globally() or autocasts(x.device):
            return None
        length = cache.blocks[0].own.length
        if not step.usable(x, length, memory):
            return None
        self._decoder.check(x, memory)
        for hook in module._global_forward_pre_hooks.values():
            hook(self._decoder, (x, memory))  # such as one that enforces a time limit
        read = self._read(step, x, length, memory, cache)
        if read is None:  # Decoder.forward raises the error
            return None
        n = x.shape[1]
        first = self._blocks[0].attention
        like = x[..., : first.head_width]
        own = [kept.own.extend(like, first.kv_heads) for kept in cache.blocks]
        k, q = length + n, x.shape[0] * n // len(memory)
        seen = mask.block(slice(0, n), slice(0, k), n, k, x.device)
        x = step(x, own, length, read, seen, self._source_mask(memory_mask, q, memory))
        cache.length += n
        return self._decoder.norm(x)  # type: ignore[no-any-return]

    def _source_mask(self, mask: Mask | None, queries: int, memory: Tensor) -> Tensor | None:
        """The mask of the memory as a tensor, cached for all words of a sentence.

        Threads share the memo: it is replaced as a whole and never read back after writing.
        """
        if mask is None:
            return None
        memo, k = self._last_mask, memory.shape[1]
        if memo is not None and memo[0] is mask and memo[1:3] == (queries, memory.shape):
            return memo[3]
        whole = mask.block(slice(0, queries), slice(0, k), queries, k, memory.device)
        self._last_mask = (mask, queries, memory.shape, whole)
        return whole

    def _read(
        self, step: DecoderStep, x: Tensor, length: int, memory: Tensor, cache: Cache
    ) -> list[tuple[Tensor, Tensor]] | None:
        """The keys and values of the memory, if these and those in the cache fit; else None."""
        if any(kept.own.length != length for kept in cache.blocks):
            return None
        own = [kept.own.known() for kept in cache.blocks if kept.own.length]
        read = [
            block.cross._project_context(memory, kept.memory)
            for block, kept in zip(self._blocks, cache.blocks, strict=True)
            if block.cross is not None
        ]
        return read if step.fits(x, own, length, read, memory) else None


def _hooked_globally() -> bool:
    """Whether global hooks are registered that observe every module."""
    return bool(
        module._global_forward_hooks
        or module._global_backward_hooks
        or module._global_backward_pre_hooks
    )


def _native_step(blocks: list[Block], products: torch.dtype) -> DecoderStep | None:
    """The supported blocks as one native operator; None if they differ in shape or dtype."""
    if not blocks:
        return None
    layers = [_layers(block) for block in blocks]
    tensors = [[x for layer in block for x in layer] for block in layers]
    kinds = {
        (
            block.attention.heads,
            block.attention.kv_heads,
            block.norm_first,
            _norms(block)[0].eps,
            *(None if x is None else x.shape for x in own),
        )
        for block, own in zip(blocks, tensors, strict=True)
    }
    with torch.no_grad():
        if len(kinds) > 1 or not fits(0, *(x for own in tensors for x in own)):
            return None
    ((heads, kv_heads, norm_first, eps, *_),) = kinds
    return DecoderStep(layers, heads, kv_heads, norm_first, eps, products)


def _supported(block: nn.Module) -> bool:
    """Whether `DecoderStep` can compute this block."""
    if type(block) is not Block:
        return False
    attention, cross, feed_forward = block.attention, block.cross, block.feed_forward
    norms = _norms(block)
    return (
        all(type(one) is MultiHeadAttention and one.position is None for one in (attention, cross))
        and all(type(layer) is LayerNorm and layer.bias is not None for layer in norms)
        and len({layer.eps for layer in norms}) == 1
        and type(feed_forward) is FeedForward
        and feed_forward.activation == "relu"
        and cross is not None
        and (cross.heads, cross.kv_heads) == (attention.heads, attention.kv_heads)
        and attention.head_width % 16 == 0
        and feed_forward.w_in.shape[1] % 16 == 0
        and not any("forward" in vars(one) for one in block.modules())
    )


def _norms(block: Block) -> list[Any]:
    """The three norms."""
    return [block.attention_norm, block.cross_norm, block.feed_forward_norm]


def _layers(block: Block) -> Layers:
    attention, cross, feed_forward = block.attention, block.cross, block.feed_forward
    assert cross is not None
    own_norm, cross_norm, last_norm = ((layer.weight, layer.bias) for layer in _norms(block))
    return [
        own_norm,
        attention._packed(),
        (attention.w_o, attention.b_o),
        cross_norm,
        (cross.w_q, cross.b_q),
        (cross.w_o, cross.b_o),
        last_norm,
        (feed_forward.w_in, feed_forward.b_in),
        (feed_forward.w_out, feed_forward.b_out),
    ]
