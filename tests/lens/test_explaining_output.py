"""What the model writes, by `Lens.explain`: with all its links, and with one of them cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import tokenizers
import torch

from regard.lens import Lens, cut
from regard.lens.explanation import Effect, turned
from regard.nn import Classifier, LanguageModel, TransformerConfig
from regard.text import Tokenizer
from regard.translate import Translator
from tests.lens.small_models import TEXT

transformers = pytest.importorskip("transformers", reason="needs the extra hf")


def test_how_much_less_likely_the_translation_gets(lens: Lens, translator: Translator) -> None:
    e = lens.explain(TEXT, "it")
    [found] = translator.translate([TEXT])
    assert e.said == found.text
    assert e.probability is not None
    ids = translator.tokenizer.encode(TEXT)
    said = list(found._parts[0].found.tokens)
    source = torch.tensor([[*ids, Tokenizer.end]])
    target = torch.tensor([[Tokenizer.start, *said]])

    def likely() -> torch.Tensor:
        with torch.no_grad():
            logs = translator.model(source, target)[0].log_softmax(-1)
        return logs[range(len(said) + 1), [*said, Tokenizer.end]].sum()

    whole = likely()
    names = e.layers
    with cut(translator.model, [(e.words.tokens_of(e.word), e.words.tokens_of(1))], layers=names):
        without = likely()
    torch.testing.assert_close(e.probability[1], whole - without, atol=1e-4, rtol=1e-4)


def test_what_it_says_without_a_link(lens: Lens, translator: Translator) -> None:
    e = lens.explain(TEXT, "it")
    assert 1 <= len(e.effects) <= 3
    for effect in e.effects:
        edge = (e.words.tokens_of(e.word), e.words.tokens_of(effect.word))
        with cut(translator.model, [edge], layers=e.layers):
            [found] = translator.translate([TEXT])
        assert effect.text == found.text
    assert "If “it” and its translation cannot attend to “" in e.conclusion


def test_a_language_model_says_the_next_word(tokenizer: Tokenizer) -> None:
    torch.manual_seed(5)
    model = LanguageModel(TransformerConfig.preset("tiny", vocabulary=tokenizer.size)).eval()
    e = Lens(model, tokenizer).explain("the street was", "was")
    ids = torch.tensor([[Tokenizer.start, *tokenizer.encode("the street was")]])
    with torch.no_grad():
        best = int(model(ids)[0, -1].argmax())
    assert e.said == tokenizer.decode([best])
    assert e.names[0] == "<s>"
    assert e.attention.shape == (4, 4, 4)
    assert not e.translates


def test_a_next_word_without_a_spelling_goes_by_its_name(tokenizer: Tokenizer) -> None:
    config = TransformerConfig.preset("tiny", vocabulary=tokenizer.size, output_bias=True)
    model = LanguageModel(config).eval()
    with torch.no_grad():
        model.output_bias[Tokenizer.end] = 1e4  # which it says whatever it reads
    lens = Lens(model, tokenizer)
    e = lens.explain("the street was", "was", most=1)
    assert e.said == "</s>"
    assert "\nnext: </s>\n" in str(e)
    assert lens.without("the street", [("street", "the")]).after == "</s>"


def test_a_next_word_of_transformers_without_a_spelling(
    tokenizer: Tokenizer, sizes: dict[str, Any]
) -> None:
    """The end, half a character, and one that the tokenizer does not have."""
    torch.manual_seed(3)
    config = transformers.GPT2Config(vocab_size=tokenizer.size + 3, **sizes["gpt2"])
    lens = Lens(transformers.GPT2LMHeadModel(config).eval(), tokenizer._inner)
    lens.explain("the street", "street", most=1)
    byte = tokenizer.encode("ü")
    assert [
        lens._adapter.detokenize([i]) for i in (Tokenizer.end, byte[-1], tokenizer.size + 1)
    ] == [
        "</s>",
        tokenizer.tokens(byte)[-1],
        f"token {tokenizer.size + 1}",
    ]


def test_a_next_word_that_cannot_be_seen_is_spelled_out(lens: Lens) -> None:
    e = replace(
        lens.explain(TEXT, "it", most=1), said="\n", translates=False, effects=(Effect(1, "it"),)
    )
    assert "\nnext: '\\n'\n" in str(e)
    assert e.conclusion.endswith("the next word changes from '\\n' to “it”.")


def test_a_classifier_says_nothing(tokenizer: Tokenizer) -> None:
    torch.manual_seed(5)
    model = Classifier(TransformerConfig.preset("tiny", vocabulary=tokenizer.size), 2)
    model.train()
    e = Lens(model, tokenizer).explain("the street was wide", "wide")
    assert e.said is e.probability is e.agreement_with_probability is None
    assert model.training  # as it was
    again = Lens(model, tokenizer).explain("the street was wide", "wide")
    assert torch.equal(e.knockout, again.knockout)  # without dropout


def test_turned() -> None:
    assert turned("weil es zu müde war", "weil sie zu müde war") == "from “es” to “sie”"
    assert turned("a b c", "a x y c") == "from “b” to “x y”"
    assert turned("a b", "a") == "from “a b” to “a”"


def test_a_translator_of_transformers_says_what_it_generates(
    word_piece: tokenizers.Tokenizer, word_piece_ids: list[int], sizes: dict[str, Any]
) -> None:
    torch.manual_seed(4)
    config = transformers.MarianConfig(vocab_size=20, **sizes["marian"])
    model = transformers.MarianMTModel(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    lens = Lens(model, word_piece)
    ids = torch.tensor([word_piece_ids])
    e = lens.explain(TEXT, "it")
    written = model.generate(
        ids, num_beams=5, do_sample=False, max_new_tokens=2 * ids.shape[1] + 10
    )
    said = [int(i) for i in written[0][1:] if int(i) not in (0, 3)]
    assert e.said == lens._adapter.detokenize(said)
    looks, at = (e.words.tokens_of(e.words.find(word)) for word in ("it", "animal"))
    with cut(model.get_encoder(), [(looks, at)]), torch.no_grad():
        last = model.get_encoder()(ids).last_hidden_state
    output = transformers.modeling_outputs.BaseModelOutput(last_hidden_state=last)
    changed = model.generate(
        ids, encoder_outputs=output, num_beams=5, do_sample=False,
        max_new_tokens=2 * ids.shape[1] + 10,
    )  # fmt: skip
    instead = [int(i) for i in changed[0][1:] if int(i) not in (0, 3)]
    assert lens.without(TEXT, [("it", "animal")]).after == lens._adapter.detokenize(instead)
