"""Static word vectors: files, word2vec, similarity, and parameter-free contextualisation."""

from regard.vectors.context import Context, Pull, contextualise
from regard.vectors.similarity import PairPart, Similarity, similar
from regard.vectors.textfile import read_words
from regard.vectors.vectors import Match, Neighbour, Vectors

__all__ = [
    "Context",
    "Match",
    "Neighbour",
    "PairPart",
    "Pull",
    "Similarity",
    "Vectors",
    "contextualise",
    "read_words",
    "similar",
]
