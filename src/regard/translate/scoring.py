"""BLEU and chrF, by sacreBLEU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.errors import OptionError, RegardError

TOKENIZERS = ("13a", "none", "intl", "char", "zh", "ja-mecab", "ko-mecab")
"""sacreBLEU's tokenizers that need no download."""


@dataclass(frozen=True)
class Score:
    """A score with its signature."""

    name: str
    """BLEU or chrF2."""
    score: float
    """From 0 to 100, larger is better."""
    signature: str
    """sacreBLEU's: tokenisation, case, version."""
    details: str
    """Components such as BLEU's precisions and brevity penalty."""

    def __str__(self) -> str:
        return f"{self.name} = {self.score:.2f}{self.details}\n  {self.signature}"


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> Score:
    """The BLEU of the hypotheses, all together, against one reference each.

    >>> bleu(["the cat sat on the mat"], ["the cat sat on the mat"]).score
    100.0

    Papineni et al., 2002; Post, "A Call for Clarity in Reporting BLEU Scores", 2018.
    """
    sacrebleu = _sacrebleu("bleu")
    _check("bleu", hypotheses, references)
    if tokenize not in TOKENIZERS:
        raise OptionError(f"bleu: tokenize={tokenize!r}, expected one of {', '.join(TOKENIZERS)}")
    try:
        # force: no warning about tokenised text, which "none" is for.
        metric = sacrebleu.BLEU(tokenize=tokenize, lowercase=lowercase, force=tokenize == "none")
    except (ImportError, RuntimeError) as error:
        needs = " ".join(str(error).split())
        raise OptionError(
            f"bleu: tokenize={tokenize!r} needs more than sacrebleu: {needs}"
        ) from None
    found = metric.corpus_score(list(hypotheses), [list(references)])
    details = f" {found._verbose}" if found._verbose else ""
    return Score("BLEU", round(float(found.score), 10), str(metric.get_signature()), details)


def chrf(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    word_order: int = 0,
    lowercase: bool = False,
) -> Score:
    """The chrF of the hypotheses: the F-score of their character n-grams, without tokenisation.

    `word_order` 2 is chrF++.

    >>> chrf(["the cat sat"], ["the cat sat"]).score
    100.0

    Popović, "chrF: character n-gram F-score for automatic MT evaluation", 2015.
    """
    sacrebleu = _sacrebleu("chrf")
    _check("chrf", hypotheses, references)
    if word_order < 0:
        raise OptionError(f"chrf: word_order={word_order}, expected 0 or more")
    metric = sacrebleu.CHRF(word_order=word_order, lowercase=lowercase)
    found = metric.corpus_score(list(hypotheses), [list(references)])
    return Score(found.name, round(float(found.score), 10), str(metric.get_signature()), "")


def _sacrebleu(caller: str) -> Any:
    try:
        import sacrebleu
    except ImportError:
        raise RegardError(
            f"{caller}: sacrebleu is not installed; pip install 'regard[translate]'"
        ) from None
    return sacrebleu


def _check(caller: str, hypotheses: Sequence[str], references: Sequence[str]) -> None:
    for name, given in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(given, str):
            raise OptionError(f"{caller}: {name} is one text, expected a list of texts")
    if len(hypotheses) != len(references):
        raise OptionError(
            f"{caller}: {len(hypotheses):,} hypotheses but {len(references):,} references; "
            "there is one reference per hypothesis"
        )
    if not hypotheses:
        raise OptionError(f"{caller}: no hypotheses; there is nothing to score")
