"""Find texts by their meaning: averaged static vectors beside contextual ones.

    python examples/search.py "the animal flies at night" TEXTS.txt --vectors glove.txt

TEXTS has a text a line. Without vectors, word2vec learns some: from the texts, or for the built-in
sentences from more of their kind. See docs/beyond/retrieval.md.
"""

import argparse
from pathlib import Path

import torch
from torch.nn import functional as F

import regard
from regard.challenge import generate
from regard.text import read_lines


def contextual(lens: regard.Lens, query: str, texts: list[str], n: int) -> list[tuple[float, str]]:
    """The texts whose mean contextual vector is nearest to the query's."""
    vectors = torch.stack([embedded.sentence() for embedded in lens.embed_all([query, *texts])])
    vectors = vectors - vectors[1:].mean(0)
    near = F.cosine_similarity(vectors[:1], vectors[1:]).topk(min(n, len(texts)))
    return [(x, texts[i]) for x, i in zip(near.values.tolist(), near.indices.tolist(), strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("query", nargs="?", default="the doctor looks at his leg")
    parser.add_argument("texts", nargs="?", type=Path, help="a file; built-in sentences without")
    parser.add_argument("--vectors", help="a file of word vectors")
    parser.add_argument("-n", type=int, default=3, help="how many texts are shown")
    given = parser.parse_args()
    if given.texts:
        corpus = texts = list(read_lines(given.texts))
    else:
        corpus = [pair.source for pair in generate("senses", "train", 3000)]
        texts = sorted({pair.source for pair in generate("senses", "test", 300)})
    if given.vectors:
        vectors = regard.Vectors.load(given.vectors)
    else:
        lower = [text.lower() for text in corpus]
        vectors = regard.Vectors.train(lower, width=64, skipgram=True, epochs=10)
    print("static")
    for match in vectors.search(given.query, texts, n=given.n):
        print(f"  {match.similarity:.2f}  {match.text}")
    print("contextual")
    lens = regard.Lens.open("pocket-en-de")
    for similarity, text in contextual(lens, given.query, texts, given.n):
        print(f"  {similarity:.2f}  {text}")


if __name__ == "__main__":
    main()
