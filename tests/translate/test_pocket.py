"""The model that comes with regard: what it must understand, and what it must survive."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest
import torch

from regard.challenge import generate, judge
from regard.errors import FileError
from regard.lens import Lens
from regard.models import BUNDLED, POCKET
from regard.translate import Translator
from regard.translate.model_files import bundled

if not (BUNDLED / POCKET).is_dir():
    pytest.skip("the model is not in this tree", allow_module_level=True)

TIRED = "The animal didn't cross the street because it was too tired."
WIDE = "The animal didn't cross the street because it was too wide."


@pytest.fixture(scope="module")
def pocket() -> Translator:
    return Translator.load(POCKET)


def test_the_animal_and_the_street(pocket: Translator) -> None:
    tired, wide = (one.text for one in pocket.translate([TIRED, WIDE]))
    assert " es " in tired
    assert " sie " in wide


def test_what_newcomers_type(pocket: Translator) -> None:
    path = Path(__file__).parents[2] / "models" / POCKET / "acceptance.py"
    tried = runpy.run_path(str(path))["try_all"](pocket)
    accepted = {one.source: one.accepted for one in tried}
    assert len(accepted) >= 130
    assert sum(accepted.values()) >= 0.9 * len(accepted)
    assert accepted[TIRED]
    assert accepted[WIDE]


@pytest.mark.parametrize(("kind", "least"), [("reference", 0.9), ("senses", 0.8)])
def test_what_it_must_understand(pocket: Translator, kind: str, least: float) -> None:
    """On a part of the test split; what it reaches on all of it stands in its card."""
    pairs = list(generate(kind, "test", 200, seed=7))
    found = pocket.translate([pair.source for pair in pairs], beam=1)
    right = [judge(pair, one.text) is True for pair, one in zip(pairs, found, strict=True)]
    assert sum(right) >= least * len(right)


def test_the_link_that_decides(pocket: Translator) -> None:
    lens = Lens(pocket)
    explanation = lens.explain(TIRED, "it")
    changed = {explanation.names[one.word]: one.text for one in explanation.effects}
    assert " es " in (explanation.said or "")
    assert " es " not in changed["animal"]
    assert (
        "If “it” and its translation cannot attend to “animal”, the translation changes from “es”"
        in explanation.conclusion
    )
    written = lens.explain(TIRED, "es").conclusion
    assert "Without its link to “animal”, the translation changes from “es” to" in written
    without = lens.without(TIRED, [("it", "animal")])
    assert (without.before, without.after) == (explanation.said, changed["animal"])
    assert explanation.top("knockout", 1)[0][0] != "animal"  # no weight of the encoder tells


def test_two_bats(pocket: Translator) -> None:
    found = Lens(pocket).compare(
        "He hit the ball with the bat and ran.", "The bat is a mammal.", "bat"
    )
    assert [side.becomes for side in found.sides] == ["Schläger", "Fledermaus"]
    assert found.static == pytest.approx(1.0, abs=1e-5)
    assert float(found.cosine[-1]) < 0.8


def test_it_is_small(pocket: Translator) -> None:
    folder = bundled(POCKET)
    assert {file.name for file in folder.iterdir()} == {
        "model.json", "model.safetensors", "tokenizer.json", "README.md",
    }  # fmt: skip
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 17_000_000
    card = " ".join((folder / "README.md").read_text(encoding="utf-8").split())
    assert "CC BY 2.0" in card
    assert "European Parliament" in card
    assert all(x.dtype == torch.float32 for x in pocket.model.parameters())


@pytest.mark.parametrize(
    "text",
    [
        "El animal no cruzó la calle porque estaba cansado.",
        "这只动物没有过马路。",
        "\x00\x01\x1b[31m control \x7f",
        "ᚠᛇᚻ ᛒᛦᚦ 𓀀𓂀 🦇🏏",
        "a" * 1200,
        "it " * 300,
    ],
)
def test_any_text_has_an_end(pocket: Translator, text: str) -> None:
    [found] = pocket.translate([text])
    assert isinstance(found.text, str)


def test_a_long_text_is_translated_sentence_by_sentence(pocket: Translator) -> None:
    text = " ".join([TIRED, "The cat sleeps."] * 700)  # ten thousand words
    [found] = pocket.translate([text], beam=1)
    assert found.parts == 1400
    assert found.text.count("Die Katze schläft.") == 700


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert bundled(POCKET) == BUNDLED / POCKET
    (tmp_path / POCKET).mkdir()
    assert bundled(POCKET) == Path(POCKET)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    for name in ("model.json", "model.safetensors", "tokenizer.json"):
        folder = tmp_path / name.replace(".", "-")
        shutil.copytree(BUNDLED / POCKET, folder)
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(FileError, match=name.replace(".", r"\.")):
            Translator.load(folder)
