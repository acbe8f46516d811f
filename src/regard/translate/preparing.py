"""From files of sentences to numbers on disk: the tokenizer, the training and the validation part.

Everything streams; the texts are never all in memory. What was prepared stays in the run's folder,
so a run that goes on needs the files no more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from regard.errors import FileError, OptionError
from regard.files import write_text
from regard.text import Cleaning, EncodedPairs, Tokenizer, read_pairs
from regard.translate.config import DataConfig

SPLIT_OFF = 1000
"""So many pairs at most, and one in twenty, become the validation part where none is given."""

Pair = tuple[str, str]


@dataclass(frozen=True)
class Prepared:
    """The data of a run."""

    tokenizer: Tokenizer
    train: EncodedPairs
    valid: EncodedPairs
    valid_sources: list[str]
    valid_targets: list[str]


def prepare(
    data: DataConfig,
    vocabulary: int,
    folder: Path,
    *,
    seed: int,
    tokenizer: Tokenizer | None,
    say: Callable[[str], None],
) -> None:
    """Write tokenizer and encoded pairs into the folder, and say what the data is like."""
    if not data.source:
        raise OptionError("train: --source is missing; give a file with one sentence a line")
    if not data.target and ".tsv" not in Path(data.source).suffixes:
        raise OptionError("train: --target is missing; give the translations, line by line")
    if bool(data.valid_source) != bool(data.valid_target) and ".tsv" not in data.valid_source:
        raise OptionError("train: --valid-source and --valid-target go together; give both")
    total = sum(1 for _ in _pairs(data))
    if total == 0:
        raise FileError(f"{data.source}: no sentence pairs in it")
    if data.valid_source:
        held = list(read_pairs(data.valid_source, data.valid_target or None))
        chosen: set[int] = set()
        if not held:
            raise FileError(f"{data.valid_source}: no sentence pairs in it")
    else:
        chosen = _split(total, seed)
        held = [pair for i, pair in enumerate(_pairs(data)) if i in chosen]
        say(
            f"No validation files: {len(held):,} of the {total:,} pairs are split off to "
            "validate on, and not trained on."
        )
    if tokenizer is None:
        say(f"Learning {vocabulary:,} subwords from {total:,} pairs …")
        rest = (pair for i, pair in enumerate(_pairs(data)) if i not in chosen)
        tokenizer = Tokenizer.train(chain.from_iterable(rest), vocabulary, data.subwords)
    cleaning = Cleaning(data.longest, data.max_ratio, data.drop_duplicates)
    known = set(held)
    apart = ((i in chosen, pair) for i, pair in enumerate(_pairs(data)))
    own = (None if held_out or pair in known else pair for held_out, pair in apart)
    say(f"Cutting {total:,} pairs into subwords …")
    train = EncodedPairs.build(own, tokenizer, folder / "data" / "train", cleaning)
    if (both := total - len(chosen) - train.report.read) > 0:
        say(f"{both:,} left out: in the validation part as well")
    say(str(train.report))
    everything = Cleaning(data.longest, float("inf"), drop_duplicates=False)
    valid = EncodedPairs.build(held, tokenizer, folder / "data" / "valid", everything)
    if valid.report.kept < valid.report.read:
        say(f"Of the validation part, for its loss: {valid.report}")
    write_text(
        folder / "data" / "valid.json",
        {".json": lambda: json.dumps(held, ensure_ascii=False)},
        "train",
    )
    tokenizer.save(folder / "tokenizer.json")


def open_prepared(folder: Path) -> Prepared:
    """What `prepare` wrote."""
    path = folder / "data" / "valid.json"
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: cannot be read: {error}; train into a new folder") from None
    return Prepared(
        Tokenizer.load(folder / "tokenizer.json"),
        EncodedPairs.open(folder / "data" / "train"),
        EncodedPairs.open(folder / "data" / "valid"),
        [source for source, _ in held],
        [target for _, target in held],
    )


def _pairs(data: DataConfig) -> Iterator[Pair]:
    return read_pairs(data.source, data.target or None)


def _split(total: int, seed: int) -> set[int]:
    """The lines that are validated on, drawn by the seed."""
    count = min(SPLIT_OFF, total // 20)
    if count == 0:
        raise OptionError(
            f"train: {total} pairs are too few to split a validation part off; "
            "give --valid-source and --valid-target"
        )
    drawn = np.random.Generator(np.random.PCG64(seed)).choice(total, count, replace=False)
    return set(drawn.tolist())
