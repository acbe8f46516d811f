"""How to look for a translation: greedily, by beam search, or by drawing."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real

from regard.errors import OptionError

WIDEST = 1000
"""The most translations of a text that are written side by side: each needs its own memory."""
STEEPEST = 10
"""The largest exponent of a length, either way: beyond, scores leave what float32 can hold."""


@dataclass(frozen=True)
class Greedy:
    """Always the likeliest next subword. What `Beam(1)` finds as well."""


@dataclass(frozen=True)
class Beam:
    """The `size` likeliest beginnings are continued side by side, up to 1,000 of them.

    A sentence is finished when `size` translations of it have ended (as with transformers'
    ``early_stopping=True``, fairseq and CTranslate2). If `patient`, it continues as long as the
    likeliest beginning, by its score at its present length, is better than the worst of the `size`
    best that have ended (transformers' default).

    length_penalty: the exponent of the length in the score, from -10 to 10; 0 favours short
    translations, 1 compares their probability per subword.
    """

    size: int = 5
    length_penalty: float | int = 1.0
    patient: bool = False

    def __post_init__(self) -> None:
        check_whole("Beam", "size", self.size, 1, WIDEST)
        if not abs(_number("Beam", "length_penalty", self.length_penalty)) <= STEEPEST:
            raise OptionError(
                f"Beam: length_penalty={self.length_penalty}, expected a finite number from "
                f"-{STEEPEST} to {STEEPEST}"
            )
        if not isinstance(self.patient, bool):
            raise OptionError(f"Beam: patient={self.patient!r}, expected True or False")


@dataclass(frozen=True)
class Sampling:
    """The next subword is drawn by its probability, after `temperature`, `top_k` and `top_p`.

    Probabilities are raised to the power 1/temperature. Then only the `top_k` likeliest are left,
    and of these the fewest that together have the probability `top_p` (Holtzman et al., 2020). What
    is drawn depends on the seed and on the number of the sentence, not on what else is in the
    batch. The score is that of the unchanged model, per subword.
    """

    temperature: float | int = 1.0
    top_k: int | None = None
    top_p: float | int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < _number("Sampling", "temperature", self.temperature) < float("inf"):
            raise OptionError(
                f"Sampling: temperature={self.temperature}, expected more than 0; "
                "for the likeliest use Greedy()"
            )
        if self.top_k is not None:
            check_whole("Sampling", "top_k", self.top_k, 1)
        if self.top_p is not None and not 0 < _number("Sampling", "top_p", self.top_p) <= 1:
            raise OptionError(f"Sampling: top_p={self.top_p}, expected more than 0, at most 1")
        check_whole("Sampling", "seed", self.seed, 0)


Strategy = Greedy | Beam | Sampling


def check_n_best(caller: str, how: Strategy, n_best: object) -> None:
    """Raise unless the strategy can find `n_best` translations of a text."""
    n = check_whole(caller, "n_best", n_best, 1, WIDEST)
    if isinstance(how, Beam) and n > how.size:
        raise OptionError(
            f"{caller}: n_best={n} of a beam of {how.size}; use a beam of {n} or more"
        )
    if isinstance(how, Greedy) and n > 1:
        raise OptionError(f"{caller}: n_best={n}, but Greedy finds one; use Beam or Sampling")


def check_whole(caller: str, name: str, value: object, least: int, most: int | None = None) -> int:
    """The value, if it is a whole number within these bounds; or an error."""
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
