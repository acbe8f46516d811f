"""A decoder that writes word by word, by the shortest way.

For a single word, checking what was given, packing weights and writing masks out takes longer than
the arithmetic. Here all that stays the same is prepared once. The numbers are those of
`Decoder.forward`, bit for bit; where somebody watches, it is `Decoder.forward` that runs.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules import module

from regard.attention import Mask, dense
from regard.attention._call import Call, autocasts
from regard.attention.operation import computed, watched
from regard.attention.scores import NAMED
from regard.nn.blocks import Block
from regard.nn.cache import BlockCache, Cache
from regard.nn.multihead import MultiHeadAttention
from regard.nn.transformer import Decoder

SCORE = NAMED["scaled_dot"]
Packed = tuple[Tensor, Tensor | None]


class Stepper:
    """A decoder, called as it is itself, with a cache. Its weights must not change meanwhile."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._blocks = [block for block in decoder.blocks if isinstance(block, Block)]
        hooked = any(one._forward_hooks or one._forward_pre_hooks for one in decoder.modules())
        self._short = all(map(_plain, decoder.blocks)) and not hooked and not decoder.training
        self._packed = [block.attention._packed() for block in self._blocks]
        self._given: Mask | None = None
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
        if not self._short or watched() or _followed() or autocasts(x.device):
            return self._decoder(  # type: ignore[no-any-return]
                x, memory, mask=mask, memory_mask=memory_mask, cache=cache
            )
        for hook in module._global_forward_pre_hooks.values():
            hook(self._decoder, (x, memory))  # such as one that looks at the clock
        if memory_mask is not self._given:
            self._given, self._written_out = memory_mask, _written_out(memory_mask, x, memory)
        for block, packed, kept in zip(self._blocks, self._packed, cache.blocks, strict=True):
            x = _block(block, packed, x, memory, mask, self._written_out, kept)
        cache.length += x.shape[1]
        return self._decoder.norm(x)  # type: ignore[no-any-return]


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


def _written_out(mask: Mask | None, x: Tensor, memory: Tensor) -> Mask | None:
    """The same mask of a memory, so that it need not be worked out for every layer and word."""
    if mask is None:
        return None
    (_, q, _), k = x.shape, memory.shape[1]
    return dense(mask.block(slice(0, q), slice(0, k), q, k, x.device))


def _plain(block: nn.Module) -> bool:
    """Whether a block is as `Decoder` makes it, with nothing that acts inside attention."""
    return type(block) is Block and all(
        type(layer) is MultiHeadAttention and layer.position is None
        for layer in (block.attention, block.cross)
    )
