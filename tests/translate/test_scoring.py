"""Scores are sacreBLEU's, signatures included."""

from __future__ import annotations

import math
import sys
from collections import Counter

import pytest

from regard.errors import OptionError, RegardError
from regard.translate.scoring import Score, bleu, chrf

SAID = ["The cat sat on the mat.", "a dog barks loudly at night , again"]
RIGHT = ["The cat sat on a mat.", "the dog barks at night , again and again"]


def plain_bleu(said: list[str], right: list[str]) -> float:
    """BLEU by its definition, of text that is cut into words already."""
    matches, totals = Counter[int](), Counter[int]()
    for one, other in zip(said, right, strict=True):
        for n in range(1, 5):
            grams, wanted = (
                Counter(tuple(text.split()[i : i + n]) for i in range(len(text.split()) - n + 1))
                for text in (one, other)
            )
            matches[n] += sum((grams & wanted).values())
            totals[n] += sum(grams.values())
    lengths = [sum(len(text.split()) for text in side) for side in (said, right)]
    brevity = min(1.0, math.exp(1 - lengths[1] / lengths[0]))
    return 100 * brevity * math.exp(sum(math.log(matches[n] / totals[n]) for n in range(1, 5)) / 4)


def test_bleu_is_what_it_is_defined_to_be() -> None:
    found = bleu(SAID, RIGHT, tokenize="none")
    assert found.score == pytest.approx(plain_bleu(SAID, RIGHT))
    assert found.name == "BLEU"
    assert "tok:none" in found.signature
    assert "BP = " in found.details


def test_tokenisation_and_case_are_in_the_signature() -> None:
    assert "case:mixed" in bleu(SAID, RIGHT).signature
    assert "tok:13a" in bleu(SAID, RIGHT).signature
    lower = bleu(SAID, RIGHT, lowercase=True)
    assert "case:lc" in lower.signature
    assert lower.score >= bleu(SAID, RIGHT).score
    assert bleu(["a b c d.", "x"], ["a b c d .", "x"]).score == pytest.approx(100)
    assert bleu(["a b c d.", "x"], ["a b c d .", "x"], tokenize="none").score < 99


def test_chrf() -> None:
    assert chrf(["abc"], ["abc"]).score == pytest.approx(100)
    # One n-gram order each of characters a, b against a, c: 1 of 2 matches, no pair does.
    found = chrf(["ab"], ["ac"])
    assert found.score == pytest.approx(25)
    assert (found.name, "nc:6" in found.signature) == ("chrF2", True)
    assert chrf(SAID, RIGHT, word_order=2).name == "chrF2++"
    assert "case:lc" in chrf(SAID, RIGHT, lowercase=True).signature


def test_how_a_score_prints() -> None:
    assert str(Score("chrF2", 12.345, "nrefs:1", "")) == "chrF2 = 12.35\n  nrefs:1"
    assert str(Score("BLEU", 1.0, "nrefs:1", " 9/8")) == "BLEU = 1.00 9/8\n  nrefs:1"


@pytest.mark.parametrize("measure", [bleu, chrf])
def test_bad_calls(measure: object) -> None:
    name = measure.__name__  # type: ignore[attr-defined]
    with pytest.raises(OptionError, match=rf"{name}: 2 hypotheses but 1 references; there is one"):
        measure(SAID, RIGHT[:1])  # type: ignore[operator]
    with pytest.raises(OptionError, match=rf"{name}: no hypotheses; there is nothing to score"):
        measure([], [])  # type: ignore[operator]
    with pytest.raises(OptionError, match=rf"{name}: references is one text, expected a list"):
        measure(SAID, "a text")  # type: ignore[operator]


def test_bad_options() -> None:
    with pytest.raises(OptionError, match=r"bleu: tokenize='moses', expected one of 13a, none"):
        bleu(SAID, RIGHT, tokenize="moses")
    with pytest.raises(OptionError, match=r"chrf: word_order=-1, expected 0 or more"):
        chrf(SAID, RIGHT, word_order=-1)


def test_a_tokenizer_that_needs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "MeCab", None)
    with pytest.raises(OptionError, match=r"tokenize='ja-mecab' needs more than sacrebleu: .*pip"):
        bleu(SAID, RIGHT, tokenize="ja-mecab")


def test_without_sacrebleu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(RegardError, match=r"bleu: sacrebleu is not installed; pip install 'regard"):
        bleu(SAID, RIGHT)
