"""The configuration of a training run, from a TOML file and the command line.

Four frozen records, one per concern: `DataConfig`, `regard.nn.TransformerConfig`,
`TrainingConfig` and `ValidationConfig`. Their fields are the options of the command line and of the
TOML file.
"""

from __future__ import annotations

import difflib
import json
import math
import tomllib
import types
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from regard.errors import FileError, OptionError
from regard.nn.config import PRESETS, TransformerConfig
from regard.translate.precision import TRAINING
from regard.translate.scoring import TOKENIZERS


@dataclass(frozen=True)
class DataConfig:
    """Which sentences, and how they are tokenised."""

    source: Annotated[
        str | Path,
        "Source sentences, one per line, plain or .gz; or source and target in one .tsv file.",
    ] = ""
    target: Annotated[
        str | Path, "Target sentences, line by line; not with a .tsv file as source."
    ] = ""
    valid_source: Annotated[
        str | Path,
        "Source sentences to validate on; if not given, training pairs are held out.",
    ] = ""
    valid_target: Annotated[str | Path, "Their translations."] = ""
    subwords: Annotated[str, "Tokenizer: unigram, or bytes (byte-level BPE)."] = "unigram"
    longest: Annotated[int, "Pairs with more subwords than this on a side are dropped."] = 256
    max_ratio: Annotated[
        float, "Pairs with more than this ratio of subwords between the sides are dropped."
    ] = 4.0
    drop_duplicates: Annotated[bool, "Whether repeated pairs are dropped."] = True
    mix: Annotated[
        dict[str, float | int],
        "Instead of a source: .tsv files, each with how often an epoch repeats its pairs, as in "
        "tatoeba.tsv=2.",
    ] = field(default_factory=dict)
    context: Annotated[
        bool,
        "Whether columns 3 and 4 of .tsv files have the preceding source and target sentence, to "
        "be put before the pair.",
    ] = False
    tokenizer: Annotated[str | Path, "A tokenizer.json to use instead of training one."] = ""

    def __post_init__(self) -> None:
        _settle_types(self)
        _one_of(self, "subwords", ("unigram", "bytes"))
        _at_least(self, "longest", 1)
        if self.max_ratio != math.inf:  # keeps all
            _at_least(self, "max_ratio", 1.0)


@dataclass(frozen=True)
class TrainingConfig:
    """The optimisation: schedule, batches, regularisation."""

    epochs: Annotated[int, "Passes over the training data."] = 60
    max_steps: Annotated[int | None, "Maximum number of updates."] = None
    stop_at: Annotated[
        int | None, "Stop after this update, in the middle of the schedule; a later run resumes."
    ] = None
    batch_tokens: Annotated[
        int, "Tokens per batch and side, padding included; all workers together."
    ] = 4096
    accumulate: Annotated[int, "Batches per update: gradient accumulation."] = 1
    learning_rate: Annotated[
        float | None,
        "Peak learning rate, after the warm-up; 1/√(width · warmup) if not given.",
    ] = None
    warmup: Annotated[int, "Updates of linear warm-up."] = 2000
    schedule: Annotated[
        str, "Decay of the learning rate after the warm-up: inverse_sqrt, or cosine to 0."
    ] = "inverse_sqrt"
    smoothing: Annotated[
        float, "Label smoothing: the probability spread evenly over the vocabulary."
    ] = 0.1
    word_dropout: Annotated[
        float,
        "Share of the target's subwords that the decoder reads as unknown while training, so that "
        "it relies on the source.",
    ] = 0.0
    weight_decay: Annotated[float, "Decoupled weight decay (AdamW)."] = 0.0
    clip: Annotated[float, "Maximum norm of the gradient; 0: no clipping."] = 1.0
    init_from: Annotated[
        str | Path,
        "Fine-tune: start from the weights and subwords of this model or run; of an unfinished "
        "run, from its checkpoint with the best validation score.",
    ] = ""
    precision: Annotated[
        str,
        "Precision of matrix products: float32, or bfloat16, about twice as fast on processors "
        "with AVX-512 BF16 or AMX; weights, residual sums and validation stay float32.",
    ] = "float32"
    trainable: Annotated[
        str,
        'With `init_from`, the modules to train, by name: "encoder.blocks.3 encoder.norm". All '
        "others are frozen; if not given, none are.",
    ] = ""
    seed: Annotated[int, "Same seed, data and machine: same model, bit for bit."] = 1

    def __post_init__(self) -> None:
        _settle_types(self)
        _one_of(self, "schedule", ("inverse_sqrt", "cosine"))
        _one_of(self, "precision", TRAINING)
        for name in ("epochs", "batch_tokens", "accumulate"):
            _at_least(self, name, 1)
        for name in ("warmup", "seed"):
            _at_least(self, name, 0)
        for name in ("clip", "weight_decay"):
            _at_least(self, name, 0.0)
        if self.learning_rate is not None:
            _at_least(self, "learning_rate", 0.0)
        for name in ("max_steps", "stop_at"):
            if getattr(self, name) is not None:
                _at_least(self, name, 1)
        if self.trainable and not self.init_from:
            raise OptionError(
                "train: trainable names modules of an existing model; give init_from as well"
            )
        for name in ("smoothing", "word_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise OptionError(
                    f"train: {name}={getattr(self, name)}, expected 0 up to, but not including, 1"
                )

    def rate(self, step: int, last: int, width: int) -> float:
        """The learning rate of update `step`, counted from 1, when `last` is the last one.

        >>> config = TrainingConfig(learning_rate=0.002, warmup=100)
        >>> config.rate(50, 1000, 512), config.rate(100, 1000, 512), config.rate(400, 1000, 512)
        (0.001, 0.002, 0.001)

        Without a rate of its own, that of Vaswani et al., 2017, section 5.3.
        """
        highest = self.learning_rate
        if highest is None:
            highest = 1 / math.sqrt(width * max(1, self.warmup))
        if step < self.warmup:
            return highest * step / self.warmup
        if self.schedule == "cosine":
            part = (step - self.warmup) / max(1, last - self.warmup)
            return highest * 0.5 * (1 + math.cos(math.pi * min(1.0, part)))
        return highest * math.sqrt(max(1, self.warmup) / step)


@dataclass(frozen=True)
class ValidationConfig:
    """When to validate, what to keep, and when to stop."""

    valid_every: Annotated[int, "Updates between validations; each writes a checkpoint."] = 1000
    checkpoint_every: Annotated[int, "Updates between checkpoints: what a crash can lose."] = 250
    average: Annotated[
        int, "Average this many of the last validated checkpoints, unless the best one is better."
    ] = 5
    patience: Annotated[
        int, "Stop after this many validations without a new best; 0: never early."
    ] = 0
    select_by: Annotated[
        str,
        "Metric that selects the best checkpoint: bleu (greedy search) or loss. Both are measured.",
    ] = "bleu"
    bleu_tokenize: Annotated[
        str, "sacreBLEU's tokenizer: 13a, none for text that is tokenised already, …"
    ] = "13a"

    def __post_init__(self) -> None:
        _settle_types(self)
        _one_of(self, "select_by", ("bleu", "loss"))
        _one_of(self, "bleu_tokenize", TOKENIZERS)
        for name in ("valid_every", "checkpoint_every"):
            _at_least(self, name, 1)
        for name in ("average", "patience"):
            _at_least(self, name, 0)


@dataclass(frozen=True)
class RunConfig:
    """The whole configuration of a run."""

    data: DataConfig = field(default_factory=DataConfig)
    model: TransformerConfig = field(default_factory=TransformerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)

    def to_json(self) -> str:
        """The configuration as indented JSON, for the run's folder."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> RunConfig:
        """The configuration that `to_json` wrote; `where` names the file in errors."""
        try:
            given = json.loads(text)
        except ValueError as error:  # also text that is not UTF-8
            raise FileError(f"{where}: not JSON: {error}") from None
        if not isinstance(given, dict):
            raise FileError(f"{where}: expected an object with the sections of a configuration")
        return cls().changed(given, where)

    def changed(self, given: dict[str, Any], where: str) -> RunConfig:
        """A copy with the given values, by section and name; an unknown name is an error."""
        parts: dict[str, Any] = {}
        for section, values in given.items():
            if section not in SECTIONS:
                raise OptionError(f"{where}: [{section}] is unknown{nearest(section, SECTIONS)}")
            if not isinstance(values, dict):
                raise OptionError(f"{where}: {section} is not a section; write [{section}]")
            kind = SECTIONS[section]
            known = [one.name for one in fields(kind)]
            values = {RENAMED.get(name, name): value for name, value in values.items()}
            for name in values:
                if name not in known:
                    raise OptionError(
                        f"{where}: {name} is unknown in [{section}]{nearest(name, known)}"
                    )
            checked = {n: _typed(kind, n, v, where) for n, v in values.items()}
            parts[section] = replace(getattr(self, section), **checked)
        return replace(self, **parts)

    def differences(self, other: RunConfig) -> list[str]:
        """The differing fields, one string each: ``training.seed: 1, not 2``."""
        lines = []
        for section in SECTIONS:
            mine, theirs = asdict(getattr(self, section)), asdict(getattr(other, section))
            lines += [
                f"{section}.{name}: {mine[name]!r}, not {theirs[name]!r}"
                for name in mine
                if mine[name] != theirs[name]
            ]
        return lines


SECTIONS: dict[str, Any] = {
    "data": DataConfig,
    "model": TransformerConfig,
    "training": TrainingConfig,
    "validation": ValidationConfig,
}


CHOSEN = ("vocabulary", "batch_tokens", "epochs", "warmup", "learning_rate", "valid_every")
"""Options whose defaults depend on the corpus, as does the preset of the model."""
RENAMED = {"learns": "trainable", "judge": "select_by"}
"""Options by their names in earlier versions."""


def read_toml(path: str | Path) -> tuple[str | None, dict[str, Any]]:
    """The preset of a TOML file, if it has one, and its sections."""
    try:
        given = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # also text that is not UTF-8
        raise FileError(f"{path}: not TOML: {error}") from None
    preset = given.pop("preset", None)
    if preset is not None and not (isinstance(preset, str) and preset in PRESETS):
        raise OptionError(
            f"{path}: preset {preset!r} is unknown, expected one of {', '.join(PRESETS)}"
        )
    return preset, given


def field_types(kind: Any) -> dict[str, type]:
    """The plain type of each field of a configuration.

    ``int | None`` counts as int, and ``str | Path`` as str.
    """
    hints = get_type_hints(kind)
    found: dict[str, type] = {}
    for one in fields(kind):
        hint = hints[one.name]
        hint = dict if get_origin(hint) is dict else hint
        if isinstance(hint, types.UnionType):
            (hint,) = (part for part in get_args(hint) if part not in (type(None), Path))
        found[one.name] = hint
    return found


def _typed(kind: Any, name: str, value: Any, where: str) -> Any:
    """The value, checked against the type of the field; converts int to float and Path to str."""
    wanted = field_types(kind)[name]
    optional = next(one for one in fields(kind) if one.name == name).default is None
    if value is None and optional:
        return None
    if type(value) is int and abs(value) >= 2**63:
        raise OptionError(f"{where}: {name} is too large, expected at most 18 digits")
    if wanted is float and type(value) is int:
        return float(value)
    if wanted is str and isinstance(value, Path):
        return str(value)
    if wanted is dict:
        return _weights(name, value, where)
    if type(value) is not wanted:
        raise OptionError(
            f"{where}: {name} is {value!r}, expected {WORDS.get(wanted, wanted.__name__)}"
        )
    return value


def _weights(name: str, value: Any, where: str) -> dict[str, float | int]:
    """A table of files and their weights, checked."""
    if not isinstance(value, dict):
        raise OptionError(f"{where}: {name} is {value!r}, expected a table of files and numbers")
    for path, weight in value.items():
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not number or not 0 < weight < math.inf:
            raise OptionError(f"{where}: {name} gives {path} {weight!r}, expected a number above 0")
    return {str(path): float(weight) for path, weight in value.items()}


def _settle_types(config: Any) -> None:
    """Convert each field to its type, or raise."""
    for one in fields(config):
        settled = _typed(type(config), one.name, getattr(config, one.name), "train")
        object.__setattr__(config, one.name, settled)


WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text in quotes"}


def nearest(name: str, known: Any) -> str:
    """The end of an error about an unknown name: the nearest known one, or all known ones."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"


def _one_of(config: object, name: str, known: tuple[str, ...]) -> None:
    if getattr(config, name) not in known:
        raise OptionError(
            f"train: {name}={getattr(config, name)!r}, expected one of {', '.join(known)}"
        )


def _at_least(config: object, name: str, least: float | int) -> None:
    value = getattr(config, name)
    if not math.isfinite(value):
        raise OptionError(f"train: {name}={value}, expected a finite number")
    if value < least:
        raise OptionError(f"train: {name}={value}, expected at least {least}")
