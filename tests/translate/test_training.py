"""Training, in this process: what it leaves, that it goes on where it stopped, what it refuses."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from regard.errors import FileError, OptionError, RegardError
from regard.text import Tokenizer
from regard.translate import RunConfig, Translator, train


def quietly(config: RunConfig, out: Path) -> Path:
    return train(config, out, ())


def longer(config: RunConfig, **changes: object) -> RunConfig:
    return replace(config, training=replace(config.training, **changes))


def judged(config: RunConfig, **changes: object) -> RunConfig:
    return replace(config, validation=replace(config.validation, **changes))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def assert_same(one: Path, other: Path) -> None:
    mine, theirs = weights(one), weights(other)
    assert mine.keys() == theirs.keys()
    for name in mine:
        assert torch.equal(mine[name], theirs[name]), name


def test_it_learns_to_translate(config: RunConfig, tmp_path: Path) -> None:
    config = judged(longer(config, max_steps=160), valid_every=80, select_by="bleu", average=1)
    config = replace(config, model=replace(config.model, dropout=0.0, width=64))
    config = longer(config, batch_tokens=512)
    out = quietly(config, tmp_path / "run")
    (said,) = Translator.load(out).translate(["three one four one five"], beam=3)
    assert said.text.startswith("drei")
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    valid = [line for line in log if line["kind"] == "valid"]
    assert [line["step"] for line in valid] == [80, 160]
    assert valid[-1]["bleu"] > 25
    assert valid[-1]["loss"] < valid[0]["loss"]


def test_the_same_seed_gives_the_same_bits(config: RunConfig, tmp_path: Path) -> None:
    config = longer(config, max_steps=12)
    assert_same(quietly(config, tmp_path / "a"), quietly(config, tmp_path / "b"))
    other = weights(quietly(longer(config, seed=2), tmp_path / "c"))
    assert not torch.equal(other["source.table"], weights(tmp_path / "a")["source.table"])


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_run_goes_on_bit_for_bit(config: RunConfig, tmp_path: Path, accumulate: int) -> None:
    whole = longer(config, accumulate=accumulate, max_steps=30)
    part = longer(whole, max_steps=18)
    quietly(part, tmp_path / "parts")
    shutil.rmtree(tmp_path / "parts" / "checkpoints" / "step-00000018")  # as if killed before it
    quietly(whole, tmp_path / "parts")
    quietly(whole, tmp_path / "whole")
    assert_same(tmp_path / "parts", tmp_path / "whole")
    logs = [
        [(line["kind"], line["step"]) for line in map(json.loads, log.read_text().splitlines())]
        for log in (tmp_path / "parts" / "log.jsonl", tmp_path / "whole" / "log.jsonl")
    ]
    assert [line for line in logs[0] if line[1] > 18] == [line for line in logs[1] if line[1] > 18]


def test_that_native_code_came_or_went_is_said(
    config: RunConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = longer(config, max_steps=4)
    out = quietly(longer(config, max_steps=2), tmp_path / "run")
    (path,) = (out / "checkpoints").glob("*/state.json")
    state = json.loads(path.read_text())
    del state["digest"]
    for was, said in ((state["native"], False), (not state["native"], True)):
        path.write_text(json.dumps({**state, "native": was}))
        shutil.copytree(out, tmp_path / str(was))
        train(config, tmp_path / str(was))
        assert ("not the same bit for bit" in capsys.readouterr().err) is said


def test_a_finished_run_is_left_as_it_is(config: RunConfig, tmp_path: Path) -> None:
    out = quietly(config, tmp_path / "run")
    before = weights(out)
    quietly(config, out)
    assert all(torch.equal(before[name], weight) for name, weight in weights(out).items())


def test_a_damaged_checkpoint_is_told_and_the_one_before_it_used(
    config: RunConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quietly(longer(config, max_steps=20), tmp_path / "run")
    damaged = tmp_path / "run" / "checkpoints" / "step-00000020" / "model.safetensors"
    content = bytearray(damaged.read_bytes())
    content[-5] ^= 0xFF
    damaged.write_bytes(content)
    train(config, tmp_path / "run")
    told = capsys.readouterr().err
    assert "model.safetensors: damaged: its checksum does not match; using" in told
    assert "Resuming from the checkpoint of update 15." in told
    quietly(config, tmp_path / "whole")
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_old_checkpoints_are_removed(config: RunConfig, tmp_path: Path) -> None:
    out = quietly(judged(config, average=2), tmp_path / "run")
    steps = sorted(path.name for path in (out / "checkpoints").iterdir())
    assert "step-00000030" in steps
    assert "step-00000020" in steps
    assert "step-00000005" not in steps


def test_the_average_is_the_mean_of_the_last_validated(config: RunConfig, tmp_path: Path) -> None:
    config = judged(longer(config, learning_rate=0.0005), average=2)
    out = quietly(config, tmp_path / "run")
    parts = [
        load_file(out / "checkpoints" / f"step-{s:08d}" / "model.safetensors") for s in (20, 30)
    ]
    name = "encoder.blocks.0.attention.w_q"
    mean = (parts[0][name] + parts[1][name]) / 2
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    average = next(line for line in log if line.get("averaged"))
    best = max(-line["loss"] for line in log if line["kind"] == "valid" and "averaged" not in line)
    chosen = mean if -average["loss"] >= best else parts[1][name]
    assert torch.allclose(weights(out)[name], chosen, atol=1e-7)


def test_it_stops_early_when_nothing_gets_better(
    config: RunConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = judged(longer(config, learning_rate=0.0, max_steps=200), patience=2)
    out = train(config, tmp_path / "run")
    told = "No improvement in 2 validations: stopped after update 30; the best was 10.\n"
    assert told in capsys.readouterr().err
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert max(line["step"] for line in log) == 30


def test_of_equal_bleu_the_less_loss_decides(
    config: RunConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While it says the same, and early on it does, it may well get better."""
    config = longer(config, max_steps=6, learning_rate=1e-6, warmup=1)
    config = judged(config, valid_every=2, select_by="bleu", average=1, patience=1)
    out = train(config, tmp_path / "run")
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    valid = [line for line in log if line["kind"] == "valid"]
    assert len({line["bleu"] for line in valid}) == 1
    assert [line["best"] for line in valid] == [True] * 3
    assert "No improvement" not in capsys.readouterr().err


def test_fine_tuning_starts_from_another_model(config: RunConfig, tmp_path: Path) -> None:
    first = quietly(config, tmp_path / "first")
    still = longer(config, init_from=str(first), learning_rate=0.0, max_steps=10)
    out = quietly(still, tmp_path / "second")
    assert_same(first, out)
    assert (out / "tokenizer.json").read_bytes() == (first / "tokenizer.json").read_bytes()


def test_fine_tuning_keeps_the_vocabulary(config: RunConfig, tmp_path: Path) -> None:
    first = quietly(longer(config, max_steps=2), tmp_path / "first")
    size = Tokenizer.load(first / "tokenizer.json").size
    tuned = longer(config, init_from=str(first))
    other = replace(tuned, model=replace(config.model, vocabulary=2 * size))
    with pytest.raises(OptionError, match=rf"={2 * size}, but init_from=\S* has {size} subwords"):
        quietly(other, tmp_path / "run")
    words = [f"{a}{b}" for a in ("ab", "cd", "ef") for b in ("gh", "ij", "kl", "mn")]
    Tokenizer.train(words * 3, 24).save(first / "tokenizer.json")
    with pytest.raises(FileError, match=r"a tokenizer of \d+ subwords, but its weights are for"):
        quietly(tuned, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_that_is_there_already(config: RunConfig, tmp_path: Path) -> None:
    words = ["one two three four five six", "eins zwei drei vier fünf acht zehn", "seven nine"]
    Tokenizer.train(words * 3, 30).save(tmp_path / "tokenizer.json")
    given = replace(config, data=replace(config.data, tokenizer=tmp_path / "tokenizer.json"))
    out = quietly(longer(given, max_steps=2), tmp_path / "run")
    kept = Tokenizer.load(tmp_path / "tokenizer.json")
    assert Tokenizer.load(out / "tokenizer.json").fingerprint == kept.fingerprint
    assert Translator.load(out).model.config.vocabulary == kept.size
    with pytest.raises(OptionError, match=r"has subwords of its own, .*; leave one of them out"):
        quietly(longer(given, init_from=str(out)), tmp_path / "tuned")


def test_only_some_parts_learn(
    config: RunConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = quietly(config, tmp_path / "first")
    some = longer(
        config, init_from=str(first), trainable="encoder.blocks.0.attention decoder.blocks"
    )
    train(some, tmp_path / "whole")
    assert "of which are trained)" in capsys.readouterr().err
    before, after = weights(first), weights(tmp_path / "whole")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    named = {
        name
        for name in before
        if name.startswith(("encoder.blocks.0.attention.", "decoder.blocks."))
    }
    assert changed == named != set()

    quietly(longer(some, max_steps=18), tmp_path / "parts")
    quietly(some, tmp_path / "parts")
    assert_same(tmp_path / "parts", tmp_path / "whole")


def test_parts_that_are_not_there_are_told(config: RunConfig, tmp_path: Path) -> None:
    first = quietly(longer(config, max_steps=5), tmp_path / "first")
    with pytest.raises(
        OptionError, match="trainable names decoder_, which the model does not have"
    ):
        quietly(longer(config, init_from=str(first), trainable="decoder_"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(OptionError, match="give init_from as well"):
        longer(config, trainable="encoder")


def test_validation_sentences_are_split_off_and_said(
    config: RunConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = replace(config, data=replace(config.data, valid_source="", valid_target=""))
    out = train(longer(config, max_steps=5), tmp_path / "run")
    told = capsys.readouterr().err
    assert "30 of the 600 pairs are held out for validation" in told
    assert "570 pairs read" in told.replace("\n", " ")
    held = json.loads((out / "data" / "valid.json").read_text(encoding="utf-8"))
    assert len(held) == 30


def test_it_says_what_will_happen(
    config: RunConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(longer(config, max_steps=5), tmp_path / "run")
    told = capsys.readouterr().err
    assert "600 sentence pairs" in told
    assert "An epoch is" in told
    assert "will take less than a minute" in told


def test_another_configuration_in_the_folder_is_told_by_field(
    config: RunConfig, tmp_path: Path
) -> None:
    quietly(longer(config, max_steps=5), tmp_path / "run")
    other = longer(config, max_steps=5, seed=7, warmup=3)
    wanted = r"another configuration \(training.warmup: 10, not 3; training.seed: 1, not 7\)"
    with pytest.raises(OptionError, match=wanted):
        quietly(other, tmp_path / "run")


def test_sentences_in_a_folder_named_data_are_left_alone(config: RunConfig, tmp_path: Path) -> None:
    (tmp_path / "run" / "data" / "train").mkdir(parents=True)
    mine = tmp_path / "run" / "data" / "train" / "mine.en"
    mine.write_text("precious")
    with pytest.raises(FileError, match="is not empty and holds no run; give another --out"):
        quietly(config, tmp_path / "run")
    assert mine.read_text() == "precious"
    mine.rename(mine.with_name("tokens.bin"))  # as a run leaves it that was stopped
    quietly(longer(config, max_steps=5), tmp_path / "run")


def test_a_folder_of_something_else_is_left_alone(config: RunConfig, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(FileError, match="is not empty and holds no run; give another --out"):
        quietly(config, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_gradient_that_is_not_a_number_stops_the_run(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RegardError, match=r"gradient of update \d+ is not a number; lower"):
        quietly(longer(config, learning_rate=1e30, warmup=0, clip=0.0), tmp_path / "run")


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("source", "train: --source is missing"),
        ("target", "train: --target is missing"),
        ("valid_target", "--valid-source and --valid-target go together"),
    ],
)
def test_missing_files_are_named(config: RunConfig, tmp_path: Path, field: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        quietly(replace(config, data=replace(config.data, **{field: ""})), tmp_path / "run")


def test_files_of_different_length_are_counted(config: RunConfig, tmp_path: Path) -> None:
    short = tmp_path / "short.de"
    short.write_text("eins\nzwei\n")
    with pytest.raises(FileError, match=r"has 600 lines but .* has 2;"):
        quietly(replace(config, data=replace(config.data, target=str(short))), tmp_path / "run")


def test_an_empty_corpus_is_refused(config: RunConfig, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    data = replace(config.data, source=str(empty), target=str(empty))
    with pytest.raises(FileError, match="no sentence pairs"):
        quietly(replace(config, data=data), tmp_path / "run")


def test_a_vocabulary_too_large_for_the_text_is_refused(config: RunConfig, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="5,000, but the text supports only"):
        quietly(replace(config, model=replace(config.model, vocabulary=5000)), tmp_path / "run")


def test_a_model_says_how_long_its_sentences_were(config: RunConfig, tmp_path: Path) -> None:
    out = quietly(longer(config, max_steps=1), tmp_path / "run")
    assert Translator.load(out).longest == config.data.longest


def test_a_file_is_no_folder(config: RunConfig, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("kept")
    with pytest.raises(FileError, match="notes is a file; give a folder"):
        quietly(config, tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "kept"


def test_what_a_run_left_that_never_began_is_no_hindrance(
    config: RunConfig, tmp_path: Path
) -> None:
    (tmp_path / "run" / "data").mkdir(parents=True)
    (tmp_path / "run" / ".tokenizer.json.x1y2").write_text("{")
    assert (quietly(longer(config, max_steps=1), tmp_path / "run") / "model.json").exists()


def test_a_damaged_configuration_is_named(config: RunConfig, tmp_path: Path) -> None:
    out = quietly(longer(config, max_steps=1), tmp_path / "run")
    for content in (b"[]", b"\xff\xfe", b"{"):
        (out / "config.json").write_bytes(content)
        with pytest.raises(FileError, match=r"config\.json: "):
            quietly(config, out)


def test_checkpoints_that_are_gone_are_missed_aloud(
    config: RunConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = judged(longer(config, max_steps=2), valid_every=2)
    out = quietly(config, tmp_path / "run")
    shutil.rmtree(out / "checkpoints")
    train(config, out)
    assert "No checkpoint of this run is left: starting again." in capsys.readouterr().err


def test_a_run_whose_checkpoints_are_all_damaged_is_left_as_it_is(
    config: RunConfig, tmp_path: Path
) -> None:
    config = judged(longer(config, max_steps=2), valid_every=1)
    out = quietly(config, tmp_path / "run")
    for path in (out / "checkpoints").glob("*/state.json"):
        path.write_text("{")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(FileError, match=r"no checkpoint in .* can be read: restore one"):
        quietly(config, out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_damaged_best_checkpoint_does_not_lose_the_run(
    config: RunConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = judged(longer(config, max_steps=4), valid_every=1, select_by="loss", average=3)
    out = quietly(config, tmp_path / "run")
    (out / "model.safetensors").unlink()
    damaged = out / "checkpoints" / "step-00000003" / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    train(config, out)
    assert "continuing without it" in capsys.readouterr().err
    assert (out / "model.safetensors").exists()


def test_pairs_of_the_validation_part_are_left_out_and_said(
    config: RunConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = config.data
    valid = list(zip(*(Path(x).read_text().splitlines() for x in
                       (data.valid_source, data.valid_target)), strict=True))  # fmt: skip
    for path, side in ((data.source, 0), (data.target, 1)):
        text = Path(path).read_text()
        (tmp_path / Path(path).name).write_text(text + valid[0][side] + "\n")
    changed = replace(
        data,
        source=str(tmp_path / Path(data.source).name),
        target=str(tmp_path / Path(data.target).name),
    )
    out = tmp_path / "run"
    train(replace(longer(config, max_steps=1), data=changed), out)
    assert "1 left out: also in the validation set" in capsys.readouterr().err


def test_sentences_without_a_position_are_left_out_and_said(
    config: RunConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    narrow = replace(longer(config, max_steps=1), model=replace(
        config.model, position="learned", max_length=12))  # fmt: skip
    out = tmp_path / "run"
    train(narrow, out)
    assert "Sentences of more than 11 subwords exceed the positions: left out." in (
        capsys.readouterr().err
    )
    quietly(narrow, out)  # which is the same run
    assert Translator.load(out).longest == 11


def test_a_run_that_stops_in_the_middle_is_the_beginning_of_the_whole(
    config: RunConfig, tmp_path: Path
) -> None:
    whole = judged(longer(config, max_steps=6, schedule="cosine"), valid_every=3, average=1)
    quietly(whole, tmp_path / "whole")
    out = quietly(longer(whole, stop_at=3), tmp_path / "part")
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert log[-1]["step"] == 3
    quietly(whole, tmp_path / "part")
    assert_same(tmp_path / "whole", tmp_path / "part")
