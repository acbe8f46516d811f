"""The Transformer's parameters: shared, counted and trained, in every precision."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from regard.nn import Transformer, TransformerConfig
from regard.nn.config import ACTIVATIONS, NORM_PLACES, NORMS, POSITIONS
from tests.nn.transformer_cases import VOCABULARY, close, config_of, model_of, words

# Tying


def test_tied_matrices_are_one_parameter() -> None:
    tied, apart = model_of(), model_of(tied=False)
    assert tied.output is tied.source.table is tied.target.table
    assert len({id(one) for one in (apart.output, apart.source.table, apart.target.table)}) == 3
    tables = VOCABULARY * 24
    assert size(apart) - size(tied) == 2 * tables
    for model in (copy.deepcopy(tied), tied.float(), tied.train()):
        assert model.output is model.source.table is model.target.table


def test_a_tied_matrix_has_the_gradient_of_all_its_uses() -> None:
    tied, apart = model_of(), model_of(tied=False)
    apart.load_state_dict(tied.state_dict())
    source, target, expected = words(2, 5), words(2, 4), words(2, 4)
    for model in (tied, apart):
        model.loss(source, target, expected, smoothing=0.1).total.backward()
    parts = [apart.source.table.grad, apart.target.table.grad, apart.output.grad]
    assert tied.output.grad is not None
    close(tied.output.grad, torch.stack([one for one in parts if one is not None]).sum(0), 1e-11)


@pytest.mark.parametrize("changes", [{}, {"tied": False, "output_bias": True},
                                     {"position": "learned", "activation": "swiglu"}])  # fmt: skip
def test_a_state_dict_brings_everything_back(changes: dict[str, Any]) -> None:
    model, other = model_of(**changes), model_of(**changes)
    source, target = words(2, 5), words(2, 4)
    assert not torch.equal(model(source, target), other(source, target))
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(source, target), other(source, target))


# Sizes


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("preset", "vocabulary", "wanted"),
    [
        # embeddings + encoder + decoder, where with w the width and f the inner width
        #   attention is 4 (w² + w), the feed-forward network 2 w f + f + w, a norm 2 w
        # and with the norm before the sublayers one more at the end of encoder and decoder
        ("tiny", 6_000, 768_000 + 4 * 132_480 + 4 * 198_784 + 2 * 256),
        ("small", 8_000, 2_048_000 + 4 * 789_760 + 4 * 1_053_440 + 2 * 512),
        ("base", 37_000, 18_944_000 + 6 * 3_152_384 + 6 * 4_204_032),  # 63 million; the paper: 65
        ("big", 37_000, 37_888_000 + 6 * 12_596_224 + 6 * 16_796_672),  # 214 million; 213
    ],
)
def test_sizes_of_the_presets(preset: str, vocabulary: int, wanted: int) -> None:
    with torch.device("meta"):
        model = Transformer(TransformerConfig.preset(preset, vocabulary=vocabulary))
    assert size(model) == wanted


def test_what_else_has_parameters() -> None:
    with torch.device("meta"):
        plain = size(Transformer(config_of()))
        assert size(Transformer(config_of(output_bias=True))) == plain + VOCABULARY
        assert size(Transformer(config_of(position="learned"))) == plain + 2 * 64 * 24
        for position in ("rotary", "alibi"):
            assert size(Transformer(config_of(position=position))) == plain
        # Before: a norm at the end of each stack.
        assert size(Transformer(config_of(norm_place="before"))) == plain + 2 * 2 * 24
        assert size(Transformer(config_of(final_norm=True))) == plain + 2 * 2 * 24
        # rmsnorm has gains only: 2 norms per encoder block, 3 per decoder block.
        assert size(Transformer(config_of(norm="rmsnorm"))) == plain - 10 * 24
        # swiglu has a third matrix and no biases.
        gated = 24 * 26 - 26 - 24
        assert size(Transformer(config_of(activation="swiglu"))) == plain + 4 * gated
        # One head of keys and values instead of four, in six attentions.
        narrow = 2 * (24 * 18 + 18)
        assert size(Transformer(config_of(kv_heads=1))) == plain - 6 * narrow


# Training


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("norm_place", NORM_PLACES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_one_step_lowers_the_loss(
    activation: str, norm: str, norm_place: str, position: str
) -> None:
    config = config_of(
        activation=activation, norm=norm, norm_place=norm_place, position=position, kv_heads=2
    )
    model, batch = Transformer(config), (words(4, 6), words(4, 5), words(4, 5))
    before = model.loss(*batch, smoothing=0.1).total
    before.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        if not name.endswith("attention.b_k") and not name.endswith("cross.b_k"):
            assert parameter.grad.abs().max() > 0, name
    # A bias of the keys adds the same to all scores of a query, so its gradient is rounding alone;
    # with Rotary positions it is not, for then it is turned.
    with torch.no_grad():
        slope = torch.sqrt(sum((p.grad**2).sum() for p in model.parameters() if p.grad is not None))
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter -= 1e-2 * parameter.grad / slope
    after = model.loss(*batch, smoothing=0.1).total
    assert after < before
    # By as much as the slope says, for so short a step.
    assert abs((before - after) / (1e-2 * slope) - 1) < 0.2


def test_a_few_steps_learn_to_copy() -> None:
    model = Transformer(config_of(encoder_depth=1, decoder_depth=1, norm_place="before"))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    source = words(8, 5)
    target = torch.cat((torch.ones(8, 1, dtype=torch.int64), source[:, :-1]), 1)
    for _ in range(40):
        optimizer.zero_grad()
        (model.loss(source, target, source).total / 40).backward()
        optimizer.step()
    assert (model.eval()(source, target).argmax(-1) == source).double().mean() > 0.9


def test_dropout_only_while_training() -> None:
    model, source, target = Transformer(config_of(dropout=0.3)), words(2, 5), words(2, 4)
    assert not torch.equal(model(source, target), model(source, target))
    torch.manual_seed(3)
    first = model(source, target)
    torch.manual_seed(3)
    assert torch.equal(model(source, target), first)
    model.eval()
    assert torch.equal(model(source, target), model(source, target))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions(dtype: torch.dtype) -> None:
    model, source, target = Transformer(config_of()).eval(), words(2, 5), words(2, 4)
    wanted = model(source, target)
    found = model.to(dtype)(source, target)
    assert found.dtype == dtype
    # Of values around 1, half precision keeps three digits.
    assert (found - wanted).abs().max() < (1e-5 if dtype == torch.float64 else 0.1)


def test_autocast() -> None:
    model, source, target = Transformer(config_of(dropout=0.1)), words(2, 5), words(2, 4)
    torch.manual_seed(3)
    wanted = model.loss(source, target, target).total
    torch.manual_seed(3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model.loss(source, target, target).total
    found.backward()
    assert abs(found / wanted - 1) < 0.02
    assert model.output.grad is not None
    assert model.output.grad.dtype == torch.float32
