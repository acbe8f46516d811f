"""Scoring given translations: ``python benchmarks/scoring.py FILE.jsonl [--context N]``.

Translations per second of `Translator.score` with the bundled model beside one pair at a time, by
turns, on the clock and per second of processor time; and how far float32 is from float64.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch

from regard.text import read_lines
from regard.translate import Translator
from regard.translate.contrastive import read_items

SINGLE = 100
"""So many pairs are scored one at a time: all would take long."""


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """On the clock, and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def main() -> None:
    """Print a row for each way of scoring, best of the turns, and the distance from float64."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--context", type=int, default=0)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    items = read_items(read_lines(given.file), str(given.file), given.context)
    sources = [item.source for item in items for _ in item.targets]
    targets = [target for item in items for target in item.targets]
    translator = Translator.load("pocket-en-de")
    pairs = list(zip(sources, targets, strict=True))[:: max(1, len(sources) // SINGLE)]
    ways: dict[str, tuple[int, Callable[[], object]]] = {
        "score": (len(targets), lambda: translator.score(sources, targets)),
        "one pair at a time": (
            len(pairs),
            lambda: [translator.score([source], [target]) for source, target in pairs],
        ),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    threads = torch.get_num_threads()
    for _ in range(given.turns):
        for name, (_count, work) in ways.items():
            torch.set_num_threads(threads if name == "score" else 1)  # one pair is too few for more
            times[name].append(seconds(work))
    torch.set_num_threads(threads)
    print("| | translations a second | per second of processor time |\n|---|---|---|")
    for name, (count, _) in ways.items():
        clock, processor = map(min, zip(*times[name], strict=True))
        print(f"| {name} | {count / clock:,.0f} | {count / processor:,.0f} |")
    found = translator.score(sources, targets)
    wide = Translator(translator.model.double(), translator.tokenizer).score(sources, targets)
    most = max(abs(a - b) for a, b in zip(found, wide, strict=True))
    print(f"\nlargest difference from float64: {most:.1e} of log p from {min(wide):.1f} up")


if __name__ == "__main__":
    main()
