"""What `Lens.explain` says is what can be computed by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import tokenizers
import torch

import regard
from regard.errors import OptionError
from regard.lens import Lens, cut
from regard.lens.attribution import VERIFIED
from regard.lens.estimation import estimate_links, step_links
from regard.lens.explanation import METHODS
from regard.lens.measures import agreement, measure, rollout
from regard.lens.predictions.stack import VectorPrediction
from regard.nn import LanguageModel, TransformerConfig
from regard.text import Tokenizer
from tests.lens.small_models import TEXT

transformers = pytest.importorskip("transformers", reason="needs the extra hf")


def test_attention_is_what_eager_attention_returns(
    word_piece: tokenizers.Tokenizer, word_piece_ids: list[int], bert: Callable[..., Any]
) -> None:
    model = bert()
    e = Lens(model, word_piece).explain(TEXT, "it")
    eager = bert(attn_implementation="eager")
    ids = torch.tensor([word_piece_ids])
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


def test_norm_is_weight_times_what_the_head_passes_on(
    word_piece: tokenizers.Tokenizer, bert: Callable[..., Any]
) -> None:
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
def test_the_matrix_behind_the_heads_is_found(
    kind: str, tokenizer: Tokenizer, sizes: dict[str, Any]
) -> None:
    torch.manual_seed(3)
    config = transformers.AutoConfig.for_model(kind, vocab_size=tokenizer.size, **sizes[kind])
    model = (
        transformers.MarianMTModel(config)
        if kind == "marian"
        else transformers.AutoModelForCausalLM.from_config(config)
    ).eval()
    e = Lens(model, tokenizer._inner).explain("the street was wide", "was")
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


def test_in_single_heads_the_strongest_links_are_cut_and_the_others_estimated(lens: Lens) -> None:
    e = lens.explain(TEXT, "it")
    assert e.knockout_of_heads is not None
    assert e.heads_estimated is not None
    measured = ~e.heads_estimated & e.knockout_of_heads.isfinite()
    assert int(measured.sum()) == VERIFIED
    tokens = e.words.tokens_of(e.word)
    whole = lens.embed(TEXT, tokens=True).vectors[-1][tokens].mean(0)
    real, found = [], []
    for layer, head, name in e.knockout_of_heads.isfinite().nonzero().tolist():
        with cut(lens.model, [(tokens, e.words.tokens_of(name))], layers=layer, heads=head):
            without = lens.embed(TEXT, tokens=True).vectors[-1][tokens].mean(0)
        real.append(float((without - whole).norm() / whole.norm()))
        found.append(float(e.knockout_of_heads[layer, head, name]))
        if measured[layer, head, name]:
            assert found[-1] == pytest.approx(real[-1], abs=1e-5, rel=1e-4)
    assert agreement(found, real) > 0.95
    assert e.to_data()["heads"]["estimated"][0] == e.heads_estimated[0].tolist()


def test_the_estimate_counts_a_word_of_several_tokens_once(lens: Lens) -> None:
    text = "The crocodile was too tired because the street was too wide."
    analysis = lens.analyse(text)
    unit = analysis.reading.words.find("crocodile")
    assert len(analysis.reading.words.tokens_of(unit)) > 3
    e = lens.explain(text, unit)
    prediction = VectorPrediction(analysis.adapter, analysis.reading, unit)
    of_rows, of_all = step_links(prediction), estimate_links(prediction)[1]
    torch.testing.assert_close(of_rows.effects, of_all.effects)
    assert e.knockout_of_heads is not None
    assert e.heads_estimated is not None
    measured = ~e.heads_estimated
    estimate = (-2 * of_rows.effects).clamp(min=0).sqrt()[measured]
    ratio = estimate / e.knockout_of_heads[measured]
    assert 0.7 < float(ratio.median()) < 1.4


def test_a_written_word_looks_by_its_cross_attention(lens: Lens) -> None:
    written, own = lens.analyse(TEXT).translated.written, lens.words(TEXT)
    word = next(written.called(i) for i, name in enumerate(written.names) if not own.has(name))
    e, why = lens.explain(TEXT, word), lens.why(TEXT, word)
    assert e.query == why.word
    torch.testing.assert_close(e.attention, why.attention)
    torch.testing.assert_close(e.knockout_of_heads, -why.effects)
    lost = torch.tensor([why.probability / one.probability for one in why.words]).log()
    torch.testing.assert_close(e.probability, lost, atol=1e-4, rtol=1e-4)
    assert e.to_data()["word"] == why.word
    explained = e.view().explained
    assert explained is not None
    assert (explained.text, explained.looked_at) == ("translation", "text")


def test_every_pair_at_once(lens: Lens) -> None:
    every = lens.knockouts(TEXT)
    e = lens.explain(TEXT, "street")
    torch.testing.assert_close(every[e.word], e.knockout, atol=1e-5, rtol=1e-4)


def test_a_causal_model_is_said_to_see_nothing_later(tokenizer: Tokenizer) -> None:
    config = TransformerConfig.preset("tiny", vocabulary=tokenizer.size)
    lens = Lens(LanguageModel(config).eval(), tokenizer)
    found = lens.explain(TEXT, "it")
    wanted = "The model is causal: it cannot see what follows it (was, too, tired, …)."
    assert found.notes == [wanted]
    assert found.conclusion.endswith(found.notes[0])
    rollout = torch.zeros_like(found.rollout)
    rollout[0] = 1.0
    sink = replace(found, rollout=rollout).notes[1]
    assert sink.startswith(f"Rollout ends at {found.words.called(0)} (1.000): the first token")
    assert lens.explain(TEXT, ".").notes == []


def test_words_that_cannot_be_seen_agree_with_nothing(tokenizer: Tokenizer) -> None:
    """Behind the word, where a language model never looks, all is 0 by every method."""
    torch.manual_seed(5)
    model = LanguageModel(TransformerConfig.preset("tiny", vocabulary=tokenizer.size)).eval()
    e = Lens(model, tokenizer).explain("the street was wide the street was", "wide")
    before = slice(1, 4)  # without the start
    assert e.names[before] == ("the", "street", "was")
    assert e.agreement["norm"] == agreement(e.scores("norm")[before], e.knockout[before])
    assert [effect.word for effect in e.effects if effect.word > e.word] == []
    assert [name for name, _ in e.top("attention", 9)] == [
        e.names[i] for i in sorted(range(1, 4), key=lambda i: -float(e.scores("attention")[i]))
    ]
    assert e.conclusion.count("#1") >= 1  # there are two of each


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
    told: list[tuple[int, int]] = []
    lens.explain(TEXT, "it", most=4, progress=lambda done, of: told.append((done, of)))
    assert told[-1] == (4, 4)
    for n in (0, -1):
        with pytest.raises(OptionError, match=f"top: n={n}, expected 1 or more"):
            e.top(n=n)
        with pytest.raises(OptionError, match=f"table: n={n}, expected 1 or more"):
            e.table(n)


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
    assert lines[0].split() == [*METHODS, "Δ", "log", "p"]
    row = next(line for line in lines if line.startswith("animal"))
    place = data["words"].index("animal")
    columns = [data["scores"][name][place] for name in METHODS]
    columns.append(-data["scores"]["probability"][place])
    assert [float(x) for x in row.split()[1:]] == pytest.approx(columns, abs=6e-4)
    assert lines[-1] == data["conclusion"] == e.conclusion
    assert len(e.table(3).splitlines()) == len(lines) - len(e.names) + 3
    frame = pytest.importorskip("pandas", reason="to_frame needs pandas") and e.to_frame()
    assert frame["word"].tolist() == data["words"]
    assert frame["norm"].tolist() == pytest.approx(data["scores"]["norm"], abs=1e-4)


def test_layers_with_different_numbers_of_heads_say_so(lens: Lens) -> None:
    words = lens.words("the street was")
    n = len(words.tokens)
    looks = {str(h): regard.look(*torch.randn(3, 1, h, n, 4)) for h in (2, 4)}
    with pytest.raises(OptionError, match="the layers of this model have 2 and 4 heads"):
        measure(looks, {}, words, [0])


def test_an_encoder_without_a_configuration(word_piece: tokenizers.Tokenizer) -> None:
    config = transformers.FSMTConfig(
        langs=["en", "de"], src_vocab_size=60, tgt_vocab_size=60, d_model=16, encoder_layers=1,
        decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16,
        decoder_ffn_dim=16, max_position_embeddings=32,
    )  # fmt: skip
    model = transformers.FSMTModel(config).eval()
    assert Lens(model, word_piece).explain(TEXT, "it").attention.shape[:2] == (1, 2)


def test_half_precision_is_explained(
    word_piece: tokenizers.Tokenizer, bert: Callable[..., Any]
) -> None:
    exact = Lens(bert(), word_piece).explain(TEXT, "it")
    half = Lens(bert().to(torch.bfloat16), word_piece).explain(TEXT, "it")
    for method in METHODS[:3]:
        torch.testing.assert_close(
            half.scores(method).float(), exact.scores(method), atol=0.1, rtol=0.2
        )
    assert half.knockout.isfinite().all()


def test_layers_that_share_their_weights_are_layers_each(
    word_piece: tokenizers.Tokenizer, word_piece_ids: list[int]
) -> None:
    torch.manual_seed(2)
    config = transformers.AlbertConfig(
        vocab_size=60, embedding_size=12, hidden_size=24, num_hidden_layers=3,
        num_attention_heads=3, intermediate_size=48, max_position_embeddings=32,
    )  # fmt: skip
    model = transformers.AlbertModel(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    lens = Lens(model, word_piece)
    e = lens.explain(TEXT, "it", tokens=True)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(torch.tensor([word_piece_ids]), output_attentions=True)
    assert e.attention.shape[:2] == (3, 3)
    for layer, weights in enumerate(expected.attentions):
        torch.testing.assert_close(e.attention[layer], weights[0, :, 10], atol=1e-5, rtol=0)
    assert e.knockout_of_heads is None
    with pytest.raises(OptionError, match="single heads, since its layers share their weights"):
        e.scores("knockout", 0)
    assert len(e.view().layers) == 3
    assert lens.summary(TEXT).entropy.shape == (3, 3)
