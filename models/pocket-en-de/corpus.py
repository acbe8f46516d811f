"""Write the sentence pairs that `pocket-en-de` learns from: ``python corpus.py TATOEBA FOLDER``.

TATOEBA is a folder with train.en and train.de, sentences of tatoeba.org line by line. Behind them
come sentences of the built-in corpus, all from its training split.
"""

from __future__ import annotations

import sys
from pathlib import Path

from regard.text import read_pairs
from regard.text.grammar import generate

BUILT_IN = {"reference": 40_000, "senses": 20_000}


def main(tatoeba: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "train.tsv").open("w", encoding="utf-8") as file:
        for source, target in read_pairs(tatoeba / "train.en", tatoeba / "train.de"):
            if "\t" not in source + target:
                file.write(f"{source}\t{target}\n")
        for kind, n in BUILT_IN.items():
            for pair in generate(kind, "train", n):
                file.write(f"{pair.source}\t{pair.target}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
