"""Defaults of training options that depend on the size of the corpus.

    pairs      preset  vocabulary  batch tokens  epochs  learning rate
    500        tiny         1,500         1,024     126          0.004
    5,000      tiny         3,500         2,048      71          0.004
    50,000     small        8,000         4,096      40         0.0028
    500,000    small       16,000         4,096      22         0.0014

A few hundred pairs need most words whole: with 800 subwords instead of 1,400, BLEU on 500 pairs of
the built-in corpus falls from 59 to 18 (benchmarks/RESULTS.md). The warm-up is a tenth of all
updates, at most 2,000 (Vaswani et al., 2017, have 4,000 of 100,000).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from regard.errors import FileError, OptionError, counted
from regard.files import write_text
from regard.nn.config import PRESETS, TransformerConfig
from regard.translate.config import SECTIONS, DataConfig, RunConfig, nearest
from regard.translate.preparing import check_files, corpora
from regard.translate.run_directory import CONFIG, PAIRS, read_config

SUBWORD = 4
"""Approximate characters of a subword."""
LEAST_WARMUP = 500
"""Minimum warm-up in the learning rate 1/√(width · warmup), which would otherwise be unbounded."""


@dataclass(frozen=True)
class Options:
    """The given options of a training run; all others are chosen from the corpus."""

    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Values by section and name, see `RunConfig`."""
    preset: str | None = None
    """The preset that `sections` modify."""

    @classmethod
    def of(cls, given: Mapping[str, Any], preset: str | None = None) -> Options:
        """Options by name, as in ``warmup=100, width=256``."""
        places = {one.name: name for name, kind in SECTIONS.items() for one in fields(kind)}
        sections: dict[str, dict[str, Any]] = {}
        for name, value in given.items():
            if name not in places:
                raise OptionError(f"train: {name} is unknown{nearest(name, places)}")
            sections.setdefault(places[name], {})[name] = value
        return cls(sections, preset)

    def config(self, folder: Path, say: Callable[[str], None]) -> RunConfig:
        """The whole configuration: the given options, over those of the run in the folder.

        In a new folder, the rest is chosen from the corpus and reported in one line.
        """
        if self.preset is not None and self.preset not in PRESETS:
            raise OptionError(
                f"train: preset {self.preset} is unknown, expected one of {', '.join(PRESETS)}"
            )
        if (folder / CONFIG).exists():
            config = read_config(folder / CONFIG)
            config = replace(config, training=replace(config.training, stop_at=None))
            if self.preset is not None:
                vocabulary = config.model.vocabulary
                model = replace(PRESETS[self.preset], vocabulary=vocabulary)
                config = replace(config, model=model)
            return config.changed(self.sections, "train")
        given = {name: value for part in self.sections.values() for name, value in part.items()}
        data = RunConfig().changed({"data": self.sections.get("data", {})}, "train").data
        check_files(data)
        size = _measured(data)
        fixed = bool(given.get("init_from"))
        preset = self.preset or (None if fixed or "width" in given else _preset(size.pairs))
        config = RunConfig(model=PRESETS[preset] if preset else TransformerConfig())
        config = config.changed(self.sections, "train")
        chosen = _chosen(size, given, config.model.width)
        if fixed or data.tokenizer:
            del chosen["vocabulary"]
        free = {name: value for name, value in chosen.items() if name not in given}
        config = config.changed(Options.of(free).sections, "train")
        if size.pairs:  # else preparing the data raises
            say(_announced(size, chosen, None if self.preset else preset, given))
        return config

    @property
    def fits_vocabulary(self) -> bool:
        """Whether the size of the vocabulary may be adapted to the text."""
        return "vocabulary" not in self.sections.get("model", {})


@dataclass(frozen=True)
class _Size:
    """The size of a corpus, with pairs counted as often as an epoch repeats them."""

    pairs: float
    characters: float
    """Of the longer side."""

    def updates(self, batch_tokens: int) -> int:
        """Approximate updates of an epoch."""
        return max(1, math.ceil((self.characters / SUBWORD + self.pairs) / batch_tokens))


def _measured(data: DataConfig) -> _Size:
    pairs = characters = 0.0
    for corpus, weight in zip(corpora(data), data.mix.values() or [1.0], strict=True):
        for source, target in corpus:
            pairs += weight
            characters += weight * max(len(source), len(target))
    return _Size(pairs, characters)


def _preset(pairs: float) -> str:
    return "tiny" if pairs < 40_000 else "small" if pairs < 2_000_000 else "base"


def _chosen(size: _Size, given: Mapping[str, Any], width: int) -> dict[str, Any]:
    """A value for each of `CHOSEN`, consistent with the given ones."""
    share = max(1.0, size.pairs) / 50_000
    found: dict[str, Any] = {
        "vocabulary": _between(8000 * share**0.36, 100, 16_000, 100),
        "batch_tokens": 1024 if share < 0.05 else 2048 if share < 0.4 else 4096,
        "epochs": _between(40 * share**-0.25, 10, 300),
    }
    known = {**found, **{name: value for name, value in given.items() if value is not None}}
    each = size.updates(int(known["batch_tokens"]) * int(known.get("accumulate", 1)))
    updates = min(int(known["epochs"]) * each, int(known.get("max_steps") or 1 << 60))
    found["warmup"] = _between(updates / 10, 1, 2000)
    warmup = max(LEAST_WARMUP, int(known.get("warmup", found["warmup"])))
    rate = 1 / math.sqrt(width * warmup)
    found["learning_rate"] = float(f"{rate:.2g}")
    found["valid_every"] = _between(updates / 10, 1, 1000)
    return found


def _between(value: float, least: int, most: int, step: int = 1) -> int:
    return min(most, max(least, round(value / step) * step))


def _announced(
    size: _Size, chosen: dict[str, Any], preset: str | None, given: Mapping[str, Any]
) -> str:
    """The chosen values, in one line."""
    warmup, every = (counted(chosen[name], "update") for name in ("warmup", "valid_every"))
    words = {
        "vocabulary": "vocabulary {:,}",
        "batch_tokens": "batches of {:,} tokens",
        "epochs": "{:,} epochs",
        "warmup": f"a warm-up of {warmup} (at most a tenth of the run)",
        "learning_rate": "learning rate {:g}",
        "valid_every": f"validation every {every}",
    }
    parts = [] if preset is None else [f"preset {preset}"]
    parts += [words[name].format(value) for name, value in chosen.items() if name not in given]
    if not parts:
        return f"Nothing to choose for {counted(round(size.pairs), 'pair')}: every option is given."
    return (
        f"Chosen for {counted(round(size.pairs), 'pair')}: {', '.join(parts)}; "
        "options override them."
    )


def write_pairs(pairs: Iterable[tuple[str, str]], folder: Path) -> Path:
    """Write the pairs to a file in the run's folder; raises if a run there has other pairs."""
    if isinstance(pairs, str | Mapping) or not isinstance(pairs, Iterable):
        raise OptionError(
            f"Translator.train: pairs is {type(pairs).__name__}, expected (source, target) texts; "
            "files are given as source=…, target=…"
        )
    lines = []
    for number, pair in enumerate(pairs):
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        if not is_pair or not all(isinstance(side, str) for side in pair):
            raise OptionError(
                f"Translator.train: pairs[{number}] is {str(pair)[:60]!r}, expected two texts, "
                "source and target"
            )
        lines.append("\t".join(" ".join(side.split()) for side in pair) + "\n")
    path, text = folder / PAIRS, "".join(lines)
    if not (folder / CONFIG).exists():
        if folder.exists() and not folder.is_dir():
            raise FileError(f"Translator.train: {folder} is a file; give a folder as out")
        if folder.exists() and any(one.name != PAIRS for one in folder.iterdir()):
            raise FileError(f"Translator.train: {folder} is not empty and holds no run")
        folder.mkdir(parents=True, exist_ok=True)
        write_text(path, {".tsv": lambda: text}, "Translator.train")
    elif not path.exists() or path.read_text(encoding="utf-8") != text:
        raise OptionError(
            f"Translator.train: {folder} holds a run on other pairs; give another out"
        )
    return path
