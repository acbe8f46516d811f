"""The folder of a run: whether a run can start or resume there, and with which configuration."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from regard.errors import FileError, OptionError
from regard.files import why, write_text
from regard.nn import Transformer, TransformerConfig
from regard.text import Tokenizer
from regard.text.tokenizer import SHORT
from regard.translate.config import RunConfig
from regard.translate.locking import LOCK
from regard.translate.model_files import TOKENIZER, bundled, load_model
from regard.translate.preparing import check_files, prepare

CONFIG, PAIRS = "config.json", "pairs.tsv"
MAY_CHANGE = ("training.epochs", "training.max_steps", "training.stop_at", "validation.patience")
"""What may differ when a run goes on: how long it lasts."""
OURS = ("tokenizer.json", CONFIG, "valid.json", "tokens.bin", "lengths.npy", "report.json", PAIRS)
"""Files of a run, up to its beginning. Written beside first, under such a name with a dot."""


def check_place(folder: Path) -> None:
    """Raise if a run can neither start nor resume in this folder."""
    if (folder / CONFIG).exists():
        return
    if folder.exists() and not folder.is_dir():
        raise FileError(f"train: {folder} is a file; give a folder as --out")
    if folder.exists() and not all(map(_begun, folder.iterdir())):
        raise FileError(f"train: {folder} is not empty and holds no run; give another --out")


def settle(
    asked: RunConfig,
    config: RunConfig,
    folder: Path,
    say: Callable[[str], None],
    fit_vocabulary: bool = False,
) -> None:
    """Prepare the run's data, or check that the data of the run agrees with the configuration.

    `config` is what becomes of what was `asked` for; see `prepare` for `fit_vocabulary`.
    """
    path = folder / CONFIG
    if path.exists():
        lines = read_config(path).differences(config)
        differ = [line for line in lines if not _may_change(line)]
        if differ:
            raise OptionError(
                f"train: {folder} holds a run with another configuration ({'; '.join(differ)}); "
                "give the same, or another --out"
            )
        if lines:
            write_text(path, {".json": config.to_json}, "train")
        return
    check_files(config.data)
    try:
        shutil.rmtree(folder / "data", ignore_errors=True)
        (folder / "data").mkdir(parents=True)
    except OSError as error:
        raise FileError(f"train: {folder} cannot be made: {why(error)}") from None
    tokenizer = Tokenizer.load(config.data.tokenizer) if config.data.tokenizer else None
    if config.training.init_from:
        tokenizer = Tokenizer.load(bundled(config.training.init_from) / TOKENIZER)
        say(f"The shape of the model and its subwords are those of {config.training.init_from}.")
    if config.data.longest < asked.data.longest:
        say(f"Sentences of more than {config.data.longest:,} subwords have no position: left out.")
    prepare(
        config.data,
        config.model.vocabulary,
        folder,
        seed=config.training.seed,
        tokenizer=tokenizer,
        fit_vocabulary=fit_vocabulary,
        say=say,
    )
    write_text(path, {".json": config.to_json}, "train")


def _begun(path: Path) -> bool:
    """Whether a file or folder is left from a run that was stopped before it had begun."""
    name = path.name.removeprefix(".")
    if path.is_dir():
        ours = name.split(".")[0] in ("data", "train", "valid")
        return ours and all(map(_begun, path.iterdir()))
    return path.name == LOCK or name.startswith(OURS)


def settled(config: RunConfig, folder: Path) -> RunConfig:
    """A configuration that fits: the model is that of `init_from`, and has room for sentences.

    A run that has begun in the folder knows its model, and needs the other one no more.
    """
    if config.training.init_from:
        path = folder / CONFIG
        if path.exists():
            model = read_config(path).model
        else:
            other = load_model(config.training.init_from)
            set_trainable(other, config.training.trainable)  # which raises if there is no such part
            _check_vocabulary(config, other.config.vocabulary)
            model = other.config
        config = replace(config, model=replace(model, dropout=config.model.dropout))
    most = config.model.max_length - 1  # the end needs a place as well
    if config.model.position == "learned" and config.data.longest > most:
        config = replace(config, data=replace(config.data, longest=most))
    return config


def _check_vocabulary(config: RunConfig, found: int) -> None:
    """Raise unless the model of `init_from` and its tokenizer have the vocabulary asked for."""
    where, asked = config.training.init_from, config.model.vocabulary
    if config.data.tokenizer:
        raise OptionError(
            f"train: tokenizer={config.data.tokenizer}, but init_from={where} has subwords of its "
            "own, and its weights fit no others; leave one of them out"
        )
    if asked != TransformerConfig().vocabulary and not SHORT * asked <= found <= asked:
        raise OptionError(
            f"train: vocabulary={asked:,}, but init_from={where} has {found:,} subwords, and its "
            "weights fit no others; leave vocabulary out, or train without init_from"
        )
    size = Tokenizer.load(bundled(where) / TOKENIZER).size
    if size != found:
        raise FileError(
            f"train: init_from={where} has a tokenizer of {size:,} subwords, but its weights are "
            f"for {found:,}; put back the tokenizer.json that it was trained with"
        )


def set_trainable(model: Transformer, names: str) -> None:
    """Freeze all modules but those of these names, separated by spaces; none, if empty."""
    parts = names.split()
    for part in parts:
        if not any(_belongs(name, part) for name, _ in model.named_parameters()):
            raise OptionError(
                f"train: trainable names {part}, which the model does not have; expected such as "
                "encoder.blocks.0, decoder.blocks.1.cross or source"
            )
    for name, weight in model.named_parameters():
        weight.requires_grad_(not parts or any(_belongs(name, part) for part in parts))


def _belongs(name: str, part: str) -> bool:
    return name == part or name.startswith(f"{part}.")


def read_config(path: Path) -> RunConfig:
    """The configuration of a run, from its folder."""
    try:
        return RunConfig.from_json(path.read_bytes(), str(path))
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path}: cannot be read: {error.strerror}") from None


def _may_change(line: str) -> bool:
    return line.split(":")[0] in MAY_CHANGE
