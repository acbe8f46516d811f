"""Contrastive test sets: does the model give the right translation the highest probability?

Müller et al., "A Large-Scale Test Set for the Evaluation of Context-Aware Pronoun Translation in
Neural Machine Translation", 2018.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from regard.errors import FileError, counted
from regard.text.words import word_spans
from regard.translate.translator import Translator

CHUNK = 512
"""Items that are scored between two reports of progress."""
SMALL = 10
"""Groups of fewer items are left out of the printed table; `to_data` has them."""


@dataclass(frozen=True)
class Item:
    """A source and several translations of it, of which the first is right."""

    source: str
    targets: tuple[str, ...]
    """All different; preceded by the context of the target, if any."""
    word: str | None
    """The first word of the right target that all others replace, such as a pronoun."""
    where: str
    """Its file and line, for errors."""


@dataclass(frozen=True)
class Accuracy:
    """How many of `n` items are right.

    >>> [round(end, 3) for end in Accuracy(60, 100).interval]
    [0.502, 0.691]
    """

    correct: int
    n: int

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.correct / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the share, by Wilson's score (1927)."""
        z = NormalDist().inv_cdf(0.975)
        middle = (self.correct + z * z / 2) / (self.n + z * z)
        spread = self.correct * (self.n - self.correct) / self.n + z * z / 4
        half = z * math.sqrt(spread) / (self.n + z * z)
        return max(0.0, middle - half), min(1.0, middle + half)

    def to_data(self) -> dict[str, Any]:
        """Everything as plain numbers, for JSON."""
        low, high = self.interval
        return {
            "accuracy": self.share,
            "n": self.n,
            "correct": self.correct,
            "low": low,
            "high": high,
        }

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.share:5.1f} %  {self.n:6,}  {100 * low:.1f}–{100 * high:.1f} %"


@dataclass(frozen=True)
class Result:
    """The accuracy of a translator on a contrastive test set."""

    total: Accuracy
    words: dict[str, Accuracy]
    """The accuracy for each `Item.word`, the most frequent first."""
    chance: float
    """The accuracy of guessing, from 0 to 1."""
    targets: int
    """Number of scored translations."""

    def to_data(self) -> dict[str, Any]:
        """Everything as plain numbers, for JSON."""
        words = {word: one.to_data() for word, one in self.words.items()}
        return {
            **self.total.to_data(),
            "chance": self.chance,
            "targets": self.targets,
            "words": words,
        }

    def __str__(self) -> str:
        rows = {"all": self.total}
        rows |= {word: one for word, one in self.words.items() if one.n >= SMALL}
        width = max(map(len, (*rows, "guessing")))
        lines = [f"{'':{width}}  accuracy      n  95 % interval"]
        lines += [f"{name:{width}}  {one}" for name, one in rows.items()]
        return "\n".join([*lines, f"{'guessing':{width}}  {100 * self.chance:5.1f} %"])


def read_items(lines: Iterable[str], name: str, context: int = 0) -> list[Item]:
    """The items of a file of JSON lines, called `name` in errors; blank lines are skipped.

    Each line is an object with `source` and `targets`, a list of which the first is right. If
    `context` is not 0, the last `context` sentences of its field `context` (a text, or a list of
    texts) precede the source, and those of `context_target`, if it has any, every target.

    >>> line = '{"source": "It is new.", "targets": ["Sie ist neu.", "Er ist neu."]}'
    >>> read_items([line], "test.jsonl")[0].word
    'sie'
    """
    items, most = [], 0
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"{name}, line {number}"
            data = _object(where, line)
            before = _context(where, data, "context") if context else []
            before_target = _context(where, data, "context_target") if context else []
            most = max(most, len(before))
            items.append(_item(where, data, before[-context:], before_target[-context:]))
    if not items:
        raise FileError(f"{name}: the file is empty")
    if context > most:
        raise FileError(
            f"{name}: {context} sentences of context asked for, but no line has more than {most}"
        )
    return items


def evaluate(
    translator: Translator,
    items: Sequence[Item],
    progress: Callable[[int], object] = lambda done: None,
) -> Result:
    """The share of items whose first target is more probable than every other one.

    `progress` is called with the number of items done.
    """
    _check_lengths(translator, items)
    groups: defaultdict[str, list[bool]] = defaultdict(list)
    right = []
    for start in range(0, len(items), CHUNK):
        part = items[start : start + CHUNK]
        sources = [item.source for item in part for _ in item.targets]
        targets = [target for item in part for target in item.targets]
        scores = iter(translator.score(sources, targets))
        for item in part:
            first, *others = [next(scores) for _ in item.targets]
            right.append(first > max(others))
            if item.word is not None:
                groups[item.word].append(right[-1])
        progress(len(right))
    words = {word: Accuracy(sum(found), len(found)) for word, found in groups.items()}
    return Result(
        Accuracy(sum(right), len(right)),
        dict(sorted(words.items(), key=lambda pair: (-pair[1].n, pair[0]))),
        sum(1 / len(item.targets) for item in items) / len(items),
        sum(len(item.targets) for item in items),
    )


def _check_lengths(translator: Translator, items: Sequence[Item]) -> None:
    """Raise before anything is scored, and name the line."""
    limit = translator.model.config.max_length - 1  # one position is for the end token
    for item in items:
        ids = translator.tokenizer.encode_batch([item.source, *item.targets])
        if (longest := max(map(len, ids))) > limit:
            raise FileError(
                f"{item.where}: a text of {longest:,} subwords, but the model takes {limit:,}; "
                "leave the line out, or give less context"
            )


def _object(where: str, line: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except json.JSONDecodeError as error:
        raise FileError(f"{where}: not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise FileError(f"{where}: not JSON of this form: nested too deeply") from None
    if not isinstance(data, dict):
        raise FileError(
            f"{where}: a JSON {type(data).__name__}, expected an object with source and targets"
        )
    missing = [key for key in ("source", "targets") if key not in data]
    if missing:
        raise FileError(f"{where}: {' and '.join(missing)} missing")
    return data


def _context(where: str, data: dict[str, Any], key: str) -> list[str]:
    """The non-blank sentences of context; those of the target may be missing."""
    if key not in data and key == "context":
        raise FileError(f"{where}: context missing; leave out --context to score without it")
    given = data.get(key, [])
    listed = given if isinstance(given, list) else [given]
    return [text for text in listed if _text(where, key, text).strip()]


def _item(where: str, data: dict[str, Any], before: list[str], before_target: list[str]) -> Item:
    source, given = _text(where, "source", data["source"]), data["targets"]
    if not isinstance(given, list):
        raise FileError(f"{where}: targets is {type(given).__name__}, expected a list of texts")
    targets = list(dict.fromkeys(_text(where, "targets", text) for text in given))
    if len(targets) < 2:
        raise FileError(
            f"{where}: targets has {counted(len(targets), 'different text')}, expected the right "
            "one and at least one wrong one"
        )
    return Item(
        " ".join([*before, source]),
        tuple(" ".join([*before_target, target]) for target in targets),
        _replaced(targets),
        where,
    )


def _text(where: str, key: str, text: object) -> str:
    if not isinstance(text, str):
        raise FileError(f"{where}: {key} holds {type(text).__name__}, expected text")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise FileError(f"{where}: {key} has half a surrogate pair, which is not Unicode text")
    return text


def _replaced(targets: Sequence[str]) -> str | None:
    """The first word of the first target that no other has in its place, in lower case."""
    right, *wrong = ([text[a:b].lower() for a, b in word_spans(text)] for text in targets)
    for place, word in enumerate(right):
        if all(other[place : place + 1] != [word] for other in wrong):
            return word
    return None
