"""The configuration of a Transformer, validated on construction."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

from regard.errors import OptionError, check_share

ACTIVATIONS = ("relu", "gelu", "silu", "swiglu")
NORMS = ("layernorm", "rmsnorm")
NORM_PLACES = ("before", "after")
POSITIONS = ("sinusoidal", "learned", "rotary", "alibi")


@dataclass(frozen=True)
class TransformerConfig:
    """The sizes and kinds of layers of a Transformer.

    >>> TransformerConfig.preset("tiny", vocabulary=6000).width
    128
    """

    vocabulary: Annotated[int, "Number of subwords, source and target together."] = 8000
    width: Annotated[int, "Width of the vectors throughout the model."] = 512
    encoder_depth: Annotated[int, "Blocks in the encoder."] = 6
    decoder_depth: Annotated[int, "Blocks in the decoder."] = 6
    heads: Annotated[int, "Attention heads, each width / heads wide."] = 8
    kv_heads: Annotated[
        int | None, "Heads of keys and values, a divisor of heads; as many as heads if not given."
    ] = None
    feed_forward: Annotated[int, "Inner width of the feed-forward networks."] = 2048
    activation: Annotated[
        str, "Activation of the feed-forward networks: relu, gelu, silu or swiglu."
    ] = "relu"
    norm: Annotated[str, "Kind of norm: layernorm or rmsnorm."] = "layernorm"
    norm_place: Annotated[
        str, "Norm before each sublayer, or after the residual sum, as in the paper."
    ] = "after"
    final_norm: Annotated[
        bool | None,
        "Whether encoder and decoder end with a norm; if not given, only with norms before.",
    ] = None
    norm_eps: Annotated[
        float | None, "Added to the variance; if not given, 1e-5, and 1e-6 for rmsnorm."
    ] = None
    position: Annotated[
        str,
        "How positions are encoded: sinusoidal, learned, rotary or alibi.",
    ] = "sinusoidal"
    max_length: Annotated[int, "Maximum length of a sequence with learned positions."] = 1024
    tied: Annotated[bool, "Whether source, target and output embeddings are one matrix."] = True
    output_bias: Annotated[bool, "Whether the logits have a bias."] = False
    dropout: Annotated[
        float, "Dropout of each sublayer's output and of the embeddings, in training."
    ] = 0.1

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "heads", "feed_forward", "max_length"):
            _whole(name, getattr(self, name), 1)
        for name in ("encoder_depth", "decoder_depth"):
            _whole(name, getattr(self, name), 0)
        for name, known in (
            ("activation", ACTIVATIONS),
            ("norm", NORMS),
            ("norm_place", NORM_PLACES),
            ("position", POSITIONS),
        ):
            if getattr(self, name) not in known:
                raise OptionError(
                    f"TransformerConfig: {name}={getattr(self, name)!r}, expected one of "
                    f"{', '.join(known)}"
                )
        if self.kv_heads is not None:
            _whole("kv_heads", self.kv_heads, 1)
        check_heads("TransformerConfig", self.width, self.heads, self.kv_heads or self.heads)
        if self.position == "rotary" and (self.width // self.heads) % 2:
            raise OptionError(
                f"TransformerConfig: position='rotary' rotates pairs of numbers, but a head is "
                f"{self.width // self.heads} wide; choose an even width per head"
            )
        if self.norm_eps is not None and not 0.0 < _number("norm_eps", self.norm_eps) < math.inf:
            raise OptionError(
                f"TransformerConfig: norm_eps={self.norm_eps}, expected a positive number"
            )
        _number("dropout", self.dropout)
        check_share("TransformerConfig: dropout", self.dropout)

    @property
    def ends_with_norm(self) -> bool:
        """Whether encoder and decoder end with a norm: `final_norm`, or by default `norm_place`.

        With norms before the sublayers, nothing else bounds the sum of their outputs.
        """
        return self.norm_place == "before" if self.final_norm is None else self.final_norm

    @classmethod
    def preset(cls, name: str, **changes: Any) -> TransformerConfig:
        """A named configuration, with changes: ``tiny``, ``pocket``, ``small``, ``base``, ``big``.

        ``base`` and ``big`` are those of the paper (Vaswani et al., 2017, table 3).
        """
        if name not in PRESETS:
            raise OptionError(
                f"TransformerConfig: preset {name!r} is unknown, expected one of "
                f"{', '.join(PRESETS)}"
            )
        known = [one.name for one in fields(cls)]
        for change in changes:
            if change not in known:
                near = difflib.get_close_matches(change, known, 1)
                raise OptionError(
                    f"TransformerConfig: {change} is unknown; "
                    + (f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}")
                )
        return replace(PRESETS[name], **changes)


def check_heads(caller: str, width: int, heads: int, kv_heads: int) -> None:
    """Raise unless the width splits into the heads, and these into groups for the kv_heads."""
    if min(width, heads) < 1 or width % heads:
        raise OptionError(
            f"{caller}: width={width} does not split into heads={heads}; "
            "choose heads that divide the width"
        )
    if kv_heads < 1 or heads % kv_heads:
        raise OptionError(
            f"{caller}: heads={heads} is not a multiple of kv_heads={kv_heads}; "
            "choose kv_heads that divide the heads"
        )


def _whole(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise OptionError(
            f"TransformerConfig: {name}={value!r}, expected a whole number of at least {least}"
        )


def _number(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise OptionError(f"TransformerConfig: {name}={value!r}, expected a number")
    return float(value)


def _pre_norm(depths: tuple[int, int], **sizes: Any) -> TransformerConfig:
    encoder, decoder = depths
    return TransformerConfig(
        encoder_depth=encoder, decoder_depth=decoder, norm_place="before", **sizes
    )


PRESETS = {
    "tiny": _pre_norm((4, 4), width=128, heads=4, feed_forward=256, dropout=0.3),
    "pocket": _pre_norm((5, 3), width=192, heads=6, feed_forward=768),
    "small": _pre_norm((4, 4), width=256, heads=4, feed_forward=1024, dropout=0.2),
    "base": TransformerConfig(),
    "big": TransformerConfig(width=1024, heads=16, feed_forward=4096, dropout=0.3),
}
"""The named configurations. Small ones have norms before the sublayers: with norms after, training
at a high learning rate often collapses, with equal vectors for all words. `pocket`, the bundled
model, has a deeper encoder, which decides quality, and a shallower decoder, which decides speed."""
