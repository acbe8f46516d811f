"""Text: subwords, sentence pairs and batches."""

from regard.text.batching import Batch, Batches, by_length, padded
from regard.text.corpus import Cleaning, EncodedPairs, Report, read_lines, read_pairs
from regard.text.tokenizer import Tokenizer

__all__ = [
    "Batch",
    "Batches",
    "Cleaning",
    "EncodedPairs",
    "Report",
    "Tokenizer",
    "by_length",
    "padded",
    "read_lines",
    "read_pairs",
]
