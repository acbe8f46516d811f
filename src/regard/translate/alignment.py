"""Word alignment from the decoder's cross-attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.attention import look, padding
from regard.errors import OptionError
from regard.nn import MultiHeadAttention, Transformer
from regard.nn.blocks import Block
from regard.text import Tokenizer, padded
from regard.text.words import Span, shares, spelled, word_spans

ALIGNING = 2
"""The number of decoder blocks, the last ones, whose attention aligns words best on average."""


@dataclass(frozen=True, eq=False)
class Alignment:
    """Soft alignment of target words to source words.

    >>> weights = np.array([[0.9, 0.1], [0.2, 0.8]], np.float32)
    >>> alignment = Alignment(("a", "cat"), ("eine", "Katze"), weights)
    >>> print(alignment)
    eine   ← a 0.90, cat 0.10
    Katze  ← cat 0.80, a 0.20
    >>> alignment.pairs
    [(0, 0), (1, 1)]
    """

    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    weights: NDArray[np.float32]
    """``(target words, source words)``; each row sums to 1, or is 0 without any attention."""

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """(target, source) numbers: each target word with its strongest source word."""
        rows = enumerate(self.weights)
        return [(i, int(row.argmax())) for i, row in rows if len(row) and row.max() > 0]

    def of(self, target: int, least: float | int = 0.05) -> list[tuple[str, float]]:
        """The source words of a target word, given by its number, with weights, strongest first."""
        if not isinstance(target, Integral) or not 0 <= target < len(self.target_words):
            raise OptionError(
                f"Alignment.of: word {target!r} asked for, but there are {len(self.target_words)}, "
                "numbered from 0"
            )
        row = self.weights[target]
        order = np.argsort(-row, kind="stable")
        return [(self.source_words[i], float(row[i])) for i in order if row[i] >= least]

    def to_data(self) -> dict[str, Any]:
        """Everything as plain lists and numbers, for JSON."""
        return {
            "source": list(self.source_words),
            "target": list(self.target_words),
            "pairs": [list(pair) for pair in self.pairs],
            "weights": [[round(float(w), 4) for w in row] for row in self.weights],
        }

    def __str__(self) -> str:
        breadth = max(map(len, self.target_words), default=0)
        lines = []
        for i, word in enumerate(self.target_words):
            said = ", ".join(f"{source} {weight:.2f}" for source, weight in self.of(i))
            lines.append(f"{word:{breadth}}  ← {said}".rstrip())
        return "\n".join(lines)


@torch.inference_mode()
def attention_to_source(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    layer: int | None = None,
) -> list[Float[Tensor, "t s"]]:
    """For each pair, how much each target subword attends to each source subword.

    The decoder is teacher-forced with the translation; the weights are the cross-attention of one
    block, or of the last `ALIGNING`, averaged over heads, at the step which writes the subword. The
    end token of the source is left out, and rows are normalised to 1.

    In some models attention rests on what a word came from one step later, when it is read (Chen et
    al., "Accurate Word Alignment Induction from Neural Machine Translation", 2020). In the last two
    blocks of pocket-en-de it does not: there the step after a pronoun never attends to *it* most,
    in any of 120 sentences.
    """
    depth = len(model.decoder.blocks)
    if layer is not None and (not isinstance(layer, Integral) or not 0 <= layer < depth):
        raise OptionError(
            f"alignment: layer={layer!r}, but the decoder has {depth} blocks, numbered from 0"
        )
    blocks = list(model.decoder.blocks)
    blocks = blocks[-ALIGNING:] if layer is None else [blocks[int(layer)]]
    device = model.output.device
    source, lengths = padded([[*ids, Tokenizer.end] for ids in sources])
    target, _ = padded([[Tokenizer.start, *ids] for ids in targets])
    mask = padding(lengths)
    memory = model.encode(source.to(device), source_mask=mask)
    read: list[Tensor] = []
    hooks = [
        _cross(block).register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
        for block in blocks
    ]
    try:
        model.decode(target.to(device), memory, source_mask=mask)
    finally:
        for hook in hooks:
            hook.remove()
    weights = torch.zeros(())
    for block, x in zip(blocks, read, strict=True):
        q, k, v, bias = _cross(block).project(x, memory)
        weights = weights + look(q, k, v, mask=mask, bias=bias).weights().mean(1) / len(blocks)
    found = []
    for row, s, t in zip(weights, map(len, sources), map(len, targets), strict=True):
        part = row[:t, :s]
        found.append(part / part.sum(1, keepdim=True).clamp(min=1e-9))
    return found


def _cross(block: nn.Module) -> MultiHeadAttention:
    """The attention of a decoder block to the source."""
    assert isinstance(block, Block)
    assert block.cross is not None
    return block.cross


def aligned(
    source: str,
    target: str,
    blocks: Sequence[tuple[Sequence[Span], Sequence[Span], Tensor]],
) -> Alignment:
    """The attention between subwords, merged to words.

    Each block is the source spans, the target spans and the weights ``(t, s)`` of one part of the
    text. Weights are summed over the subwords of a source word and averaged over those of a target
    word; a subword of two words is divided by its characters.
    """
    source_words, target_words = word_spans(source), word_spans(target)
    total = np.zeros((len(target_words), len(source_words)))
    for source_spans, target_spans, weights in blocks:
        columns = shares(source_spans, source_words)
        rows = shares(target_spans, target_words)
        total += rows.T @ weights.double().cpu().numpy() @ columns
    sums = total.sum(1, keepdims=True)
    total = np.divide(total, sums, out=np.zeros_like(total), where=sums > 0)
    return Alignment(
        tuple(source[a:b] for a, b in source_words),
        tuple(target[a:b] for a, b in target_words),
        total.astype(np.float32),
    )


def written_spans(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> list[Span]:
    """The span in the text of each of its token ids.

    A model may write a word in other pieces than the tokenizer would; then it is decoded stepwise.
    """
    if tokenizer.encode(text) == list(ids):
        return tokenizer.spans(text)
    return spelled(tokenizer.decode, ids, text)
