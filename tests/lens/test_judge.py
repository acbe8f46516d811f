"""`regard.judge`: methods scored by what cutting really does."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.challenge import generate
from regard.errors import FileError, OptionError
from regard.lens import Cut, Judgement, Lens, cut
from regard.lens.judgement import Estimate, Item
from regard.lens.judgement.evaluation import evaluate
from regard.lens.judgement.items import items_of
from regard.lens.measures import agreement
from regard.lens.methods import find_methods

TIRED = {
    "text": "The animal didn't cross the street because it was too tired.",
    "target": "Das Tier überquerte die Straße nicht, weil es zu müde war.",
    "word": "es",
    "instead": "sie",
    "evidence": "animal",
}
QUICK = ["attention-max", "knockout"]


@pytest.fixture(scope="module")
def record(pocket: Lens) -> dict[str, Any]:
    return evaluate(pocket, items_of([TIRED], 1)[0], find_methods(QUICK))


@pytest.fixture(scope="module")
def judgement(pocket: Lens) -> Judgement:
    return regard.judge("reference", model=pocket, methods=QUICK, most=2)


def test_hiding_a_word_cuts_every_link_to_it(pocket: Lens, record: dict[str, Any]) -> None:
    """The first steps of the curves, computed by hand."""
    asked = pocket.analyse(TIRED["text"], target=TIRED["target"]).prediction("es", "sie")
    own = record["methods"]["knockout"]
    first = max(range(len(own["scores"])), key=lambda i: own["scores"][i])
    assert asked.words.names[first] == "animal"
    at = asked.words.tokens_of(first)
    source, target = len(asked.words.tokens), len(asked.prefix)  # type: ignore[attr-defined]
    layers = [name for name in asked.seen if name.startswith("encoder.")]
    cuts = [Cut(range(source), at, layer=name) for name in layers]
    with torch.no_grad(), cut(pocket.model, [*cuts, Cut(range(target), at, kind="cross")]):
        metric = float(asked.metric(asked.logits()[0]))
    assert own["deletion"][1] == pytest.approx(1 / (1 + math.exp(-metric)), abs=1e-4)
    before = 1 / (1 + math.exp(-record["metric"]))
    assert own["deletion"][0] == pytest.approx(before, abs=1e-5)
    assert own["insertion"][-1] == own["deletion"][0]
    assert own["insertion"][0] == own["deletion"][-1]
    assert len(own["deletion"]) == len(own["scores"]) + 1


def test_correlations_and_ranks(pocket: Lens, record: dict[str, Any]) -> None:
    knockout, looked = (record["methods"][name] for name in ("knockout", "attention-max"))
    assert knockout["cuts"] == pytest.approx(1)  # it is what it is compared with
    assert looked["cuts"] == pytest.approx(
        agreement(looked["scores"], knockout["scores"]), abs=1e-4
    )
    assert knockout["rank"] == 1
    assert set(record["methods"]) == {*QUICK, "random"}


def test_the_judgement(judgement: Judgement) -> None:
    assert judgement.methods[-1].name == "random"
    knockout, chance = judgement["knockout"], judgement["random"]
    assert knockout.cuts is not None
    assert chance.deletion is not None
    assert knockout.deletion is not None
    assert knockout.cuts.mean == pytest.approx(1)
    assert knockout.deletion.mean > chance.deletion.mean
    assert judgement.items + sum(judgement.skipped.values()) == 2
    table = str(judgement).splitlines()
    assert table[0].split() == ["cuts", "hidden", "deletion", "insertion", "evidence"]
    assert table[-1].startswith(f"{judgement.items} items of reference, Transformer")
    data = json.loads(judgement.to_json())
    assert data["methods"][-1]["name"] == "random"
    assert len(data["methods"][0]["deletion_curve"]) == 21
    assert judgement.picture().svg().count('class="line"') == 6
    assert repr(judgement) == f"Judgement(3 methods, {judgement.items} items of reference)"
    with pytest.raises(OptionError, match="no method 'norm'"):
        judgement["norm"]


def test_the_interval_is_that_of_the_bootstrap() -> None:
    assert Estimate.of([]) is None
    found = Estimate.of([0.0, 1.0] * 50)
    assert found is not None
    assert (found.mean, found.n) == (0.5, 100)
    assert found.low == pytest.approx(0.4, abs=0.03)
    assert found.high == pytest.approx(0.6, abs=0.03)


def test_built_in_items_know_their_evidence() -> None:
    for item in items_of("reference", 5):
        assert item.position is not None
        assert item.target is not None
        assert item.target[item.position :].casefold().startswith(("er", "sie", "es", "ihn"))
    pairs = {pair.source: pair for pair in generate("senses", "test", 50)}
    seen = 0
    for item in items_of("senses", 20):
        words = {item.text[i:].split()[0].strip(".") for i in item.evidence if isinstance(i, int)}
        if item.text in pairs:
            seen += 1
            assert pairs[item.text].word not in words
            assert not words & {"the", "a", "at", "on"}
    assert seen > 5


def test_an_interrupted_run_resumes(
    pocket: Lens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, beside = tmp_path / "found.json", tmp_path / "found.json.items.jsonl"
    items = [TIRED, {**TIRED, "text": TIRED["text"].replace("tired", "wide")}]
    options: dict[str, Any] = {"model": pocket, "methods": ["knockout"], "out": out}
    whole = regard.judge(items, **options)
    assert json.loads(out.read_text()) == whole.to_data()
    lines = beside.read_bytes().split(b"\n")
    beside.write_bytes(b"\n".join(lines[:2]) + b"\n" + lines[2][:30])  # killed while writing
    done = []
    again = regard.judge(items, **options, progress=lambda n, of: done.append(n))
    assert done == [1, 2]
    assert again == whole
    assert beside.read_bytes().split(b"\n") == lines
    with pytest.raises(FileError, match=r"^\S+\.items\.jsonl: belongs to a run with another"):
        regard.judge(items[:1], **options)
    beside.write_bytes(lines[0] + b"\nnonsense\n")
    with pytest.raises(FileError, match="line 2: not JSON; remove the file"):
        regard.judge(items, **options)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("{", "data.jsonl, line 2: not JSON"),
        ("[1]", "line 2: a list, expected an object with text"),
        ("{}", "line 2: text is missing"),
        ('{"text": "a b c", "word": 3}', "line 2: word is int, expected text"),
        ('{"text": "a b c", "evidence": [1]}', "line 2: evidence expected a word of the text"),
        ('{"text": "The cat slept.", "word": "xyz"}', "line 2: why: the model did not write 'xyz'"),
        ('{"text": "The cat slept.", "evidence": "dog"}', "line 2: the text has no word 'dog'"),
        ('{"text": "The cat.", "target": " "}', "line 2: lens: the target is empty"),
    ],
)
def test_bad_lines(pocket: Lens, tmp_path: Path, line: str, error: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text("\n" + line + "\n", encoding="utf-8")
    with pytest.raises(FileError, match=error):
        regard.judge(path, model=pocket, methods=["attention"])


def test_nothing_to_judge(pocket: Lens, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n \n", encoding="utf-8")
    with pytest.raises(FileError, match="the file is empty"):
        regard.judge(tmp_path / "empty.jsonl", model=pocket)
    with pytest.raises(FileError, match="'refernce' is neither reference or senses nor a file"):
        regard.judge("refernce", model=pocket)
    with pytest.raises(OptionError, match="data has no items"):
        regard.judge([], model=pocket)
    with pytest.raises(OptionError, match="'atention' is unknown; did you mean 'attention'"):
        regard.judge(model=pocket, methods=["atention"])
    with pytest.raises(OptionError, match="most=0, expected 1 or more"):
        regard.judge(model=pocket, most=0)
    wrong = {
        **TIRED,
        "word": "sie",
        "instead": "es",
        "target": TIRED["target"].replace("es", "sie"),
    }
    with pytest.raises(OptionError, match="none of the 1 items can be judged: the model prefers"):
        regard.judge([wrong], model=pocket, methods=["attention"])


def test_a_target_is_for_translators(sizes: dict[str, Any], word_piece: Any) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra hf")
    config = transformers.LlamaConfig(vocab_size=60, **sizes["llama"])
    lens = Lens(transformers.LlamaForCausalLM(config).eval(), word_piece)
    with pytest.raises(OptionError, match="LlamaForCausalLM does not translate"):
        lens.analyse("the animal", target="das Tier")
    found = evaluate(lens, Item("the animal was too tired"), find_methods(["attention"]))
    assert found["methods"]["attention"]["rank"] is None
