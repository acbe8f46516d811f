"""Heads ranked by a link, and scored on many."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from regard.errors import FileError, OptionError
from regard.lens import Lens
from regard.lens.heads import Question
from regard.text.grammar import Pair

transformers = pytest.importorskip("transformers", reason="needs the extra hf")

TEXT = "The animal didn't cross the street because it was too tired."
LINES = [TEXT, "The street was too wide.", "Das Tier war zu müde.", "because the bat hit it"]


def test_heads_are_ranked(lens: Lens) -> None:
    heads = lens.heads("it", "animal", TEXT)
    e = lens.explain(TEXT, "it")
    assert len(heads) == 12
    assert [one.attention for one in heads] == sorted(
        (float(x) for x in e.attention[:, :, e.words.find("animal")].flatten()), reverse=True
    )
    first = heads[0]
    assert first.norm == pytest.approx(
        float(e.norm[first.layer, first.head, e.words.find("animal")])
    )
    assert str(heads).startswith("it → animal\nlayer  head")


def referring(text: str, referent: str, other: str) -> Pair:
    """A sentence of the built-in corpus."""
    places = [text.index(word) for word in (" it ", referent, other)]
    return Pair(
        source=text,
        target="",
        kind="reference",
        word="it",
        position=places[0] + 1,
        answer="",
        wrong=(),
        frame="",
        combinations=(),
        referent=referent,
        referent_position=places[1],
        other=other,
        other_position=places[2],
    )


def test_score_heads_by_hand(lens: Lens) -> None:
    pairs = [
        referring(TEXT, "animal", "street"),
        referring("The bat hit the street because it was wide.", "street", "bat"),
        referring("The street was wide because it hit the bat.", "street", "bat"),
    ]
    scores = lens.score_heads(pairs)
    right = torch.zeros(3, 4)
    for pair in pairs:
        e = lens.explain(pair.source, "it", most=1)
        referent, other = (e.words.find(str(word)) for word in (pair.referent, pair.other))
        right += e.attention[:, :, referent] > e.attention[:, :, other]
    torch.testing.assert_close(scores.accuracy.float(), right / 3)
    assert scores.nearest == pytest.approx(2 / 3)
    layer, head, best = scores.best(1)[0]
    assert best == pytest.approx(float(scores.accuracy.max()))
    assert float(scores.accuracy[layer, head]) == best
    assert str(scores).startswith("3 questions; nearest candidate: 66.7%")


def test_score_heads_from_a_file(lens: Lens, tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    lines = [
        {"text": TEXT, "word": "it", "referent": "animal", "others": ["street"]},
        {"text": TEXT, "word": "it", "referent": "street", "others": ["animal"]},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    scores = lens.score_heads(path)
    torch.testing.assert_close(scores.accuracy, torch.full_like(scores.accuracy, 0.5))
    assert scores.nearest == 0.5
    path.write_text('{"text": "a"}\n', encoding="utf-8")
    with pytest.raises(FileError, match="line 1: score_heads: 'word' is missing"):
        lens.score_heads(path)
    with pytest.raises(FileError, match="cannot be read: No such file"):
        lens.score_heads(tmp_path / "none.jsonl")
    with pytest.raises(OptionError, match="there are no questions"):
        lens.score_heads([])
    with pytest.raises(OptionError, match="expected \\(text, word, referent\\)"):
        Question.of("text")


def test_without_other_candidates_there_is_no_baseline(lens: Lens) -> None:
    scores = lens.score_heads([(TEXT, "it", "animal")])
    assert math.isnan(scores.nearest)
    assert str(scores).startswith("1 questions; nearest candidate: not known")


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ((TEXT, "it", "it"), "'it' is word and referent at once"),
        ({"source": TEXT, "position": 1, "referent_position": 3}, "expected the positions"),
        ({"text": TEXT, "word": None, "referent": "animal"}, "expected a text, a word"),
        ({"text": TEXT, "word": "it", "referent": "animal", "others": "street"}, "list of others"),
        ({"text": TEXT, "word": "it", "referent": "animal", "others": 5}, "list of others"),
    ],
)
def test_questions_that_cannot_be_asked(lens: Lens, question: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        lens.score_heads([question])


def test_the_link_that_is_asked_for_is_cut_in_a_long_text(lens: Lens) -> None:
    text = " ".join(["the street was wide"] * 20 + [TEXT])
    heads = lens.heads("it", "animal", text)
    assert heads[0].knockout is None or heads[0].knockout >= 0  # never "not a number"
