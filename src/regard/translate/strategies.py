"""Decoding strategies: greedy search, beam search, sampling."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real

from regard.errors import OptionError

MAX_SEQUENCES = 1000
"""Maximum sequences of a text in parallel, each of which needs memory."""
MAX_PENALTY = 10
"""Maximum absolute length penalty, so that scores stay within float32."""


@dataclass(frozen=True)
class Greedy:
    """Always the most probable next subword; the same as `Beam(1)`."""


@dataclass(frozen=True)
class Beam:
    """Beam search with `size` beams, at most 1,000.

    A sentence is finished when `size` hypotheses have ended (as with transformers'
    ``early_stopping=True``, fairseq and CTranslate2). If `patient`, it continues as long as the
    best beam, by its score at its present length, is better than the worst of the `size` best
    ended hypotheses (transformers' default).

    length_penalty: the exponent of the length in the score, from -10 to 10; 0 favours short
    translations, 1 is log p per subword.
    """

    size: int = 5
    length_penalty: float | int = 1.0
    patient: bool = False

    def __post_init__(self) -> None:
        check_whole("Beam", "size", self.size, 1, MAX_SEQUENCES)
        if not abs(_number("Beam", "length_penalty", self.length_penalty)) <= MAX_PENALTY:
            raise OptionError(
                f"Beam: length_penalty={self.length_penalty}, expected a finite number from "
                f"-{MAX_PENALTY} to {MAX_PENALTY}"
            )
        if not isinstance(self.patient, bool):
            raise OptionError(f"Beam: patient={self.patient!r}, expected True or False")


@dataclass(frozen=True)
class Sampling:
    """Sampling of the next subword, with `temperature`, `top_k` and `top_p`.

    Logits are divided by the temperature. Then only the `top_k` most probable subwords are kept,
    and of these the nucleus of probability `top_p` (Holtzman et al., 2020). Samples depend on the
    seed and the number of the sentence, not on the rest of the batch. The score is log p per
    subword under the unmodified model.
    """

    temperature: float | int = 1.0
    top_k: int | None = None
    top_p: float | int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < _number("Sampling", "temperature", self.temperature) < float("inf"):
            raise OptionError(
                f"Sampling: temperature={self.temperature}, expected more than 0; "
                "for the most probable, use a beam of 1 instead"
            )
        if self.top_k is not None:
            check_whole("Sampling", "top_k", self.top_k, 1)
        if self.top_p is not None and not 0 < _number("Sampling", "top_p", self.top_p) <= 1:
            raise OptionError(f"Sampling: top_p={self.top_p}, expected more than 0, at most 1")
        check_whole("Sampling", "seed", self.seed, 0)


Strategy = Greedy | Beam | Sampling


def check_n_best(caller: str, how: Strategy, n_best: object) -> None:
    """Raise unless the strategy can find `n_best` translations of a text."""
    n = check_whole(caller, "n_best", n_best, 1, MAX_SEQUENCES)
    if isinstance(how, Beam) and n > how.size:
        raise OptionError(
            f"{caller}: n_best={n} of a beam of {how.size}; use a beam of {n} or more"
        )
    if isinstance(how, Greedy) and n > 1:
        raise OptionError(f"{caller}: n_best={n}, but Greedy finds one; use Beam or Sampling")


def check_whole(caller: str, name: str, value: object, least: int, most: int | None = None) -> int:
    """The value as an int; raises unless it is a whole number within these bounds."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise OptionError(f"{caller}: {name}={value!r}, expected a whole number")
    if int(value) < least:
        raise OptionError(f"{caller}: {name}={value}, expected {least} or more")
    if most is not None and int(value) > most:
        raise OptionError(f"{caller}: {name}={value}, expected {most:,} or less")
    return int(value)


def _number(caller: str, name: str, value: object) -> float:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise OptionError(f"{caller}: {name}={value!r}, expected a number")
    try:
        return float(value)
    except OverflowError:
        return float("inf")
