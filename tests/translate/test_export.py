"""CTranslate2 says what regard says."""

from __future__ import annotations

import json
import random
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import FileError, OptionError, RegardError
from regard.nn import Transformer, TransformerConfig
from regard.text import Tokenizer
from regard.translate import Beam, Greedy, Translator
from regard.translate.export import export_ctranslate2
from regard.translate.search import longest

ctranslate2 = pytest.importorskip("ctranslate2")

LETTERS = random.Random(0)
WORDS = ["".join(LETTERS.choices("abcdefghijklm", k=LETTERS.randint(2, 5))) for _ in range(30)]
TEXTS = [" ".join(LETTERS.choices(WORDS, k=LETTERS.randint(1, 5))) for _ in range(25)]
TOKENIZER = Tokenizer.train(TEXTS * 3, size=40)
CONFIG = TransformerConfig(
    vocabulary=40, width=32, encoder_depth=2, decoder_depth=2, heads=4, feed_forward=64,
    output_bias=True,
)  # fmt: skip
SHAPES: list[dict[str, Any]] = [
    {},
    {"norm_place": "before", "output_bias": False},
    {"activation": "gelu", "output_bias": False},
    {"activation": "swiglu", "norm": "rmsnorm", "norm_place": "before"},
    {"norm": "rmsnorm", "norm_eps": 0.01},
    {"norm_place": "before", "final_norm": False, "activation": "silu"},
    {"position": "learned", "max_length": 70},
    {"position": "rotary"},
    {"kv_heads": 2},
    {"kv_heads": 1, "position": "rotary", "tied": False},
    {"encoder_depth": 3, "decoder_depth": 1, "tied": False},
]


def sharp(config: TransformerConfig, tokenizer: Tokenizer = TOKENIZER) -> Translator:
    """A model with opinions: the weights of a new one, raised, biases and norms of their own."""
    torch.manual_seed(3)
    model = Transformer(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(1.5)
            else:
                parameter.add_(0.1 * torch.randn_like(parameter))
        if model.output_bias is not None:
            model.output_bias[Tokenizer.end] += 3.0
    return Translator(model, tokenizer, cut_loops=False)


def theirs(folder: Path, **options: Any) -> list[tuple[tuple[str, ...], bool, float]]:
    """What CTranslate2 says of each text: subwords, whether they ended, and the score."""
    translator = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    found = []
    for text in TEXTS:
        ids = TOKENIZER.encode(text)
        (result,) = translator.translate_batch(
            [TOKENIZER.tokens(ids)], max_decoding_length=longest(len(ids)), return_scores=True,
            return_end_token=True, min_decoding_length=0, **options,
        )  # fmt: skip
        words = result.hypotheses[0]
        ended = words[-1:] == ["</s>"]
        found.append((tuple(words[:-1] if ended else words), ended, result.scores[0]))
    return found


@pytest.mark.parametrize("changes", SHAPES, ids=str)
def test_greedy_translations_are_the_same(changes: dict[str, Any], tmp_path: Path) -> None:
    translator = sharp(replace(CONFIG, **changes))
    export_ctranslate2(translator, tmp_path / "model")
    ours = translator.translate(TEXTS, Greedy())
    found = theirs(tmp_path / "model", beam_size=1)
    assert [(one.tokens, one.ended) for one in ours] == [one[:2] for one in found]
    assert [one.score for one in ours] == pytest.approx([one[2] for one in found], abs=1e-4)
    assert len({one.tokens for one in ours}) >= 3


@pytest.mark.parametrize("penalty", [1.0, 0.4])
def test_beams_are_the_same_with_the_same_length(penalty: float, tmp_path: Path) -> None:
    translator = sharp(CONFIG)
    export_ctranslate2(translator, tmp_path / "model")
    ours = translator.translate(TEXTS, Beam(4, penalty))
    found = theirs(tmp_path / "model", beam_size=4, length_penalty=penalty)
    assert [one.tokens for one in ours] == [one[0] for one in found]
    assert [one.score for one in ours] == pytest.approx([one[2] for one in found], abs=1e-4)
    assert {one.ended for one in ours} >= {True}


def test_what_is_in_the_folder(tmp_path: Path) -> None:
    export_ctranslate2(sharp(CONFIG), tmp_path / "deep" / "model")
    folder = tmp_path / "deep" / "model"
    assert {path.name for path in folder.iterdir()} == {
        "model.bin", "config.json", "shared_vocabulary.json", "tokenizer.json", "README.md",
    }  # fmt: skip
    config = json.loads((folder / "config.json").read_text())
    assert config["add_source_eos"] is True
    assert config["decoder_start_token"] == "<s>"
    assert Tokenizer.load(folder / "tokenizer.json").vocabulary == TOKENIZER.vocabulary
    assert list((tmp_path / "deep").iterdir()) == [folder]
    with pytest.raises(FileError, match=r"model: a model for CTranslate2, as `regard export`"):
        Translator.load(folder)


def code_of(folder: Path, texts: list[str]) -> str:
    """The code of a folder's README, for other texts."""
    readme = (folder / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert code.count('["A cat sleeps."]') == 1
    return str(code).replace('["A cat sleeps."]', repr(texts))


def test_the_readme_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Translator.load("pocket-en-de")
    translator = Translator(whole.model, whole.tokenizer, longest=12, cut_loops=False)
    export_ctranslate2(translator, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    texts = ["A cat sleeps.", "", "The dog sees a bird. Does the bird sing? The man eats an apple!"]
    exec(code_of(tmp_path / "model", texts), {})
    found = translator.translate(texts)
    assert [one.parts for one in found] == [1, 1, 3]
    assert capsys.readouterr().out == "".join(f"{one.text}\n" for one in found)


@pytest.mark.parametrize("kind", ["unigram", "bytes"])
def test_the_readme_spells_as_we_do(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = Tokenizer.train(TEXTS * 3, size=40 if kind == "unigram" else 270, kind=kind)
    translator = sharp(replace(CONFIG, vocabulary=tokenizer.size), tokenizer)
    export_ctranslate2(translator, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code_of(tmp_path / "model", []), names)
    space = tokenizer.vocabulary.index("▁" if kind == "unigram" else "Ġ")
    ids = [*tokenizer.encode("abc"), space, space, *tokenizer.encode("ab"), Tokenizer.end]
    assert names["spelled"](tokenizer.tokens(ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize(("position", "written"), [("learned", 16), ("sinusoidal", 50)])
def test_the_readme_of_a_model_with_few_positions(
    position: str,
    written: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No more is taken nor written than there are positions, of which the end needs one."""
    translator = sharp(replace(CONFIG, position=position, max_length=16))
    assert translator.model.output_bias is not None
    with torch.no_grad():
        translator.model.output_bias[Tokenizer.end] = -1e4
    export_ctranslate2(translator, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    code = code_of(tmp_path / "model", [" ".join(TEXTS[:5])])
    names: dict[str, Any] = {}
    exec(code, names)
    assert [len(result.hypotheses[0]) for result in names["results"]] == [written]
    assert "max_input_length=15 + 1," in code
    capsys.readouterr()


@pytest.mark.parametrize(("quantization", "error"), [("int8", 0.3), ("float16", 0.02)])
def test_smaller_weights_mean_the_same(quantization: str, error: float, tmp_path: Path) -> None:
    translator = sharp(CONFIG)
    export_ctranslate2(translator, tmp_path / "full")
    export_ctranslate2(translator, tmp_path / "small", quantization=quantization)
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("small", "full")]
    assert sizes[0] < sizes[1]
    for now, before in zip(
        translator.model.parameters(), sharp(CONFIG).model.parameters(), strict=True
    ):
        assert torch.equal(now, before)
    pieces = [TOKENIZER.tokens(TOKENIZER.encode(text)) for text in TEXTS]
    scores = [
        ctranslate2.Translator(str(tmp_path / name), intra_threads=1).score_batch(pieces, pieces)
        for name in ("full", "small")
    ]
    for full, small in zip(*scores, strict=True):
        assert small.log_probs == pytest.approx(full.log_probs, abs=error)


def test_what_ctranslate2_cannot(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"no encoder with position='alibi'; train with sinusoid"):
        export_ctranslate2(sharp(replace(CONFIG, position="alibi")), tmp_path / "model")
    with pytest.raises(OptionError, match=r"no final norm \(final_norm=True\) where norms come af"):
        export_ctranslate2(sharp(replace(CONFIG, final_norm=True)), tmp_path / "model")
    with pytest.raises(OptionError, match=r"without blocks \(encoder_depth=0, decoder_depth=2\)"):
        export_ctranslate2(sharp(replace(CONFIG, encoder_depth=0)), tmp_path / "model")
    with pytest.raises(OptionError, match=r"quantization='int3', expected one of float32, int8"):
        export_ctranslate2(sharp(CONFIG), tmp_path / "model", quantization="int3")
    assert list(tmp_path.iterdir()) == []


def test_folders_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    for name in ("there", "there/file"):
        with pytest.raises(FileError, match=rf"export: .*{name} already exists; give a new"):
            export_ctranslate2(sharp(CONFIG), tmp_path / name)
    with pytest.raises(FileError, match=r"export: cannot write .*/file/a/b: Not a directory"):
        export_ctranslate2(sharp(CONFIG), tmp_path / "there" / "file" / "a" / "b")
    (tmp_path / "empty").mkdir()
    export_ctranslate2(sharp(CONFIG), tmp_path / "empty")


def test_without_ctranslate2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(RegardError, match=r"ctranslate2 is not installed; pip install 'regard\[ex"):
        export_ctranslate2(sharp(CONFIG), tmp_path / "model")
