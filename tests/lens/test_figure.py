"""`Why.view` and `regard.see`: the figure has the numbers of the lens, whatever the model."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

import regard
from regard.lens import Lens, Why
from regard.nn import Classifier, LanguageModel, TransformerConfig
from regard.text import Tokenizer
from regard.view import View
from regard.view.figure.wording import percent

TIRED = "The animal didn't cross the street because it was too tired."
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def tired(pocket: Lens) -> Why:
    return pocket.why(TIRED, "es", most=4, control=2)


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(one.itertext()) for one in root.iter(f"{SVG}text")]


def test_the_figure_tells_the_finding(tired: Why) -> None:
    figure = tired.view()
    shown = texts(figure.svg())
    assert shown[0] == "When it writes es, it looks back at animal."
    animal = tired.looked_at
    lost = f"−{100 * animal.matters:.0f}"
    assert {"animal", "es", f"{animal.looked:.2f}", percent(tired.probability), lost} <= set(shown)
    cut = texts(figure.picture(word="animal", cut=True).svg())
    assert cut[0] == "Without that link it writes sie instead of es."
    assert {"sie", *map(percent, animal.probabilities[:2])} <= set(cut)
    still = texts(figure.picture(word="it", cut=True).svg())[0]
    now = next(one.probability for one in tired.words if one.word == "it")
    before = percent(tired.probability)
    assert still == f"Without it it still writes es, at {percent(now)} instead of {before}."
    assert tired._repr_html_() == figure._repr_html_()
    assert str(figure).startswith("Why “es”?  pocket-en-de\n")
    assert len(repr(figure)) < 80


def test_a_cut_that_changes_the_number_of_words_shows_the_new_sentence() -> None:
    lens = Lens.open("pocket-en-de")
    for text, word, key, shorter in (
        (TIRED, "nicht", "didn't", True),
        ("I will go home if you don't stay.", "gehe", "go", False),
    ):
        why = lens.why(text, word, most=0, control=0)
        after = next(one.text for one in why.words if one.word == key)
        assert after is not None
        assert len(after.split()) != len(why.written.split())
        figure = why.view()
        [found] = figure.findings
        read = found.reads[found.find(key)]
        assert spaceless("".join(read.output)) == spaceless(after)
        assert read.output[read.places.index(found.position)] == read.writes
        kept = {a: b for a, b in zip(read.places, read.output, strict=True) if a >= 0}
        changed = [i for i, one in kept.items() if found.output[i] != one]
        assert changed == [found.position]
        assert (len(found.output) > len(read.output), -1 in read.places) == (shorter, not shorter)
        shown = texts(figure.svg(word=key, cut=True))
        at = shown.index(found.labels["reads"])
        start = max(i for i in range(at) if shown[i : i + 1] == read.output[:1])
        drawn = shown[start:at]
        struck = drawn.index(word)  # below the word that took its place
        assert [*drawn[:struck], *drawn[struck + 1 :]][: len(read.output)] == read.output
        assert after in re.sub(r"\s+", " ", figure.text())


def test_what_is_not_computed_after_a_cut_is_not_shown(tired: Why) -> None:
    data = tired.figure_data()
    data["words"] = [one | {"text": one["text"] and ""} for one in data["words"]]
    [found] = View(findings=[data]).findings
    read = found.reads[found.selected]
    assert read.output == [*found.output[: found.position], "sie"]
    assert read.places == list(range(found.position + 1))


def spaceless(text: str) -> str:
    return re.sub(r"\s", "", text)


def test_every_cut_has_the_probabilities_of_the_alternatives(tired: Why) -> None:
    names = [word for word, _ in tired.alternatives]
    assert names[:2] == ["es", "sie"]
    assert tired.alternatives[0][1] == pytest.approx(tired.probability)
    for one in tired.words:
        assert one.probabilities[0] == pytest.approx(one.probability)
    assert tired.matters_most.probabilities[1] > 0.5


def test_alternatives_are_named_as_in_the_headline(pocket: Lens) -> None:
    analysis = pocket.analyse("Hello, how are you?")
    found = pocket.why(analysis, "Hallo", most=0, control=0)
    names, shares = zip(*found.alternatives, strict=True)
    assert list(shares) == sorted(shares, reverse=True)
    assert (names[0], found.word) == ("Hallo", "Hallo")
    assert found.matters_most.writes == found.instead == "Wie"
    assert "Wie" in names
    prediction, adapter = analysis.prediction("Hallo", None), analysis.adapter
    beginning, whole, end = "▁g", "▁guten", "</s>"
    table = adapter.translator.tokenizer.tokens(range(adapter.vocabulary))
    tokens = [table.index(one) for one in (beginning, whole, end)]
    assert list(prediction.named(tokens).values()) == ["G…", "Guten", "the end"]


def test_the_steps_of_every_link_are_those_of_the_lens(tired: Why, pocket: Lens) -> None:
    row = tired.row
    layers, heads, words = tired.attention.shape
    assert row.words == tuple(range(words))
    assert torch.allclose(row.weight.sum(-1), torch.ones(layers, heads), atol=1e-4)
    assert torch.allclose(row.weight, tired.attention, atol=1e-5)
    for key, layer, head in ((1, 2, 2), (5, 0, 0), (10, 1, 3)):
        steps = pocket.steps(TIRED, query="es", key=key, layer=layer, head=head)
        assert float(row.product[layer, head, key]) == pytest.approx(steps.product, abs=1e-4)
        assert float(row.scaled[layer, head, key]) == pytest.approx(steps.scaled, abs=1e-4)
        assert torch.allclose(row.q[layer, head], steps.q, atol=1e-5)
        assert torch.allclose(row.k[layer, head, key], steps.k, atol=1e-5)
        total = (row.weight[layer, head].unsqueeze(-1) * row.v[layer, head]).sum(0)
        assert torch.allclose(total, steps.output, atol=1e-4)


def test_the_steps_of_a_word_of_several_subwords_say_so(pocket: Lens) -> None:
    why = pocket.why("The dog is hungry. It wants a bone.", "Er", most=0, control=0)
    mean = why.looked_at.looked
    assert why.row.subwords == 2
    assert why.steps.weight != pytest.approx(mean, abs=0.005)
    assert f"last of 2 subwords; the word's mean is {mean:.2f}" in why.view().text()


def test_see_and_save(tmp_path: Path) -> None:
    figure = regard.see(TIRED, "es")
    for name in ("it.svg", "it.html"):
        figure.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size < 1_000_000
    with pytest.raises(regard.errors.OptionError, match=r"\.svg or \.png or \.pdf or \.txt"):
        figure.save(tmp_path / "it.gif")
    with pytest.raises(
        regard.errors.WordError, match="no input word is 'cat'; there are The, animal"
    ):
        figure.picture(word="cat")


def config(tokenizer: Tokenizer) -> Any:
    torch.manual_seed(0)
    return TransformerConfig.preset(
        "tiny", vocabulary=tokenizer.size, encoder_depth=2, decoder_depth=2
    )


def test_a_language_model_shows_the_next_word(tokenizer: Tokenizer) -> None:
    figure = regard.see(
        "The street was wide", model=LanguageModel(config(tokenizer)).eval(), tokenizer=tokenizer
    )
    found = figure.findings[0]
    assert (found.kind, found.position, len(found.output)) == ("next", 0, 1)
    assert re.match(r"When it writes .+, it looks (back|most) at .+\.$", texts(figure.svg())[0])
    assert "it writes next" in texts(figure.svg())


def test_a_classifier_shows_its_class(tokenizer: Tokenizer) -> None:
    model = Classifier(config(tokenizer), classes=3).eval()
    figure = regard.see("The street was wide", model=model, tokenizer=tokenizer)
    assert figure.findings[0].kind == "choice"
    assert texts(figure.svg())[0].startswith("When it chooses ")
    assert "What it would choose" in " ".join(texts(figure.picture(word="street", cut=True).svg()))


def test_an_encoder_shows_how_far_a_vector_moves(bert: Any, word_piece: Any) -> None:
    transformers = pytest.importorskip("transformers")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=word_piece)
    figure = regard.see("the animal was too tired", model=bert(), tokenizer=fast)
    found = figure.findings[0]
    assert (found.kind, found.word) == ("vector", "tired")
    assert " attends most to " in texts(figure.svg())[0]
    cut = texts(figure.picture(word="animal", cut=True).svg())
    assert cut[0].startswith("Without animal the cosine of its vector to the original is ")
    assert "cosine" in cut


def test_of_a_long_text_the_words_that_seem_to_matter_are_cut(
    bert: Any, word_piece: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=word_piece)
    lens = Lens(bert(), fast)
    every = lens.why("the animal was too tired", "tired")
    monkeypatch.setattr("regard.lens.verification.WORDS", 3)
    some = lens.why("the animal was too tired", "tired")
    measured = [i for i, one in enumerate(some.words) if one.measured]
    assert len(measured) == 3
    assert some.words.index(some.looked_at) in measured
    assert all(one.measured for one in every.words)
    for i, one in enumerate(some.words):
        lost = every.words[i].matters if i in measured else 0.0
        assert one.matters == pytest.approx(lost, abs=1e-5)
    assert some.note.endswith("the links to the 3 with the largest estimated effect were cut, "
                              "one at a time.")  # fmt: skip
    measures = lens.measures("the animal was too tired", "tired")
    assert sum(not math.isnan(x) for x in measures.methods[0].scores) <= 3
