"""`Past`: the key-value cache of a text's first tokens, which do not depend on the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Past:
    """The keys and values of the first tokens of a text in each layer, ``(1, g, n, d)``."""

    layers: tuple[tuple[Tensor, Tensor], ...]
    length: int

    @classmethod
    @torch.no_grad()
    def of(cls, model: Any, ids: Tensor) -> Past | None:
        """The cache of a causal model for a text ``(1, n)``; None if it does not keep all keys."""
        from transformers.cache_utils import DynamicCache, DynamicLayer

        try:
            found = model(input_ids=ids, use_cache=True, logits_to_keep=1)
        except Exception:  # some models accept use_cache, but have no cache
            return None
        cache = getattr(found, "past_key_values", None)
        layers: list[Any] = getattr(cache, "layers", [])
        if type(cache) is not DynamicCache or {type(x) for x in layers} != {DynamicLayer}:
            return None
        return cls(tuple((x.keys, x.values) for x in layers), ids.shape[1])

    def before(self, position: int) -> Past:
        """The cache of the tokens before a position."""
        kept = tuple((k[:, :, :position], v[:, :, :position]) for k, v in self.layers)
        return Past(kept, position)

    def inputs(self, ids: Tensor) -> dict[str, Any]:
        """The arguments with which a model continues ids ``(rows, n)`` behind these tokens."""
        from transformers.cache_utils import DynamicCache

        cache = DynamicCache()
        for layer, (k, v) in enumerate(self.layers):
            cache.update(k.expand(len(ids), -1, -1, -1), v.expand(len(ids), -1, -1, -1), layer)
        return {"input_ids": ids[:, self.length :], "past_key_values": cache, "use_cache": True}
