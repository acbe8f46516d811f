"""Text: subwords, sentence pairs and batches."""

from typing import TYPE_CHECKING

from regard.lazy import exports

if TYPE_CHECKING:
    from regard.text.batching import Batch, Batches, by_length, padded
    from regard.text.corpus import Cleaning, EncodedPairs, Report, read_lines, read_pairs
    from regard.text.tokenizer import Tokenizer

__getattr__ = exports(
    __name__,
    batching="Batch Batches by_length padded",
    corpus="Cleaning EncodedPairs Report read_lines read_pairs",
    tokenizer="Tokenizer",
)

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
