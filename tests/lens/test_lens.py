"""`Lens` on models of regard and of transformers: what it says is what can be computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import models, pre_tokenizers, processors
from torch.nn import functional as F

import regard
from regard.errors import FileError, OptionError, WordError
from regard.lens import Lens, cut
from regard.lens.explanation import METHODS, turned
from regard.lens.heads import Question
from regard.lens.measures import agreement, rollout
from regard.nn import Classifier, LanguageModel, Transformer, TransformerConfig
from regard.text import Tokenizer
from regard.text.grammar import Pair
from regard.translate import Translator

transformers = pytest.importorskip("transformers", reason="needs the extra hf")

TEXT = "The animal didn't cross the street because it was too tired."
LINES = [TEXT, "The street was too wide.", "Das Tier war zu müde.", "because the bat hit it"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(LINES * 2, size=48)


@pytest.fixture(scope="module")
def translator(tokenizer: Tokenizer) -> Translator:
    torch.manual_seed(0)
    config = TransformerConfig.preset(
        "tiny", vocabulary=tokenizer.size, encoder_depth=3, decoder_depth=2
    )
    return Translator(Transformer(config).eval(), tokenizer)


@pytest.fixture(scope="module")
def lens(translator: Translator) -> Lens:
    return Lens(translator)


@pytest.fixture(scope="module")
def word_piece() -> tokenizers.Tokenizer:
    words = "[PAD] [UNK] [CLS] [SEP] the animal didn ' t cross street because it was too tire ##d ."
    vocabulary = {word: i for i, word in enumerate(words.split())}
    inner = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.normalizer = tokenizers.normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    inner.enable_truncation(4)  # as some files ask for; the lens reads the whole text
    return inner


def bert(vocabulary: int = 60, **more: Any) -> Any:
    torch.manual_seed(1)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
    config = transformers.BertConfig(
        vocab_size=vocabulary, intermediate_size=48, max_position_embeddings=32, **sizes, **more
    )
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def sizes(model: str) -> dict[str, Any]:
    return {
        "gpt2": {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 40},
        "llama": {
            "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "intermediate_size": 48,
        },
        "marian": {
            "d_model": 24, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 3,
            "decoder_attention_heads": 3, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
            "pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 0, "max_length": 12,
            "forced_eos_token_id": 3,
        },
    }[model]  # fmt: skip


# ---- explain --------------------------------------------------------------------------------


def test_attention_is_what_eager_attention_returns(word_piece: tokenizers.Tokenizer) -> None:
    model = bert()
    e = Lens(model, word_piece).explain(TEXT, "it")
    eager = bert(attn_implementation="eager")
    ids = torch.tensor([word_piece_ids(word_piece)])
    with torch.no_grad():
        expected = eager(ids, output_attentions=True).attentions
    names = ["[CLS]", "The", "animal", "didn't", "cross", "the", "street", "because", "it"]
    assert list(e.names) == [*names, "was", "too", "tired", ".", "[SEP]"]
    pieces = [[0], [1], [2], [3, 4, 5], [6], [7], [8], [9], [10], [11], [12], [13, 14], [15], [16]]
    for layer, weights in enumerate(expected):
        row = weights[0, :, 10]
        by_hand = torch.stack([row[:, own].sum(-1) for own in pieces], -1)
        torch.testing.assert_close(e.attention[layer], by_hand, atol=1e-5, rtol=0)
    torch.testing.assert_close(e.scores("attention"), e.attention.mean((0, 1)))
    torch.testing.assert_close(e.scores("attention", 1, 2), e.attention[1, 2])


def word_piece_ids(inner: tokenizers.Tokenizer) -> list[int]:
    copy = tokenizers.Tokenizer.from_str(inner.to_str())
    copy.no_truncation()
    return list(copy.encode(TEXT).ids)


def test_norm_is_weight_times_what_the_head_passes_on(word_piece: tokenizers.Tokenizer) -> None:
    model = bert()
    lens = Lens(model, word_piece)
    e = lens.explain(TEXT, "it", tokens=True)
    x = lens.embed(TEXT, tokens=True).vectors[0]
    own = model.encoder.layer[0].attention
    values = own.self.value(x).reshape(len(x), 3, 8)
    matrix = own.output.dense.weight.T.reshape(3, 8, 24)
    passed = torch.einsum("khe,hew->hkw", values, matrix)
    expected = e.attention[0][:, :, None] * passed
    close = {"atol": 1e-5, "rtol": 1e-4}
    torch.testing.assert_close(e.norm[0], expected.norm(dim=-1), **close)
    torch.testing.assert_close(e.norm_of_layers[0], expected.sum(0).norm(dim=-1), **close)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "marian"])
def test_the_matrix_behind_the_heads_is_found(kind: str, tokenizer: Tokenizer) -> None:
    torch.manual_seed(3)
    config = transformers.AutoConfig.for_model(kind, vocab_size=tokenizer.size, **sizes(kind))
    model = (
        transformers.MarianMTModel(config)
        if kind == "marian"
        else transformers.AutoModelForCausalLM.from_config(config)
    ).eval()
    e = Lens(model, tokenizer._inner).explain("the street was wide", "was")
    alone = torch.stack([look.contributions(queries=[0])[0, :, 0] for look in e.looks.values()])
    assert e.norm.shape[:2] == alone.shape[:2]
    own = next(module for name, module in model.named_modules() if name.endswith(
        {"gpt2": "c_proj", "llama": "o_proj", "marian": "out_proj"}[kind]))  # fmt: skip
    look = next(iter(e.looks.values()))
    matrix = own.weight if kind == "gpt2" else own.weight.T
    heads = look.q.shape[1]
    v = look.v[0].repeat_interleave(heads // look.v.shape[1], 0)
    passed = (v @ matrix.reshape(heads, -1, matrix.shape[-1])).norm(dim=-1)
    tokens = e.words.tokens_of(e.word)
    weights = look.weights(queries=tokens)[0].mean(1)
    torch.testing.assert_close(e.norm[0], e.words.summed(weights * passed))
    assert e.said is not None


def test_rollout_is_the_product_of_all_layers(lens: Lens) -> None:
    e = lens.explain(TEXT, "it", tokens=True)
    n = len(e.names)
    product = torch.eye(n)
    for look in e.looks.values():
        product = (look.weights()[0].mean(0) + torch.eye(n)) / 2 @ product
    torch.testing.assert_close(e.rollout, product[e.word])
    torch.testing.assert_close(
        rollout(list(e.looks.values()), n, [2, 5]), (product[2] + product[5]) / 2
    )


def test_knockout_is_the_model_with_one_link_cut(lens: Lens) -> None:
    e = lens.explain(TEXT, "it")
    tokens = e.words.tokens_of(e.word)
    whole = lens.embed(TEXT, tokens=True).vectors[-1][tokens].mean(0)
    for name in (0, 3, len(e.names) - 1):
        with cut(lens.model, [(tokens, e.words.tokens_of(name))]):
            without = lens.embed(TEXT, tokens=True).vectors[-1][tokens].mean(0)
        expected = (without - whole).norm() / whole.norm()
        torch.testing.assert_close(e.knockout[name], expected, atol=1e-5, rtol=1e-4)
    assert e.knockout_of_heads is not None
    with cut(lens.model, [(tokens, e.words.tokens_of(2))], layers=1, heads=3):
        without = lens.embed(TEXT, tokens=True).vectors[-1][tokens].mean(0)
    expected = (without - whole).norm() / whole.norm()
    torch.testing.assert_close(e.knockout_of_heads[1, 3, 2], expected, atol=1e-5, rtol=1e-4)


def test_every_pair_at_once(lens: Lens) -> None:
    every = lens.knockouts(TEXT)
    e = lens.explain(TEXT, "street")
    torch.testing.assert_close(every[e.word], e.knockout, atol=1e-5, rtol=1e-4)


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
    assert "With the link it → " in e.conclusion


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


def test_a_classifier_says_nothing(tokenizer: Tokenizer) -> None:
    torch.manual_seed(5)
    model = Classifier(TransformerConfig.preset("tiny", vocabulary=tokenizer.size), 2)
    model.train()
    e = Lens(model, tokenizer).explain("the street was wide", "wide")
    assert e.said is e.probability is e.agreement_with_probability is None
    assert model.training  # as it was
    again = Lens(model, tokenizer).explain("the street was wide", "wide")
    assert torch.equal(e.knockout, again.knockout)  # without dropout


def test_only_so_many_links_are_cut(lens: Lens) -> None:
    whole, e = lens.explain(TEXT, "it"), lens.explain(TEXT, "it", most=4)
    there = ~e.knockout.isnan()
    assert int(there.sum()) == 4
    torch.testing.assert_close(e.knockout[there], whole.knockout[there], atol=1e-5, rtol=1e-4)
    assert there[int(whole.scores("attention").argmax())]
    assert "·" in str(e)
    assert None in json.loads(e.to_json())["scores"]["knockout"]
    with pytest.raises(OptionError, match="most=0, expected 1 or more"):
        lens.explain(TEXT, "it", most=0)


def test_agreement_is_spearmans() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy comes with the extra vectors")
    torch.manual_seed(0)
    one, other = torch.rand(20), torch.rand(20).round(decimals=1)
    assert agreement(one, other) == pytest.approx(stats.spearmanr(one, other).statistic)
    assert agreement([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert agreement([1.0], [2.0]) != agreement([1.0], [2.0])  # nan


def test_agreement_leaves_out_the_word_itself_and_special_tokens(lens: Lens) -> None:
    e = lens.explain(TEXT, "it")
    others = [i for i, real in enumerate(e.words.is_word) if real and i != e.word]
    for method in METHODS[:3]:
        expected = agreement(e.scores(method)[others], e.knockout[others])
        assert e.agreement[method] == pytest.approx(expected)


def test_the_table_and_the_data_say_the_same(lens: Lens) -> None:
    e = lens.explain(TEXT, "it")
    data = json.loads(e.to_json())
    lines = str(e).splitlines()
    assert lines[0].split() == [*METHODS, "unlikelier"]
    row = next(line for line in lines if line.startswith("animal"))
    place = data["words"].index("animal")
    columns = [data["scores"][name][place] for name in (*METHODS, "probability")]
    assert [float(x) for x in row.split()[1:]] == pytest.approx(columns, abs=6e-4)
    assert lines[-1] == data["conclusion"] == e.conclusion
    assert len(e.table(3).splitlines()) == len(lines) - len(e.names) + 3
    frame = pytest.importorskip("pandas", reason="to_frame needs pandas") and e.to_frame()
    assert frame["word"].tolist() == data["words"]
    assert frame["norm"].tolist() == pytest.approx(data["scores"]["norm"], abs=1e-4)


def test_turned() -> None:
    assert turned("weil es zu müde war", "weil sie zu müde war") == 'from "es" to "sie"'
    assert turned("a b c", "a x y c") == 'from "b" to "x y"'
    assert turned("a b", "a") == 'from "a b" to "a"'


# ---- heads ----------------------------------------------------------------------------------


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
    among_all = lens.score_heads([(TEXT, "it", "because")])
    assert among_all.nearest == 1.0
    path.write_text('{"text": "a"}\n', encoding="utf-8")
    with pytest.raises(FileError, match="line 1: score_heads: 'word' is missing"):
        lens.score_heads(path)
    with pytest.raises(FileError, match="cannot be read: No such file"):
        lens.score_heads(tmp_path / "none.jsonl")
    with pytest.raises(OptionError, match="there are no questions"):
        lens.score_heads([])
    with pytest.raises(OptionError, match="expected \\(text, word, referent\\)"):
        Question.of("text")


# ---- embed, translate, compare, summary -----------------------------------------------------


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
    lens: Lens, word_piece: tokenizers.Tokenizer
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
    with pytest.raises(OptionError, match="layer=9, but there are 4, from 0"):
        lens.similar("a", "b", layer=9)


def test_translate_sees_encoder_decoder_and_what_is_between(
    lens: Lens, translator: Translator
) -> None:
    told = lens.translate(TEXT)
    assert str(told) == told.text == translator.translate([TEXT])[0].text
    kinds = [told.seen.kind(name) for name in told.seen]
    assert kinds == ["self"] * 3 + ["self", "cross"] * 2
    cross = told.seen["decoder.blocks.1.cross"]
    assert cross.weights().shape[2:] == (len(told.target.tokens), len(told.source.tokens))


def test_a_marian_model_translates() -> None:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model("marian", vocab_size=48, **sizes("marian"))
    model = transformers.MarianMTModel(config).eval()
    told = Lens(model, Tokenizer.train(LINES * 2, size=48)._inner).translate("the street")
    assert [told.seen.kind(name) for name in told.seen] == ["self", "self", "self", "cross"]
    assert told.target.special[0]


def test_compare(lens: Lens) -> None:
    found = lens.compare("it", TEXT, "because the bat hit it", among=LINES)
    one, other = (lens.embed(text)["it"] for text in (TEXT, "because the bat hit it"))
    assert found.static == pytest.approx(1.0, abs=1e-6)
    torch.testing.assert_close(found.cosine, F.cosine_similarity(one, other, dim=-1))
    side = found.sides[1]
    assert side.neighbours[0].word == "it"
    assert side.neighbours[0].cosine == pytest.approx(1.0, abs=1e-5)
    assert side.pulls("knockout", 2) == side.explanation.top("knockout", 2)
    assert side.becomes is not None
    assert json.dumps(found.to_data())
    assert "after layer 3" in str(found)
    with pytest.raises(WordError, match="no word 'it'"):
        lens.compare("it", TEXT, "the bat")


def test_summary(lens: Lens) -> None:
    found = lens.summary(TEXT)
    e = lens.explain(TEXT, "it", tokens=True)
    weights = torch.stack([look.weights()[0] for look in e.looks.values()])
    entropy = -(weights * weights.clamp(min=1e-12).log2()).sum(-1).mean(-1)
    torch.testing.assert_close(found.entropy, entropy, atol=1e-4, rtol=1e-4)
    received = found.words.summed(weights.sum(2).mean((0, 1)))
    torch.testing.assert_close(found.received, received, atol=1e-4, rtol=1e-4)
    assert "sharpest heads" in str(found)
    assert found.most(1)[0][0] in str(found)


# ---- opening, and what goes wrong -----------------------------------------------------------


def test_a_folder_of_transformers(word_piece: tokenizers.Tokenizer, tmp_path: Path) -> None:
    model = bert()
    model.save_pretrained(tmp_path)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=word_piece, pad_token="[PAD]"
    ).save_pretrained(tmp_path)
    e = regard.Lens.open(tmp_path).explain(TEXT, "it")
    expected = Lens(model, word_piece).explain(TEXT, "it")
    torch.testing.assert_close(e.attention, expected.attention)


@pytest.mark.parametrize("name", ["nothing-here", "hub"])
def test_names_that_are_no_folder(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match=f"{name}: no such folder; expected what `regard train`"):
        Lens.open(name)


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    bert().save_pretrained(tmp_path)
    with pytest.raises(FileError, match="has no tokenizer; expected tokenizer"):
        Lens.open(tmp_path)


def test_a_model_that_cannot_be_given_a_text(tokenizer: Tokenizer) -> None:
    with pytest.raises(OptionError, match="Linear is neither a model of regard nor of transform"):
        Lens(torch.nn.Linear(2, 2), tokenizer)
    with pytest.raises(OptionError, match="model is str, expected a PyTorch module"):
        Lens("bert", tokenizer)
    with pytest.raises(OptionError, match="tokenizer is NoneType, expected the regard"):
        Lens(LanguageModel(TransformerConfig.preset("tiny", vocabulary=50)))
    with pytest.raises(OptionError, match="tokenizer is NoneType, expected one of transformers"):
        Lens(bert())


def test_texts_that_cannot_be_read(lens: Lens, word_piece: tokenizers.Tokenizer) -> None:
    for text in ("", "  \n"):
        with pytest.raises(OptionError, match="the text is empty"):
            lens.explain(text, "it")
    with pytest.raises(OptionError, match="has 42 tokens, but the model can read only 32"):
        Lens(bert(), word_piece).explain("the " * 40, 1)
    with pytest.raises(WordError, match="say which: the#1 or the#2"):
        lens.explain("the the", "the")
    with pytest.raises(OptionError, match="does not translate"):
        Lens(bert(), word_piece).translate("the street")


def test_methods_and_heads_that_are_not_there(lens: Lens) -> None:
    e = lens.explain(TEXT, "it")
    with pytest.raises(OptionError, match="method 'vibes' is unknown, expected one of attention"):
        e.scores("vibes")
    with pytest.raises(OptionError, match="layer 7, but there are 3, numbered from 0"):
        e.scores("attention", 7)
    with pytest.raises(OptionError, match="head 4, but there are 4, numbered from 0"):
        e.scores("norm", 0, 4)
    with pytest.raises(OptionError, match="rollout was not computed for single heads"):
        e.scores("rollout", 0)
