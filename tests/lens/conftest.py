"""Whatever is watched or cut, and however it ends: nothing stays behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import jaxtyping
import pytest
import torch
from torch.nn import functional as F
from torch.nn.modules import module

from regard.attention import operation
from regard.lens._listening import SESSION


def traces() -> list[object]:
    """All that watching changes in the process."""
    interface = getattr(sys.modules.get("transformers.modeling_utils"), "AttentionInterface", None)
    return [
        len(module._global_forward_hooks),
        len(module._global_forward_pre_hooks),
        len(module._global_forward_hooks_always_called),
        len(module._global_forward_hooks_with_kwargs),
        F.scaled_dot_product_attention,
        F.multi_head_attention_forward,
        torch._native_multi_head_attention,
        torch._transformer_encoder_layer_fwd,
        operation.AROUND,
        torch._C._len_torch_function_stack(),
        SESSION.get(),
        getattr(interface, "get_interface", None),
    ]


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    before = traces()
    yield
    after = traces()
    if before[-1] is None:  # transformers came in during the test
        before[-1] = after[-1]
        assert "heard" not in repr(after[-1])
    assert after == before


@pytest.fixture
def without_annotations() -> Iterator[None]:
    """What a user without beartype gets: our own errors."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)
