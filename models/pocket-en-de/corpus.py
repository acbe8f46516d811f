"""Write the sentence pairs that `pocket-en-de` learns from: ``python corpus.py TATOEBA FOLDER``.

TATOEBA is a folder with train.en and train.de, sentences of tatoeba.org line by line. They are in
first.tsv, third.tsv and fifth.tsv, with sentences of the built-in corpus behind them; in second.tsv
and fourth.tsv is the built-in corpus alone. All of it is from the training split.
"""

from __future__ import annotations

import sys
from pathlib import Path

from regard.challenge import generate
from regard.text import read_pairs

BUILT_IN = {
    "first": {"reference": 20_000, "senses": 20_000},
    "second": {"reference": 100_000, "senses": 60_000},
    "third": {"reference": 48_000, "senses": 24_000},
    "fourth": {"reference": 30_000, "senses": 50_000, "cues": 69_976},
    "fifth": {"reference": 30_000, "senses": 50_000, "cues": 69_976},
}
ALONE = ("second", "fourth")
"""Without Tatoeba."""


def main(tatoeba: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pairs = list(read_pairs(tatoeba / "train.en", tatoeba / "train.de"))
    for name, counts in BUILT_IN.items():
        with (folder / f"{name}.tsv").open("w", encoding="utf-8") as file:
            for source, target in [] if name in ALONE else pairs:
                if "\t" not in source + target:
                    file.write(f"{source}\t{target}\n")
            for kind, n in counts.items():
                for pair in generate(kind, "train", n):
                    file.write(f"{pair.source}\t{pair.target}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
