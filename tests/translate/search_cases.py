"""A small model with strong opinions, sentences for it, and what they are worth to it."""

from __future__ import annotations

import torch

from regard.nn import Transformer, TransformerConfig
from regard.text import Tokenizer, padded
from regard.translate.search import Hypothesis

START, END = Tokenizer.start, Tokenizer.end
CONFIG = TransformerConfig(
    vocabulary=19, width=12, encoder_depth=1, decoder_depth=2, heads=3, feed_forward=20,
    output_bias=True, max_length=64,
)  # fmt: skip
MOST = 9
"""Subwords at most, where a plain loop is to finish soon."""


def sharp(config: TransformerConfig = CONFIG, *, seed: int = 0, end: float = 1.0) -> Transformer:
    """A model in float64 with strong opinions, which says the end now and then."""
    torch.manual_seed(seed)
    model = Transformer(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(1.7)
        assert model.output_bias is not None
        model.output_bias[END] = end
    return model


def sources(
    count: int, *, vocabulary: int = 19, seed: int = 0, longest: int = 7
) -> list[list[int]]:
    chance = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=chance).tolist()
    return [torch.randint(4, vocabulary, (n,), generator=chance).tolist() for n in lengths]


@torch.no_grad()
def probabilities(model: Transformer, source: list[int], found: list[Hypothesis]) -> list[float]:
    """log p of each translation, by one pass over all of it."""
    said = [(*one.tokens, END) if one.ended else one.tokens for one in found]
    target, lengths = padded([[START, *words[:-1]] for words in said])
    logits = model(torch.tensor([[*source, END]] * len(said)), target)
    each = torch.log_softmax(logits, -1).gather(2, padded(said)[0][..., None])[..., 0]
    return [row[:n].sum().item() for row, n in zip(each, lengths.tolist(), strict=True)]
