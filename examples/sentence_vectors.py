"""Classify sentences by their vectors alone: averaged static vectors beside contextual ones.

    python examples/sentence_vectors.py --train FILE --dev FILE

A line is a class (0, 1, …), a space and a sentence. Without files: which sense has *bat*, in the
built-in sentences? Needs scikit-learn. See docs/beyond/retrieval.md.
"""

import argparse

import numpy as np
from sklearn.linear_model import LogisticRegression

import regard
from regard.challenge import generate
from regard.text import read_lines

Labelled = tuple[list[str], np.ndarray]


def read(path: str) -> Labelled:
    """The sentences and their classes."""
    rows = [line.split(" ", 1) for line in read_lines(path)]
    return [sentence for _, sentence in rows], np.array([int(label) for label, _ in rows])


def bats(split: str, count: int) -> Labelled:
    """Built-in sentences with *bat*: 0 for the animal, 1 for the racket."""
    pairs = [pair for pair in generate("senses", split, count) if pair.word == "bat"]
    return [p.source for p in pairs], np.array([int(p.answer == "Schläger") for p in pairs])


def report(
    name: str, train: np.ndarray, dev: np.ndarray, labels: np.ndarray, truth: np.ndarray
) -> None:
    """Prints the accuracy of a linear classifier and of the nearest neighbour."""
    mean, scale = train.mean(0), train.std(0) + 1e-9
    train, dev = (train - mean) / scale, (dev - mean) / scale
    linear = LogisticRegression(max_iter=2000).fit(train, labels).score(dev, truth)
    train, dev = (x / np.linalg.norm(x, axis=1, keepdims=True).clip(1e-9) for x in (train, dev))
    nearest = (labels[(dev @ train.T).argmax(1)] == truth).mean()
    print(f"{name:22} linear {linear:.1%}  nearest neighbour {nearest:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", help="sentences to learn from; built-in ones, if not given")
    parser.add_argument("--dev", help="sentences to be judged by")
    given = parser.parse_args()
    if bool(given.train) != bool(given.dev):
        parser.error("give both --train and --dev, or neither")
    texts, labels = read(given.train) if given.train else bats("train", 12000)
    asked, truth = read(given.dev) if given.dev else bats("test", 3000)
    print(f"{len(texts)} sentences to learn from, {len(asked)} to judge by;", end=" ")
    print(f"the larger class has {max(np.bincount(truth)) / len(truth):.1%}")

    lower = [text.lower() for text in texts]
    vectors = regard.Vectors.train(lower, width=64, skipgram=True, epochs=10)
    static = [
        np.stack([vectors.lookup(text.lower(), unknown="zero").mean(0) for text in some])
        for some in (texts, asked)
    ]
    report("static, averaged", *static, labels, truth)
    lens = regard.Lens.open("pocket-en-de")
    contextual = [
        np.stack([embedded.sentence().numpy() for embedded in lens.embed_all(some)])
        for some in (texts, asked)
    ]
    report("contextual, averaged", *contextual, labels, truth)


if __name__ == "__main__":
    main()
