"""Validation: the loss of a model, and the BLEU of its translations."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from regard.errors import RegardError
from regard.nn import Loss, Transformer
from regard.text import Batch, Batches
from regard.translate.config import ValidationConfig
from regard.translate.preparing import Prepared
from regard.translate.scoring import bleu
from regard.translate.translator import Translator, evaluating

TIE = 1e-6
"""The weight of the loss relative to BLEU: it only breaks ties."""


def loss_of(model: Transformer, batch: Batch, smoothing: float) -> Loss:
    """The model's loss on a batch."""
    return model.loss(
        batch.source,
        batch.target,
        batch.expected,
        source_mask=batch.source_mask,
        real=torch.arange(batch.target.shape[1]) < batch.target_lengths[:, None],
        smoothing=smoothing,
    )


def can_have_bleu(config: ValidationConfig, say: Callable[[str], None]) -> bool:
    """Whether BLEU can be computed; raises if it selects the best model, otherwise warns."""
    try:
        bleu(["a"], ["a"], tokenize=config.bleu_tokenize)
    except RegardError as error:
        if config.select_by == "bleu":
            raise RegardError(
                f"train: --select-by bleu: {error}; or give --select-by loss"
            ) from None
        say(f"Continuing without BLEU: {error}")
        return False
    return True


def measure(
    model: Transformer,
    prepared: Prepared,
    config: ValidationConfig,
    batch_tokens: int,
    with_bleu: bool,
) -> tuple[float, dict[str, Any]]:
    """The score that selects the best model, and loss, perplexity and BLEU (greedy search)."""
    started = time.perf_counter()
    loss, tokens = 0.0, 0
    with evaluating(model), torch.inference_mode():
        for batch in Batches(prepared.valid, batch_tokens, seed=0).epoch(0):
            loss += loss_of(model, batch, 0.0).total.item()
            tokens += batch.tokens
    mean = loss / tokens
    figures: dict[str, Any] = {"loss": mean, "perplexity": math.exp(min(mean, 700.0))}
    score = -mean
    if with_bleu:
        translator = Translator(model, prepared.tokenizer)
        said = translator.translate(prepared.valid_sources, beam=1)
        figures["bleu"] = bleu(
            [one.text for one in said], prepared.valid_targets, tokenize=config.bleu_tokenize
        ).score
        if config.select_by == "bleu":  # the loss breaks ties, as early on when all are 0
            score = figures["bleu"] - TIE * mean
    figures["seconds"] = time.perf_counter() - started
    return score, figures
