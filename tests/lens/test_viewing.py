"""What the lens found, as a view: the same numbers, words without special tokens, links cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from regard.lens import Lens
from regard.lens.methods import score
from regard.lens.views import text_of
from regard.nn import LanguageModel, Transformer, TransformerConfig
from regard.text import Tokenizer
from regard.text.words import Words
from regard.translate import Translator
from tests.lens.small_models import TEXT


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
        ("masked", "translation", "written so far"),
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


def test_links_that_were_not_cut_are_no_numbers_in_a_view(lens: Lens) -> None:
    explained = lens.explain(TEXT, "it", most=3).view().explained
    assert explained is not None
    values = explained.methods[3].values(len(lens.words(TEXT)) - 1)
    assert np.isnan(values).sum() == len(values) - 3


def test_a_language_model_sees_only_what_came_before(tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    model = LanguageModel(TransformerConfig.preset("tiny", vocabulary=tokenizer.size)).eval()
    view = Lens(model, tokenizer).view("The bat hit")
    assert [layer.kind for layer in view.layers] == ["masked"] * 4
    assert list(view.texts) == ["text"]


def test_the_rows_of_the_decoder_are_the_words_being_written(lens: Lens) -> None:
    view = lens.view(TEXT, 0, every=False)
    rows, columns = view.texts["translation"], view.texts["written so far"]
    assert rows.tokens[:-1] == columns.tokens[1:]
    assert view.findings[0].word == rows.words[0]
    analysis = lens.analyse(TEXT)
    for layer in view.layers:
        if layer.kind == "cross":
            break
    else:
        raise AssertionError("no cross-attention")
    expected = next(
        analysis.translated.seen[name]
        for name in analysis.translated.seen
        if analysis.translated.seen.kind(name) == "cross"
    )
    torch.testing.assert_close(layer.look.weights(), expected.weights())


def test_measures_are_those_of_the_methods(lens: Lens) -> None:
    measures = lens.measures(TEXT, 0)
    prediction = lens.analyse(TEXT).prediction(0, None)
    names = [method.name for method in measures.methods]
    assert names[0] == "knockout"
    assert "integrated-gradients" not in names
    metric = f"log p({prediction.word}) − log p({prediction.word_instead})"
    assert measures.methods[0].note == f"loss of {metric}, measured by cutting"
    assert all(method.note for method in measures.methods)
    for method in measures.methods:
        expected = score(method.name, prediction)[: len(measures.words)].double()
        torch.testing.assert_close(torch.as_tensor(method.scores), expected)


def test_a_cut_moves_the_vector_as_the_explanation_says(lens: Lens) -> None:
    found = lens.without(TEXT, [("it", "animal")])
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


def test_a_page_is_written(lens: Lens, tmp_path: Path) -> None:
    lens.view(TEXT, 0, every=False).save(tmp_path / "it.html")
    assert (tmp_path / "it.html").stat().st_size > 10_000
    compared = lens.compare("The bat hit the ball.", "a bat", "bat", among=[TEXT]).view()
    assert compared.compared is not None
    assert compared.compared.word == "bat"
    assert "bat" in compared.text("compare")
