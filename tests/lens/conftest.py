"""Small models to ask; and whatever is watched or cut, nothing stays behind."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import models, pre_tokenizers, processors
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module

from regard.attention import operation
from regard.lens import Lens, Seen
from regard.lens.capture.session import current
from regard.nn import Transformer, TransformerConfig
from regard.text import Tokenizer
from regard.translate import Translator
from tests.lens.small_models import LINES, TEXT, WIDTH, B, N


def traces() -> list[object]:
    """All that watching changes in the process."""
    interface = getattr(sys.modules.get("transformers.modeling_utils"), "AttentionInterface", None)
    return [
        nn.Module._call_impl,
        len(module._global_forward_hooks),
        len(module._global_forward_pre_hooks),
        F.scaled_dot_product_attention,
        F.multi_head_attention_forward,
        operation.AROUND,
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
        current(),
        getattr(interface, "get_interface", None),
    ]


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    before = traces()
    yield
    after = traces()
    if before[-1] is None:  # transformers came in during the test
        before[-1] = after[-1]
        assert "_announce" not in repr(after[-1])
    assert after == before


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(LINES * 2, size=48)


@pytest.fixture(scope="module")
def translator(tokenizer: Tokenizer) -> Translator:
    torch.manual_seed(0)
    config = TransformerConfig.preset(
        "tiny", vocabulary=tokenizer.size, encoder_depth=3, decoder_depth=2
    )
    return Translator(Transformer(config).eval(), tokenizer)


@pytest.fixture(scope="module")
def lens(translator: Translator) -> Lens:
    return Lens(translator)


@pytest.fixture(scope="session")
def pocket() -> Lens:
    """The bundled model."""
    return Lens.open("pocket-en-de")


@pytest.fixture(scope="module")
def word_piece() -> tokenizers.Tokenizer:
    words = "[PAD] [UNK] [CLS] [SEP] the animal didn ' t cross street because it was too tire ##d ."
    vocabulary = {word: i for i, word in enumerate(words.split())}
    inner = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.normalizer = tokenizers.normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    inner.enable_truncation(4)  # as some files ask for; the lens reads the whole text
    return inner


@pytest.fixture(scope="module")
def word_piece_ids(word_piece: tokenizers.Tokenizer) -> list[int]:
    """The tokens of the whole text, special ones included."""
    copy = tokenizers.Tokenizer.from_str(word_piece.to_str())
    copy.no_truncation()
    return list(copy.encode(TEXT).ids)


@pytest.fixture(scope="session")
def bert() -> Callable[..., Any]:
    """What makes a small BERT, the same each time, whose weights are large enough to matter."""
    transformers = pytest.importorskip("transformers", reason="needs the extra hf")

    def made(**more: Any) -> Any:
        torch.manual_seed(1)
        sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
        config = transformers.BertConfig(
            vocab_size=60, intermediate_size=48, max_position_embeddings=32, **sizes, **more
        )
        model = transformers.BertModel(config, add_pooling_layer=False).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        return model

    return made


@pytest.fixture(scope="session")
def sizes() -> dict[str, Any]:
    """What makes a model of transformers small, by its kind."""
    return {
        "gpt2": {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 40},
        "llama": {
            "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "intermediate_size": 48,
        },
        "marian": {
            "d_model": 24, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 3,
            "decoder_attention_heads": 3, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
            "pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 0, "max_length": 12,
            "forced_eos_token_id": 3,
        },
    }  # fmt: skip


@pytest.fixture(scope="session")
def held_bytes() -> Callable[[Seen], int]:
    """What counts the bytes of all tensors that are held, each memory once."""

    def count(seen: Seen) -> int:
        found: dict[int, int] = {}
        known: set[int] = set()
        waiting: list[object] = [seen]
        while waiting:
            one = waiting.pop()
            if id(one) in known or isinstance(one, type | ModuleType | FunctionType | nn.Module):
                continue
            known.add(id(one))
            if isinstance(one, Tensor):
                storage = one.untyped_storage()
                found[storage.data_ptr()] = storage.nbytes()
            else:
                waiting += gc.get_referents(one)
        return sum(found.values())

    return count


@pytest.fixture
def x() -> Tensor:
    """The input of the models of `small_models`."""
    return torch.randn(B, N, WIDTH)
