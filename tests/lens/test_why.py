"""`Lens.why`: the links that made a model write a word."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from regard import Translator, cut
from regard.errors import OptionError, WordError
from regard.lens import Cut, Lens, Why
from regard.lens.predictions.translation import TranslationPrediction
from regard.view.figure.wording import percent

TIRED = "The animal didn't cross the street because it was too tired."
WIDE = "The animal didn't cross the street because it was too wide."


@pytest.fixture(scope="module")
def lens(pocket: Lens) -> Lens:
    return pocket


@pytest.fixture(scope="module")
def tired(lens: Lens) -> Why:
    return lens.why(TIRED, "es", instead="sie")


def without_flip(why: Why) -> str:
    """The conclusion without its last sentences, about the links that decide."""
    return re.split(r" Th(?:is link decides|ese links decide):", why.conclusion)[0]


def test_the_headline_finding(tired: Why) -> None:
    first = tired.links[0]
    assert (first.place, first.query, first.key) == ("cross", "es", "animal")
    assert first.attention > 0.95
    assert tired.looked_at.word == tired.matters_most.word == "animal"
    assert tired.matters_most.text == "Das Tier überquerte die Straße nicht, weil sie zu müde war."


@pytest.mark.parametrize("share", [0.9208, 0.0042, 0.0003])
def test_the_conclusion_has_the_percentages_of_the_figure(tired: Why, share: float) -> None:
    assert f"*es* ({percent(share, ' ')})" in replace(tired, probability=share).conclusion


def test_the_metric_is_the_difference_of_log_probabilities(tired: Why) -> None:
    translator = Translator.load("pocket-en-de")
    step = translator.tokenizer.tokens(translator.tokenizer.encode(tired.written)).index("▁es")
    both = [tired.written, tired.written.replace(" es ", " sie ")]
    one, other = (row[step] for row in translator.score([TIRED] * 2, both, tokens=True))
    assert tired.metric == pytest.approx(one - other, abs=1e-3)
    assert tired.probability == pytest.approx(2.718281828**one, abs=1e-5)


def test_measured_changes_are_those_of_real_cuts(lens: Lens, tired: Why) -> None:
    model = lens.model
    tokenizer = Translator.load("pocket-en-de").tokenizer
    source = torch.tensor([[*tokenizer.encode(TIRED), tokenizer.end]])
    written = tokenizer.encode(tired.written)
    step = tokenizer.tokens(written).index("▁es")
    target = torch.tensor([[tokenizer.start, *written[:step]]])
    es, sie = (tokenizer.encode(word)[0] for word in ("es", "sie"))
    for link in (*tired.links[:3], *tired.control[:2]):
        one = Cut(
            link.query_positions,
            link.key_positions,
            layer=link.module,
            heads=link.head,
            kind="cross" if link.place == "cross" else "self",
        )
        with torch.no_grad(), cut(model, [one]):
            logits = model(source, target)[0, -1]
        assert link.cut == pytest.approx(float(logits[es] - logits[sie]) - tired.metric, abs=1e-3)


def test_estimates_agree_with_real_cuts(tired: Why) -> None:
    assert tired.agreement > 0.9
    assert tired.estimated > 3000
    assert len(tired.links) == 32
    assert len(tired.control) == 16


def test_words_alone_are_cut_without_their_links(lens: Lens, tired: Why) -> None:
    found = lens.why(TIRED, "es", instead="sie", most=0, control=0)
    assert (found.links, found.control, found.flip) == ((), (), None)
    assert found.conclusion == without_flip(tired)
    assert str(found) == found.conclusion
    for one, other in zip(found.words, tired.words, strict=True):
        assert (one.word, one.writes, one.text) == (other.word, other.writes, other.text)
        assert one.matters == pytest.approx(other.matters, abs=1e-4)
    torch.testing.assert_close(found.effects, tired.effects, atol=1e-3, rtol=0)


def test_without_texts_nothing_is_said_of_them(lens: Lens, tired: Why) -> None:
    found = lens.why(TIRED, "es", instead="sie", most=2, control=1, texts=False)
    assert found.flip is None
    assert found.conclusion == without_flip(tired)
    assert [one.writes for one in found.words] == [one.writes for one in tired.words]


def test_a_cut_of_the_last_row_is_that_of_the_whole_model(lens: Lens) -> None:
    with torch.no_grad():
        prediction = lens.analyse(TIRED).prediction("es", None)
        assert isinstance(prediction, TranslationPrediction)
        assert prediction.step > 0
        rows = prediction.without_word
        whole = [*map(prediction._memory_without, ([one] for one in prediction.word_cuts))]
        for row, memory, cuts in zip(rows, whole, prediction.word_cuts, strict=True):
            with cut(lens.model, cuts):
                expected = prediction._decode(memory)[0]
            torch.testing.assert_close(row, expected, atol=1e-4, rtol=0)


def test_a_link_or_two_flip_the_word(tired: Why) -> None:
    assert tired.flip is not None
    assert 1 <= len(tired.flip.links) <= 2
    assert {(one.query, one.key) for one in tired.flip.links} == {("es", "animal")}
    assert tired.flip.word == "sie"
    assert tired.flip.text == tired.matters_most.text


def test_the_alternative_is_what_is_written_without_the_word_that_matters(lens: Lens) -> None:
    found = lens.why(TIRED, "it", most=4, control=1)  # a source word: the word written for it
    assert (found.word, found.instead) == ("es", "sie")


def test_looking_is_not_mattering(lens: Lens) -> None:
    found = lens.why(WIDE, most=4, control=1)  # without a word: the pronoun
    assert found.word == "sie"
    order = sorted(found.words, key=lambda one: -one.looked)
    idle = [one for one in order if one.looked > 0.9 and one.matters < 0.2 and not one.special]
    assert idle
    assert max(one.matters for one in order) > 0.4
    assert "Cutting its links to *street* costs" in found.conclusion


def test_a_sentence_without_a_pronoun(lens: Lens) -> None:
    found = lens.why("He hit the ball with the bat.", most=2, control=1)
    assert found.word in found.written
    assert found.matters_most.matters > 0.5


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("The trophy didn't fit in the suitcase because it was too big.", "sie"),
        ("The dog chased the cat because it was hungry.", "er"),
    ],
)
def test_the_default_is_the_pronoun_not_the_comma_before_its_clause(
    lens: Lens, text: str, word: str
) -> None:
    assert lens.why(text, most=1, control=1).word == word
    assert lens.why(text, "it", most=1, control=1).word == word


def test_words_of_several_tokens_are_compared_where_they_differ(lens: Lens) -> None:
    written = lens.translate("The librarian was reading.").text
    word = max(written.rstrip(".").split(), key=len)
    tokens = lens.analyse("The librarian was reading.").translated.written
    unit = tokens.find(word)
    if len(tokens.tokens_of(unit)) < 2:
        pytest.skip(f"{word!r} is one token")
    found = lens.why("The librarian was reading.", word, instead=word[:-1], most=1, control=1)
    assert found.instead == word[:-1]


def test_an_unsure_translation_is_noted_beside_the_tokens_of_a_word(lens: Lens) -> None:
    text = "Zymurgists eschew heteroscedastic perambulations."
    found = lens.why(text, 0, instead="Kirschbaum", most=0, control=0, texts=False)
    assert "tokens; the words are compared at the first that differs" in found.note
    assert re.search(r"unsure of this whole translation \(\d+ % a subword", found.note)


@pytest.mark.parametrize(
    ("text", "word", "instead", "error"),
    [
        ("", "es", None, "the text is empty"),
        (TIRED, "sies", None, "did not write 'sies'.*did you mean 'es'"),
        (TIRED, "es", "es", "is the word itself"),
        (TIRED, "es", "", "is the word itself"),
        ("The cat saw the cat.", "Katze", None, "2 times; say which: Katze#1 or Katze#2"),
        (TIRED, 99, None, "word 99"),
    ],
)
def test_bad_questions(lens: Lens, text: str, word: str, instead: str | None, error: str) -> None:
    with pytest.raises((OptionError, WordError), match=error):
        lens.why(text, word, instead=instead)


@pytest.mark.parametrize(
    ("model", "text", "word", "instead"),
    [
        ("GPT2LMHeadModel", "the animal was too", "dog", None),
        ("GPT2LMHeadModel", "the animal was too", "cross", "dog"),
        ("BertForMaskedLM", "the animal was too [MASK]", "dog", None),
        ("BertForMaskedLM", "the animal was too dog", "dog", None),
        ("BertForMaskedLM", "the animal was too tired", "tired", "dog"),
        ("MarianMTModel", "the animal was too tired", None, "dog"),
    ],
)
def test_a_word_outside_the_vocabulary(
    model: str,
    text: str,
    word: str | None,
    instead: str | None,
    word_piece: Any,
    sizes: dict[str, Any],
) -> None:
    """It has no probability of its own: the tokenizer reads all such words as the same token."""
    transformers = pytest.importorskip("transformers", reason="needs the extra hf")
    kind = {"G": "gpt2", "B": "bert", "M": "marian"}[model[0]]
    config = transformers.AutoConfig.for_model(kind, vocab_size=21, **sizes.get(kind, {}))
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=word_piece, unk_token="[UNK]", mask_token="[MASK]"
    )
    torch.manual_seed(0)
    with pytest.raises(OptionError, match="'dog' is not in the model's vocabulary"):
        Lens(getattr(transformers, model)(config), fast).why(text, word, instead=instead)


def test_numbers_that_are_no_counts(lens: Lens) -> None:
    with pytest.raises(OptionError, match="most=-1, expected 0 or more"):
        lens.why(TIRED, "es", most=-1)


def test_asking_leaves_the_model_as_it_was(lens: Lens) -> None:
    assert all(p.grad is None for p in lens.model.parameters())
    assert not lens.model.training
    with torch.inference_mode():
        found = lens.why(TIRED, "es", instead="sie", most=1, control=1)
    assert found.links[0].cut is not None


def test_a_word_looked_at_in_vain_is_mentioned(tired: Why) -> None:
    """As much as the word that matters; without it nothing changes."""
    told = "It looks at *{}* about as much ({:.2f}"
    one = next(one for one in tired.words if told.format(one.word, one.looked) in tired.conclusion)
    assert one.looked >= 0.95 * tired.looked_at.looked
    assert abs(one.matters) < 0.02
    words = [replace(one, matters=0.5) for one in tired.words]
    assert "about as much" not in replace(tired, words=tuple(words)).conclusion


def test_a_word_that_speaks_against_it_is_mentioned(tired: Why) -> None:
    """Without it the written word is more likely."""
    words = tuple(replace(one, matters=-0.3, probability=0.95) for one in tired.words)
    assert "without those to *The*, it rises to 95 %." in replace(tired, words=words).conclusion
    words = (replace(tired.words[0], matters=0.5), *words[1:])
    told = "Cutting its links to *animal* raises *es* to 95 %."
    assert told in replace(tired, words=words).conclusion


def test_as_data(tired: Why) -> None:
    data = json.loads(tired.to_json())
    assert data["links"][0]["key"] == "animal"
    assert len(data["words"]) == len(tired.words)
    frame = tired.to_frame()
    assert list(frame["control"]).count(True) == 16
    assert list(replace(tired, links=(), control=()).to_frame().columns) == list(frame.columns)
    assert len(repr(tired)) < 120
    share, looked = round(100 * tired.probability), tired.looked_at
    told = f"When it writes *es* ({share} %), it looks most at *animal* ({looked.looked:.2f}"
    assert str(tired).startswith(told)
    layer, head, word, attention, effect = tired.heads[0]
    assert (layer, head, word) == (looked.layer, looked.head, "animal")
    assert attention == pytest.approx(looked.looked)
    assert effect < -2
