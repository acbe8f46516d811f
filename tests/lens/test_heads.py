"""Heads ranked by a link, and scored on many."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from regard.challenge import Pair, generate
from regard.errors import FileError, OptionError
from regard.lens import Lens
from regard.lens.heads import Question
from regard.nn import LanguageModel, TransformerConfig
from regard.text import Tokenizer
from tests.lens.small_models import TEXT

transformers = pytest.importorskip("transformers", reason="needs the extra hf")


def test_heads_are_ranked(lens: Lens) -> None:
    heads = lens.heads(TEXT, "it", "animal")
    assert str(heads) == str(lens.heads("it", "animal", TEXT))  # the order of earlier drafts
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


def test_norm_of_a_written_word_is_what_its_heads_pass_on(pocket: Lens) -> None:
    """Weight × length of the value, projected by the head's part of the output matrix."""
    e, heads = pocket.explain(TEXT, "es"), pocket.heads(TEXT, "es", "animal")
    step, key = e.target_rows.tokens_of(e.target_rows.find("es"))[0], e.words.find("animal")
    for layer, name in enumerate(e.layers):
        look, matrix = e.written[name], pocket.model.get_submodule(name).w_o.detach()
        passed = look.v[0] @ matrix.view(len(look.v[0]), -1, matrix.shape[-1])
        norm = e.words.summed(look.weights(queries=[step])[0, :, 0] * passed.norm(dim=-1))
        torch.testing.assert_close(e.norm[layer], norm, atol=1e-5, rtol=1e-4)
    for one in heads:
        assert one.norm == pytest.approx(float(e.norm[one.layer, one.head, key]))


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
    assert str(scores).startswith("3 questions; nearest noun: 66.7%")


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
    path.write_bytes(b'{"text": "caf\xe9"}\n')
    with pytest.raises(FileError, match="line 1: byte 0xe9 is not UTF-8"):
        lens.score_heads(path)
    with pytest.raises(FileError, match="cannot be read: No such file"):
        lens.score_heads(tmp_path / "none.jsonl")
    with pytest.raises(OptionError, match="there are no questions"):
        lens.score_heads([])
    with pytest.raises(OptionError, match="expected \\(text, word, referent\\)"):
        Question.of("text")


def test_the_nearest_noun_of_plain_questions(lens: Lens) -> None:
    """Nouns of the built-in corpus are known, and so is what any of the questions names."""
    street = lens.score_heads([(TEXT, "it", "street"), (TEXT, "it", "animal")])
    assert street.nearest == 0.5  # street stands nearer
    assert str(street).startswith("2 questions; nearest noun: 50.0%")
    text = "The whatsit hit the gizmo because it was wide."
    alone = [(text, "it", "whatsit")]
    assert lens.score_heads(alone).nearest == 1.0  # nobody knows that a gizmo is one
    assert lens.score_heads([*alone, (text, "it", "Gizmo")]).nearest == 0.5
    others = {
        "text": "The bat hit the gizmo.",
        "word": "bat",
        "referent": "The",
        "others": ["gizmo"],
    }
    assert lens.score_heads([*alone, others]).nearest == 0.5  # The, and gizmo
    plural = "The whatsits hit the horses because it was wide."
    assert lens.score_heads([(plural, "it", "whatsits")]).nearest == 0.0
    behind = "Because it was wide, the street hit the bat."
    assert lens.score_heads([(behind, "it", "street")]).nearest == 1.0


def test_plain_questions_are_asked_of_all_words(lens: Lens) -> None:
    scores = lens.score_heads([(TEXT, "it", "animal")])
    e = lens.explain(TEXT, "it", most=1)
    given = e.attention.clone()
    given[..., [e.word, len(e.names) - 1]] = -1  # neither itself nor the end
    expected = (given.argmax(-1) == e.words.find("animal")).double()
    torch.testing.assert_close(scores.accuracy, expected)
    assert str(scores).startswith("1 question; nearest noun: 0.0%")


def test_what_a_head_cannot_see_it_does_not_find(tokenizer: Tokenizer) -> None:
    """A language model gives nothing to words behind: neither to the one nor to the other."""
    model = LanguageModel(TransformerConfig.preset("tiny", vocabulary=tokenizer.size)).eval()
    behind = {"text": TEXT, "word": "The", "referent": "animal", "others": ["street"]}
    assert Lens(model, tokenizer).score_heads([behind]).accuracy.max() == 0


def test_the_built_in_corpus_has_one_baseline_however_it_is_asked(lens: Lens) -> None:
    pairs = list(generate("reference", "test", 12))
    plain = [(pair.source, words_at(pair), str(pair.referent)) for pair in pairs]
    assert lens.score_heads(plain).nearest == lens.score_heads(pairs).nearest


def words_at(pair: Pair) -> str:
    """The word of a pair; the last, if there are several."""
    before = pair.source[: pair.position].split().count("it")
    return f"it#{before + 1}" if before or pair.source.count(" it ") > 1 else pair.word


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ((TEXT, "it", "it"), "'it' is both word and referent"),
        ({"source": TEXT, "position": 1, "referent_position": 3}, "expected the positions"),
        ({"text": TEXT, "word": None, "referent": "animal"}, "expected a text, a word"),
        ({"text": TEXT, "word": "it", "referent": "animal", "others": "street"}, "list of others"),
        ({"text": TEXT, "word": "it", "referent": "animal", "others": 5}, "list of others"),
        ({"text": TEXT, "word": "it", "referent": None}, "expected a text, a word, a referent"),
        ((TEXT, "it", 0.5), "expected a text, a word, a referent"),
        ((TEXT, None, "animal"), "expected a text, a word, a referent"),
        ({"text": TEXT, "word": "it", "referent": "The", "others": ["The"]}, "referent and other"),
        ((TEXT, "it", -1), "'</s>' is a special token, not a word"),
        ({"text": TEXT, "word": "it", "referent": "The", "others": ["it"]}, "word and one of the"),
        (
            {"source": TEXT, "position": 43, "referent_position": 43, "other_position": 4},
            "'it' is both word and referent",
        ),
    ],
)
def test_questions_that_cannot_be_asked(lens: Lens, question: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        lens.score_heads([question])


def test_the_link_that_is_asked_for_is_cut_in_a_long_text(lens: Lens) -> None:
    text = " ".join(["the street was wide"] * 20 + [TEXT])
    heads = lens.heads(text, "it", "animal")
    assert heads[0].knockout is None or heads[0].knockout >= 0  # never "not a number"
