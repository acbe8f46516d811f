"""Products in bfloat16: training and translating, beside float32."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from regard.errors import OptionError
from regard.lens import watch
from regard.native import loaded
from regard.nn import Transformer
from regard.translate import Beam, Greedy, RunConfig, TrainingConfig, Translator, train
from regard.translate.precision import Precision
from regard.translate.search import search
from regard.translate.writing import Writer


@pytest.fixture
def narrow(config: RunConfig) -> RunConfig:
    """A short run in bfloat16."""
    training = replace(config.training, precision="bfloat16", max_steps=30)
    return replace(config, training=training)


def quietly(config: RunConfig, out: Path, **changes: object) -> dict[str, torch.Tensor]:
    """The weights that training leaves in a folder."""
    config = replace(config, training=replace(config.training, **changes))
    return load_file(train(config, out, ()) / "model.safetensors")


# Training


def test_it_learns_as_much(narrow: RunConfig, tmp_path: Path) -> None:
    losses = {}
    for precision in ("float32", "bfloat16"):
        out = tmp_path / precision
        quietly(narrow, out, precision=precision, max_steps=80)
        translator = Translator.load(out)
        assert translator.model.output.dtype == torch.float32
        # The loss of both by the same measure.
        last = (out / "log.jsonl").read_text().splitlines()[-1]
        losses[precision] = float(last.split('"loss": ')[1].split(",")[0])
    assert abs(losses["bfloat16"] / losses["float32"] - 1) < 0.03
    assert losses["bfloat16"] != losses["float32"]


def test_it_goes_on_bit_for_bit(narrow: RunConfig, tmp_path: Path) -> None:
    quietly(narrow, tmp_path / "parts", stop_at=18)
    parts = quietly(narrow, tmp_path / "parts")
    whole = quietly(narrow, tmp_path / "whole")
    assert all(torch.equal(parts[name], whole[name]) for name in whole)
    wide = quietly(narrow, tmp_path / "wide", precision="float32")
    assert not all(torch.equal(wide[name], whole[name]) for name in whole)


def test_weights_and_gradients_are_float32(narrow: RunConfig, tmp_path: Path) -> None:
    weights = quietly(narrow, tmp_path / "run", max_steps=3)
    kept = load_file(next((tmp_path / "run" / "checkpoints").glob("*/optimizer.safetensors")))
    for one in (*weights.values(), *kept.values()):
        assert one.dtype == torch.float32


def test_another_precision_is_another_run(narrow: RunConfig, tmp_path: Path) -> None:
    quietly(narrow, tmp_path / "run", max_steps=3)
    with pytest.raises(Exception, match=r"training\.precision: 'bfloat16', not 'float32'"):
        quietly(narrow, tmp_path / "run", max_steps=3, precision="float32")


def test_that_it_does_not_pay_is_said(
    narrow: RunConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for pays in (False, True):
        monkeypatch.setattr(Precision, "pays", lambda precision, pays=pays: pays)
        config = replace(narrow, training=replace(narrow.training, max_steps=2))
        train(config, tmp_path / str(pays))
        assert ("gains nothing from bfloat16" in capsys.readouterr().err) is not pays


def test_only_two_are_known() -> None:
    with pytest.raises(OptionError, match=r"precision='half', expected one of float32, bfloat16"):
        TrainingConfig(precision="half")


# Translating


@pytest.fixture(scope="module")
def pocket() -> Translator:
    return Translator.load("pocket-en-de")


TEXTS = [
    "A man is reading a book on the beach .",
    "Two children play with a ball .",
    "The dog runs .",
    "",
]


@pytest.mark.parametrize("how", [Beam(5), Greedy()])
@pytest.mark.parametrize("threads", [1, 2])
def test_translations_are_nearly_the_same(
    pocket: Translator, how: Beam | Greedy, threads: int
) -> None:
    quick = Translator(pocket.model, pocket.tokenizer, precision="bfloat16")
    exact = pocket.translate(TEXTS, how, batch=40, threads=threads)
    found = quick.translate(TEXTS, how, batch=40, threads=threads)
    assert [one.text for one in found] == [one.text for one in exact]
    for one, other in zip(found, exact, strict=True):
        assert abs(one.log_probability - other.log_probability) < 0.1
    assert [one.score for one in found] != [one.score for one in exact]
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.skipif(not loaded(), reason="there are no native operators")
def test_products_are_in_it(pocket: Translator) -> None:
    """Words whose vectors differ by less than bfloat16 can tell fit equally well."""
    model = Transformer(replace(pocket.model.config, vocabulary=32)).eval()
    with torch.no_grad():
        model.output.copy_(model.output[:1].bfloat16().expand(32, -1))
        model.output[9] *= 1 + 2**-12
        for precision in ("float32", "bfloat16"):
            with Precision(precision).autocast(torch.device("cpu")):
                writer = Writer(model, [[3, 4, 5]], [4])
            (logits,) = writer.logits(torch.tensor([[1]]))
            assert (len(logits.unique()) == 1) is (precision == "bfloat16")


def test_it_is_there_for_folders_and_said_if_unknown(pocket: Translator, tmp_path: Path) -> None:
    assert Translator.load("pocket-en-de", precision="bfloat16").precision == "bfloat16"
    assert pocket.precision == "float32"
    with pytest.raises(OptionError, match=r"precision='int4', expected float32, bfloat16, int8"):
        Translator.load("pocket-en-de", precision="int4")


def test_a_model_too_narrow_to_be_compiled(tmp_path: Path) -> None:
    """Then products are float32 where it writes, and nothing fails."""
    pocket = Translator.load("pocket-en-de")
    torch.manual_seed(0)
    config = replace(pocket.model.config, width=9, heads=3, feed_forward=10)
    model = Transformer(config)
    quick = Translator(model, pocket.tokenizer, precision="bfloat16")
    exact = Translator(model, pocket.tokenizer)
    (one,), (other,) = (each.translate(["The dog runs ."], beam=2) for each in (quick, exact))
    assert abs(one.log_probability - other.log_probability) < 0.5


def scores(translator: Translator, texts: list[str], threads: int = 1) -> list[float]:
    found = translator.translate(texts, beam=3, threads=threads)
    return [one.log_probability for one in found]


@pytest.mark.parametrize("alone", [2**22, 2**8], ids=["", "much work"])
def test_looking_changes_nothing(
    pocket: Translator, alone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.native.products.ALONE", alone)  # more is better shared out
    quick = Translator(pocket.model, pocket.tokenizer, precision="bfloat16")
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        wanted = scores(quick, TEXTS)
        assert wanted != scores(pocket, TEXTS)
        with watch(quick.model) as seen:
            found = scores(quick, TEXTS)
        hook = quick.model.decoder.blocks[0].register_forward_hook(lambda *_: None)
        hooked = scores(quick, TEXTS)
        hook.remove()
    finally:
        torch.set_num_threads(before)
    assert found == wanted
    assert hooked == wanted
    assert any("decoder" in name for name in seen.layers())


@pytest.mark.skipif(not loaded(), reason="there are no native operators")
def test_torchs_threads_change_nothing_where_it_writes(pocket: Translator) -> None:
    before = torch.get_num_threads()
    sources, memory = [[5, 6, 7]] * 40, torch.randn(40, 4, pocket.model.config.width)
    found = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            with Precision.BFLOAT16.autocast(torch.device("cpu")):
                found.append(search(pocket.model, sources, Beam(5), most=4, memory=memory))
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_models_of_other_dtypes_are_told(pocket: Translator, dtype: torch.dtype) -> None:
    model = copy.deepcopy(pocket.model).to(dtype)
    with pytest.raises(OptionError, match=r"is for models of float32, this one is torch\.float"):
        Translator(model, pocket.tokenizer, precision="bfloat16")
