"""Models by name and in hand, and what goes wrong with them and with texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch

import regard
from regard.errors import FileError, OptionError, WordError
from regard.lens import Lens
from regard.nn import LanguageModel, TransformerConfig
from regard.text import Tokenizer
from regard.translate import RunConfig
from tests.lens.small_models import TEXT

transformers = pytest.importorskip("transformers", reason="needs the extra hf")


def test_a_folder_of_transformers(
    word_piece: tokenizers.Tokenizer, tmp_path: Path, bert: Callable[..., Any]
) -> None:
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


def test_a_folder_without_a_tokenizer(tmp_path: Path, bert: Callable[..., Any]) -> None:
    bert().save_pretrained(tmp_path)
    with pytest.raises(FileError, match="has no tokenizer; expected tokenizer"):
        Lens.open(tmp_path)


@pytest.fixture(scope="module")
def folder(
    word_piece: tokenizers.Tokenizer, tmp_path_factory: Any, bert: Callable[..., Any]
) -> Path:
    """A model of transformers as it is saved, with two layers."""
    path: Path = tmp_path_factory.mktemp("bert")
    bert().save_pretrained(path)
    transformers.PreTrainedTokenizerFast(tokenizer_object=word_piece).save_pretrained(path)
    return path


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"hidden_size": "x"}, "Validation error for field 'hidden_size': .*expected int, got str"),
        ({"hidden_size": 12}, "weights do not fit config.json: embeddings.*, expected \\(12,\\)"),
        ({"num_attention_heads": 0}, "cannot be read: ZeroDivisionError"),
        ({"num_hidden_layers": 3}, "16 are missing, such as encoder.layer.2.attention.output"),
        ({"hidden_act": "nope"}, "cannot be read: KeyError: 'nope'"),
        ({"architectures": [5]}, "cannot be read: TypeError"),
        ({"architectures": ["Trainer"]}, "'Trainer' has no attribute 'from_pretrained'"),
        ({"dtype": "nope"}, "module 'torch' has no attribute 'nope'"),
        ({"model_type": "nope", "auto_map": {"AutoConfig": "nope.Nope"}}, "contains custom code"),
        (5, "cannot be read: TypeError"),
    ],
)
def test_bad_values_in_the_configuration(folder: Path, value: Any, message: str) -> None:
    path = folder / "config.json"
    good = path.read_text(encoding="utf-8")
    try:
        bad = {**json.loads(good), **value} if isinstance(value, dict) else value
        path.write_text(json.dumps(bad), encoding="utf-8")
        with pytest.raises(FileError, match=message):
            Lens.open(folder)
    finally:
        path.write_text(good, encoding="utf-8")


def test_heads_that_nobody_asks_may_be_missing(
    word_piece: tokenizers.Tokenizer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What a classifier makes of a text is not asked, what a language model says is."""
    small = {
        "n_embd": 24,
        "n_layer": 1,
        "n_head": 3,
        "vocab_size": 60,
        "tie_word_embeddings": False,
    }
    transformers.GPT2Model(transformers.GPT2Config(**small)).save_pretrained(tmp_path)
    transformers.PreTrainedTokenizerFast(tokenizer_object=word_piece).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    capfd.readouterr()
    path.write_text(json.dumps({**config, "architectures": ["GPT2ForSequenceClassification"]}))
    Lens.open(tmp_path).summary("the street")
    path.write_text(json.dumps({**config, "architectures": ["GPT2LMHeadModel"]}))
    with pytest.raises(FileError, match=r"1 are missing, such as lm_head\.weight"):
        Lens.open(tmp_path)
    assert capfd.readouterr() == ("", "")  # neither a bar nor a report


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=f"Lens.open: {tmp_path} has no model; expected model.json"):
        Lens.open(tmp_path)
    with pytest.raises(OptionError, match=r"Lens.open: hub: names no model, expected hub:org/name"):
        Lens.open("hub:")


def test_a_run_that_has_not_finished(tmp_path: Path) -> None:
    """It is one of regard, though it has a file that models of transformers have as well."""
    (tmp_path / "config.json").write_text(RunConfig().to_json(), encoding="utf-8")
    with pytest.raises(FileError, match=r"its training has not finished, and there is no checkpoi"):
        Lens.open(tmp_path)


def test_a_name_that_is_too_long() -> None:
    with pytest.raises(FileError, match=r"Lens.open: 'aaa.*': File name too long"):
        Lens.open("a" * 5000)


@pytest.mark.parametrize(
    ("kind", "takes", "sizes"),
    [
        ("ViT", "pixel_values", {"image_size": 16, "patch_size": 8}),
        ("Wav2Vec2", "input_values", {"num_conv_pos_embedding_groups": 2}),
    ],
)
def test_a_model_that_reads_no_text(
    kind: str, takes: str, sizes: dict[str, Any], word_piece: tokenizers.Tokenizer
) -> None:
    small = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3}
    config = getattr(transformers, f"{kind}Config")(**small, **sizes)
    model = getattr(transformers, f"{kind}Model")(config)
    with pytest.raises(OptionError, match=f"Lens: {kind}Model reads {takes}, not text; regard.wat"):
        Lens(model, word_piece)


def test_a_model_that_reads_more_than_text(word_piece: tokenizers.Tokenizer) -> None:
    small = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3}
    config = transformers.CLIPConfig(
        text_config={"vocab_size": 60, **small},
        vision_config={"image_size": 16, "patch_size": 8, **small},
    )
    lens = Lens(transformers.CLIPModel(config).eval(), word_piece)
    with pytest.raises(OptionError, match="CLIPModel cannot read 4 tokens of text and nothing el"):
        lens.embed("the street")


def test_a_model_whose_layers_have_fewer_vectors_than_the_text(
    word_piece: tokenizers.Tokenizer,
) -> None:
    config = transformers.FunnelConfig(
        vocab_size=60, d_model=24, n_head=3, d_head=8, d_inner=48, block_sizes=[1, 1]
    )
    lens = Lens(transformers.FunnelModel(config).eval(), word_piece)
    with pytest.raises(OptionError, match="FunnelModel does not keep a vector for each of the 17"):
        lens.embed(TEXT)


def test_a_tokenizer_that_belongs_to_another_model(
    tokenizer: Tokenizer, word_piece: tokenizers.Tokenizer, bert: Callable[..., Any]
) -> None:
    model = bert()
    model.resize_token_embeddings(10)
    with pytest.raises(OptionError, match="token 'it' has number 12, but the model has only 10 t"):
        Lens(model, word_piece).explain("the animal saw it", "it")
    own = LanguageModel(TransformerConfig.preset("tiny", vocabulary=10))
    with pytest.raises(OptionError, match="but the model has only 10 tokens; give it the tokeniz"):
        Lens(own, tokenizer).explain(TEXT, "it")


def test_a_model_that_was_put_together_knows_its_limits(
    word_piece: tokenizers.Tokenizer, bert: Callable[..., Any]
) -> None:
    """A text at the limit is read, a translation as long as the decoder can write is written."""
    torch.manual_seed(0)
    encoder = bert().config
    decoder = transformers.BertConfig.from_dict(
        {**encoder.to_dict(), "max_position_embeddings": 12, "is_decoder": True,
         "add_cross_attention": True}
    )  # fmt: skip
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    model = transformers.EncoderDecoderModel(config=config).eval()
    lens = Lens(model, word_piece)
    with pytest.raises(OptionError, match="does not say by which token a translation begins"):
        lens.translate("the street")
    model.generation_config.decoder_start_token_id = 2
    model.generation_config.pad_token_id = 0
    with pytest.raises(OptionError, match="has 33 tokens, but the model can read only 32"):
        lens.translate("the " * 31)
    assert len(lens.translate("the " * 30).target.tokens) == 12


@pytest.mark.parametrize(
    ("kind", "sizes", "limit"),
    [
        ("XLNet", {"d_model": 24, "n_layer": 1, "n_head": 3, "d_inner": 48}, None),
        (
            "LED",
            {
                "d_model": 24, "encoder_layers": 1, "decoder_layers": 1, "attention_window": 8,
                "encoder_attention_heads": 3, "decoder_attention_heads": 3, "encoder_ffn_dim": 48,
                "decoder_ffn_dim": 48, "max_encoder_position_embeddings": 16,
            },
            16,
        ),
        (
            "Roberta",
            {
                "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3,
                "intermediate_size": 48, "max_position_embeddings": 16, "pad_token_id": 0,
            },
            15,
        ),
    ],
)  # fmt: skip
def test_the_limit_is_the_models_own(
    kind: str, sizes: dict[str, Any], limit: int | None, word_piece: tokenizers.Tokenizer
) -> None:
    config = getattr(transformers, f"{kind}Config")(vocab_size=60, **sizes)
    lens = Lens(getattr(transformers, f"{kind}Model")(config).eval(), word_piece)
    assert lens._adapter.limit == limit
    lens.embed("the " * (14 if limit is None else limit - 2))
    if limit is not None:
        with pytest.raises(OptionError, match=f"but the model can read only {limit};"):
            lens.embed("the " * (limit - 1))


def test_a_model_that_cannot_be_given_a_text(
    tokenizer: Tokenizer, bert: Callable[..., Any]
) -> None:
    with pytest.raises(OptionError, match="Linear is neither a model of regard nor of transform"):
        Lens(torch.nn.Linear(2, 2), tokenizer)
    with pytest.raises(OptionError, match="model is the name 'bert'; use"):
        Lens("bert", tokenizer)
    with pytest.raises(OptionError, match="tokenizer is NoneType, expected the regard"):
        Lens(LanguageModel(TransformerConfig.preset("tiny", vocabulary=50)))
    with pytest.raises(OptionError, match="tokenizer is NoneType, expected one of transformers"):
        Lens(bert())


def test_texts_that_cannot_be_read(
    lens: Lens, word_piece: tokenizers.Tokenizer, bert: Callable[..., Any]
) -> None:
    for text in ("", "  \n"):
        with pytest.raises(OptionError, match="the text is empty"):
            lens.explain(text, "it")
    for one in (lens, Lens(bert(), word_piece)):
        with pytest.raises(OptionError, match=r"character 4 of the text, .*, is half a surrogate"):
            one.explain("the \ud800 street", "street")
    bare = tokenizers.Tokenizer.from_str(word_piece.to_str())
    bare.normalizer = tokenizers.normalizers.BertNormalizer()
    with pytest.raises(OptionError, match=r"leaves nothing of the text '.x01'; give it a word"):
        Lens(bert(), bare).summary("\x01")
    bare.post_processor = tokenizers.processors.TemplateProcessing("$A", None, [])
    with pytest.raises(OptionError, match=r"leaves nothing of the text '.x01'; give it a word"):
        Lens(bert(), bare).summary("\x01")
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


@pytest.mark.usefixtures("as_users_run")
def test_layers_that_are_no_numbers(lens: Lens) -> None:
    e = lens.explain(TEXT, "it", most=1)
    for layer in ("x", 1.5, -1, True, []):
        with pytest.raises(OptionError, match=r"layer .*, but there are 3, numbered from 0"):
            e.scores("attention", layer)  # type: ignore[arg-type]
