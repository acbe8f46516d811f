"""Greedy decoding with links cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.lens.adapters import TranslatorAdapter
from regard.lens.capture import Cut, cut

Decode = Callable[[list[int], Tensor, int], Tensor]
"""The logits of some rows, by number, after each token of their prefixes from the given one on."""


def decode_without(adapter: TranslatorAdapter, memory: Tensor, cuts: Sequence[Cut]) -> Decode:
    """Decodes rows of the encoder's output, ``(rows, n, width)``, each with its own links cut."""

    def logits(rows: list[int], prefix: Tensor, first: int) -> Tensor:
        with cut(adapter.model, of_rows(cuts, rows)):
            return adapter.step_logits(memory[rows], prefix.to(memory.device), first)

    return logits


def of_rows(cuts: Sequence[Cut], rows: Sequence[int]) -> list[Cut]:
    """The cuts in these rows, which are numbered anew."""
    return [replace(one, row=rows.index(one.row)) for one in cuts if one.row in rows]


@torch.no_grad()
def continue_draft(
    adapter: TranslatorAdapter,
    decode: Decode,
    begun: Sequence[Sequence[int]],
    draft: Sequence[int],
    limits: Sequence[int],
) -> list[list[int]]:
    """Each row of tokens, continued to the end token, which is left out, or to its limit.

    `draft` is the translation with nothing cut, used for speculative decoding: a cut mostly changes
    a word or two, so each pass checks the rest of the draft at once, and the next one starts where
    a row departs from it. `begun` are the first tokens of each row.
    """
    rows = [list(one) for one in begun]
    while left := [i for i, row in enumerate(rows) if not _done(row, adapter.end, limits[i])]:
        guesses = [[*rows[i], *_rest(draft, rows[i])] for i in left]
        size = max(len(draft), *map(len, guesses))  # as cuts name rows of the whole draft
        prefix = [[adapter.start, *one, *[adapter.end] * (size - len(one))] for one in guesses]
        first = min(len(rows[i]) for i in left)
        logits = decode(left, torch.tensor(prefix), first)
        for i, guess, chosen in zip(left, guesses, logits.argmax(-1).tolist(), strict=True):
            row = rows[i]
            while not _done(row, adapter.end, limits[i]):
                row.append(chosen[len(row) - first])
                if row != guess[: len(row)]:
                    break
    return [row[:-1] if row and row[-1] == adapter.end else row for row in rows]


def _rest(draft: Sequence[int], row: Sequence[int]) -> Sequence[int]:
    """The rest of the draft behind the row: behind the nearest occurrence of its last token.

    >>> _rest([1, 2, 3, 4], [1, 7, 8, 3])
    [4]
    """
    there = [i for i, token in enumerate(draft) if row and token == row[-1]]
    return draft[min(there, key=lambda i: abs(i + 1 - len(row)), default=len(row) - 1) + 1 :]


def _done(row: Sequence[int], end: int, limit: int) -> bool:
    return len(row) >= limit or (len(row) > 0 and row[-1] == end)
