"""Exercises of the course, and the answers that `check` compares with."""

from __future__ import annotations

import difflib
from typing import SupportsFloat

from regard.errors import OptionError

ANSWERS: dict[str, tuple[str | float, str]] = {
    "cross-attention-1": (35, "A row per query, a column per key."),
    "cross-attention-2": (
        "source",
        "Keys and values belong together: they come from what is looked at.",
    ),
    "heads-1": (64, "The heads share the width."),
    "heads-2": (262144, "512 numbers in, 512 out, however many heads."),
    "masks-1": (55, "1 + 2 + … + 10."),
    "masks-2": (21, "Three for each word, fewer for the first two."),
    "order-is-invisible-1": (720, "All of them: 6 × 5 × 4 × 3 × 2 × 1."),
    "order-is-invisible-2": (3, "A word sees itself and those before it."),
    "positions-1": (0.84147, "sin(1 / 10000⁰)."),
    "positions-2": (6.28319, "sin p has the period 2π."),
    "queries-keys-values-1": (0.8494, "The row of the action is the third; it should be [0, 4]."),
    "queries-keys-values-2": (32768, "From 512 numbers to 64."),
    "scratch-1": (174_528, "Add up p.numel() over model.parameters()."),
    "scratch-2": (
        "month",
        "Without positions it reads a set of letters: what can a set still tell?",
    ),
    "trained-1": ("cutting", "Only an experiment says what would have happened otherwise."),
    "vectors-1": (0, "No place has a 1 in both."),
    "vectors-2": (4_096_000, "A row per word."),
    "what-learning-does-1": (144, "18 words of 8 numbers; attention has none."),
    "what-learning-does-2": ("the", "The most frequent of the words that tell nothing."),
    "whole-1": (
        3_152_384,
        "Four matrices of 512 × 512, two of 512 × 2,048, two norms, all biases.",
    ),
    "whole-2": (4_204_032, "One more attention and one more norm than in the encoder."),
    "whole-3": (0.17329, "−log 0.5 at one of four places, −log 1 = 0 at the others."),
    "why-divide-1": (16, "The variance is 256; the standard deviation is its root."),
    "why-divide-2": (1, "Divide by √256."),
    "without-parameters-1": (0.5, "Both scores are the same, whatever they are."),
    "without-parameters-2": (1.00965, "Row three of the weights, times the first column of x."),
}
"""The answer to each exercise, and a hint."""


def check(exercise: str, answer: str | SupportsFloat) -> str:
    """Whether the answer to an exercise is right, with a hint if it is not.

    Numbers may differ by half a percent; words ignore case.

    >>> check("without-parameters-1", 0.5)
    'Right.'
    >>> check("without-parameters-1", 0.7)
    'Not yet. Both scores are the same, whatever they are.'
    """
    if exercise not in ANSWERS:
        near = difflib.get_close_matches(exercise, ANSWERS, 1, 0)[0]
        raise OptionError(f"check: exercise {exercise!r} is unknown; did you mean {near!r}?")
    expected, hint = ANSWERS[exercise]
    if isinstance(expected, str):
        right = str(answer).strip().lower() == expected
    else:
        try:
            right = abs(float(answer) - expected) <= 0.005 * abs(expected) + 1e-9
        except (TypeError, ValueError):
            raise OptionError(
                f"check: answer to {exercise!r} expected a number, got {answer!r}"
            ) from None
    return "Right." if right else f"Not yet. {hint}"
