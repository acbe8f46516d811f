"""A decoder-only language model, and sampling from it."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import OptionError, ShapeError, shape
from regard.nn.cache import Cache
from regard.nn.config import TransformerConfig
from regard.nn.loss import Loss, loss_of_words
from regard.nn.sampling import likeliest
from regard.nn.transformer import Decoder, Embedding, output_parameters


class LanguageModel(nn.Module):
    """A decoder-only language model.

    >>> model = LanguageModel(TransformerConfig.preset("tiny", vocabulary=50)).eval()
    >>> model(torch.tensor([[1, 5, 6]])).shape
    torch.Size([1, 3, 50])
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.target = Embedding(config)
        self.decoder = Decoder(config, cross=False)
        self.output, self.output_bias = output_parameters(config)
        if config.tied:
            self.output = self.target.table

    def forward(
        self, tokens: Tensor, *, cache: Cache | None = None
    ) -> Float[Tensor, "b n vocabulary"]:
        """The logits of the next word at each position of tokens ``(b, n)``."""
        return F.linear(self._hidden(tokens, cache), self.output, self.output_bias)

    def loss(
        self,
        tokens: Tensor,
        expected: Tensor,
        *,
        real: Tensor | None = None,
        smoothing: float | int = 0.0,
    ) -> Loss:
        """The loss summed over the expected words where `real` ``(b, n)`` is True, in chunks."""
        hidden = self._hidden(tokens, None)
        return loss_of_words(
            hidden, expected, real, self.output, self.output_bias, smoothing=smoothing
        )

    @torch.no_grad()
    def generate(
        self,
        tokens: Tensor,
        length: int,
        *,
        temperature: float | int = 1.0,
        top_k: int | None = None,
        top_p: float | int | None = None,
        end: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Int[Tensor, "b n"]:
        """tokens ``(b, n)`` followed by up to `length` new ones, sampled one by one (see `draw`).

        At temperature 0, greedy. After `end` a sequence is filled with `end`; generation stops when
        all sequences have ended. Call ``eval()`` first to disable dropout.
        """
        if tokens.dim() != 2 or tokens.shape[1] == 0:
            raise ShapeError(
                f"generate: tokens have shape {shape(tokens)}, expected (b,n) with a token to "
                "begin with, such as that for the start"
            )
        if length < 0:
            raise OptionError(f"generate: length={length}, expected 0 or more")
        cache = self.cache()
        new, done = tokens, torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
        for _ in range(length):
            hidden = self._hidden(new, cache)[:, -1]
            logits = F.linear(hidden, self.output, self.output_bias)
            new = draw(logits, temperature, top_k, top_p, generator)[:, None].to(tokens.dtype)
            if end is not None:
                new = new.masked_fill(done[:, None], end)
                done = done | (new[:, 0] == end)
            tokens = torch.cat((tokens, new), 1)
            if done.all():
                break
        return tokens

    def cache(self) -> Cache:
        """An empty cache for incremental decoding."""
        return Cache(len(self.decoder.blocks))

    def _hidden(self, tokens: Tensor, cache: Cache | None) -> Tensor:
        x = self.target(tokens, 0 if cache is None else cache.length)
        return self.decoder(x, cache=cache)  # type: ignore[no-any-return]


def draw(
    logits: Tensor,
    temperature: float | int = 1.0,
    top_k: int | None = None,
    top_p: float | int | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "b"]:
    """One word per row of logits ``(b, vocabulary)``, sampled by its probability.

    Among the `top_k` likeliest words, and of these among the fewest whose probabilities sum to
    `top_p`. At temperature 0 the likeliest; higher temperatures flatten the distribution.

    >>> draw(torch.tensor([[0.0, 2.0, 1.0]]), top_k=1)
    tensor([1])

    Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020 (`top_p`).
    """
    _check(logits, temperature, top_k, top_p)
    if temperature == 0:
        return logits.argmax(-1)
    # With a maximum of 0, no temperature leads to overflow.
    logits = (logits - logits.amax(-1, keepdim=True)) / temperature
    p, words = likeliest(logits, top_k, top_p)
    p = torch.zeros_like(logits).scatter(-1, words, p)
    return torch.multinomial(p, 1, generator=generator)[:, 0]


def _check(
    logits: Tensor, temperature: float | int, top_k: int | None, top_p: float | int | None
) -> None:
    if logits.dim() != 2:
        raise ShapeError(f"draw: logits have shape {shape(logits)}, expected (b,vocabulary)")
    if not temperature >= 0:
        raise OptionError(f"draw: temperature={temperature}, expected 0 or more")
    if top_k is not None and top_k < 1:
        raise OptionError(f"draw: top_k={top_k}, expected 1 or more; leave it out for all words")
    if top_p is not None and not 0 < top_p <= 1:
        raise OptionError(f"draw: top_p={top_p}, expected more than 0, up to 1")
