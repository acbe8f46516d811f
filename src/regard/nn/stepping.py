"""A decoder that writes word by word: one native operator for all blocks, or its own layers.

For a single word, checking arguments, packing weights and writing masks out takes longer than the
arithmetic. The operator has all that prepared once, and gives the numbers of `Decoder.forward`, bit
for bit; `Decoder.forward` runs while a capture session is active, and where the operator cannot.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules import module

from regard.attention import Mask, dense
from regard.attention.call import autocasts
from regard.attention.operation import watched
from regard.native import DecoderStep, Weights, fits, products_in
from regard.nn._norm import LayerNorm
from regard.nn.blocks import Block, FeedForward
from regard.nn.cache import Cache
from regard.nn.multihead import MultiHeadAttention
from regard.nn.transformer import Decoder

Packed = tuple[Tensor, Tensor | None]
Pair = tuple[Tensor, Tensor]
"""Keys and values."""


class Stepper:
    """A decoder, called as it is itself, with a cache. Its weights must not change meanwhile.

    `products` may be bfloat16: then decoders that run as one native operator multiply with weights
    in it, watched or not, and others take no notice.
    """

    def __init__(self, decoder: Decoder, products: torch.dtype = torch.float32) -> None:
        self._decoder = decoder
        self._blocks = [block for block in decoder.blocks if isinstance(block, Block)]
        hooked = any(one._forward_hooks or one._forward_pre_hooks for one in decoder.modules())
        plain = all(map(_plain, decoder.blocks)) and not decoder.training
        step = _native_step(self._blocks, products) if plain else None
        self._products = torch.float32 if step is None else products
        self._step = None if hooked else step
        self._given: tuple[Mask | None, int, torch.Size] = (None, 0, torch.Size())
        self._written_out: Mask | None = None

    def __call__(
        self,
        x: Float[Tensor, "b n width"],
        memory: Float[Tensor, "m s width"],
        *,
        mask: Mask,
        memory_mask: Mask | None,
        cache: Cache,
    ) -> Float[Tensor, "b n width"]:
        """What the decoder makes of x; see `Decoder.forward`."""
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
        """x after all blocks, by one native operator; None where the layers have to do it."""
        step = self._step
        if step is None or watched() or _followed() or autocasts(x.device):
            return None
        length = cache.blocks[0].own.length
        if not step.usable(x, length, memory):
            return None
        self._decoder.check(x, memory)
        for hook in module._global_forward_pre_hooks.values():
            hook(self._decoder, (x, memory))  # such as one that looks at the clock
        read = self._read(step, x, memory, cache)
        if read is None:  # the decoder says what does not fit
            return None
        n, s = x.shape[1], memory.shape[1]
        first = self._blocks[0].attention
        like = x[..., : first.head_width]
        own = [kept.own.extend(like, first.kv_heads) for kept in cache.blocks]
        k, q = length + n, x.shape[0] * n // len(memory)
        seen = mask.block(slice(0, n), slice(0, k), n, k, x.device)
        written = self._source_mask(memory_mask, q, memory)
        source = None
        if written is not None:
            source = written.block(slice(0, q), slice(0, s), q, s, x.device)
        x = step(x, own, length, read, seen, source)
        cache.length += n
        return self._decoder.norm(x)  # type: ignore[no-any-return]

    def _source_mask(self, mask: Mask | None, queries: int, memory: Tensor) -> Mask | None:
        """The mask of the memory written out, once for all words of a sentence."""
        shapes = (mask, queries, memory.shape)
        if mask is not self._given[0] or shapes[1:] != self._given[1:]:
            q, k = queries, memory.shape[1]
            self._given, self._written_out = shapes, None
            if mask is not None:
                whole = mask.block(slice(0, q), slice(0, k), q, k, memory.device)
                self._written_out = dense(whole.expand(*whole.shape[:-1], k))
        return self._written_out

    def _read(
        self, step: DecoderStep, x: Tensor, memory: Tensor, cache: Cache
    ) -> list[Pair] | None:
        """The keys and values of the memory, if these and those in the cache fit; else None."""
        length = cache.blocks[0].own.length
        if any(kept.own.length != length for kept in cache.blocks):
            return None
        own = [kept.own.known() for kept in cache.blocks if kept.own.length]
        read = [
            block.cross._project_context(memory, kept.memory)
            for block, kept in zip(self._blocks, cache.blocks, strict=True)
            if block.cross is not None
        ]
        return read if step.fits(x, own, length, read, memory) else None


def _followed() -> bool:
    """Whether anybody wants to know what every module returns."""
    return bool(
        module._global_forward_hooks
        or module._global_backward_hooks
        or module._global_backward_pre_hooks
    )


def _plain(block: nn.Module) -> bool:
    """Whether a block is as `Decoder` makes it, with nothing that acts inside attention."""
    return type(block) is Block and all(
        type(layer) is MultiHeadAttention and layer.position is None
        for layer in (block.attention, block.cross)
    )


def _native_step(blocks: list[Block], products: torch.dtype) -> DecoderStep | None:
    """The blocks as one native operator, if they are of its kind, and all alike."""
    if not blocks or not all(map(_has_native_step, blocks)):
        return None
    weights = [_weights(block, block.attention._packed()) for block in blocks]
    kinds = {
        (
            block.attention.heads,
            block.attention.kv_heads,
            block.norm_first,
            *(layer.eps for layer in _norms(block)),
            *(None if x is None else x.shape for x in one.tensors()),
        )
        for block, one in zip(blocks, weights, strict=True)
    }
    with torch.no_grad():
        if len(kinds) > 1 or not fits(0, *(x for one in weights for x in one.tensors())):
            return None
    attention, (norm, *_) = blocks[0].attention, _norms(blocks[0])
    return DecoderStep(
        weights, attention.heads, attention.kv_heads, blocks[0].norm_first, norm.eps, products
    )


def _has_native_step(block: Block) -> bool:
    """Whether a block computes what `DecoderStep` computes."""
    attention, cross, feed_forward = block.attention, block.cross, block.feed_forward
    norms = _norms(block)
    return (
        all(type(layer) is LayerNorm and layer.bias is not None for layer in norms)
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
    """The three norms, whatever they are."""
    return [block.attention_norm, block.cross_norm, block.feed_forward_norm]


def _weights(block: Block, packed: Packed) -> Weights:
    attention, cross, feed_forward = block.attention, block.cross, block.feed_forward
    assert cross is not None
    norms = [(layer.weight, layer.bias) for layer in _norms(block)]
    return Weights(
        attention_norm=norms[0],
        projections=packed,
        combination=(attention.w_o, attention.b_o),
        cross_norm=norms[1],
        queries=(cross.w_q, cross.b_q),
        cross_combination=(cross.w_o, cross.b_o),
        feed_forward_norm=norms[2],
        inner=(feed_forward.w_in, feed_forward.b_in),
        outer=(feed_forward.w_out, feed_forward.b_out),
    )
