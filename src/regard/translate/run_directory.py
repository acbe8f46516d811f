"""The directory of a run: its files, its lock, and checks before a run starts or resumes.

runs/en-de/
    config.json         the configuration
    .lock               while a process trains here, see `locking`
    tokenizer.json      the tokenizer
    data/               encoded sentences
    checkpoints/        see `checkpoint`
    log.jsonl           see `events`
    model.json, model.safetensors   the result: what `Translator.load` opens
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from regard.errors import FileError, OptionError
from regard.files import read_regular, why, write_text
from regard.nn import Transformer, TransformerConfig
from regard.text import Tokenizer
from regard.text.tokenizer import SHORT
from regard.translate.checkpoint import Checkpoint, Checkpoints
from regard.translate.config import RunConfig
from regard.translate.events import JsonLines
from regard.translate.locking import LOCK, locked
from regard.translate.model_files import TOKENIZER, bundled, load_model
from regard.translate.preparing import check_files, prepare

CONFIG, PAIRS = "config.json", "pairs.tsv"
MAY_CHANGE = ("training.epochs", "training.max_steps", "training.stop_at", "validation.patience")
"""Options that may change when a run resumes: its length."""
OURS = ("tokenizer.json", CONFIG, "valid.json", "tokens.bin", "lengths.npy", "report.json", PAIRS)
"""Files written before a run starts; the names of temporary ones begin with a dot."""


class RunDirectory:
    """The directory of one run: its configuration, checkpoints and log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoints = Checkpoints(folder / "checkpoints")
        self.log = JsonLines(folder)
        self._config = folder / CONFIG

    def check(self) -> None:
        """Raise if a run can neither start nor resume here."""
        if self._config.exists():
            return
        if self.folder.exists() and not self.folder.is_dir():
            raise FileError(f"train: {self.folder} is a file; give a folder as --out")
        if self.folder.exists() and not all(map(_begun, self.folder.iterdir())):
            raise FileError(
                f"train: {self.folder} is not empty and holds no run; give another --out"
            )

    def lock(self) -> AbstractContextManager[None]:
        """Context in which no other run can use the directory."""
        return locked(self.folder)

    def resolve(self, config: RunConfig) -> RunConfig:
        """The configuration with the model of `init_from`, and `longest` limited to its positions.

        A run that has started no longer needs the other model.
        """
        if config.training.init_from:
            if self._config.exists():
                model = read_config(self._config).model
            else:
                other = load_model(config.training.init_from)
                set_trainable(other, config.training.trainable)  # raises for an unknown module
                _check_vocabulary(config, other.config.vocabulary)
                model = other.config
            config = replace(config, model=replace(model, dropout=config.model.dropout))
        most = config.model.max_length - 1  # one position is for the end token
        if config.model.position == "learned" and config.data.longest > most:
            config = replace(config, data=replace(config.data, longest=most))
        return config

    def prepare(
        self,
        asked: RunConfig,
        config: RunConfig,
        say: Callable[[str], None],
        fit_vocabulary: bool = False,
    ) -> None:
        """Prepare the data, or check that the run here has the same configuration.

        `config` is `asked` after `resolve`; see `preparing.prepare` for `fit_vocabulary`.
        """
        if self._config.exists():
            self._check_same(config)
            return
        check_files(config.data)
        try:
            shutil.rmtree(self.folder / "data", ignore_errors=True)
            (self.folder / "data").mkdir(parents=True)
        except OSError as error:
            raise FileError(f"train: {self.folder} cannot be made: {why(error)}") from None
        start = config.training.init_from
        tokenizer = Tokenizer.load(config.data.tokenizer) if config.data.tokenizer else None
        if start:
            tokenizer = Tokenizer.load(bundled(start) / TOKENIZER)
            say(f"The shape of the model and its subwords are those of {start}.")
        longest = config.data.longest
        if longest < asked.data.longest:
            say(f"Sentences of more than {longest:,} subwords exceed the positions: left out.")
        prepare(
            config.data,
            config.model.vocabulary,
            self.folder,
            seed=config.training.seed,
            tokenizer=tokenizer,
            fit_vocabulary=fit_vocabulary,
            say=say,
        )
        write_text(self._config, {".json": config.to_json}, "train")

    def _check_same(self, config: RunConfig) -> None:
        lines = read_config(self._config).differences(config)
        differ = [line for line in lines if line.split(":")[0] not in MAY_CHANGE]
        if differ:
            raise OptionError(
                f"train: {self.folder} holds a run with another configuration "
                f"({'; '.join(differ)}); give the same, or another --out"
            )
        if lines:
            write_text(self._config, {".json": config.to_json}, "train")

    def save(self, checkpoint: Checkpoint, wanted: set[int]) -> None:
        """Write a checkpoint, and remove all but this, the one before it and those `wanted`."""
        self.checkpoints.write(checkpoint)
        # Later ones are damaged, or the run would have resumed from them.
        recent = [step for step in self.checkpoints.steps() if step <= checkpoint.step][-2:]
        self.checkpoints.keep({*recent, *wanted})


def _begun(path: Path) -> bool:
    """Whether a file or folder is left from a run that stopped during preparation."""
    name = path.name.removeprefix(".")
    if path.is_dir():
        ours = name.split(".")[0] in ("data", "train", "valid")
        return ours and all(map(_begun, path.iterdir()))
    return path.name == LOCK or name.startswith(OURS)


def _check_vocabulary(config: RunConfig, found: int) -> None:
    """Raise unless the model of `init_from` and its tokenizer have the given vocabulary."""
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
    """Freeze all modules but these, named with spaces between; none if empty."""
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
    return RunConfig.from_json(read_regular(path), str(path))
