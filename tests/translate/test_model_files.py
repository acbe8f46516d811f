"""Models come back from their folder as they were, and damaged folders say what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.errors import FileError, OptionError
from regard.models import BUNDLED, POCKET
from regard.nn import Transformer, TransformerConfig
from regard.translate.model_files import load_model, save_model

CONFIG = TransformerConfig(
    vocabulary=23, width=12, encoder_depth=2, decoder_depth=1, heads=3, feed_forward=20
)
SHAPES = [
    CONFIG,
    TransformerConfig(**{**vars(CONFIG), "tied": False, "output_bias": True}),
    TransformerConfig(**{**vars(CONFIG), "norm": "rmsnorm", "activation": "swiglu"}),
    TransformerConfig(**{**vars(CONFIG), "position": "learned", "max_length": 40}),
    TransformerConfig(**{**vars(CONFIG), "position": "rotary", "norm_place": "before"}),
    TransformerConfig(**{**vars(CONFIG), "position": "alibi", "kv_heads": 1}),
]


def logits(model: Transformer) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(torch.tensor([[4, 5, 2]]), torch.tensor([[1, 7, 9, 11]]))


@pytest.mark.parametrize("config", SHAPES)
def test_a_model_comes_back_bit_for_bit(config: TransformerConfig, tmp_path: Path) -> None:
    model = Transformer(config)
    save_model(tmp_path / "new" / "folder", model)
    again = load_model(tmp_path / "new" / "folder")
    assert again.config == config
    assert not again.training
    assert torch.equal(logits(again), logits(model))
    assert (again.output is again.source.table) == config.tied
    assert all(parameter.requires_grad for parameter in again.parameters())


def test_loading_leaves_the_random_numbers_alone(tmp_path: Path) -> None:
    save_model(tmp_path, Transformer(CONFIG))
    before = torch.random.get_rng_state()
    load_model(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_tied_matrices_are_stored_once(tmp_path: Path) -> None:
    save_model(tmp_path, Transformer(CONFIG))
    names = load_file(tmp_path / "model.safetensors")
    assert "source.table" in names
    assert not {"target.table", "output"} & names.keys()


def test_float16_halves_the_file_and_is_computed_in_float32(tmp_path: Path) -> None:
    model = Transformer(CONFIG)
    save_model(tmp_path / "full", model)
    save_model(tmp_path / "half", model, dtype=torch.float16)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("full", "half")]
    assert sizes[1] < 0.65 * sizes[0]
    again = load_model(tmp_path / "half")
    assert {parameter.dtype for parameter in again.parameters()} == {torch.float32}
    assert torch.equal(again.source.table, model.source.table.half().float())


def test_int8_quarters_the_file_and_keeps_each_row(tmp_path: Path) -> None:
    config = TransformerConfig(
        vocabulary=300, width=64, encoder_depth=2, decoder_depth=1, heads=4, feed_forward=128
    )
    model = Transformer(config)
    with torch.no_grad():
        model.source.table[7] = 0.0
        model.source.table[8] *= 1000.0
    save_model(tmp_path / "whole", model)
    save_model(tmp_path / "small", model, dtype=torch.int8)
    sizes = [(tmp_path / one / "model.safetensors").stat().st_size for one in ("whole", "small")]
    assert sizes[1] < 0.3 * sizes[0]
    loaded = load_model(tmp_path / "small")
    for (name, weight), found in zip(
        model.state_dict().items(), loaded.state_dict().values(), strict=True
    ):
        assert found.dtype == torch.float32
        step = weight.abs().amax(-1, keepdim=True) / 127
        assert bool(((found - weight).abs() <= 0.51 * step + 1e-4).all()), name
    assert loaded.target.table is loaded.source.table
    save_model(tmp_path / "again", loaded, dtype=torch.int8)
    torch.testing.assert_close(
        load_model(tmp_path / "again").state_dict(), loaded.state_dict(), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("broken", ["scale without a matrix", "short scale", "matrix alone"])
def test_int8_that_is_damaged(tmp_path: Path, broken: str) -> None:
    save_model(tmp_path, Transformer(CONFIG), dtype=torch.int8)
    weights = load_file(tmp_path / "model.safetensors")
    if broken == "scale without a matrix":
        weights["other|scale"] = torch.ones(3)
    elif broken == "short scale":
        weights["source.table|scale"] = torch.ones(3)
    else:
        del weights["source.table|scale"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(FileError, match=r"in int8; export|is stored as int8, expected floating"):
        load_model(tmp_path)


def test_what_float16_cannot_hold_is_refused(tmp_path: Path) -> None:
    model = Transformer(CONFIG)
    with torch.no_grad():
        model.source.table[3, 4] = 1e6
    with pytest.raises(OptionError, match=r"source\.table has numbers that float16 cannot hold"):
        save_model(tmp_path, model, dtype=torch.float16)
    with pytest.raises(OptionError, match=r"dtype=torch\.int32, expected torch\.float32, "):
        save_model(tmp_path, model, dtype=torch.int32)


def test_nothing_else_is_left_in_the_folder(tmp_path: Path) -> None:
    for _ in range(2):
        save_model(tmp_path, Transformer(CONFIG))
    assert {path.name for path in tmp_path.iterdir()} == {"model.json", "model.safetensors"}


def test_a_model_does_not_change_with_its_file(tmp_path: Path) -> None:
    model = Transformer(CONFIG)
    save_model(tmp_path, model)
    again = load_model(tmp_path)
    path = tmp_path / "model.safetensors"
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xff" * (path.stat().st_size // 2))
    assert torch.equal(logits(again), logits(model))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=r"save_model: cannot make .*file/run: Not a directory"):
        save_model(tmp_path / "file" / "run", Transformer(CONFIG))


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"gone: no such folder; expected what `regard train`"):
        load_model(tmp_path / "gone")
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=r"file: not a folder; expected"):
        load_model(tmp_path / "file")


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    save_model(tmp_path, Transformer(CONFIG))
    (tmp_path / name).unlink()
    with pytest.raises(FileError, match=rf"{name}: cannot be read: No such file"):
        load_model(tmp_path)


@pytest.mark.parametrize("keep", [0, 5, 100, 0.5, 0.999])
def test_weights_cut_short(keep: float, tmp_path: Path) -> None:
    save_model(tmp_path, Transformer(CONFIG))
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep if keep >= 1 else keep * len(whole))])
    with pytest.raises(FileError, match=r"model\.safetensors: damaged or cut short"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda x: x["model"].update(widht=3),
            r"widht is unknown in \[model\]; did you mean width\?",
        ),
        (
            lambda x: x["model"].update(qqq=3),
            r"qqq is unknown in \[model\]; known are vocabulary, width",
        ),
        (lambda x: x["model"].update(width=13), r"width=13 does not split into heads=3"),
        (lambda x: x["model"].update(width="wide"), r"width is 'wide', expected a whole number"),
        (lambda x: x["model"].update(tied="no"), r"tied is 'no', expected true or false"),
        (lambda x: x["model"].update(dropout="0"), r"dropout is '0', expected a number"),
        (lambda x: x.update(format=4, regard="9.9"), r"format 4, expected 1 to 3; .* 9\.9"),
        (lambda x: x.pop("model"), r"expected an object with the shape of a Transformer"),
        (lambda x: x["model"].update(vocabulary=24), r"source\.table has shape \(23,12\), but"),
        (lambda x: x["model"].update(encoder_depth=3), r"encoder\.blocks\.2.* is missing, but"),
        (lambda x: x["model"].update(encoder_depth=1), r"encoder\.blocks\.1.* is not part"),
    ],
)
def test_a_shape_that_does_not_fit(change: object, message: str, tmp_path: Path) -> None:
    save_model(tmp_path, Transformer(CONFIG))
    path = tmp_path / "model.json"
    content = json.loads(path.read_text())
    change(content)  # type: ignore[operator]
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match=message) as caught:
        load_model(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1]"])
def test_a_shape_that_is_no_json(content: bytes, tmp_path: Path) -> None:
    save_model(tmp_path, Transformer(CONFIG))
    (tmp_path / "model.json").write_bytes(content)
    with pytest.raises(FileError, match=r"model\.json: (not JSON, or damaged|expected an object)"):
        load_model(tmp_path)


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    save_model(tmp_path, Transformer(CONFIG))
    weights = load_file(tmp_path / "model.safetensors")
    weights["source.table"][0, 0] = torch.nan
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(FileError, match=r"source\.table has numbers that are not finite"):
        load_model(tmp_path)


@pytest.mark.skipif((BUNDLED / POCKET).is_dir(), reason="the model is in this tree")
def test_a_model_that_does_not_come_with_it_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match="pocket-en-de does not come with this version"):
        load_model(POCKET)
