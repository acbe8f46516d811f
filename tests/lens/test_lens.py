"""What else a lens can be asked: vectors, translations, comparisons, a summary."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import tokenizers
import torch
from torch.nn import functional as F

from regard.errors import OptionError, WordError
from regard.lens import Lens
from regard.nn import Transformer, TransformerConfig
from regard.text import Tokenizer
from regard.translate import Translator
from tests.lens.small_models import LINES, TEXT

transformers = pytest.importorskip("transformers", reason="needs the extra hf")


def test_embed_is_the_models_own_vectors(lens: Lens, translator: Translator) -> None:
    embedded = lens.embed(TEXT)
    ids = torch.tensor([[*translator.tokenizer.encode(TEXT), Tokenizer.end]])
    with torch.no_grad():
        last = translator.model.encode(ids)[0]
        first = translator.model.source(ids)[0]
    words = embedded.words
    torch.testing.assert_close(embedded["it"][-1], last[words.tokens_of(words.find("it"))].mean(0))
    torch.testing.assert_close(embedded["."][0], first[words.tokens_of(words.find("."))].mean(0))
    assert embedded.vectors.shape == (4, len(words), 128)


def test_many_texts_are_embedded_as_one_by_one(
    lens: Lens, word_piece: tokenizers.Tokenizer, bert: Callable[..., Any]
) -> None:
    texts = [TEXT, "the bat", "The street was too wide.", "it"]
    for one in (lens, Lens(bert(), word_piece)):
        for text, found in zip(texts, one.embed_all(texts), strict=True):
            alone = one.embed(text)
            assert found.words.names == alone.words.names
            torch.testing.assert_close(found.vectors, alone.vectors, atol=1e-5, rtol=1e-4)


def test_similar_by_contextual_vectors(lens: Lens) -> None:
    found = lens.similar("the street was wide", "the bat hit it")
    one, other = (lens.embed(text) for text in ("the street was wide", "the bat hit it"))
    means = [each.vectors[-1, :-1].mean(0) for each in (one, other)]  # without the end
    assert float(found) == pytest.approx(float(F.cosine_similarity(*means, dim=0)), abs=1e-5)
    assert found.parts.shape == (4, 4)
    assert found.a == ("the", "street", "was", "wide")
    first = lens.similar("the street", "the street", layer=0)
    assert float(first) == pytest.approx(1.0, abs=1e-6)
    with pytest.raises(OptionError, match="similar: layer 9, but there are 4, numbered from 0"):
        lens.similar("a", "b", layer=9)


def test_every_result_is_one_line_in_a_notebook(lens: Lens, translator: Translator) -> None:
    results = (
        lens, translator, lens.explain(TEXT, "it"), lens.explain("it", "it"),
        lens.heads(TEXT, "it", "animal"), lens.score_heads([(TEXT, "it", "animal")]),
        lens.embed(TEXT), lens.translate(TEXT), lens.steps(TEXT, key="animal"), lens.summary(TEXT),
        lens.compare(TEXT, "the animal", "animal", among=["the bat"]),
    )  # fmt: skip
    for one in results:
        assert re.fullmatch(rf"{type(one).__name__}\(.{{9,180}}\)", repr(one))
        assert " at 0x" not in repr(one)


def test_what_has_a_view_shows_it_in_a_notebook(lens: Lens) -> None:
    e = lens.explain(TEXT, "it")
    compared = lens.compare(TEXT, "the animal", "animal", among=["the bat"])
    for one in (e, compared):
        assert one._repr_html_() == one.view()._repr_html_()
    assert lens.explain(TEXT, len(e.names) - 1)._repr_html_() is None  # the end token


def test_translate_sees_encoder_decoder_and_what_is_between(
    lens: Lens, translator: Translator
) -> None:
    told = lens.translate(TEXT)
    assert str(told) == told.text == translator.translate([TEXT])[0].text
    kinds = [told.seen.kind(name) for name in told.seen]
    assert kinds == ["self"] * 3 + ["self", "cross"] * 2
    cross = told.seen["decoder.blocks.1.cross"]
    assert cross.weights().shape[2:] == (len(told.target.tokens), len(told.source.tokens))


def test_a_marian_model_translates(sizes: dict[str, Any]) -> None:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model("marian", vocab_size=48, **sizes["marian"])
    model = transformers.MarianMTModel(config).eval()
    told = Lens(model, Tokenizer.train(LINES * 2, size=48)._inner).translate("the street")
    assert [told.seen.kind(name) for name in told.seen] == ["self", "self", "self", "cross"]
    assert told.target.special[0]


def test_a_text_longer_than_what_was_learned_is_not_translated(tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerConfig.preset("tiny", vocabulary=tokenizer.size)).eval()
    short = Lens(Translator(model, tokenizer, longest=6))
    with pytest.raises(OptionError, match="the model learned from at most 7; give it a sentence"):
        short.translate(TEXT)


def test_the_vector_of_a_text_is_the_mean_of_its_words(lens: Lens) -> None:
    embedded = lens.embed(TEXT)
    words = embedded.vectors[-1][:-1]  # the end of the text is no word
    torch.testing.assert_close(embedded.sentence(), words.mean(0))
    other = lens.embed("because the bat hit it")
    cosine = F.cosine_similarity(embedded.sentence(1), other.sentence(1), dim=0)
    assert lens.similar(TEXT, other.words.text, layer=1).value == pytest.approx(
        float(cosine), abs=1e-5
    )


def test_a_word_that_is_written_differently(lens: Lens) -> None:
    found = lens.compare("the bat", "the BAT", "bat", among=LINES)
    assert found.static < 0.99
    assert found.conclusion.startswith("Written differently, bat has static vectors of cosine")


def test_a_capital_leaves_the_static_vector_as_it_is(lens: Lens) -> None:
    found = lens.compare("the bat", "The street", "the", among=LINES)
    assert found.static == pytest.approx(1.0, abs=1e-6)


def test_compare(lens: Lens) -> None:
    found = lens.compare(TEXT, "because the bat hit it", "it", among=LINES)
    old = lens.compare("it", TEXT, "because the bat hit it", among=LINES)
    assert str(old) == str(found)
    one, other = (lens.embed(text)["it"] for text in (TEXT, "because the bat hit it"))
    assert found.static == pytest.approx(1.0, abs=1e-6)
    torch.testing.assert_close(found.cosine, F.cosine_similarity(one, other, dim=-1))
    side = found.sides[1]
    assert side.neighbours[0].word == "it"
    assert side.neighbours[0].cosine == pytest.approx(1.0, abs=1e-5)
    assert side.pulls("knockout", 2) == side.explanation.top("knockout", 2)
    assert side.becomes is not None
    assert json.dumps(found.to_data())
    assert "after layer 2" in str(found)
    assert "after layer 3" not in str(found)
    with pytest.raises(WordError, match="no word 'it'"):
        lens.compare(TEXT, "the bat", "it")


def test_summary(lens: Lens) -> None:
    found = lens.summary(TEXT)
    e = lens.explain(TEXT, "it", tokens=True)
    weights = torch.stack([look.weights()[0] for look in e.looks.values()])
    entropy = -(weights * weights.clamp(min=1e-12).log2()).sum(-1).mean(-1)
    torch.testing.assert_close(found.entropy, entropy, atol=1e-4, rtol=1e-4)
    received = found.words.summed(weights.sum(2).mean((0, 1)))
    torch.testing.assert_close(found.received, received, atol=1e-4, rtol=1e-4)
    assert str(found).startswith("12 words in 3 layers\n\nsharpest heads")  # without the end
    assert found.most(1)[0][0] in str(found)
    assert found.table(3).count("\n") == str(found).count("\n") - 7
    data = found.to_data()
    assert [word for word, special in zip(data["words"], data["special"], strict=True) if special]
    with pytest.raises(OptionError, match="most: n=0, expected 1 or more"):
        found.most(0)


def test_what_is_looked_at_most_is_told_apart(lens: Lens) -> None:
    found = lens.summary(f"{TEXT} {TEXT}")
    for name, times in found.most(30):
        assert times == pytest.approx(float(found.received[found.words.find(name)]))
    assert {"it#1", "it#2"} < {name for name, _ in found.most(30)}


def test_special_tokens_that_stand_in_the_text_are_special(bert: Callable[..., Any]) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "street"]
    inner = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    inner.add_special_tokens(words[:4])
    lens = Lens(bert(), inner)
    found = lens.words("the [SEP] unknown street")
    assert found.names == ("the", "[SEP]", "unknown", "street")
    assert found.is_word == (True, False, True, True)
    assert "[SEP]" not in dict(lens.summary("the [SEP] street").most())
    assert lens.explain("the [SEP] street", "[SEP]").word == 1
    with pytest.raises(OptionError, match="'\\[SEP\\]' is a special token, not a word"):
        lens.compare("the [SEP]", "street [SEP]", "[SEP]", among=["the"])


def test_a_model_without_a_mask_reads_texts_one_by_one(word_piece: tokenizers.Tokenizer) -> None:
    """FNet mixes all that it is given, padding too."""
    torch.manual_seed(0)
    config = transformers.FNetConfig(
        vocab_size=60, hidden_size=24, num_hidden_layers=2, intermediate_size=48,
        max_position_embeddings=32,
    )  # fmt: skip
    lens = Lens(transformers.FNetModel(config).eval(), word_piece)
    _, short = lens.embed_all([TEXT, "the street"])
    torch.testing.assert_close(short.vectors, lens.embed("the street").vectors)


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda lens: lens.explain(TEXT, None), "word is NoneType, expected a word of the text"),
        (lambda lens: lens.explain(TEXT, 1.5), "word is float, expected a word of the text"),
        (lambda lens: lens.explain(TEXT, ("it",)), "word is tuple, expected a word of the text"),
        (lambda lens: lens.explain(TEXT, True), "word True, but there are 13"),
        (lambda lens: lens.explain(TEXT, "it", most="x"), "explain: most='x', expected a whole nu"),
        (lambda lens: lens.explain(TEXT, "it", most=1.5), "explain: most=1.5, expected a whole nu"),
        (lambda lens: lens.explain(b"it", 0), "lens: text is bytes, expected a string"),
        (lambda lens: list(lens.explain_all(5)), "explain_all: items is int, expected a list"),
        (lambda lens: list(lens.explain_all([TEXT])), 'items has "The.*", expected \\(text, word'),
        (lambda lens: lens.heads(TEXT, "it", None), "word is NoneType, expected a word of the te"),
        (lambda lens: lens.embed_all(TEXT), "embed_all: texts is str, expected a list"),
        (lambda lens: lens.embed_all(None), "embed_all: texts is NoneType, expected a list"),
        (lambda lens: lens.without(TEXT, 5), "without: links is int, expected a list"),
        (
            lambda lens: lens.without(TEXT, [("it",)]),
            "links has \\('it',\\), expected \\(word attending",
        ),
        (lambda lens: lens.without(TEXT, ("it", "the")), "without: links has 'it', expected \\(w"),
        (lambda lens: lens.similar(TEXT, TEXT, layer=None), "similar: layer None, but there are 4"),
        (lambda lens: lens.embed(TEXT).sentence(4), "sentence: layer 4, but there are 4"),
        (lambda lens: lens.embed(TEXT).sentence("x"), "sentence: layer 'x', but there are 4"),
        (lambda lens: lens.compare(TEXT, TEXT, None), "word is NoneType, expected a word of the"),
        (lambda lens: lens.compare(TEXT, TEXT, -1), "compare: -1 is a special token, not a word"),
        (lambda lens: lens.compare(TEXT, TEXT, "it", among=5), "texts is int, expected a list"),
        (lambda lens: lens.summary(TEXT).most("x"), "most: n='x', expected a whole number"),
        (lambda lens: lens.score_heads(5), "score_heads: questions is int, expected a list"),
        (lambda lens: Lens.open(None), "Lens.open: what is NoneType, expected the name of a mod"),
    ],
)
def test_what_is_asked_wrongly(lens: Lens, ask: Callable[[Lens], object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ask(lens)


def test_many_texts_need_not_be_a_list(lens: Lens) -> None:
    assert [one.words.text for one in lens.embed_all(iter(["the bat", "it"]))] == ["the bat", "it"]
