"""The public names: what they are at run time, and what type checkers take them for.

mypy checks this file (see pyproject.toml): each `assert_type` fails if a lazy export is untyped.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import assert_type

import pytest
import torch

import regard
from regard import errors
from regard.attention.masks import Causal
from regard.lens.lens import Lens
from regard.nn.transformer import Transformer
from regard.text.tokenizer import Tokenizer
from regard.translate.translator import Translator


def test_lazy_exports_are_typed() -> None:
    assert_type(regard.Lens, type[Lens])
    assert_type(regard.lens.Lens, type[Lens])
    assert_type(regard.Translator, type[Translator])
    assert_type(regard.translate.Translator, type[Translator])
    assert_type(regard.nn.Transformer, type[Transformer])
    assert_type(regard.text.Tokenizer, type[Tokenizer])
    assert_type(regard.causal(), Causal)
    steps: Callable[..., regard.walkthrough.Steps] = regard.steps
    assert steps is regard.walkthrough.steps


@pytest.mark.parametrize("package", [regard, regard.nn, regard.text, regard.translate])
def test_every_name_of_a_stub_is_there(package: object) -> None:
    names = dir(package)
    assert names
    for name in names:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        package.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_errors_are_under_errors_only() -> None:
    assert errors.OptionError is regard.errors.OptionError
    assert not [name for name in dir(regard) if name.endswith("Error")]


def test_importing_regard_imports_no_torch() -> None:
    code = "import sys, regard.nn, regard.text, regard.translate; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300)
    assert done.stdout == b"False\n", done.stderr.decode()


def test_a_causal_mask_by_name_and_by_call() -> None:
    x = torch.randn(1, 2, 5, 4)
    expected = regard.attend(x, x, x, mask=regard.causal)
    assert regard.attend(x, x, x, mask="causal").equal(expected)
    assert regard.attend(x, x, x, mask=regard.causal()).equal(expected)
    assert regard.look(x, x, x, mask="causal").output.equal(expected)
    assert regard.steps(x[0, 0], mask="causal").weights[0, 1] == 0
    assert regard.which(x, x, x, mask="causal") == regard.which(x, x, x, mask=regard.causal)
    with pytest.raises(errors.OptionError, match="mask is 'cusal', expected a mask"):
        regard.attend(x, x, x, mask="cusal")


def test_one_head_of_the_weights() -> None:
    x = torch.randn(1, 2, 5, 4)
    seen = regard.look(x, x, x)
    assert seen.weights(heads=0).equal(seen.weights()[:, :1])


def test_what_was_seen_by_number() -> None:
    model = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(1, 3, 8)
    with regard.watch(model) as seen:
        model(x, x, x)
    assert seen[0].weights().equal(seen[""].weights())
    assert seen[-1].weights().equal(seen[""].weights())
    with pytest.raises(KeyError, match="seen: module 1 of 1, numbered from 0"):
        seen[1]


def test_the_name_of_a_model_is_no_model() -> None:
    with pytest.raises(errors.OptionError, match=r"or Lens.open\('hub:a/b'\) for a model"):
        regard.Lens("a/b")
    with pytest.raises(errors.FileError, match="a model of the Hugging Face hub, write hub:a/b"):
        regard.Lens.open("a/b")


def test_a_pipeline_of_transformers() -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra hf")
    from tokenizers import Tokenizer as Inner
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    inner = Inner(WordLevel({"[UNK]": 0, "it": 1, "is": 2}, unk_token="[UNK]"))
    inner.pre_tokenizer = Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[UNK]")
    config = transformers.GPT2Config(
        vocab_size=3, bos_token_id=0, eos_token_id=0, n_embd=8, n_layer=1, n_head=2
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    pipeline = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer)
    lens = regard.Lens(pipeline)
    assert lens.model is model
    expected = regard.Lens(model, tokenizer).explain("it is", "is").attention
    assert lens.explain("it is", "is").attention.equal(expected)
