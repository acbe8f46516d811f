"""A decoder that writes word by word, by the shortest way.

For a single word, checking what was given, packing weights and writing masks out takes longer than
the arithmetic. Here all that stays the same is prepared once. The numbers are those of
`Decoder.forward`, bit for bit; where somebody watches, it is `Decoder.forward` that runs.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules import module

from regard.attention import Mask, dense
from regard.attention._call import Call, autocasts
from regard.attention.operation import computed, watched
from regard.attention.scores import NAMED
from regard.compiled import DecoderStep, Weights, multiples, products_of, usable
from regard.nn._norm import LayerNorm
from regard.nn.blocks import Block, FeedForward
from regard.nn.cache import BlockCache, Cache
from regard.nn.multihead import MultiHeadAttention
from regard.nn.transformer import Decoder

SCORE = NAMED["scaled_dot"]
Packed = tuple[Tensor, Tensor | None]
Pair = tuple[Tensor, Tensor]
"""Keys and values."""


class Stepper:
    """A decoder, called as it is itself, with a cache. Its weights must not change meanwhile.

    `products` may be bfloat16: then decoders that can be compiled in one piece multiply with
    weights in it, watched or not, and others take no notice.
    """

    def __init__(self, decoder: Decoder, products: torch.dtype = torch.float32) -> None:
        self._decoder = decoder
        self._blocks = [block for block in decoder.blocks if isinstance(block, Block)]
        hooked = any(one._forward_hooks or one._forward_pre_hooks for one in decoder.modules())
        plain = all(map(_plain, decoder.blocks)) and not decoder.training
        self._short = plain and not hooked
        self._packed = [block.attention._packed() for block in self._blocks]
        self._compiled = _compiled(self._blocks, self._packed, products) if plain else None
        self._products = torch.float32 if self._compiled is None else products
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
        with products_of(self._products):
            return self._run(x, memory, mask, memory_mask, cache)

    def _run(
        self, x: Tensor, memory: Tensor, mask: Mask, memory_mask: Mask | None, cache: Cache
    ) -> Tensor:
        if not self._short or watched() or _followed() or autocasts(x.device):
            return self._decoder(  # type: ignore[no-any-return]
                x, memory, mask=mask, memory_mask=memory_mask, cache=cache
            )
        self._decoder.check(x, memory)
        for hook in module._global_forward_pre_hooks.values():
            hook(self._decoder, (x, memory))  # such as one that looks at the clock
        shapes = (memory_mask, x.shape[0] * x.shape[1] // len(memory), memory.shape)
        if shapes[0] is not self._given[0] or shapes[1:] != self._given[1:]:
            self._given, self._written_out = shapes, _written_out(memory_mask, shapes[1], memory)
        step, length = self._compiled, cache.blocks[0].own.length if cache.blocks else 0
        if step is not None and step.usable(x, length, memory):
            read = self._read(step, x, memory, cache)
            if read is None:  # the decoder says what does not fit
                return self._decoder(  # type: ignore[no-any-return]
                    x, memory, mask=mask, memory_mask=memory_mask, cache=cache
                )
            x = self._at_once(step, x, memory, mask, cache, read)
        else:
            for block, packed, kept in zip(self._blocks, self._packed, cache.blocks, strict=True):
                x = _block(block, packed, x, memory, mask, self._written_out, kept)
        cache.length += x.shape[1]
        return self._decoder.norm(x)  # type: ignore[no-any-return]

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

    def _at_once(
        self,
        step: DecoderStep,
        x: Tensor,
        memory: Tensor,
        mask: Mask,
        cache: Cache,
        read: list[Pair],
    ) -> Tensor:
        """x after all blocks, in one call."""
        n, s, length = x.shape[1], memory.shape[1], cache.blocks[0].own.length
        first = self._blocks[0].attention
        like = x[..., : first.head_width]
        own = [kept.own.extend(like, first.kv_heads) for kept in cache.blocks]
        k = length + n
        seen = mask.block(slice(0, n), slice(0, k), n, k, x.device)
        source = None
        if self._written_out is not None:
            q = x.shape[0] * n // len(memory)
            source = self._written_out.block(slice(0, q), slice(0, s), q, s, x.device)
        return step(x, own, length, read, seen, source)


def _followed() -> bool:
    """Whether anybody wants to know what every module returns."""
    return bool(
        module._global_forward_hooks
        or module._global_backward_hooks
        or module._global_backward_pre_hooks
    )


def _block(
    block: Block,
    packed: Packed,
    x: Tensor,
    memory: Tensor,
    mask: Mask,
    memory_mask: Mask | None,
    cache: BlockCache,
) -> Tensor:
    """`Block.forward`, without dropout."""
    assert block.cross is not None
    assert block.cross_norm is not None
    first = block.norm_first
    y = block.attention_norm(x) if first else x
    q, k, v = block.attention._project_all(y, packed)
    x = x + _attended(block.attention, q, *cache.own.append(k, v), mask)
    x = x if first else block.attention_norm(x)
    y = block.cross_norm(x) if first else x
    q = block.cross._queries(y.reshape(len(memory), -1, y.shape[-1]))
    k, v = block.cross._project_context(memory, cache.memory)
    x = x + _attended(block.cross, q, k, v, memory_mask).view(x.shape)
    x = x if first else block.cross_norm(x)
    x = x + block.feed_forward(block.feed_forward_norm(x) if first else x)
    return x if first else block.feed_forward_norm(x)


def _attended(
    layer: MultiHeadAttention, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None
) -> Tensor:
    """The sum of the values, through the last product."""
    call = Call(q, k, v, SCORE, mask, None, 0.0, q.shape[:1], 4)
    return layer._combine(computed(call).transpose(1, 2).flatten(2))


def _written_out(mask: Mask | None, queries: int, memory: Tensor) -> Mask | None:
    """The same mask of a memory, so that it need not be worked out for every layer and word."""
    if mask is None:
        return None
    q, k = queries, memory.shape[1]
    return dense(mask.block(slice(0, q), slice(0, k), q, k, memory.device))


def _plain(block: nn.Module) -> bool:
    """Whether a block is as `Decoder` makes it, with nothing that acts inside attention."""
    return type(block) is Block and all(
        type(layer) is MultiHeadAttention and layer.position is None
        for layer in (block.attention, block.cross)
    )


def _compiled(
    blocks: list[Block], packed: list[Packed], products: torch.dtype
) -> DecoderStep | None:
    """The blocks in one piece, if they are of the kind that is compiled, and all alike."""
    if not blocks or not all(map(_as_compiled, blocks)):
        return None
    weights = [_weights(block, pair) for block, pair in zip(blocks, packed, strict=True)]
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
        if len(kinds) > 1 or not usable(0, *(x for one in weights for x in one.tensors())):
            return None
    attention, (norm, *_) = blocks[0].attention, _norms(blocks[0])
    return DecoderStep(
        weights, attention.heads, attention.kv_heads, blocks[0].norm_first, norm.eps, products
    )


def _as_compiled(block: Block) -> bool:
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
        and multiples((attention.head_width, feed_forward.w_in.shape[1]))
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
