"""``regard train``: its options are the configuration's fields, and files and presets combine."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from regard.translate.config import SECTIONS
from tests.cli.result import Run

Train = Callable[..., tuple[int, str]]

RECIPE = """
preset = "tiny"
[data]
source = "train.en"
target = "train.de"
[model]
vocabulary = 14          # the text has few letters
width = 16
heads = 2
encoder_depth = 1
decoder_depth = 1
feed_forward = 16
[training]
max_steps = 4
batch_tokens = 128
[validation]
valid_every = 2
judge = "loss"
"""


@pytest.fixture
def run(program: Run, tmp_path: Path) -> Train:
    """``regard train …`` beside two small files and a recipe: its status and standard error."""
    chance = random.Random(0)
    lines = [" ".join(chance.choices(("a", "b", "cab", "bad"), k=6)) for _ in range(200)]
    text = "".join(f"{line}\n" for line in lines)
    (tmp_path / "train.en").write_text(text)
    (tmp_path / "train.de").write_text(text.upper())
    (tmp_path / "recipe.toml").write_text(RECIPE)

    def run(*arguments: str) -> tuple[int, str]:
        result = program("train", *arguments)
        return result.status, result.err.strip()

    return run


def test_a_mix_from_the_command_line(run: Train, tmp_path: Path) -> None:
    source, target = ((tmp_path / f"train.{one}").read_text().splitlines() for one in ("en", "de"))
    pairs = [f"{a}\t{b}\n" for a, b in zip(source, target, strict=True)]
    (tmp_path / "a.tsv").write_text("".join(pairs[:120]))
    (tmp_path / "b=2.tsv").write_text("".join(pairs[120:]))
    recipe = RECIPE.replace('source = "train.en"\n', "").replace('target = "train.de"\n', "")
    (tmp_path / "recipe.toml").write_text(recipe)
    asked = ("--config", "recipe.toml", "--mix", "a.tsv=2", "--mix")
    assert run(*asked, "b=2.tsv=0.5", "--out", "run")[0] == 0
    kept = json.loads((tmp_path / "run" / "config.json").read_text())
    assert kept["data"]["mix"] == {"a.tsv": 2.0, "b=2.tsv": 0.5}
    status, told = run(*asked, "b=2.tsv=1", "--out", "run")
    assert status != 0
    assert "another configuration (data.mix" in told
    status, told = run(*asked, "b=2.tsv=two", "--out", "other")
    assert status != 0
    assert "--mix b=2.tsv=two, expected a file, = and a number" in told
    status, told = run(*asked, "b=2.tsv=-1", "--out", "other")
    assert status != 0
    assert "mix gives b=2.tsv -1.0, expected a number above 0" in told


def test_every_field_is_an_option_with_help(program: Run) -> None:
    status, told, _ = program("train", "--help")
    assert status == 0
    for kind in SECTIONS.values():
        for field in fields(kind):
            assert f"--{field.name.replace('_', '-')}" in told


def test_no_two_sections_share_a_field() -> None:
    names = [field.name for kind in SECTIONS.values() for field in fields(kind)]
    assert len(names) == len(set(names))


def test_options_go_before_the_file_and_the_file_before_the_preset(run: Train) -> None:
    status, told = run("--config=recipe.toml", "--out=run", "--feed-forward=24", "--seed=5")
    assert status == 0, told
    config = json.loads(Path("run/config.json").read_text())
    assert config["model"]["feed_forward"] == 24
    assert config["model"]["width"] == 16
    assert config["model"]["dropout"] == 0.3  # tiny's
    assert config["training"]["seed"] == 5
    assert "10 of the 200 pairs are held out" in told
    picture = Path("run/progress.svg").read_text()
    assert picture.startswith("<svg")
    assert "Loss" in picture
    assert "BLEU" in picture


def test_a_run_that_stops_early_has_a_picture_too(run: Train) -> None:
    options = ("--max-steps=90", "--patience=1", "--learning-rate=0")
    status, told = run("--config=recipe.toml", "--out=run", *options)
    assert status == 0, told
    assert "No improvement in 1 validation: stopped after update 4; the best was 2." in told
    assert Path("run/progress.svg").read_text().startswith("<svg")


def test_a_log_that_is_damaged_is_no_hindrance(run: Train) -> None:
    assert run("--config=recipe.toml", "--out=run", "--quiet") == (0, "")
    with Path("run/log.jsonl").open("ab") as log:
        log.write(b'{"kind": "train", "step": 3}\n{"kind": "train", "st\xff')
    status, told = run("--config=recipe.toml", "--out=run", "--max-steps=6")
    assert status == 0, told
    assert b"\xff" not in Path("run/log.jsonl").read_bytes()


def test_quiet_says_nothing(run: Train) -> None:
    assert run("--config=recipe.toml", "--out=run", "--quiet") == (0, "")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[data]\nsorce = 'x'", "recipe.toml: sorce is unknown in [data]; did you mean source?"),
        ("[modle]\nwidth = 3", "recipe.toml: [modle] is unknown; did you mean model?"),
        ("[model]\nwidth = 'wide'", "recipe.toml: width is 'wide', expected a whole number"),
        ("[model]\ntied = 1", "recipe.toml: tied is 1, expected true or false"),
        (
            "[training]\nschedule = 'linear'",
            "train: schedule='linear', expected one of inverse_sqrt",
        ),
        ("[training]\nepochs = 0", "train: epochs=0, expected at least 1"),
        ("[model]\nheads = 3", "TransformerConfig: width=128 does not split into heads=3"),
        ("model = 3", "recipe.toml: model is not a section; write [model]"),
        ("preset = 'huge'", "recipe.toml: preset 'huge' is unknown, expected one of tiny"),
        ("preset = ['tiny']", "recipe.toml: preset ['tiny'] is unknown, expected one of tiny"),
        ("preset = {tiny = 1}", "recipe.toml: preset {'tiny': 1} is unknown, expected one of tiny"),
        ("[[data]]\nsource = 'x'", "recipe.toml: data is not a section; write [data]"),
        ("[data]\nsource = ['x']", "recipe.toml: source is ['x'], expected text in quotes"),
        ("[training]\nclip = inf", "train: clip=inf, expected a finite number"),
        ("[training]\nepochs = " + "9" * 5000, "recipe.toml: not TOML"),
        ("[model", "recipe.toml: not TOML"),
    ],
)
def test_a_bad_recipe_is_told_in_one_line(run: Train, content: str, told: str) -> None:
    Path("recipe.toml").write_text(content)
    status, said = run("--config=recipe.toml", "--out=run")
    assert status == 1
    assert said.startswith(f"regard: {told}")
    assert "\n" not in said
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--config=none.toml",), "none.toml: cannot be read"),
        (("--preset=huge",), "train: --preset huge is unknown"),
        (("--source=none.en", "--target=train.de"), "none.en"),
        (("--target=train.de",), "train: --source is missing"),
        (("--source=a.tsv", "--target=train.de"), "train: a.tsv holds both sides"),
        (("--weight-decay=nan",), "train: weight_decay=nan, expected a finite number"),
        (("--source=train.en", "--target=train.de", "--width=-8"), "TransformerConfig: width=-8"),
    ],
)
def test_a_bad_option_is_told_in_one_line(
    run: Train, arguments: tuple[str, ...], told: str
) -> None:
    status, said = run(*arguments, "--out=run")
    assert status == 1
    assert said.startswith(f"regard: {told}"), said
    assert "\n" not in said


def test_an_unknown_option_is_refused(run: Train) -> None:
    status, said = run("--lerning-rate=3", "--out=run")
    assert status == 2
    assert "--lerning-rate" in said
