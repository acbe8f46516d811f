"""Diagrams of the Transformer for the course, and exercises that check their answers."""

from regard.course.diagrams import (
    block,
    masks,
    multi_head,
    scaled_dot_product,
    transformer,
    word_path,
)
from regard.course.exercises import check

__all__ = [
    "block",
    "check",
    "masks",
    "multi_head",
    "scaled_dot_product",
    "transformer",
    "word_path",
]
