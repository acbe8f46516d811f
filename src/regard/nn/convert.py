"""Conversion of models of other libraries.

A converted model computes the same function up to rounding: both differ from float64 by some 10⁻⁶
of the largest logit, so that logits of ordinary size agree to 10⁻⁵. Only dropout may differ: here
it is applied to the embeddings and the outputs of sublayers, elsewhere possibly to attention
weights and inside the feed-forward network too. A missing bias becomes 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple, overload

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Sinusoidal
from regard.errors import OptionError, ShapeError, shape
from regard.nn.blocks import Block
from regard.nn.config import TransformerConfig
from regard.nn.multihead import MultiHeadAttention
from regard.nn.transformer import Decoder, Encoder, Transformer

ABSENT = -10_000.0
"""The logit bias of words that the target vocabulary lacks: probability 0, and fits float16."""
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu"}
WIDTH_AXIS = {
    "table": 1, "output": 1, "w_q": 0, "w_k": 0, "w_v": 0, "w_o": 1, "b_o": 0,
    "w_in": 0, "w_out": 1, "b_out": 0, "weight": 0, "bias": 0,
}  # fmt: skip
"""The axis of a parameter that is the model's width, by the last part of its name."""


@overload
def from_torch(module: nn.TransformerEncoder) -> Encoder: ...
@overload
def from_torch(module: nn.TransformerDecoder) -> Decoder: ...
@overload
def from_torch(
    module: nn.Transformer,
    source: nn.Embedding,
    target: nn.Embedding | None = None,
    output: nn.Linear | None = None,
) -> Transformer: ...
@torch.no_grad()
def from_torch(
    module: Any, source: Any = None, target: Any = None, output: Any = None
) -> Encoder | Decoder | Transformer:
    """A module of `torch.nn` converted, with the same weights.

    A `TransformerEncoder` becomes an `Encoder`, a `TransformerDecoder` a `Decoder`. An
    `nn.Transformer` works on vectors, a `Transformer` on words, so its embeddings are needed too.
    Whatever its ``batch_first``, the result takes ``(b, n, width)``; its decoder is causal by
    default; True in a mask means may attend, the opposite of torch's masks.

    Args:
        module: with norms before or after, relu, gelu or silu.
        source: the embedding of the source's words. The input is √width times its rows, plus
            `Sinusoidal` positions; for a model that does not scale, divide them by √width.
        target: that of the target's words; by default the source's.
        output: the layer from vectors to logits; by default the target's embedding.

    >>> encoder = nn.TransformerEncoder(
    ...     nn.TransformerEncoderLayer(6, 2, 24, batch_first=True), 2, enable_nested_tensor=False
    ... ).eval()
    >>> x = torch.randn(3, 5, 6)
    >>> torch.allclose(from_torch(encoder)(x), encoder(x), atol=1e-5)
    True
    """
    if isinstance(module, nn.Transformer):
        if source is None:
            raise OptionError(
                "from_torch: source is missing: nn.Transformer works on vectors, Transformer on "
                "words; give its embeddings, or convert module.encoder and module.decoder"
            )
        return _transformer(module, source, target, output)
    if source is not None or target is not None or output is not None:
        raise OptionError(
            f"from_torch: embeddings are given, but {type(module).__name__} is not an "
            "nn.Transformer; leave them out"
        )
    if not isinstance(module, nn.TransformerEncoder | nn.TransformerDecoder):
        raise OptionError(
            f"from_torch: got {type(module).__name__}, expected nn.Transformer, "
            "nn.TransformerEncoder or nn.TransformerDecoder"
        )
    kind = Encoder if isinstance(module, nn.TransformerEncoder) else Decoder
    stack = kind(_config(module)).to(_first(module))
    _copy_stack(stack, module)
    return stack.train(module.training)


@torch.no_grad()
def from_marian(model: Any) -> Transformer:
    """A `MarianMTModel` of the transformers library converted, with the same weights.

    Word ids are Marian's. A target begins with ``model.config.decoder_start_token_id``, the padding
    token. If the vocabularies of source and target differ in size, there are as many logits as in
    the larger one, and words that the target lacks have probability 0.

    Marian's positions have all sines in the first half of a vector and all cosines in the second;
    `Sinusoidal` alternates them. The coordinates of all matrices are permuted accordingly, so no
    table of positions is needed, and there is no maximal length.

    Junczys-Dowmunt et al., "Marian: Fast Neural Machine Translation in C++", 2018.
    """
    if "MarianMTModel" not in (kind.__name__ for kind in type(model).__mro__):
        raise OptionError(
            f"from_marian: got {type(model).__name__}, expected transformers.MarianMTModel"
        )
    config, encoder, decoder = model.config, model.model.encoder, model.model.decoder
    for name in ("attention_heads", "ffn_dim"):
        one, other = (getattr(config, f"{side}_{name}") for side in ("encoder", "decoder"))
        if one != other:
            raise OptionError(
                f"from_marian: encoder_{name}={one} but decoder_{name}={other}; a Transformer has "
                "one for both"
            )
    for stack in (encoder, decoder):
        _check_positions(stack.embed_positions.weight)
    source, target = encoder.embed_tokens.weight, decoder.embed_tokens.weight
    output = model.lm_head.weight
    if not config.scale_embedding:
        # Embeddings are scaled, output weights are not: they can no longer be tied.
        source, target = (table / config.d_model**0.5 for table in (source, target))
    words = _Words(source, target, output, model.final_logits_bias[0])
    converted = TransformerConfig(
        **words.fields(),
        width=config.d_model,
        encoder_depth=config.encoder_layers,
        decoder_depth=config.decoder_layers,
        heads=config.encoder_attention_heads,
        feed_forward=config.encoder_ffn_dim,
        activation=_named("from_marian", config.activation_function),
        max_length=config.max_position_embeddings,
        dropout=float(config.dropout),
    )
    own = Transformer(converted).to(output)
    words.copy_to(own)
    for blocks, stack in ((own.encoder.blocks, encoder), (own.decoder.blocks, decoder)):
        for block, layer in zip(blocks, stack.layers, strict=True):
            _copy_marian(block, layer)
    _reorder(own)
    return own.train(model.training)


def _transformer(
    module: nn.Transformer,
    source: nn.Embedding,
    target: nn.Embedding | None,
    output: nn.Linear | None,
) -> Transformer:
    stacks = (module.encoder, module.decoder)
    if not (
        isinstance(stacks[0], nn.TransformerEncoder)
        and isinstance(stacks[1], nn.TransformerDecoder)
    ):
        raise OptionError(
            f"from_torch: the module has the custom stacks {type(stacks[0]).__name__} and "
            f"{type(stacks[1]).__name__}, expected torch's encoder and decoder"
        )
    reads = source.weight if target is None else target.weight
    writes, bias = (reads, None) if output is None else (output.weight, output.bias)
    words = _Words(source.weight, reads, writes, bias)
    model = Transformer(_config(*stacks, **words.fields())).to(_first(module))
    words.copy_to(model)
    _copy_stack(model.encoder, stacks[0])
    _copy_stack(model.decoder, stacks[1])
    return model.train(module.training)


class _Words(NamedTuple):
    """The embeddings of a model, its output weights, and the bias of its logits."""

    source: Tensor
    target: Tensor
    output: Tensor
    bias: Tensor | None

    def fields(self) -> dict[str, Any]:
        """The fields of a configuration; the vocabulary is the largest of the three."""
        vocabulary = max(len(self.source), len(self.target), len(self.output))
        return {
            "vocabulary": vocabulary,
            "tied": self.source is self.target is self.output,
            "output_bias": self.bias is not None or len(self.output) < vocabulary,
        }

    def copy_to(self, model: Transformer) -> None:
        own_tables = (model.source.table, model.target.table, model.output)
        for name, own, table in zip(self._fields, own_tables, self[:3], strict=False):
            if table.shape[1] != own.shape[1]:
                raise ShapeError(
                    f"from_torch: {name} has shape {shape(table)}, expected "
                    f"(vocabulary,{own.shape[1]})"
                )
            own.zero_()[: len(table)] = table
        if model.output_bias is not None:
            real = len(self.output)
            model.output_bias[:real] = 0.0 if self.bias is None else self.bias
            model.output_bias[real:] = ABSENT


def _first(module: nn.Module) -> Tensor:
    """A parameter, for its dtype and device."""
    return next(module.parameters())


def _named(caller: str, activation: object) -> str:
    """The name of an activation, given as a function, a layer, or a name of transformers."""
    known = {F.relu: "relu", F.gelu: "gelu", F.silu: "silu"}
    if isinstance(activation, nn.GELU) and activation.approximate != "none":
        found = None
    elif isinstance(activation, nn.Module):
        found = ACTIVATIONS.get(type(activation).__name__.lower())
    elif isinstance(activation, str):
        found = ACTIVATIONS.get(activation)
    else:
        found = next((name for function, name in known.items() if function is activation), None)
    if found is None:
        raise OptionError(
            f"{caller}: activation is {activation!r}, expected relu, gelu (by erf) or silu"
        )
    return found


def _config(*stacks: Any, **words: Any) -> TransformerConfig:
    """The configuration of one stack of torch, or of an encoder and a decoder."""
    layers = [layer for stack in stacks for layer in stack.layers]
    if not layers:
        raise OptionError("from_torch: the module has no layers, so its shape is unknown")
    norms = [one for one in (stack.norm for stack in stacks) if one is not None]
    for layer in layers:
        norms += [one for name, one in layer.named_children() if name.startswith("norm")]
    for one in norms:
        if not isinstance(one, nn.LayerNorm):
            raise OptionError(f"from_torch: a norm is {type(one).__name__}, expected nn.LayerNorm")
    encodes = [isinstance(stack, nn.TransformerEncoder) for stack in stacks for _ in stack.layers]
    return TransformerConfig(
        **words,
        encoder_depth=encodes.count(True),
        decoder_depth=encodes.count(False),
        width=_same("width", [layer.self_attn.embed_dim for layer in layers]),
        heads=_same("heads", [layer.self_attn.num_heads for layer in layers]),
        feed_forward=_same("feed_forward", [layer.linear1.out_features for layer in layers]),
        activation=_same("activation", [_named("from_torch", one.activation) for one in layers]),
        norm_place="before" if _same("norm_first", [one.norm_first for one in layers]) else "after",
        final_norm=_same("final norm", [stack.norm is not None for stack in stacks]),
        norm_eps=_same("layer_norm_eps", [one.eps for one in norms]),
        dropout=_same("dropout", [float(layer.dropout.p) for layer in layers]),
    )


def _same(what: str, found: list[Any]) -> Any:
    if len(set(found)) > 1:
        raise OptionError(
            f"from_torch: {what} is not the same in all layers ({', '.join(map(str, found))}); "
            "regard's layers all have one shape"
        )
    return found[0]


def _copy_stack(own: Encoder | Decoder, stack: Any) -> None:
    for block, layer in zip(own.blocks, stack.layers, strict=True):
        assert isinstance(block, Block)
        _copy_attention(block.attention, layer.self_attn)
        norms = [layer.norm1, layer.norm2]
        if block.cross is not None:
            _copy_attention(block.cross, layer.multihead_attn)
            norms.append(layer.norm3)
        _copy_norms_and_feed_forward(block, norms, layer.linear1, layer.linear2)
    if stack.norm is not None:
        _copy_norm(own.norm, stack.norm)


def _copy_attention(own: MultiHeadAttention, module: nn.MultiheadAttention) -> None:
    # Not strict: missing biases stay 0.
    own.load_state_dict(MultiHeadAttention.from_torch(module).state_dict(), strict=False)


def _copy_marian(block: Any, layer: Any) -> None:
    attentions = [(block.attention, layer.self_attn)]
    norms = [layer.self_attn_layer_norm, layer.final_layer_norm]
    if block.cross is not None:
        attentions.append((block.cross, layer.encoder_attn))
        norms.insert(1, layer.encoder_attn_layer_norm)
    for own, module in attentions:
        for letter, name in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("o", "out_proj")):
            linear = getattr(module, name)
            _copy_linear(getattr(own, f"w_{letter}"), getattr(own, f"b_{letter}"), linear)
    _copy_norms_and_feed_forward(block, norms, layer.fc1, layer.fc2)


def _copy_norm(own: nn.Module, norm: nn.Module) -> None:
    # Not strict: missing weights stay 1, missing biases 0.
    own.load_state_dict(norm.state_dict(), strict=False)


def _copy_norms_and_feed_forward(
    block: Block, norms: list[nn.Module], first: nn.Linear, second: nn.Linear
) -> None:
    """Copies the norms, in the order of application, and the feed-forward network."""
    own_norms = (block.attention_norm, block.cross_norm, block.feed_forward_norm)
    for own_norm, norm in zip((one for one in own_norms if one is not None), norms, strict=True):
        _copy_norm(own_norm, norm)
    own = block.feed_forward
    _copy_linear(own.w_in, own.b_in, first)
    _copy_linear(own.w_out, own.b_out, second)


def _copy_linear(weight: Tensor, bias: Tensor | None, linear: nn.Linear) -> None:
    weight.copy_(linear.weight.T)
    if bias is not None and linear.bias is not None:
        bias.copy_(linear.bias)


def _order(width: int) -> Tensor:
    """Marian's coordinates in the order of `Sinusoidal`: sine, cosine, sine, cosine, …"""
    order = torch.empty(width, dtype=torch.int64)
    order[0::2] = torch.arange((width + 1) // 2)
    order[1::2] = torch.arange((width + 1) // 2, width)
    return order


def _reorder(model: Transformer) -> None:
    """Permute the coordinates of the model's width into the order of `Sinusoidal`."""
    for name, parameter in model.named_parameters():
        axis = WIDTH_AXIS.get(name.rpartition(".")[2])
        if axis is not None:
            order = _order(parameter.shape[axis]).to(parameter.device)
            parameter.copy_(parameter.index_select(axis, order))


def _check_positions(table: Tensor) -> None:
    length, width = table.shape
    ours = Sinusoidal(width).table(length)
    if not torch.allclose(table[:, _order(width)].float().cpu(), ours, atol=1e-3):
        raise OptionError(
            "from_marian: the model's positions are not Marian's sines and cosines, so it has been "
            "changed; only these can be converted"
        )
