"""Torch's Transformers, converted, give the numbers that they gave before."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Sinusoidal, padding
from regard.errors import OptionError, ShapeError
from regard.nn import (
    Cache,
    Decoder,
    Encoder,
    Transformer,
    from_torch,
)
from regard.translate.model_files import load_model, save_model
from tests.nn.convert_cases import (
    HEADS,
    INNER,
    LENGTHS,
    SOURCE,
    TARGET,
    WIDTH,
    close,
    hidden_keys,
    stirred,
)

# torch says so itself about its fast path, whenever it cannot take it.
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")


def torch_model(seed: int = 0, **options: Any) -> nn.Transformer:
    settings: dict[str, Any] = {"dropout": 0.0, "batch_first": True, **options}
    torch.manual_seed(seed)
    model = nn.Transformer(WIDTH, HEADS, 3, 2, INNER, **settings)
    stirred_model: nn.Transformer = stirred(model, seed)
    return stirred_model


def their_output(model: nn.Transformer, source: Tensor, target: Tensor) -> Tensor:
    """What nn.Transformer says, causal, with the padding of the source hidden; (b, n, width)."""
    hidden = hidden_keys(LENGTHS, source.shape[1])
    first = model.batch_first
    found: Tensor = model(
        source if first else source.transpose(0, 1),
        target if first else target.transpose(0, 1),
        tgt_mask=torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1),
        src_key_padding_mask=hidden,
        memory_key_padding_mask=hidden,
        tgt_is_causal=True,
    )
    return found if first else found.transpose(0, 1)


SHAPES: list[dict[str, Any]] = [
    {"norm_first": False},
    {"norm_first": True},
    {"norm_first": False, "activation": "gelu", "batch_first": False},
    {"norm_first": True, "activation": F.silu, "layer_norm_eps": 1e-3},
    {"norm_first": False, "activation": nn.GELU(), "layer_norm_eps": 0.1},
    {"norm_first": False, "bias": False},
    {"norm_first": True, "bias": False, "activation": nn.ReLU(), "batch_first": False},
]


def named(options: dict[str, Any]) -> str:
    """The options, with functions by their names, which are the same in every process."""
    return ", ".join(f"{k}={getattr(v, '__name__', v)}" for k, v in options.items()) or "plain"


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("options", SHAPES, ids=named)
def test_torchs_encoder_and_decoder(options: dict[str, Any], training: bool) -> None:
    module = torch_model(**options).train(training)
    encoder, decoder = from_torch(module.encoder), from_torch(module.decoder)
    source, target = torch.randn(3, SOURCE, WIDTH), torch.randn(3, TARGET, WIDTH)
    memory = encoder(source, mask=padding(LENGTHS))
    close(
        decoder(target, memory, memory_mask=padding(LENGTHS)), their_output(module, source, target)
    )
    assert encoder.training == decoder.training == training


@pytest.mark.parametrize("norm_first", [False, True])
def test_both_are_equally_near_to_the_truth(norm_first: bool) -> None:
    """What is left between the two is the rounding of either, by what float64 says."""
    settings = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
    module = nn.Transformer(256, 4, 2, 2, 1024, **settings).eval()
    words = nn.Embedding(300, 256)
    with torch.no_grad():
        words.weight.mul_(256**-0.5)
        ours = from_torch(module, words)
        source, target = torch.randint(300, (3, SOURCE)), torch.randint(300, (3, TARGET))

        def said(model: nn.Transformer, table: nn.Embedding) -> Tensor:
            places = Sinusoidal(256).table(SOURCE).to(table.weight)
            read = [table(x) * 16 + places[: x.shape[1]] for x in (source, target)]
            hidden = torch.ones(TARGET, TARGET, dtype=torch.bool).triu(1)
            found: Tensor = model(*read, tgt_mask=hidden, tgt_is_causal=True)
            return found @ table.weight.T

        theirs, found = said(module, words), ours(source, target)
        close(found, theirs)
        truth = said(module.double(), words.double())
    wrong = [float((x - truth).square().mean().sqrt()) for x in (found, theirs)]
    assert wrong[0] <= 1.5 * wrong[1]


@pytest.mark.parametrize("options", SHAPES, ids=named)
def test_gradients_are_torchs(options: dict[str, Any]) -> None:
    module = torch_model(**options)
    encoder, decoder = from_torch(module.encoder), from_torch(module.decoder)
    theirs = [torch.randn(3, n, WIDTH, requires_grad=True) for n in (SOURCE, TARGET)]
    ours = [x.detach().clone().requires_grad_() for x in theirs]
    wanted = their_output(module, *theirs)
    memory = encoder(ours[0], mask=padding(LENGTHS))
    found = decoder(ours[1], memory, memory_mask=padding(LENGTHS))
    pull = torch.randn_like(wanted)
    wanted.backward(pull)
    found.backward(pull)
    for own, one in zip(ours, theirs, strict=True):
        assert own.grad is not None
        assert one.grad is not None
        close(own.grad, one.grad, 1e-4)
    for block, layer in zip(decoder.blocks, module.decoder.layers, strict=True):
        rows = layer.multihead_attn.in_proj_weight.grad.chunk(3)
        for own, row in zip((block.cross.w_q, block.cross.w_k, block.cross.w_v), rows, strict=True):
            torch.testing.assert_close(own.grad, row.T, rtol=0, atol=1e-4)
        close(block.attention.w_o.grad, layer.self_attn.out_proj.weight.grad.T, 1e-4)
        close(block.feed_forward.w_in.grad, layer.linear1.weight.grad.T, 1e-4)
        close(block.cross_norm.weight.grad, layer.norm2.weight.grad, 1e-4)
    for block, layer in zip(encoder.blocks, module.encoder.layers, strict=True):
        close(block.feed_forward.w_out.grad, layer.linear2.weight.grad.T, 1e-4)
        close(block.attention_norm.weight.grad, layer.norm1.weight.grad, 1e-4)


def words_to_logits(
    module: nn.Transformer,
    source: nn.Embedding,
    target: nn.Embedding,
    output: nn.Linear,
    words: tuple[Tensor, Tensor],
) -> Tensor:
    """A model around nn.Transformer, as PyTorch's own tutorial builds it."""
    position = Sinusoidal(WIDTH)
    vectors = [
        position(table(numbers) * WIDTH**0.5)
        for table, numbers in zip((source, target), words, strict=True)
    ]
    logits: Tensor = output(their_output(module, *vectors))
    return logits


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("sizes", [(31, 31), (31, 19), (19, 31)])
def test_torchs_transformer_with_its_embeddings(norm_first: bool, sizes: tuple[int, int]) -> None:
    module = torch_model(norm_first=norm_first).eval()
    source, target = (nn.Embedding(size, WIDTH) for size in sizes)
    output = nn.Linear(WIDTH, sizes[1])
    model = from_torch(module, source, target, output)
    words = torch.randint(sizes[0], (3, SOURCE)), torch.randint(sizes[1], (3, TARGET))
    wanted = words_to_logits(module, source, target, output, words)
    found = model(*words, source_mask=padding(LENGTHS))
    close(found[..., : sizes[1]], wanted)
    assert found.shape[-1] == max(sizes)
    assert found.softmax(-1)[..., sizes[1] :].sum() == 0
    assert not model.config.tied
    assert (model.config.norm_place, model.config.final_norm) == (
        "before" if norm_first else "after",
        True,
    )


def test_one_embedding_for_all_is_one_parameter() -> None:
    module, table = torch_model().eval(), nn.Embedding(31, WIDTH)
    output = nn.Linear(WIDTH, 31, bias=False)
    output.weight = table.weight
    words = torch.randint(31, (3, SOURCE)), torch.randint(31, (3, TARGET))
    wanted = words_to_logits(module, table, table, output, words)
    for model in (from_torch(module, table), from_torch(module, table, table, output)):
        close(model(*words, source_mask=padding(LENGTHS)), wanted)
        assert model.config.tied
        assert model.output is model.source.table is model.target.table
        assert model.output_bias is None
    apart = from_torch(module, nn.Embedding(31, WIDTH), table)
    assert not apart.config.tied
    assert torch.equal(apart.output, table.weight)


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_a_stack_with_or_without_a_final_norm(norm_first: bool, final: bool) -> None:
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, INNER, 0.0, batch_first=True, norm_first=norm_first
    )
    norm = nn.LayerNorm(WIDTH, elementwise_affine=False) if final else None
    module = stirred(nn.TransformerEncoder(layer, 2, norm))
    x = torch.randn(3, SOURCE, WIDTH)
    close(from_torch(module)(x), module(x))
    assert isinstance(from_torch(module).norm, nn.LayerNorm if final else nn.Identity)


def test_dtype_dropout_and_parameters_are_kept_and_apart() -> None:
    module = torch_model(dropout=0.25, dtype=torch.float64)
    encoder = from_torch(module.encoder)
    assert {one.dtype for one in encoder.parameters()} == {torch.float64}
    assert encoder.blocks[0].dropout.share == 0.25
    assert all(one.requires_grad for one in encoder.parameters())
    before = encoder.blocks[0].feed_forward.w_in.clone()
    with torch.no_grad():
        for one in module.parameters():
            one.zero_()
    assert torch.equal(encoder.blocks[0].feed_forward.w_in, before)
    x = torch.randn(3, SOURCE, WIDTH, dtype=torch.float64)
    again = from_torch(torch_model(dtype=torch.float64).eval().encoder)
    close(again(x), torch_model(dtype=torch.float64).eval().encoder(x), 1e-12)


def test_reading_goes_on_where_the_converted_decoder_stopped() -> None:
    module = torch_model().eval()
    source, target = torch.randn(3, SOURCE, WIDTH), torch.randn(3, TARGET, WIDTH)
    memory, decoder = from_torch(module.encoder)(source), from_torch(module.decoder)
    cache = Cache(2)
    steps = [decoder(x, memory, cache=cache) for x in target.split(1, 1)]
    mask = torch.ones(TARGET, TARGET, dtype=torch.bool).triu(1)
    close(torch.cat(steps, 1), module(source, target, tgt_mask=mask))


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_converted_transformer_is_saved_and_loaded(norm_first: bool, tmp_path: Path) -> None:
    module = torch_model(norm_first=norm_first, layer_norm_eps=0.05, activation="gelu").eval()
    model = from_torch(module, stirred(nn.Embedding(31, WIDTH)))
    save_model(tmp_path, model)
    again = load_model(tmp_path)
    words = torch.randint(31, (3, SOURCE)), torch.randint(31, (3, TARGET))
    assert torch.equal(again(*words), model(*words))
    assert again.config.norm_eps == 0.05


def encoder_of(*changes: Any) -> nn.TransformerEncoder:
    """An encoder of two layers, the second of them changed."""
    made = [nn.TransformerEncoderLayer(12, 3, 20) for _ in range(2)]
    for name, value in changes:
        setattr(made[1], name, value)
    module = nn.TransformerEncoder(made[0], 1)
    module.layers = nn.ModuleList(made)
    return module


@pytest.mark.parametrize(
    ("module", "arguments", "error", "text"),
    [
        (lambda: nn.Linear(2, 2), (), OptionError, "got Linear, expected nn.Transformer, nn.Tran"),
        (
            lambda: nn.Transformer(12, 3, 1, 1, 20),
            (),
            OptionError,
            "source is missing: nn.Transformer",
        ),
        (
            lambda: encoder_of(),
            (nn.Embedding(5, 12),),
            OptionError,
            "embeddings are given, but Transfor",
        ),
        (
            lambda: nn.Transformer(12, 3, 1, 1, 20),
            (nn.Embedding(5, 14),),
            ShapeError,
            "source has shape (5,14), expected (vocabulary,12)",
        ),
        (
            lambda: nn.Transformer(12, 3, 1, 1, 20, custom_encoder=nn.Identity()),
            (nn.Embedding(5, 12),),
            OptionError,
            "the module has the custom stacks Identity and TransformerDecoder",
        ),
        (
            lambda: nn.Transformer(12, 3, 0, 0, 20).encoder,
            (),
            OptionError,
            "the module has no layers",
        ),
        (
            lambda: encoder_of(("activation", torch.tanh)),
            (),
            OptionError,
            "activation is <built-in",
        ),
        (
            lambda: encoder_of(("activation", nn.GELU("tanh"))),
            (),
            OptionError,
            "activation is GELU(appro",
        ),
        (
            lambda: encoder_of(("activation", F.gelu)),
            (),
            OptionError,
            "activation is not the same in all",
        ),
        (
            lambda: encoder_of(("norm1", nn.RMSNorm(12))),
            (),
            OptionError,
            "a norm is RMSNorm, expected",
        ),
        (
            lambda: encoder_of(("norm2", nn.LayerNorm(12, eps=1e-6))),
            (),
            OptionError,
            "layer_norm_eps is not the same in all layers (1e-05, 1e-05, 1e-05, 1e-06)",
        ),
        (
            lambda: encoder_of(("norm_first", True)),
            (),
            OptionError,
            "norm_first is not the same in all",
        ),
    ],
)
def test_what_cannot_be_converted(module: Any, arguments: Any, error: type, text: str) -> None:
    with pytest.raises(error, match="from_torch: .*" + re.escape(text)):
        from_torch(module(), *arguments)


def test_what_comes_out_are_our_own_classes() -> None:
    module = torch_model()
    assert type(from_torch(module.encoder)) is Encoder
    assert type(from_torch(module.decoder)) is Decoder
    assert type(from_torch(module, nn.Embedding(9, WIDTH))) is Transformer
