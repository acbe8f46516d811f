"""A whole sentence into one of several classes."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import padding
from regard.errors import OptionError, ShapeError, shape
from regard.nn.config import TransformerConfig
from regard.nn.dropout import Dropout
from regard.nn.transformer import Embedding, Encoder


class Classifier(nn.Module):
    """An encoder that puts a whole sentence into one of several classes.

    The contextual vectors of the words are averaged, and a linear layer compares the average with
    each class.

    >>> model = Classifier(TransformerConfig.preset("tiny", vocabulary=50), classes=2)
    >>> model(torch.tensor([[5, 6, 7]])).shape
    torch.Size([1, 2])
    """

    def __init__(self, config: TransformerConfig, classes: int) -> None:
        super().__init__()
        if classes < 1:
            raise OptionError(f"Classifier: classes={classes}, expected 1 or more")
        self.config = config
        self.source = Embedding(config)
        self.encoder = Encoder(config)
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(config.width, classes)

    def forward(self, source: Tensor, lengths: Tensor | None = None) -> Float[Tensor, "b classes"]:
        """The logits of the classes for source ``(b, s)``; `lengths` ``(b,)`` if it is padded."""
        x = self.source(source)
        if lengths is None:
            mean = self.encoder(x).sum(1) / max(1, source.shape[1])
        else:
            _check_lengths(source, lengths)
            x = self.encoder(x, mask=padding(lengths))
            there = torch.arange(source.shape[1], device=source.device) < lengths[:, None]
            mean = (x * there.unsqueeze(-1)).sum(1) / lengths.unsqueeze(-1).clamp(min=1)
        return self.output(self.dropout(mean))  # type: ignore[no-any-return]


def _check_lengths(source: Tensor, lengths: Tensor) -> None:
    if lengths.shape != source.shape[:1]:
        raise ShapeError(
            f"Classifier: lengths have shape {shape(lengths)} beside source {shape(source)}; "
            "give one per sentence"
        )
    if len(lengths) and int(lengths.max()) > source.shape[1]:
        raise ShapeError(
            f"Classifier: a length is {int(lengths.max())}, but source {shape(source)} has only "
            f"{source.shape[1]} places"
        )
