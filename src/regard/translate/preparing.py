"""Preparation of a run's data: tokenizer, encoded training pairs and validation pairs.

Texts are streamed. The prepared data stays in the run's folder, so a resumed run no longer needs
the files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, repeat
from pathlib import Path

import numpy as np

from regard.errors import FileError, OptionError, counted
from regard.files import write_text
from regard.text import Cleaning, EncodedPairs, Tokenizer, read_pairs
from regard.text.corpus import is_tsv
from regard.translate.config import DataConfig

SPLIT_OFF = 1000
"""Maximum number of held-out validation pairs; at most one in twenty is held out."""

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
    fit_vocabulary: bool = False,
    say: Callable[[str], None],
) -> None:
    """Write the tokenizer and encoded pairs to the folder, and report on the data.

    `fit_vocabulary`: adapt the size of the vocabulary if the text does not support it.
    """
    total = sum(1 for _ in _pairs(data))
    if total == 0:
        raise FileError(f"{_named(data)}: no sentence pairs")
    if data.valid_source:
        given = read_pairs(data.valid_source, data.valid_target or None, context=data.context)
        held = dict(enumerate(given))
        chosen: set[int] = set()
        if not held:
            raise FileError(f"{data.valid_source}: no sentence pairs")
    else:
        chosen = _split(total, seed)
        held = {i: pair for i, pair in enumerate(_pairs(data)) if i in chosen}
        say(
            f"No validation files: {len(held):,} of the {total:,} pairs "
            f"{'is' if len(held) == 1 else 'are'} held out for validation."
        )
    if tokenizer is None:
        say(f"Learning {vocabulary:,} subwords from {counted(total, 'pair')} …")
        lines = chain.from_iterable(_repeated(data, chosen, seed))
        tokenizer = Tokenizer.train(lines, vocabulary, data.subwords, fit=fit_vocabulary)
        if tokenizer.size < vocabulary:
            say(f"Learned {tokenizer.size:,} subwords: the text supports no more.")
    say(f"Tokenising {counted(total, 'pair')} …")
    known = set(held.values())
    numbers = count()
    apart = [
        (None if next(numbers) in chosen else pair for pair in corpus) for corpus in corpora(data)
    ]
    _write_training_part(data, apart, known, tokenizer, folder, say)
    everything = Cleaning(data.longest, float("inf"), drop_duplicates=False)
    # With gaps, so that line numbers are those of the file.
    gaps = (held.get(i) for i in range(max(held) + 1))
    valid = EncodedPairs.build(gaps, tokenizer, folder / "data" / "valid", everything)
    if valid.report.kept < valid.report.read:
        say(f"Validation pairs, for the loss: {valid.report}")
    write_text(
        folder / "data" / "valid.json",
        {".json": lambda: json.dumps(list(held.values()), ensure_ascii=False)},
        "train",
    )
    tokenizer.save(folder / "tokenizer.json")


def _write_training_part(
    data: DataConfig,
    corpora: Sequence[Iterable[Pair | None]],
    known: set[Pair],
    tokenizer: Tokenizer,
    folder: Path,
    say: Callable[[str], None],
) -> None:
    """Encode the pairs that are not in the validation part, and report what was left out."""
    both = others = 0

    def own(corpus: Iterable[Pair | None]) -> Iterator[Pair | None]:
        nonlocal both, others
        for pair in corpus:
            both += pair in known
            others += pair is not None and pair not in known
            yield None if pair in known else pair

    cleaning = Cleaning(data.longest, data.max_ratio, data.drop_duplicates)
    first, *more = map(own, corpora)
    try:
        train = EncodedPairs.build(first, tokenizer, folder / "data" / "train", cleaning, more=more)
    except FileError:
        if both and not others:
            raise FileError(
                f"train: all pairs of {_named(data)} are also in the validation set, so none "
                "is left to train on; give other validation files, or none"
            ) from None
        raise
    if both:
        say(f"{both:,} left out: also in the validation set")
    say(str(train.report))
    for (path, weight), size in zip(data.mix.items(), train.sizes, strict=False):
        say(f"{path}: {counted(size, 'pair')}, each {weight:g} times an epoch")
        if not size:
            raise FileError(f"train: no pair of {path} is left; leave it out of the mix")


def check_files(data: DataConfig) -> None:
    """Raise unless both sides are given, in files that can be read repeatedly."""
    if data.mix:
        _check_mix(data)
    elif not data.source:
        raise OptionError("train: --source is missing; give a file with one sentence a line")
    elif not data.target and not is_tsv(data.source):
        raise OptionError("train: --target is missing; give the translations, line by line")
    if bool(data.valid_source) != bool(data.valid_target) and not is_tsv(data.valid_source):
        raise OptionError("train: --valid-source and --valid-target go together; give both")
    sides = (
        ("source", data.source, data.target),
        ("valid-source", data.valid_source, data.valid_target),
    )
    for name, source, target in sides:
        for path in filter(is_tsv, (source, target) if target else ()):
            raise OptionError(
                f"train: {path} holds both sides, a sentence, a tab and its translation a line; "
                f"give it as --{name} and leave --{name.replace('source', 'target')} out"
            )
        for path in (source, target):
            if path and Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir()):
                raise FileError(
                    f"train: {path} is a stream, not a file, and the sentences are read more than "
                    "once; write them to a file first"
                )


def _check_mix(data: DataConfig) -> None:
    """Raise unless a mix is given alone and consists of .tsv files."""
    if data.source or data.target:
        raise OptionError(
            f"train: mix and source={data.source or data.target}, expected one of them; put the "
            "file into the mix"
        )
    for path in data.mix:
        if not is_tsv(path):
            raise OptionError(
                f"train: mix has {path}, expected files of two columns, .tsv or .tsv.gz"
            )


def open_prepared(folder: Path) -> Prepared:
    """The data that `prepare` wrote."""
    path = folder / "data" / "valid.json"
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        sources, targets = [str(source) for source, _ in held], [str(target) for _, target in held]
    except (OSError, ValueError, TypeError) as error:
        raise FileError(f"{path}: cannot be read: {error}; train into a new folder") from None
    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.load(path)
    train, valid = (EncodedPairs.open(folder / "data" / part) for part in ("train", "valid"))
    prepared = Prepared(tokenizer, train, valid, sources, targets)
    if tokenizer.fingerprint != train.tokenizer and not _encodes_alike(prepared):
        raise FileError(
            f"{path}: not the tokenizer that encoded the sentences in {folder / 'data'}; "
            "restore that one, or train into a new folder"
        )
    return prepared


def _encodes_alike(prepared: Prepared) -> bool:
    """Whether the tokenizer reproduces the encoded validation part.

    A fingerprint may also differ because another version of the library writes other JSON.
    """
    encode, longest = prepared.tokenizer.encode_batch, prepared.valid.cleaning.max_length
    pairs = zip(encode(prepared.valid_sources), encode(prepared.valid_targets), strict=True)
    kept = (pair for pair in pairs if all(0 < len(side) <= longest for side in pair))
    numbers = [number for pair in kept for side in pair for number in side]
    return np.array_equal(numbers, prepared.valid.tokens)


def _named(data: DataConfig) -> str:
    """The names of the training files, for messages."""
    return ", ".join(data.mix) or str(data.source)


def corpora(data: DataConfig) -> list[Iterator[Pair]]:
    """The pairs of each training file."""
    if data.mix:
        return [read_pairs(path, context=data.context) for path in data.mix]
    return [read_pairs(data.source, data.target or None, context=data.context)]


def _pairs(data: DataConfig) -> Iterator[Pair]:
    return chain.from_iterable(corpora(data))


def _repeated(data: DataConfig, without: set[int], seed: int) -> Iterator[Pair]:
    """The pairs, repeated as in an epoch, without those of these numbers."""
    numbers = count()
    draw = np.random.Generator(np.random.PCG64(seed))
    for corpus, weight in zip(corpora(data), data.mix.values() or [1.0], strict=True):
        for pair in corpus:
            times = int(weight + draw.random())
            if next(numbers) not in without:
                yield from repeat(pair, times)


def _split(total: int, seed: int) -> set[int]:
    """The numbers of the held-out pairs, drawn by the seed."""
    count = min(SPLIT_OFF, total // 20)
    if count == 0:
        raise OptionError(
            f"train: {counted(total, 'pair')} {'is' if total == 1 else 'are'} too few to hold out "
            "a validation set; give --valid-source and --valid-target"
        )
    drawn = np.random.Generator(np.random.PCG64(seed)).choice(total, count, replace=False)
    return set(drawn.tolist())
