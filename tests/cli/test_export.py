"""``regard export``: a folder that CTranslate2 opens, and the one line with which it fails."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from regard.nn import Transformer, TransformerConfig
from regard.text import Tokenizer
from regard.translate.model_files import save_model
from tests.cli.result import Run

ctranslate2 = pytest.importorskip("ctranslate2")


@pytest.fixture
def run(program: Run, tmp_path: Path) -> Run:
    """``regard export …``, with a small model in the folder ``model``."""
    tokenizer = Tokenizer.train(["a b c d e f"] * 9, size=11)
    config = TransformerConfig(
        vocabulary=11, width=8, encoder_depth=1, decoder_depth=1, heads=2, feed_forward=8
    )
    save_model(tmp_path / "model", Transformer(config))
    tokenizer.save(tmp_path / "model" / "tokenizer.json")
    return partial(program, "export")


@pytest.mark.parametrize("more", [[], ["--to=ctranslate2", "--quantization=int8"]])
def test_the_folder_opens(run: Run, more: list[str]) -> None:
    found = run("--model=model", "--output=served", *more)
    assert found == (0, "", "regard: wrote served; its README.md says how to use it\n")
    translator = ctranslate2.Translator("served", intra_threads=1)
    assert translator.translate_batch([["▁a", "b"]], max_decoding_length=5)[0].hypotheses


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--output=x"], "Missing option '--model'"),
        (["--model=model"], "Missing option '--out'"),
        (["--model=model", "--output=x", "--to=onnx"], "export: --to onnx is unknown, expected ct"),
        (["--model=model", "--output=x", "--quantization=int3"], "quantization='int3', expected"),
        (["--model=gone", "--output=x"], "gone: no such folder"),
        (["--model=model", "--output=model"], "export: model already exists; give a new folder"),
    ],
)
def test_bad_options_are_one_line(options: list[str], message: str, run: Run) -> None:
    found = run(*options)
    assert found.status > 0
    assert message in found.err
    assert found.err.count("\n") == 1
