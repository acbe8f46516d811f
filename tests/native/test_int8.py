"""Matrices in int8: products, storage, and what a capture session sees of them."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.errors import FileError, OptionError
from regard.native import Int8Matrix, Int8Product, loaded
from regard.translate import Translator
from regard.translate.model_files import SCALE, TOKENIZER, WEIGHTS, save_model

TEXTS = ["The cat sleeps.", "Tom sold the sofa because it was broken.", "I am here."]
needs_native = pytest.mark.skipif(not loaded(), reason="no native operators")


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def expected(x: torch.Tensor, weight: Int8Matrix) -> torch.Tensor:
    """The definition, in float64 with exact sums."""
    most = x.abs().amax(1, keepdim=True)
    whole = (x * torch.where(most > 0, 127 / most, 0)).round().double()
    return whole @ weight.whole.double() * (most / 127 * weight.scales).double()


@needs_native
@pytest.mark.parametrize(
    ("rows", "d", "n"), [(1, 4, 16), (37, 192, 48), (13, 20, 80), (4, 768, 32)]
)
def test_products_are_the_definition_row_by_row(rows: int, d: int, n: int) -> None:
    x, weight, bias = drawn(rows, d), Int8Matrix.quantise(drawn(d, n), 1), drawn(n)
    x[0] = 0
    y = Int8Product.apply(x, weight, bias)
    torch.testing.assert_close(y.double(), expected(x, weight) + bias, rtol=2e-6, atol=2e-5)
    for i in range(rows):
        assert torch.equal(Int8Product.apply(x[i : i + 1], weight, bias)[0], y[i])


@needs_native
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_lost(bad: float) -> None:
    x, weight = drawn(3, 32), Int8Matrix.quantise(drawn(32, 16), 1)
    x[1, 20] = bad
    y = Int8Product.apply(x, weight, None)
    assert y[1].isnan().all()
    assert y[[0, 2]].isfinite().all()


@needs_native
def test_the_gradient_is_that_of_the_matrix() -> None:
    x, weight = drawn(5, 32).requires_grad_(), Int8Matrix.quantise(drawn(32, 16), 1)
    Int8Product.apply(x, weight, None).sum().backward()
    torch.testing.assert_close(x.grad, weight.values().sum(1).expand(5, 32))


def test_other_operators_see_the_values() -> None:
    plain = drawn(6, 32)
    rows, columns = Int8Matrix.quantise(plain, 0), Int8Matrix.quantise(plain, 1)
    assert (rows.values() - plain).abs().max() <= rows.scales.max() / 2 + 1e-6
    assert torch.equal(columns + 1, columns.values() + 1)
    assert torch.equal(
        torch.nn.functional.embedding(torch.tensor([2, 0]), rows), rows.values()[[2, 0]]
    )
    joined = torch.cat((columns, columns), 1)
    assert isinstance(joined, Int8Matrix)
    assert torch.equal(joined.values(), torch.cat((columns.values(), columns.values()), 1))
    with torch.inference_mode():  # which dispatches .T as another operator
        assert isinstance(rows.T, Int8Matrix)
    assert isinstance(rows.T, Int8Matrix)
    assert torch.equal(rows.T.values(), rows.values().T)
    assert torch.equal(copy.deepcopy(rows).values(), rows.values())


# A translator


@pytest.fixture(scope="module")
def narrow() -> Translator:
    return Translator.load("pocket-en-de", precision="int8")


def test_a_watched_model_writes_the_same(narrow: Translator) -> None:
    wanted = narrow.translate(TEXTS, beam=3)
    with regard.watch(narrow.model) as seen:
        found = narrow.translate(TEXTS, beam=3)
    assert [(one.text, one.score) for one in found] == [(one.text, one.score) for one in wanted]
    assert len(seen) > 0
    lens = regard.Lens(narrow.model, narrow.tokenizer)
    assert lens.why(TEXTS[1], "weil").links


def test_a_folder_keeps_int8_and_loads_it_as_it_is(narrow: Translator, tmp_path: Path) -> None:
    narrow.save(tmp_path)
    again = Translator.load(tmp_path, precision="int8")
    for name, weight in narrow.model.state_dict().items():
        other = again.model.state_dict()[name]
        assert type(other) is type(weight)
        if isinstance(weight, Int8Matrix):
            assert torch.equal(other.whole, weight.whole)
            assert torch.equal(other.scales, weight.scales)
    exact = Translator.load(tmp_path)
    assert torch.equal(exact.model.output, narrow.model.output.values())
    assert again(TEXTS, beam=2) == narrow(TEXTS, beam=2)
    scores = narrow.score(TEXTS, again(TEXTS))
    assert scores == again.score(TEXTS, again(TEXTS))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: s[1:],
            r"attention\.w_q\|scale belongs to no matrix in int8",
        ),
        (lambda s: s * float("nan"), r"w_q\|scale is not finite; the file is damaged"),
    ],
)
def test_a_damaged_folder(narrow: Translator, tmp_path: Path, change: object, message: str) -> None:
    narrow.save(tmp_path)
    weights = load_file(tmp_path / WEIGHTS)
    name = f"encoder.blocks.0.attention.w_q{SCALE}"
    weights[name] = change(weights[name]).contiguous()  # type: ignore[operator]
    save_file(weights, tmp_path / WEIGHTS)
    with pytest.raises(FileError, match=message):
        Translator.load(tmp_path)


def test_folders_of_earlier_versions_are_read(tmp_path: Path) -> None:
    """With a scale for each row of every matrix."""
    translator = Translator.load("pocket-en-de")
    save_model(tmp_path, translator.model)
    translator.tokenizer.save(tmp_path / TOKENIZER)
    weights = {}
    for name, weight in load_file(tmp_path / WEIGHTS).items():
        weights[name] = weight
        if weight.dim() == 2:
            matrix = Int8Matrix.quantise(weight, 0)
            weights |= {name: matrix.whole, name + SCALE: matrix.scales}
    save_file(weights, tmp_path / WEIGHTS)
    content = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({**content, "format": 2}))
    found = Translator.load(tmp_path)
    assert (found.model.output - translator.model.output).abs().max() < 0.02


def test_without_native_operators_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("regard.translate.translator.status", "regard.native.int8.loaded"):
        monkeypatch.setattr(place, lambda: False)
    with pytest.warns(UserWarning, match="int8 products need the native operators"):
        translator = Translator.load("pocket-en-de", precision="int8")
    assert translator("I am here.") == "Ich bin hier."


def test_a_precision_that_is_unknown() -> None:
    with pytest.raises(OptionError, match="precision='int4', expected float32, bfloat16, int8"):
        Translator.load("pocket-en-de", precision="int4")


def test_save_model_writes_int8_of_a_float_model(tmp_path: Path) -> None:
    translator = Translator.load("pocket-en-de")
    save_model(tmp_path, translator.model, dtype=torch.int8)
    assert load_file(tmp_path / WEIGHTS)["source.table"].dtype == torch.int8
