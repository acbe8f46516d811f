"""Summarise a text by choosing the sentences that the others attend to most.

    python examples/summarise.py TEXT.txt --sentences 3

Sentences end with a full stop, a question or an exclamation mark. See docs/beyond/summaries.md.
"""

import argparse
import re
from pathlib import Path

import torch
from torch.nn import functional as F

import regard

TEXT = """Bats are the only mammals that can truly fly. Most bats hunt insects at night. They find
them by calling and listening for the echo. Calls are so high that people cannot hear them. My
neighbour has a house by the river. By day bats sleep in caves, trees and roofs. In winter there
are no insects, and the bats sleep for months. The river is cold in spring."""


def received(lens: regard.Lens, sentences: list[str]) -> torch.Tensor:
    """How much attention each sentence gets from the others, by their mean contextual vectors."""
    x = torch.stack([embedded.sentence() for embedded in lens.embed_all(sentences)])
    x = F.normalize(x - x.mean(0), dim=1)
    others = ~torch.eye(len(x), dtype=torch.bool)
    return regard.look(x, x, x, score=regard.Scaled(4.0), mask=others).received()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", nargs="?", type=Path, help="a file; a text about bats without")
    parser.add_argument("--sentences", type=int, default=3, help="how many are kept")
    parser.add_argument("--model", default="pocket-en-de", help="whose encoder makes the vectors")
    given = parser.parse_args()
    text = given.text.read_text(encoding="utf-8") if given.text else TEXT
    sentences = [" ".join(one.split()) for one in re.split(r"(?<=[.!?])\s+", text.strip())]
    if len(sentences) < 2 or given.sentences < 1:
        parser.error("expected a text of two sentences or more, and --sentences of 1 or more")
    score = received(regard.Lens.open(given.model), sentences)
    kept = score.topk(min(given.sentences, len(sentences))).indices.sort().values
    for i in kept.tolist():
        print(f"{score[i]:.2f}  {sentences[i]}")


if __name__ == "__main__":
    main()
