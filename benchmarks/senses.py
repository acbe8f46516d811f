"""Where two senses of a word part: ``python benchmarks/senses.py [--model NAME] [--n N]``.

For every word of two senses in the built-in corpus: the mean of its vectors in each sense, over
sentences of the training split; then, for sentences of the test split, the sense whose mean is
nearest by cosine. With the static vector, the same in every sentence, that is a guess; with
the contextual vectors of each layer, what the model has understood by then.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import torch
from timing import machine
from torch import Tensor
from torch.nn import functional as F

from regard import Lens
from regard.challenge import Pair, generate


def vectors(lens: Lens, pairs: list[Pair]) -> Tensor:
    """The word's vector in each sentence, ``(layers, pairs, width)``."""
    found = lens.embed_all([pair.source for pair in pairs])
    return torch.stack(
        [one[one.words.at(pair.position)] for one, pair in zip(found, pairs, strict=True)], 1
    )


def accuracy(known: Tensor, train: list[Pair], asked: Tensor, test: list[Pair]) -> float:
    """How often the nearest mean is that of the right sense."""
    means: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for word in {pair.word for pair in train}:
        for sense in {pair.sense for pair in train if pair.word == word}:
            rows = [i for i, p in enumerate(train) if (p.word, p.sense) == (word, sense)]
            means[word][str(sense)] = known[rows].mean(0)
    right = 0
    for vector, pair in zip(asked, test, strict=True):
        senses = sorted(means[pair.word])
        near = [F.cosine_similarity(vector, means[pair.word][sense], dim=0) for sense in senses]
        right += senses[int(torch.stack(near).argmax())] == pair.sense
    return right / len(test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="pocket-en-de", help="a name or a folder")
    parser.add_argument("--n", type=int, default=2000, help="sentences of each split")
    given = parser.parse_args()
    lens = Lens.open(given.model)
    train, test = (list(generate("senses", split, given.n)) for split in ("train", "test"))
    known, asked = vectors(lens, train), vectors(lens, test)
    print(f"{machine()}; {given.model}, {given.n} sentences of each split")
    print("\n| vector | nearest centroid is right |\n|---|---|")
    words = sorted({pair.word for pair in train})
    alone = {word: lens.embed(word, tokens=True).vectors[0].mean(0) for word in words}
    one, other = (torch.stack([alone[pair.word] for pair in some]) for some in (train, test))
    print(f"| static, one for each word | {accuracy(one, train, other, test):.1%} |")
    for layer, (one, other) in enumerate(zip(known, asked, strict=True)):
        where = "embedding and position" if layer == 0 else f"after layer {layer}"
        print(f"| {where} | {accuracy(one, train, other, test):.1%} |")


if __name__ == "__main__":
    main()
