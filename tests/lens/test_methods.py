"""Explanation methods, each against an independent computation in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tokenizers
import torch
from torch import Tensor
from torch.nn import functional as F

from regard import Translator
from regard.errors import OptionError
from regard.lens import Lens
from regard.lens.capture import Cut, cut
from regard.lens.methods import METHODS, find_methods, score
from regard.lens.predictions import Prediction
from regard.nn import Classifier, LanguageModel, Transformer, TransformerConfig
from regard.text import Tokenizer

TEXT = "the animal was too tired"
WORD, INSTEAD = "because", "it"
GROUPS = [0, 1, 2, 3, 4, 4]
"""the animal was too tire ##d: the word of each token."""


@pytest.fixture(scope="module")
def llama(sizes: dict[str, Any]) -> Any:
    transformers = pytest.importorskip("transformers", reason="needs the extra hf")
    torch.manual_seed(2)
    config = transformers.LlamaConfig(vocab_size=60, **sizes["llama"], attn_implementation="eager")
    model = transformers.LlamaForCausalLM(config).eval().double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.fixture(scope="module")
def plain(word_piece: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Without special tokens."""
    made = tokenizers.Tokenizer(word_piece.model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return made


@pytest.fixture(scope="module")
def prediction(llama: Any, plain: tokenizers.Tokenizer) -> Prediction:
    return Lens(llama, plain).analyse(TEXT).prediction(WORD, INSTEAD)


@pytest.fixture(scope="module")
def run(llama: Any, prediction: Prediction) -> Callable[..., Any]:
    """The model on the same tokens, by itself."""
    ids = torch.tensor([prediction.ids])  # type: ignore[attr-defined]

    def run(**options: Any) -> Any:
        given = options if "inputs_embeds" in options else {"input_ids": ids, **options}
        return llama(**given, use_cache=False, output_attentions=True)

    return run


def metric(prediction: Prediction, logits: Tensor) -> Tensor:
    return logits[..., -1, prediction.token] - logits[..., -1, prediction.instead]


def by_word(tokens: Tensor) -> Tensor:
    return torch.stack([tokens[[g == i for g in GROUPS]].sum(0) for i in range(5)])


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


def test_cuts_run_the_tokens_behind_the_first_link(
    llama: Any, prediction: Prediction, run: Any
) -> None:
    last = prediction.length - 1
    links = [Cut(last, 0), Cut(2, 1, heads=0), Cut(last, 2), Cut(None, None, 0, 1), Cut((2, 3), 0)]
    found = prediction.cut_logits([[one] for one in links])
    for one, logits in zip(links, found, strict=True):
        with cut(llama, [one]):
            close(logits, run().logits[0, -1])
    runs = []
    with llama.register_forward_pre_hook(
        lambda module, args, kwargs: runs.append(kwargs["input_ids"].shape), with_kwargs=True
    ):
        prediction.cut_logits([[Cut(last, 0)], [Cut(last, 1)], [Cut(3, 1)]])
    assert runs == [(1, prediction.length - 3), (2, 1)]


def test_attention(prediction: Prediction, run: Any) -> None:
    rows = torch.stack(run().attentions)[:, 0, :, -1]
    summed = torch.stack([by_word(row) for row in rows.flatten(0, 1)])
    close(score("attention", prediction), summed.mean(0))
    close(score("attention-max", prediction), summed.amax(0))


def values(llama: Any, layer: int, hidden: Tensor) -> Tensor:
    """The values as each of the four heads passes them on, ``(h, n, width)``."""
    attention = llama.model.layers[layer].self_attn
    v = attention.v_proj(llama.model.layers[layer].input_layernorm(hidden))
    v = v.reshape(-1, 2, 6).repeat_interleave(2, 1)
    matrix = attention.o_proj.weight.T.reshape(4, 6, 24)
    return torch.einsum("nhe,hew->hnw", v, matrix)


def streams(llama: Any, prediction: Prediction) -> list[Tensor]:
    """What each layer is given, and what the last returns."""
    found: list[Tensor] = []
    layers = llama.model.layers
    handles = [one.register_forward_pre_hook(lambda m, x: found.append(x[0][0])) for one in layers]
    handles.append(llama.model.norm.register_forward_pre_hook(lambda m, x: found.append(x[0][0])))
    with torch.no_grad():
        llama(torch.tensor([prediction.ids]), use_cache=False)  # type: ignore[attr-defined]
    for handle in handles:
        handle.remove()
    return found


def test_norm(prediction: Prediction, run: Any, llama: Any) -> None:
    hidden = streams(llama, prediction)
    found = []
    for layer, weights in enumerate(run().attentions):
        passed = values(llama, layer, hidden[layer])
        found.append(torch.einsum("hn,hnw->nw", weights[0, :, -1], passed).norm(dim=-1))
    close(score("norm", prediction), by_word(torch.stack(found).mean(0)))


def test_rollout(prediction: Prediction, run: Any) -> None:
    whole = torch.eye(len(GROUPS)).double()
    for weights in run().attentions:
        whole = (weights[0].mean(0) / 2 + torch.eye(len(GROUPS)) / 2) @ whole
    close(score("rollout", prediction), by_word(whole[-1]))


def test_knockout_is_masking(prediction: Prediction, run: Any) -> None:
    n = len(GROUPS)
    before = metric(prediction, run().logits[0])
    mask = torch.full((n, n), -torch.inf).triu(1).double()
    found = []
    for word in range(5):
        own = mask.clone()
        own[-1, [g == word for g in GROUPS]] = -torch.inf
        found.append(before - metric(prediction, run(attention_mask=own[None, None]).logits[0]))
    close(score("knockout", prediction), torch.stack(found))


def test_effects_are_the_sum_over_the_heads(prediction: Prediction) -> None:
    total = sum(
        prediction.seen[name].effects(queries=-1)[0, :, 0].sum(0) for name in prediction.seen
    )
    assert isinstance(total, Tensor)
    found = score("effects", prediction)
    close(found[:4], -total[:4])  # words of one token; two cut together have an effect of their own


def test_gradient_attention(prediction: Prediction, run: Any) -> None:
    with torch.enable_grad():
        out = run()
        gradients = torch.autograd.grad(metric(prediction, out.logits[0]), out.attentions)
    relevance = torch.eye(len(GROUPS)).double()
    for weights, gradient in zip(out.attentions, gradients, strict=True):
        relevance += (weights * gradient)[0].clamp(min=0).mean(0) @ relevance
    close(score("gradient-attention", prediction), by_word(relevance[-1]).detach())


def embedded(prediction: Prediction, llama: Any, share: float, run: Any) -> tuple[Tensor, Tensor]:
    ids = torch.tensor([prediction.ids])  # type: ignore[attr-defined]
    words = llama.model.embed_tokens(ids).detach()
    leaf = (share * words).requires_grad_()
    with torch.enable_grad():
        m = metric(prediction, run(inputs_embeds=leaf).logits[0])
    return words[0], torch.autograd.grad(m, leaf)[0][0]


def test_gradient_input(prediction: Prediction, llama: Any, run: Any) -> None:
    words, gradient = embedded(prediction, llama, 1.0, run)
    close(score("gradient-input", prediction), by_word((words * gradient).sum(-1)))


def test_integrated_gradients(prediction: Prediction, llama: Any, run: Any) -> None:
    parts = [embedded(prediction, llama, (i + 0.5) / 64, run) for i in range(64)]
    expected = sum((words * gradient).sum(-1) / 64 for words, gradient in parts)
    assert isinstance(expected, Tensor)
    close(score("integrated-gradients", prediction), by_word(expected))


def test_integrated_gradients_add_up(pocket: Lens) -> None:
    """To the change of the metric between no words at all and these."""
    asked = pocket.analyse("The cat slept.").prediction(None, None)
    from regard.lens.methods.inputs import replaced
    from regard.lens.methods.integrated_gradients import score as integrated

    with torch.no_grad(), replaced("test", asked, lambda words, rest: rest):
        nothing = float(asked.metric(asked.logits()[0]))
    change = float(asked.metric(asked.baseline)) - nothing
    with torch.no_grad():
        found = float(integrated(asked, 128).sum())
    assert found == pytest.approx(change, abs=0.05 * max(1.0, abs(change)))


def test_value_zeroing(prediction: Prediction, llama: Any) -> None:
    n, whole = len(GROUPS), torch.eye(len(GROUPS)).double()
    ids = torch.tensor([prediction.ids])  # type: ignore[attr-defined]
    plain = streams(llama, prediction)
    for number, layer in enumerate(llama.model.layers):
        distances = torch.zeros(n, n).double()
        for zeroed in range(n):

            def zero(module: Any, inputs: Any, output: Tensor, zeroed: int = zeroed) -> Tensor:
                changed = output.clone()
                changed[:, zeroed] = 0
                return changed

            handle = layer.self_attn.v_proj.register_forward_hook(zero)
            kept: list[Tensor] = []
            watched = layer.register_forward_hook(lambda m, x, y: kept.append(y))  # noqa: B023
            with torch.no_grad():
                llama(ids, use_cache=False)
            handle.remove()
            watched.remove()
            out = kept[0][0] if isinstance(kept[0], tuple) else kept[0]
            distances[:, zeroed] = 1 - F.cosine_similarity(out.reshape(n, -1), plain[number + 1])
        whole = distances / distances.sum(-1, keepdim=True) @ whole
    close(score("value-zeroing", prediction), by_word(whole[-1]))


def test_alti_logit(prediction: Prediction, llama: Any, run: Any) -> None:
    hidden = streams(llama, prediction)
    n, norm = len(GROUPS), llama.model.norm
    scale = (hidden[-1][-1].square().mean() + norm.variance_epsilon).rsqrt()
    unembed = llama.lm_head.weight
    direction = (unembed[prediction.token] - unembed[prediction.instead]) * norm.weight * scale
    mixed, total = torch.eye(n).double(), torch.zeros(n).double()
    total[-1] += direction @ hidden[0][-1]
    for layer, weights in enumerate(run().attentions):
        parts = torch.einsum("hqk,hkw->qkw", weights[0], values(llama, layer, hidden[layer]))
        for j in range(n):
            total += direction @ parts[-1, j] * mixed[j]
        share = torch.zeros(n, n).double()
        for i in range(n):
            y = hidden[layer][i] + parts[i].sum(0)
            for j in range(n):
                part = parts[i, j] + (hidden[layer][i] if i == j else 0)
                share[i, j] = (y.abs().sum() - (y - part).abs().sum()).clamp(min=0)
        mixed = share / share.sum(-1, keepdim=True) @ mixed
    close(score("alti-logit", prediction), by_word(total).detach())


def test_rollout_of_a_translator(lens: Lens) -> None:
    asked = lens.analyse("the animal").prediction(0, None)
    looks = [asked.seen[site.module].weights()[0].mean(0) for site in asked.sites]
    places = [site.place for site in asked.sites]
    n, t = len(asked.words.tokens), looks[-1].shape[0]
    whole = torch.eye(n + t).double()
    for weights, place in zip(looks, places, strict=True):
        step = torch.eye(n + t).double()
        rows = slice(0, n) if place == "encoder" else slice(n, None)
        columns = slice(n, None) if place == "decoder" else slice(0, n)
        step[rows] /= 2
        step[rows, columns] += weights / 2
        whole = step @ whole
    expected = whole[-1, :n] if asked.queries == (t - 1,) else whole[n + asked.queries[0], :n]
    words = asked.words
    summed = torch.stack([expected[words.tokens_of(i)].sum() for i in range(len(words))])
    torch.testing.assert_close(score("rollout", asked).double(), summed, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("place", ["before", "after"])
def test_alti_logit_of_a_translator_is_what_cross_attention_brings(
    tokenizer: Tokenizer, place: str
) -> None:
    config = TransformerConfig.preset(
        "tiny", vocabulary=tokenizer.size, encoder_depth=2, decoder_depth=1, norm_place=place
    )
    model = Transformer(config).eval().double()
    asked = Lens(Translator(model, tokenizer)).analyse("the animal").prediction(0, None)
    block, kept = model.decoder.blocks[0], {}
    norms = {
        "cross": block.cross_norm,
        "last": block.feed_forward_norm,
        "final": model.decoder.norm,
    }
    handles = [
        norm.register_forward_hook(
            lambda m, x, y, name=name: kept.update({name: x[0][0, asked.step]})
        )
        for name, norm in norms.items()
    ]
    handles.append(
        block.cross.register_forward_hook(lambda m, x, y: kept.update(out=y[0, asked.step]))
    )
    with torch.no_grad():
        asked.logits()
    for handle in handles:
        handle.remove()
    d = model.output[asked.token] - model.output[asked.instead]
    for name in ("final",) if place == "before" else ("last", "cross"):
        d = d * norms[name].weight
        x = kept[name] - kept[name].mean()
        d = (d - d.mean()) * (x.square().mean() + norms[name].eps).rsqrt()
    expected = d @ (kept["out"] - block.cross.b_o)
    assert float(score("alti-logit", asked).sum()) == pytest.approx(
        float(expected.detach()), rel=1e-6
    )


def test_every_method_on_every_kind_of_model(
    tokenizer: Tokenizer,
    word_piece: tokenizers.Tokenizer,
    plain: tokenizers.Tokenizer,
    sizes: dict[str, Any],
    lens: Lens,
) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra hf")
    bert = transformers.BertConfig(
        vocab_size=60, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=48, max_position_embeddings=32, num_labels=3,
    )  # fmt: skip
    config = TransformerConfig.preset("tiny", vocabulary=tokenizer.size)
    masking = transformers.PreTrainedTokenizerFast(
        tokenizer_object=word_piece, unk_token="[UNK]", mask_token="[UNK]"
    )
    asked = {
        "translator": (lens, 0, None),
        "language model": (Lens(LanguageModel(config).eval(), tokenizer), None, None),
        "classifier": (Lens(Classifier(config, 3).eval(), tokenizer), "1", None),
        "bert": (
            Lens(transformers.BertForSequenceClassification(bert).eval(), word_piece),
            None,
            None,
        ),
        "masked": (Lens(transformers.BertForMaskedLM(bert).eval(), masking), "animal", None),
        "gpt2": (
            Lens(
                transformers.GPT2LMHeadModel(
                    transformers.GPT2Config(vocab_size=60, **sizes["gpt2"])
                ).eval(),
                plain,
            ),
            None,
            None,
        ),
        "marian": (
            Lens(
                transformers.MarianMTModel(
                    transformers.MarianConfig(vocab_size=60, **sizes["marian"])
                ).eval(),
                word_piece,
            ),
            0,
            None,
        ),
    }
    refused = {}
    for kind, (model, word, instead) in asked.items():
        one = model.analyse("the animal was too tired.").prediction(word, instead)
        for name in METHODS:
            try:
                found = score(name, one)
            except OptionError as error:
                refused[kind, name] = str(error)
                continue
            assert found.shape == (len(one.axes(one.place)[1]),)
            assert bool(found.isfinite().all()), (kind, name)
    assert refused.keys() == {("gpt2", "alti-logit"), ("marian", "alti-logit")}
    assert (
        "how GPT2Block adds attention to the residual stream is not known"
        in refused["gpt2", "alti-logit"]
    )


def test_a_vector_has_no_gradient(bert: Any, word_piece: tokenizers.Tokenizer) -> None:
    asked = Lens(bert(), word_piece).analyse(TEXT).prediction("animal", None)
    assert score("knockout", asked).shape == (7,)
    for name in ("gradient-attention", "gradient-input", "integrated-gradients", "alti-logit"):
        with pytest.raises(OptionError, match=f"{name}: BertModel writes nothing"):
            score(name, asked)


def test_scoring_leaves_the_model_as_it_was(prediction: Prediction, llama: Any) -> None:
    before = [len(module._forward_hooks) for module in llama.modules()]
    for name in METHODS:
        score(name, prediction)
    assert all(parameter.grad is None for parameter in llama.parameters())
    assert [len(module._forward_hooks) for module in llama.modules()] == before


def test_unknown_names() -> None:
    with pytest.raises(OptionError, match="'rolout' is unknown; did you mean 'rollout'"):
        find_methods(["rolout"])
    with pytest.raises(OptionError, match="'xyz' is unknown; there are attention, "):
        find_methods(["xyz"])
    with pytest.raises(OptionError, match="none given"):
        find_methods([])
    assert [one.name for one in find_methods(["norm", "norm"])] == ["norm"]
    assert all(one.paper for one in METHODS.values())
