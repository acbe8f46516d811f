"""Model folders that are damaged or hostile are refused in one sentence, at once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.errors import FileError
from regard.nn import Transformer, TransformerConfig
from regard.text import Tokenizer
from regard.translate.model_files import load_model, save_model

CONFIG = TransformerConfig(
    vocabulary=23, width=12, encoder_depth=2, decoder_depth=1, heads=3, feed_forward=20
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tmp_path, Transformer(CONFIG))
    return tmp_path


def change_shape(folder: Path, **changes: Any) -> None:
    path = folder / "model.json"
    content = json.loads(path.read_text())
    content["model"].update(changes)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary": 10**15}, r"source\.table has shape \(23,12\), but .* \(10{15},12\)"),
        ({"width": 3 * 10**9}, r"source\.table has shape"),
        ({"feed_forward": 10**14}, r"feed_forward\.w_in has shape \(12,20\), but .* \(12,10{14}\)"),
        ({"encoder_depth": 10**9}, r"encoder\.blocks\.2\.attention\.w_q is missing"),
        ({"decoder_depth": 10**9}, r"decoder\.blocks\.1\.attention\.w_q is missing"),
        ({"position": "learned", "max_length": 10**15}, r"source\.position\.table is missing"),
    ],
)
def test_a_shape_is_not_believed_before_the_weights(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    change_shape(folder, **changes)
    with pytest.raises(FileError, match=message):
        load_model(folder)


def test_a_name_of_a_far_block_does_not_make_room_for_those_before_it(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["encoder.blocks.999999999.attention.w_q"] = torch.zeros(12, 12)
    save_file(weights, folder / "model.safetensors")
    change_shape(folder, encoder_depth=10**9)
    with pytest.raises(FileError, match=r"encoder\.blocks\.2\.attention\.w_q is missing"):
        load_model(folder)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(torch.int64, "int64"), (torch.bool, "bool"), (torch.complex64, "complex64")],
)
def test_weights_are_floating_point_numbers(folder: Path, dtype: torch.dtype, name: str) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["source.table"] = weights["source.table"].to(dtype)
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(FileError, match=rf"source\.table is stored as {name}, expected floating"):
        load_model(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_pipe_is_no_model_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(FileError, match=f"{name}: not a regular file, but a pipe"):
        load_model(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_no_tokenizer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tokenizer.json")
    with pytest.raises(FileError, match="not a regular file"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def in_normalizer(content: dict[str, Any], step: dict[str, Any]) -> None:
    content["normalizer"]["normalizers"].insert(0, {"type": "Replace", "content": "", **step})


def in_pre_tokenizer(content: dict[str, Any], step: dict[str, Any]) -> None:
    split = {"type": "Split", "behavior": "Isolated", "invert": False, **step}
    content["pre_tokenizer"]["pretokenizers"].insert(0, split)


@pytest.mark.parametrize("place", [in_normalizer, in_pre_tokenizer])
def test_regular_expressions_of_others_are_refused(
    tmp_path: Path, place: Callable[[dict[str, Any], dict[str, Any]], None]
) -> None:
    """The library panics when one takes more steps than it allows itself."""
    path = tmp_path / "tokenizer.json"
    Tokenizer.train(["the cats walk", "the dog walks", "a cat sees the dogs"], 20).save(path)
    content = json.loads(path.read_text())
    place(content, {"pattern": {"Regex": "(x+x+)+y"}})
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match=r"regular expression '\(x\+x\+\)\+y', which regard does"):
        Tokenizer.load(path)
