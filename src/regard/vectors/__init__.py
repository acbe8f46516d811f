"""Static word vectors."""

from regard.vectors.textfile import read_words

__all__ = ["read_words"]
