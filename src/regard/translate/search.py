"""Greedy search, beam search and sampling over token ids.

All generate one subword per step with `writing.Writer`. Finished sentences leave the batch.

A translation ends with the end token, or is cut off at `longest` subwords. Its score is

    log p / length ** length_penalty

where the length counts the end token: as in Hugging Face's transformers, and as in CTranslate2 when
that returns the end token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard import native
from regard.attention.call import autocast_disabled
from regard.errors import RegardError
from regard.nn import Transformer
from regard.nn.sampling import likeliest
from regard.text import Tokenizer
from regard.translate.repetition import Loops
from regard.translate.strategies import Beam, Greedy, Sampling, Strategy, check_n_best, check_whole
from regard.translate.writing import Tree, Writer

WIDEST_TREE = 64
"""Beam size above which moving keys and values is faster than the mask of a `Tree`."""


@dataclass(frozen=True)
class Hypothesis:
    """One translation, as token ids."""

    tokens: tuple[int, ...]
    """Without start and end tokens."""
    log_probability: float
    """Of all tokens, the end included."""
    score: float
    """By which it is ranked."""
    ended: bool
    """Whether it has an end token, and was not cut off."""


def longest(source: int) -> int:
    """The maximum length of a translation, its end included: twice the source's and 20."""
    return 2 * source + 20


@torch.inference_mode()
def search(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    how: Strategy,
    *,
    n_best: int = 1,
    most: int | None = None,
    numbers: Sequence[int] | None = None,
    memory: Float[Tensor, "b s width"] | None = None,
    cut_loops: bool = False,
) -> list[list[Hypothesis]]:
    """For each source, the `n_best` hypotheses, the best first.

    Args:
        model: in ``eval()`` mode. Under ``torch.autocast("cpu", torch.bfloat16)`` matrix products
            are in bfloat16, see `writing`.
        sources: token ids without start and end; they are searched as one batch.
        how: the strategy.
        most: maximum length of a translation, besides `longest`.
        numbers: numbers of the sentences, which seed `Sampling`; 0, 1, … by default.
        memory: the encoder's output for the sources and their ends, if known.
        cut_loops: prune sequences that only repeat themselves, or truncate where no other is left;
            see `repetition`.
    """
    check_n_best("search", how, n_best)
    if most is not None:
        check_whole("search", "most", most, 1)
    if not sources:
        return []
    limits = [longest(len(source)) for source in sources]
    if model.config.position == "learned":
        most = min(most or model.config.max_length, model.config.max_length)
    limits = [min(limit, most or limit) for limit in limits]
    added = model.config.position in ("sinusoidal", "learned")
    in_tree = added and isinstance(how, Beam) and 1 < how.size <= WIDEST_TREE
    writer = (Tree if in_tree else Writer)(model, sources, limits, memory)
    with autocast_disabled(model.output.device):
        loops = Loops(sources, model.output.device) if cut_loops else None
        if isinstance(how, Beam):
            found = _BeamSearch(writer, how, n_best, loops).run()
        else:
            numbers = range(len(sources)) if numbers is None else numbers
            found = _Sequences(writer, how, n_best, numbers, loops).run()
    if not all(ranked and math.isfinite(ranked[0].log_probability) for ranked in found):
        raise RegardError(
            "search: the model's probabilities are not numbers; its training diverged, or its "
            "weights are damaged"
        )
    return found


class _BeamSearch:
    """Beam search over one batch: b sentences, k beams of each, c candidates to continue them."""

    def __init__(self, writer: Writer, how: Beam, n_best: int, loops: Loops | None) -> None:
        self._writer, self._how, self._n_best, self._loops = writer, how, n_best, loops
        b, like = len(writer.limits), writer.model.output
        self._found: list[list[Hypothesis]] = [[] for _ in range(b)]
        self._who = list(range(b))
        self._written = torch.empty(b, 1, 0, dtype=torch.int64, device=like.device)
        self._tokens = torch.full((b, 1), Tokenizer.start, device=like.device)
        self._log_p = like.new_zeros(b, 1)
        self._ended = like.new_full((b, how.size), -torch.inf)
        """Scores of the best ended hypotheses, descending."""

    def run(self) -> list[list[Hypothesis]]:
        while self._who:
            self._step(self._written.shape[2] + 1)
        return [sorted(found, key=lambda one: -one.score)[: self._n_best] for found in self._found]

    def _step(self, length: int) -> None:
        size = self._how.size
        log_p, parents, tokens = self._candidates()
        is_end, last = tokens == Tokenizer.end, self._writer.limits <= length
        ends, runs = is_end | last[:, None], None
        if self._loops is not None:
            runs = self._loops.runs(self._written, parents, tokens)
            looping = self._loops.are_loops(runs) & ~ends
            # Pruned, unless nothing has ended and nothing else is left.
            hopeless = (looping | is_end).all(1) & (self._ended[:, 0] == -torch.inf)
            ends = ends | (looping & hopeless[:, None])
            log_p = log_p.masked_fill(looping & ~hopeless[:, None], -torch.inf)
            is_end = is_end | looping
        ending = ends[:, :size] & (log_p[:, :size] > -torch.inf)
        if bool(ending.any()):
            self._collect(length, log_p, parents, tokens, ending)
        alive, pick = log_p.masked_fill(is_end, -torch.inf).topk(min(size, log_p.shape[1]), 1)
        if runs is not None:
            runs = runs.gather(1, pick[..., None].expand(-1, -1, runs.shape[2]))
        stops = self._stops(length, alive, last)
        self._advance(alive, parents.gather(1, pick), tokens.gather(1, pick), runs, stops)

    def _candidates(self) -> tuple[Tensor, Tensor, Tensor]:
        """The most probable continuations ``(b, c)``: log p, parent beam, word.

        Twice the beam size, since each beam may have one end among them.
        """
        k = self._log_p.shape[1]
        count = min(2 * self._how.size, k * len(self._writer.model.output))
        parts, done = [], 0
        for logits in self._writer.logits(self._tokens):
            some = len(logits) // k
            parts.append(best_words(logits, self._log_p[done : done + some], count))
            done += some
        log_p, parents, words = (torch.cat(part) for part in zip(*parts, strict=True))
        return log_p, parents, words

    def _collect(
        self, length: int, log_p: Tensor, parents: Tensor, tokens: Tensor, ending: Tensor
    ) -> None:
        """Keep the candidates that end in this step."""
        size, power = self._how.size, length**self._how.length_penalty
        log_p = log_p[:, :size]
        scores = torch.where(ending, log_p / power, -torch.inf)
        self._ended = torch.cat((self._ended, scores), 1).topk(size, 1).values
        b, c = ending.nonzero(as_tuple=True)
        rows = zip(
            b.tolist(),
            self._written[b, parents[b, c]].tolist(),
            tokens[b, c].tolist(),
            log_p[b, c].tolist(),
            scores[b, c].tolist(),
            strict=True,
        )
        for place, words, token, probability, score in rows:
            ended = token == Tokenizer.end
            said = tuple(words) if ended else (*words, token)
            if self._loops is not None and not ended:
                said = self._loops.cut(place, said)
            found = self._found[self._who[place]]
            found.append(Hypothesis(said, probability, score, ended))

    def _stops(self, length: int, alive: Tensor, last: Tensor) -> Tensor:
        """Which sentences are finished ``(b,)``."""
        how, best = self._how, alive[:, 0]
        worst = self._ended[:, -1]
        full = worst > -torch.inf
        if how.patient:
            full &= best / length**how.length_penalty <= worst
        # log p can only fall, so this bounds the score of every continuation.
        final = self._writer.limits if how.length_penalty > 0 else length + 1
        beaten = best / final**how.length_penalty <= self._ended[:, self._n_best - 1]
        return last | full | beaten

    def _advance(
        self, log_p: Tensor, parents: Tensor, tokens: Tensor, runs: Tensor | None, stops: Tensor
    ) -> None:
        stopped, stay = int(stops.sum()), None
        if stopped == len(self._who):
            self._who = []
            return
        if stopped:
            # The last sentences take the free places, so that few have to move.
            stay = torch.arange(len(self._who) - stopped, device=stops.device)
            stay[stops[: len(stay)]] = (~stops[len(stay) :]).nonzero()[:, 0] + len(stay)
            self._who = [self._who[place] for place in stay.tolist()]
            self._ended, self._written = self._ended[stay], self._written[stay]
            log_p, parents, tokens = log_p[stay], parents[stay], tokens[stay]
            runs = None if runs is None else runs[stay]
        self._writer.advance(parents, stay)
        if self._loops is not None and runs is not None:
            self._loops.keep(runs, stay)
        places = parents[..., None].expand(-1, -1, self._written.shape[2])
        self._written = torch.cat((self._written.gather(1, places), tokens[..., None]), 2)
        self._log_p, self._tokens = log_p, tokens


class _Sequences:
    """Greedy search or sampling over one batch: n independent sequences of each sentence."""

    def __init__(
        self,
        writer: Writer,
        how: Greedy | Sampling,
        n: int,
        numbers: Sequence[int],
        loops: Loops | None,
    ) -> None:
        self._writer, self._how, self._loops = writer, how, loops
        b, like = len(writer.limits), writer.model.output
        self._found: list[list[Hypothesis]] = [[] for _ in range(b)]
        self._who = list(range(b))
        self._written = torch.empty(b, n, 0, dtype=torch.int64, device=like.device)
        self._tokens = torch.full((b, n), Tokenizer.start, device=like.device)
        self._log_p = like.new_zeros(b, n)
        self._open = torch.ones(b, n, dtype=torch.bool, device=like.device)
        self._uniforms = like.new_zeros(b, n, 0)
        if isinstance(how, Sampling):
            self._uniforms = _uniforms(how.seed, numbers, n, self._writer.limits)

    def run(self) -> list[list[Hypothesis]]:
        while self._who:
            self._step(self._written.shape[2] + 1)
        return [sorted(found, key=lambda one: -one.score) for found in self._found]

    def _step(self, length: int) -> None:
        b, n = self._log_p.shape
        uniforms = self._uniforms[:, :, length - 1 : length].reshape(b * n, -1)
        done, parts = 0, []
        for logits in self._writer.logits(self._tokens):
            own = uniforms[done : done + len(logits)]
            parts.append(_chosen(logits, self._how, own))
            done += len(logits)
        tokens, log_p = (torch.cat(part).view(b, n) for part in zip(*parts, strict=True))
        # After its end a sequence is padded, with probability 1.
        self._tokens = tokens.masked_fill(~self._open, Tokenizer.pad)
        self._log_p = self._log_p + log_p.masked_fill(~self._open, 0.0)
        if self._loops is not None:
            own = torch.arange(n, device=tokens.device).expand(b, n)
            runs = self._loops.runs(self._written, own, self._tokens)
            self._loops.keep(runs, None)
            self._open = self._open & ~self._loops.are_loops(runs)
        self._written = torch.cat((self._written, self._tokens[..., None]), 2)
        self._open = self._open & (tokens != Tokenizer.end)
        stops = ~self._open.any(1) | (self._writer.limits <= length)
        if bool(stops.any()):
            self._leave(stops)

    def _leave(self, stops: Tensor) -> None:
        gone, stay = stops.nonzero()[:, 0], (~stops).nonzero()[:, 0]
        rows = zip(gone.tolist(), self._written[gone].tolist(), self._log_p[gone].tolist(),
                   strict=True)  # fmt: skip
        for place, sequences, probabilities in rows:
            for words, log_p in zip(sequences, probabilities, strict=True):
                if self._loops is not None:
                    words = _without_padding(words)
                found = _hypothesis(words, log_p)
                if self._loops is not None and not found.ended:
                    found = replace(found, tokens=self._loops.cut(place, found.tokens))
                self._found[self._who[place]].append(found)
        self._who = [self._who[place] for place in stay.tolist()]
        if not self._who:
            return
        self._writer.advance(None, stay)
        if self._loops is not None:
            self._loops.stay(stay)
        for name in ("_written", "_tokens", "_log_p", "_open"):
            setattr(self, name, getattr(self, name)[stay])
        if isinstance(self._how, Sampling):
            self._uniforms = self._uniforms[stay]


def _without_padding(words: list[int]) -> list[int]:
    """The words of a sequence without its padding."""
    length = len(words)
    while length > 1 and words[length - 1] == Tokenizer.pad:
        length -= 1
    return words[:length]


def _hypothesis(words: list[int], log_p: float) -> Hypothesis:
    """The hypothesis of a sequence, up to its end."""
    ended = Tokenizer.end in words
    length = words.index(Tokenizer.end) + 1 if ended else len(words)
    said = tuple(words[: length - ended])
    return Hypothesis(said, log_p, log_p / length, ended)


def best_words(
    logits: Float[Tensor, "sk vocabulary"], log_p: Float[Tensor, "s k"], count: int
) -> tuple[Float[Tensor, "s c"], Int[Tensor, "s c"], Int[Tensor, "s c"]]:
    """The `count` most probable continuations of k beams of each of s sentences, best first.

    `log_p` are those of the beams. Returns log p, the beam and the word of each continuation.
    """
    if native.fits(logits.numel(), logits, log_p):
        return torch.ops.regard.best_words(  # type: ignore[no-any-return]
            logits.contiguous(), log_p.contiguous(), count
        )
    (s, k), vocabulary = log_p.shape, logits.shape[1]
    found, at = (logits.log_softmax(1).view(s, k, -1) + log_p[..., None]).flatten(1).topk(count)
    return found, at // vocabulary, at % vocabulary


def _uniforms(
    seed: int, numbers: Sequence[int], n: int, limits: Int[Tensor, "b"]
) -> Float[Tensor, "b n length"]:
    """Uniform random numbers for each sequence and step, seeded by the sentence's number."""
    longest_of_all = int(limits.max())
    drawn = np.zeros((len(numbers), n, longest_of_all))
    for i, (number, limit) in enumerate(zip(numbers, limits.tolist(), strict=True)):
        generator = np.random.Generator(np.random.PCG64([seed, number]))
        drawn[i, :, :limit] = generator.random((limit, n)).T
    return torch.from_numpy(drawn).to(limits.device)


def _chosen(
    logits: Float[Tensor, "rows vocabulary"],
    how: Greedy | Sampling,
    uniforms: Float[Tensor, "rows drawn"],
) -> tuple[Int[Tensor, "rows"], Float[Tensor, "rows"]]:
    """The next word of each row, and its log-probability."""
    words = logits.argmax(1) if isinstance(how, Greedy) else _sampled(logits, how, uniforms[:, 0])
    return words, logits.gather(1, words[:, None])[:, 0] - logits.logsumexp(1)


def _sampled(
    logits: Float[Tensor, "rows vocabulary"], how: Sampling, uniforms: Float[Tensor, "rows"]
) -> Int[Tensor, "rows"]:
    """The sampled word of each row, by inverse transform sampling of its random number."""
    logits = logits.double()
    # Subtracting the maximum keeps one finite logit, however small the temperature.
    logits = (logits - logits.amax(1, keepdim=True)) / how.temperature
    p, words = likeliest(logits, how.top_k, how.top_p)
    reached = p.cumsum(1)
    wanted = uniforms.to(reached)[:, None] * reached[:, -1:]
    at = torch.searchsorted(reached, wanted, right=True).clamp_(max=p.shape[1] - 1)
    return words.gather(1, at)[:, 0]
