"""Sentence classification with an encoder."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.attention import padding
from regard.errors import FileError, OptionError, ShapeError, shape
from regard.nn.config import TransformerConfig
from regard.nn.dropout import Dropout
from regard.nn.transformer import Embedding, Encoder


class Classifier(nn.Module):
    """An encoder that classifies a sentence.

    A linear layer maps the mean of the words' contextual vectors to the logits of the classes.

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

    def save(self, path: str | Path) -> None:
        """Write weights and configuration to one .safetensors file, which `load` reads."""
        if Path(path).suffix != ".safetensors":
            raise OptionError(
                f"Classifier.save: path expected to end in .safetensors, got {str(path)!r}"
            )
        weights = {name: weight.contiguous() for name, weight in self.state_dict().items()}
        shape_of = {"config": asdict(self.config), "classes": self.output.out_features}
        save_file(weights, path, metadata={"regard.Classifier": json.dumps(shape_of)})

    @classmethod
    def load(cls, path: str | Path) -> Classifier:
        """The classifier that `save` wrote, in evaluation mode."""
        try:
            with safe_open(path, framework="pt") as file:
                described = json.loads((file.metadata() or {})["regard.Classifier"])
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            model = cls(TransformerConfig(**described["config"]), described["classes"])
            model.to(weights["output.weight"].dtype).load_state_dict(weights)
        except (OSError, KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
            raise FileError(
                f"Classifier.load: {path} is not a file that Classifier.save wrote ({error})"
            ) from None
        return model.eval()


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
