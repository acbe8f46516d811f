"""Models by name and in hand, and what goes wrong with them and with texts."""

from __future__ import annotations

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

transformers = pytest.importorskip("transformers", reason="needs the extra hf")

TEXT = "The animal didn't cross the street because it was too tired."
LINES = [TEXT, "The street was too wide.", "Das Tier war zu müde.", "because the bat hit it"]


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


def test_a_model_that_cannot_be_given_a_text(
    tokenizer: Tokenizer, bert: Callable[..., Any]
) -> None:
    with pytest.raises(OptionError, match="Linear is neither a model of regard nor of transform"):
        Lens(torch.nn.Linear(2, 2), tokenizer)
    with pytest.raises(OptionError, match="model is str, expected a PyTorch module"):
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
