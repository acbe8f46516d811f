"""Log-probabilities of given translations, by teacher forcing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention import padding
from regard.errors import OptionError
from regard.nn import Transformer
from regard.nn.loss import CHUNK
from regard.text import Tokenizer, padded
from regard.translate.precision import Precision
from regard.translate.threads import in_batches

BATCH = 2048
"""Tokens in a batch: sentences × the longest of them, source or target."""

Tokens = Sequence[int]


def log_probabilities(
    model: Transformer,
    sources: Sequence[Tokens],
    targets: Sequence[Tokens],
    *,
    batch: int = BATCH,
    threads: int | None = None,
    precision: Precision = Precision.FLOAT32,
) -> list[list[float]]:
    """For each pair, log p of every target token and of the end token, given those before it.

    Pairs of like length are computed in batches of `batch` tokens, on `threads` threads.
    """
    _check(sources, targets, model.config.max_length - 1)  # one position is for the end token
    lengths = [max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)]

    def of_batch(rows: list[int]) -> list[list[float]]:
        with precision.autocast(model.output.device):
            return _of_batch(model, [sources[i] for i in rows], [targets[i] for i in rows])

    return in_batches(of_batch, lengths, batch, threads)


@torch.inference_mode()
def _of_batch(
    model: Transformer, sources: Sequence[Tokens], targets: Sequence[Tokens]
) -> list[list[float]]:
    """`log_probabilities` of one batch; a source shared by several targets is encoded once."""
    device = model.output.device
    numbers: dict[tuple[int, ...], int] = {}
    rows = [numbers.setdefault(tuple(ids), len(numbers)) for ids in sources]
    source, lengths = padded([[*ids, Tokenizer.end] for ids in numbers])
    memory = model.encode(source.to(device), source_mask=padding(lengths))[rows]
    target, _ = padded([[Tokenizer.start, *ids] for ids in targets])
    hidden = model.decode(target.to(device), memory, source_mask=padding(lengths[rows]))
    expected, counts = padded([[*ids, Tokenizer.end] for ids in targets])
    real = (torch.arange(expected.shape[1]) < counts[:, None]).to(device)
    found = _of_words(model, hidden[real], expected.to(device)[real])
    return [part.tolist() for part in torch.split(found, counts.tolist())]


def _of_words(model: Transformer, hidden: Tensor, expected: Tensor) -> Tensor:
    """log p of the expected tokens, in chunks: tokens × vocabulary logits are never held."""
    some = max(1, CHUNK // model.config.vocabulary)
    parts = zip(torch.split(hidden, some), torch.split(expected, some), strict=True)
    found = []
    for vectors, words in parts:
        logits = model.logits(vectors)
        wide = logits if logits.dtype == torch.float64 else logits.float()
        found.append(-F.cross_entropy(wide, words, reduction="none"))
    return torch.cat(found)


def _check(sources: Sequence[Tokens], targets: Sequence[Tokens], limit: int) -> None:
    if len(sources) != len(targets):
        raise OptionError(
            f"score: {len(sources):,} sources but {len(targets):,} targets; give one source per "
            "target"
        )
    for name, batch in (("sources", sources), ("targets", targets)):
        for number, ids in enumerate(batch):
            if len(ids) > limit:
                raise OptionError(
                    f"score: {name}[{number}] has {len(ids):,} subwords, but the model takes "
                    f"{limit:,}; score its sentences one by one"
                )
