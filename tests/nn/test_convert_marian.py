"""Marian's Transformers, converted, give the numbers that they gave before."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attention import padding
from regard.errors import OptionError
from regard.nn import (
    Transformer,
    TransformerConfig,
    from_marian,
)
from regard.translate.model_files import load_model, save_model
from tests.nn.convert_cases import (
    HEADS,
    INNER,
    LENGTHS,
    PAD,
    SOURCE,
    TARGET,
    WIDTH,
    close,
    hidden_keys,
    stirred,
)


def marian(seed: int = 0, **options: Any) -> Any:
    """A small translator with random numbers everywhere."""
    transformers = pytest.importorskip("transformers")
    shape: dict[str, Any] = {
        "vocab_size": 41,
        "d_model": WIDTH,
        "encoder_layers": 3,
        "decoder_layers": 2,
        "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS,
        "encoder_ffn_dim": INNER,
        "decoder_ffn_dim": INNER,
        "max_position_embeddings": 16,
        "activation_function": "swish",
        "scale_embedding": True,
        "pad_token_id": PAD,
        "decoder_start_token_id": PAD,
        "dropout": 0.0,
    }
    torch.manual_seed(seed)
    model = transformers.MarianMTModel(transformers.MarianConfig(**{**shape, **options}))
    return stirred(model, seed).eval()


MARIANS: list[dict[str, Any]] = [
    {},
    {"activation_function": "relu"},
    {"activation_function": "gelu", "scale_embedding": False},
    {"activation_function": "silu", "tie_word_embeddings": False},
    {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 41},
    {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 29},
    {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 53},
    {"share_encoder_decoder_embeddings": False, "scale_embedding": False},
    {"d_model": 34, "encoder_attention_heads": 1, "decoder_attention_heads": 1},
    {"d_model": 15, "encoder_attention_heads": 3, "decoder_attention_heads": 3},
    {"encoder_layers": 1, "decoder_layers": 4},
]


def marian_words(model: Any, length: int = SOURCE) -> tuple[Tensor, Tensor]:
    """A padded source, and a target that begins with the padding, as Marian's do."""
    source = torch.randint(41, (3, length))
    source = source.masked_fill(hidden_keys(LENGTHS, length), PAD)
    target = torch.randint(model.config.decoder_vocab_size, (3, TARGET))
    target[:, 0] = model.config.decoder_start_token_id
    return source, target


@pytest.mark.parametrize("options", MARIANS, ids=str)
def test_marians_logits(options: dict[str, Any]) -> None:
    theirs = marian(**options)
    ours = from_marian(theirs)
    source, target = marian_words(theirs)
    wanted = theirs(
        input_ids=source,
        attention_mask=(~hidden_keys(LENGTHS, SOURCE)).long(),
        decoder_input_ids=target,
    ).logits
    found = ours(source, target, source_mask=padding(LENGTHS))
    size = theirs.config.decoder_vocab_size
    close(found[..., :size], wanted)
    assert found.softmax(-1)[..., size:].sum() == 0
    assert ours.config.position == "sinusoidal"
    assert ours.config.tied == (ours.output is ours.source.table)
    shared = theirs.model.encoder.embed_tokens.weight is theirs.lm_head.weight
    assert ours.config.tied == (shared and theirs.config.scale_embedding)


def test_marians_contextual_vectors_are_ours_in_another_order() -> None:
    theirs = marian()
    source, _ = marian_words(theirs)
    wanted = theirs.model.encoder(source).last_hidden_state
    found = from_marian(theirs).encode(source)
    half = WIDTH // 2
    close(found[..., 0::2], wanted[..., :half])
    close(found[..., 1::2], wanted[..., half:])


def test_a_converted_marian_writes_word_by_word() -> None:
    theirs = marian()
    ours = from_marian(theirs)
    source, target = marian_words(theirs)
    memory, cache = ours.encode(source), ours.cache()
    steps = [ours.decode(word, memory, cache=cache) for word in target.split(1, 1)]
    wanted = theirs(input_ids=source, decoder_input_ids=target).logits
    close(ours.logits(torch.cat(steps, 1)), wanted)


def test_a_converted_marian_has_no_longest_sentence() -> None:
    ours = from_marian(marian())
    assert ours(torch.randint(40, (1, 20)), torch.randint(40, (1, 18))).shape == (1, 18, 41)


def test_a_converted_marian_is_saved_and_loaded(tmp_path: Path) -> None:
    theirs = marian()
    save_model(tmp_path, from_marian(theirs))
    source, target = marian_words(theirs)
    again = load_model(tmp_path)
    close(again(source, target), theirs(input_ids=source, decoder_input_ids=target).logits)
    assert again.config.output_bias
    assert again.config.activation == "silu"


def test_a_converted_marian_has_marians_gradients() -> None:
    theirs = marian().train()
    ours = from_marian(theirs)
    assert ours.training
    source, target = marian_words(theirs)
    theirs(input_ids=source, decoder_input_ids=target).logits.logsumexp(-1).sum().backward()
    ours(source, target).logsumexp(-1).sum().backward()
    found, wanted = ours.source.table.grad, theirs.lm_head.weight.grad
    assert found is not None
    half = WIDTH // 2
    words = torch.arange(41) != PAD  # Marian's row of the padding learns nothing from being read
    scale = float(wanted[words].abs().max())
    close(found[words, 0::2] / scale, wanted[words, :half] / scale)
    close(found[words, 1::2] / scale, wanted[words, half:] / scale)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"decoder_attention_heads": 1}, "encoder_attention_heads=2 but decoder_attention_heads=1"),
        ({"decoder_ffn_dim": 40}, "encoder_ffn_dim=38 but decoder_ffn_dim=40"),
        ({"activation_function": "gelu_new"}, "activation is 'gelu_new', expected relu, gelu"),
    ],
)
def test_marians_that_are_of_another_shape(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match="from_marian: " + re.escape(text)):
        from_marian(marian(**options))


def test_only_marian_is_marian() -> None:
    with pytest.raises(OptionError, match="from_marian: got Transformer, expected transformers"):
        from_marian(Transformer(TransformerConfig.preset("tiny", vocabulary=9)))
    changed = marian()
    with torch.no_grad():
        changed.model.decoder.embed_positions.weight += 0.1
    with pytest.raises(OptionError, match="from_marian: the model's positions are not Marian's"):
        from_marian(changed)
