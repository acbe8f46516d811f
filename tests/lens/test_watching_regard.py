"""`watch` on regard's own layers and models."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import regard
from regard import causal, padding
from regard.lens import watch
from regard.nn import (
    Encoder,
    LanguageModel,
    MultiHeadAttention,
    SelfAttention,
    Transformer,
    TransformerConfig,
)
from tests.lens.small_models import MODES, unchanged


def config() -> TransformerConfig:
    return TransformerConfig.preset(
        "tiny", vocabulary=50, width=16, heads=4, encoder_depth=2, decoder_depth=2
    )


@pytest.mark.parametrize("mode", MODES)
def test_layers(mode: type) -> None:
    x, context = torch.randn(2, 5, 6), torch.randn(2, 5, 6)
    layer = MultiHeadAttention(6, 3, position=regard.ALiBi(3))
    with mode():
        seen = unchanged(layer, x, mask=causal & padding([5, 3]))
        cross = unchanged(layer, x, context)
        alone = unchanged(SelfAttention(), x[0])
    expected = layer.steps(x[0], mask=causal).weights
    torch.testing.assert_close(seen[""].weights()[0], expected)
    assert seen.kind("") == "self"
    assert cross.kind("") == "cross"
    assert alone[""].weights().shape == (5, 5)
    torch.testing.assert_close(alone[""].weights(), torch.softmax(x[0] @ x[0].T, -1))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("train", [False, True])
def test_the_transformer(mode: type, train: bool) -> None:
    model = Transformer(config()).train(train)
    source, target = torch.randint(3, 50, (2, 6)), torch.randint(3, 50, (2, 6))
    with mode():
        seen = unchanged(model, source, target, source_mask=padding([6, 4]))
    kinds = {name: seen.kind(name) for name in seen}
    assert len(kinds) == 6
    assert all(kind == ("cross" if "cross" in name else "self") for name, kind in kinds.items())
    assert not seen["decoder.blocks.1.cross"].weights()[1, :, :, 4:].any()
    assert not seen["decoder.blocks.0.attention"].weights().triu(1).any()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_writing_word_by_word(mode: type) -> None:
    model = LanguageModel(config()).eval()
    start = torch.randint(3, 50, (2, 4))
    with mode():
        plain = model.generate(start, 12, temperature=0.0)
        with watch(model) as seen:
            written = model.generate(start, 12, temperature=0.0)
        with watch(model) as whole:
            model(written[:, :-1])
    assert torch.equal(plain, written)
    for name in whole:
        assert len(seen.calls(name)) == 12
        assert seen.kind(name) == "self"
        assert repr(seen[name]) == "Look(4 heads, 15 queries, 15 keys, 12 calls joined)"
        torch.testing.assert_close(seen[name].weights(), whole[name].weights(), atol=1e-5, rtol=0)


def test_cross_attention_from_a_cache() -> None:
    model = Transformer(config()).eval()
    source, target = torch.randint(3, 50, (2, 6)), torch.randint(3, 50, (2, 5))
    with torch.no_grad(), watch(model) as seen:
        memory = model.encode(source)
        cache = model.cache()
        for word in target.split(1, 1):
            model.decode(word, memory, cache=cache)
    with torch.no_grad(), watch(model) as whole:
        model(source, target)
    assert list(seen) == list(whole)
    for name in whole:
        assert seen.kind(name) == whole.kind(name)
        torch.testing.assert_close(seen[name].weights(), whole[name].weights(), atol=1e-5, rtol=0)
        assert seen[name].k.shape == whole[name].k.shape


def test_a_score_that_was_trained_since_is_noticed() -> None:
    layer = SelfAttention(regard.Bilinear(4))
    with watch(layer) as seen:
        layer(torch.randn(3, 4))
    with torch.no_grad():
        next(layer.score.parameters()).mul_(2)
    with pytest.raises(regard.errors.StaleError):
        seen[""]


def test_only_models_with_other_attention_need_the_dispatch_mode() -> None:
    own = Encoder(config()).eval()
    x = torch.randn(1, 4, config().width)

    def modes() -> int:
        with regard.watch(own) as seen:
            count = len(_get_current_dispatch_mode_stack())
            own(x)
        assert len(seen) == len(own.blocks) + ("other" in dict(own.named_modules()))
        return count

    assert modes() == 0
    attend = nn.MultiheadAttention(x.shape[-1], 2, batch_first=True)
    own.other = attend
    own.blocks[0].feed_forward.register_forward_hook(lambda *_: attend(x, x, x)[0])
    assert modes() == 1
