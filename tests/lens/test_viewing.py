"""What the lens found, as a view: the same numbers, words without special tokens, links cut."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.errors import OptionError
from regard.lens import Lens
from regard.lens.viewing import answer_cut, text_of
from regard.nn import LanguageModel, Transformer, TransformerConfig
from regard.text import Tokenizer
from regard.text.words import Words
from regard.translate import Translator

TEXT = "The animal didn't cross the street because it was too tired."


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([TEXT, "The bat hit the ball."] * 2, size=36)


@pytest.fixture(scope="module")
def lens(tokenizer: Tokenizer) -> Lens:
    torch.manual_seed(0)
    config = TransformerConfig.preset(
        "tiny", vocabulary=tokenizer.size, encoder_depth=2, decoder_depth=1
    )
    return Lens(Translator(Transformer(config).eval(), tokenizer))


def test_text_of() -> None:
    spans = ((0, 0), (0, 3), (3, 4), (5, 8), (8, 8))
    tokens = ("<s>", "bat", "s", "fly", "</s>")
    text = text_of(Words("bats fly", tokens, spans, (True, False, False, False, True)))
    assert text.words == ("bats", "fly")
    assert text.places == (-1, 0, 0, 1, -1)


def test_a_translation_is_seen_on_both_sides(lens: Lens) -> None:
    e = lens.explain(TEXT, "it")
    view = e.view()
    kinds = [(layer.kind, layer.queries, layer.keys) for layer in view.layers]
    assert kinds == [
        ("self", "text", "text"),
        ("self", "text", "text"),
        ("masked", "translation", "translation"),
        ("cross", "translation", "text"),
    ]
    assert view.texts["translation"].text == e.said
    assert view.texts["text"].words == e.names[:-1]


def test_the_four_answers(lens: Lens) -> None:
    e = lens.explain(TEXT, "it")
    explained = e.view().explained
    assert explained is not None
    assert explained.word == e.word
    assert explained.sentence == e.conclusion
    for method in explained.methods:
        expected = e.scores(method.name)[:-1].double()
        torch.testing.assert_close(torch.as_tensor(method.values(len(e.names) - 1)), expected)
        assert method.agreement == e.agreement.get(method.name)
    heads = explained.methods[3].by_head(len(e.names) - 1)
    assert heads is not None
    assert e.knockout_of_heads is not None
    torch.testing.assert_close(torch.as_tensor(heads), e.knockout_of_heads[..., :-1].double())


def test_links_that_were_not_cut_are_no_numbers_in_a_view(lens: Lens) -> None:
    explained = lens.explain(TEXT, "it", most=3).view().explained
    assert explained is not None
    values = explained.methods[3].values(len(lens.words(TEXT)) - 1)
    assert np.isnan(values).sum() == len(values) - 3


def test_a_language_model_sees_only_what_came_before(tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    model = LanguageModel(TransformerConfig.preset("tiny", vocabulary=tokenizer.size)).eval()
    view = Lens(model, tokenizer).view("The bat hit", "hit")
    assert [layer.kind for layer in view.layers] == ["masked"] * 4
    assert list(view.texts) == ["text"]


def test_cutting_is_answered(lens: Lens) -> None:
    view = lens.view(TEXT, "it")
    words = view.texts["text"].words
    it, animal = words.index("it"), words.index("animal")
    reply = view.answer("cut", {"queries": "text", "keys": "text", "links": [[it, animal]]})
    found = lens.without(TEXT, [("it", "animal")])
    assert reply == {"before": found.before, "after": found.after, "note": found.note}
    assert json.dumps(reply)
    e = lens.explain(TEXT, "it")
    moved = found.moved[e.words.find("it")]
    assert moved == pytest.approx(float(e.knockout[e.words.find("animal")]), rel=1e-3)
    assert found.before == e.said


def test_cutting_several_links_at_once(lens: Lens) -> None:
    found = lens.without(TEXT, [("it", "animal"), ("it", "street"), ("tired", "it")])
    assert len(found.moved) == 2
    alone = lens.without(TEXT, [("it", "animal")])
    assert set(alone.moved.values()) != set(found.moved.values())
    assert found.note.startswith("it moves by ")


@pytest.mark.parametrize("links", [[[99, 0]], [[0]], "it", [["it", "animal"]]])
def test_links_that_are_none(lens: Lens, links: object) -> None:
    with pytest.raises(OptionError, match="expected pairs of word numbers from 0 to"):
        answer_cut(lens, TEXT, {"links": links})


def test_links_of_the_translation_cannot_be_cut(lens: Lens) -> None:
    with pytest.raises(OptionError, match="only links within the text"):
        answer_cut(lens, TEXT, {"links": [[0, 1]], "queries": "translation"})


def test_a_page_is_written(lens: Lens, tmp_path: Path) -> None:
    lens.view(TEXT, "it").save(tmp_path / "it.html")
    assert (tmp_path / "it.html").stat().st_size > 10_000
    compared = lens.compare("bat", "The bat hit the ball.", "a bat", among=[TEXT]).view()
    assert compared.compared is not None
    assert compared.compared.word == "bat"
    assert "bat" in compared.text("compare")
